"""Learning a prompt's pages: off the path, by asking the replica that has just computed it.

A request's body is kept from its first event on until its replica was asked for the tokens, within a
bound; the newest prompt of a session takes the place of an older one. A replica is asked for one prompt at
a time, and at most a fifth of the time: it tokenises beside serving. What cannot be asked in time is
dropped, and the session's belief rests on what was known before.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, defaultdict
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

import aiohttp
import msgspec

from hashing.pages import page_numbers
from router.control.events.question import question
from router.state.health.table import State
from router.tasks import spawn

if TYPE_CHECKING:
    import ssl
    from array import array
    from collections.abc import Callable

    from router.control.events.question import Question
    from router.core import RouterCore
    from router.ticket import Ticket

_log = logging.getLogger("homeport.events")
_BYTES_MAX: Final = 64 << 20
"""Of the bodies that wait."""
_JOBS_MAX: Final = 256
"""Prompts that wait for one replica."""
_WAIT_S: Final = 60.0
_ANSWER_S: Final = 20.0
_ANSWER_BYTES_MAX: Final = 32 << 20
_SHARE: Final = 0.2
_EVENTS_S: Final = 0.5
_MISSES_MAX: Final = 8
_ONE_IN: Final = 32
_KNOWN_MAX: Final = 20_000
_READY: Final = (State.READY, State.SUSPECT, State.DRAINING)


class _Job(NamedTuple):
    ticket: Ticket
    dialect: str
    body: bytes
    since_s: float


class _Tokens(msgspec.Struct, gc=False):
    tokens: list[int]


_decode: Final = msgspec.json.Decoder(_Tokens).decode


class Tying:
    """Learns the pages of prompts that replicas with live events compute; ``counts`` are by outcome."""

    def __init__(
        self,
        core: RouterCore,
        *,
        counts: defaultdict[str, int],
        now_s: Callable[[], float],
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._core = core
        self._counts = counts
        self._now_s = now_s
        self._api_key = api_key
        self._tls = tls
        self._http: aiohttp.ClientSession | None = None
        self._jobs: dict[str, OrderedDict[str, _Job]] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._n_bytes = 0
        self._misses: defaultdict[str, int] = defaultdict(int)
        self._known: OrderedDict[tuple[str, int], None] = OrderedDict()

    async def start(self) -> None:
        """Ask from now on."""
        connector = aiohttp.TCPConnector(ssl=True if self._tls is None else self._tls)
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        self._http = aiohttp.ClientSession(timeout=timeout, connector=connector)

    async def stop(self) -> None:
        """Ask nothing more; what waits is dropped."""
        workers = list(self._workers.values())
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        self._jobs.clear()
        if self._http is not None:
            await self._http.close()

    def offer(self, ticket: Ticket, dialect: str, body: bytes) -> None:
        """A request's answer begins: its prompt may be tied once there is time. Costs next to nothing."""
        replica_id = ticket.replica_id
        if self._core.beliefs.feeds.live(replica_id) is None or self._http is None:
            return
        chain = ticket.facts.chain
        if not chain or not ticket.record.is_turn or ticket.request.is_auxiliary:
            return
        known = (ticket.session_key, chain[-1])
        if known in self._known:
            self._counts["known"] += 1
            return
        jobs = self._jobs.setdefault(replica_id, OrderedDict())
        before = jobs.pop(ticket.session_key, None)
        if before is not None:
            self._n_bytes -= len(before.body)
            self._counts["superseded"] += 1
        if len(jobs) >= _JOBS_MAX or self._n_bytes + len(body) > _BYTES_MAX:
            self._counts["dropped"] += 1
            return
        self._n_bytes += len(body)
        jobs[ticket.session_key] = _Job(ticket, dialect, body, self._now_s())
        if replica_id not in self._workers:
            self._begin(replica_id)

    def _begin(self, replica_id: str) -> None:
        worker = self._workers[replica_id] = spawn(self._work(replica_id), name=f"tie {replica_id}")
        worker.add_done_callback(partial(self._ended, replica_id))

    def _ended(self, replica_id: str, worker: asyncio.Task[None]) -> None:
        del self._workers[replica_id]
        if not self._jobs.get(replica_id):
            self._jobs.pop(replica_id, None)
        elif not worker.cancelled():
            self._begin(replica_id)

    async def _work(self, replica_id: str) -> None:
        """Ask one replica for what waits for it, one prompt after the other, with pauses between."""
        jobs = self._jobs[replica_id]
        while jobs:
            _, job = jobs.popitem(last=False)
            self._n_bytes -= len(job.body)
            began_s = self._now_s()
            if began_s - job.since_s > _WAIT_S:
                self._counts["dropped"] += 1
                continue
            try:
                outcome = await self._tie(replica_id, job)
            except Exception:  # noqa: BLE001  (one prompt's trouble must not end the others')
                _log.exception("tie-failed replica=%s", replica_id)
                outcome = "failed"
            self._counts[outcome] += 1
            if outcome == "tied":
                self._misses[job.dialect] = 0
            elif outcome in ("mismatch", "unwanted"):
                self._misses[job.dialect] += 1
            await asyncio.sleep((self._now_s() - began_s) * (1 / _SHARE - 1))

    async def _tie(self, replica_id: str, job: _Job) -> str:
        """Ask for one prompt, and tell the core; answers what came of it, in a word."""
        feed = self._core.beliefs.feeds.live(replica_id)
        replica = self._core.fleet.get(replica_id)
        if feed is None or replica is None or replica.state not in _READY:
            return "dropped"
        asked = None
        if not self._is_hopeless(job.dialect):
            asked = await asyncio.to_thread(question, job.dialect, job.body)
        if asked is None:
            return "unasked"
        key = replica.spec.api_key or self._api_key
        found = await self._ask(replica.spec.url, key, asked, feed.page_tokens)
        return "failed" if found is None else await self._tell(job.ticket, feed.page_tokens, *found)

    async def _tell(self, ticket: Ticket, page_tokens: int, tokens: int, pages: array[int]) -> str:
        counted, tied = ticket.record.reported_prompt_tokens, self._core.members.tied
        if counted is not None and counted != tokens:
            return "mismatch"
        if not tied(ticket, tokens, page_tokens, pages):
            await asyncio.sleep(_EVENTS_S)  # its events may be on their way
            if not tied(ticket, tokens, page_tokens, pages):
                return "unwanted"
        self._known[ticket.session_key, ticket.facts.chain[-1]] = None
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        return "tied"

    def _is_hopeless(self, dialect: str) -> bool:
        """Whether a dialect's prompts were tied in vain so often that only few are tried."""
        misses = self._misses[dialect]
        if misses < _MISSES_MAX:
            return False
        self._misses[dialect] = misses + 1
        return misses % _ONE_IN != 0

    async def _ask(
        self, url: str, key: str | None, asked: Question, page_tokens: int
    ) -> tuple[int, array[int]] | None:
        assert self._http is not None, "asked before the start"
        headers = {"content-type": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        try:
            async with self._http.post(
                f"{url}/v1/tokenize", data=asked.body, headers=headers, allow_redirects=False
            ) as answer:
                if answer.status != HTTPStatus.OK:
                    return None
                body = bytearray()
                async for part in answer.content.iter_any():
                    body += part
                    if len(body) > _ANSWER_BYTES_MAX:
                        return None
            return await asyncio.to_thread(_pages_of, bytes(body), page_tokens, asked.salt)
        except (aiohttp.ClientError, TimeoutError):
            return None


def _pages_of(answer: bytes, page_tokens: int, salt: str | None) -> tuple[int, array[int]] | None:
    """The tokens that an answer tells, counted, and their pages; None if it tells none."""
    try:
        ids = _decode(answer).tokens
        return len(ids), page_numbers(ids, page_tokens, salt)
    except (msgspec.DecodeError, OverflowError, RecursionError):
        return None
