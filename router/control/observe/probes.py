"""Asking the replicas how they are: ``/ready``, ``/v1/loads``, and once what they are.

One task a replica, so that a slow one never delays another; each call has a time-out, each round
is jittered. What is learned goes to the core, which alone draws conclusions.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec

from router.state.fleet.replica import Description, Observation
from router.state.health.table import Event, State
from router.tasks import spawn

if TYPE_CHECKING:
    import random
    import ssl
    from collections.abc import Callable

    from router.core import RouterCore

_log = logging.getLogger("homeport.probes")
_TIMEOUT_S: Final = 2.0
_BODY_BYTES_MAX: Final = 1 << 20
_JITTER: Final = 0.1
_COUNT_MAX: Final = 10**12


class Probes:
    """Keeps one probing task for each replica of the fleet."""

    def __init__(
        self,
        core: RouterCore,
        *,
        interval_s: float,
        now_s: Callable[[], float],
        dice: random.Random,
        describe_s: float = 30.0,
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``describe_s``: how often a replica is asked what it serves; adapters come and go."""
        self._core = core
        self._interval_s = interval_s
        self._now_s = now_s
        self._dice = dice
        self._describe_s = describe_s
        self._described: dict[str, tuple[float, Description]] = {}
        self._api_key = api_key
        self._tls = tls
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._http: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Probe every known replica once, then go on in the background."""
        timeout = aiohttp.ClientTimeout(total=min(_TIMEOUT_S, 2 * self._interval_s))
        secure = True if self._tls is None else self._tls  # True: the system's CAs
        connector = aiohttp.TCPConnector(ssl=secure)
        self._http = aiohttp.ClientSession(timeout=timeout, connector=connector)
        async with asyncio.TaskGroup() as group:
            for replica in self._core.fleet.replicas():
                group.create_task(self._probe(replica.replica_id))
        self.follow_membership()

    async def stop(self) -> None:
        """End all probing."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._http is not None:
            await self._http.close()

    def follow_membership(self) -> None:
        """Start probing replicas that joined, stop probing those that left."""
        known = {replica.replica_id for replica in self._core.fleet.replicas()}
        for replica_id in known - self._tasks.keys():
            self._tasks[replica_id] = spawn(self._watch(replica_id), name=f"probe {replica_id}")
        for replica_id in self._tasks.keys() - known:
            self._tasks.pop(replica_id).cancel()
            self._described.pop(replica_id, None)

    async def _watch(self, replica_id: str) -> None:
        while self._core.fleet.get(replica_id) is not None:
            await self._probe(replica_id)
            jitter = 1.0 + _JITTER * (2.0 * self._dice.random() - 1.0)
            await asyncio.sleep(self._interval_s * jitter)

    async def _probe(self, replica_id: str) -> None:
        """One round; whatever the replica answers, it goes on being asked."""
        try:
            await self._ask(replica_id)
        except Exception:  # noqa: BLE001  (an answer nobody thought of must not end the probing)
            _log.exception("probe-failed replica=%s", replica_id)

    async def _ask(self, replica_id: str) -> None:
        replica = self._core.fleet.get(replica_id)
        if replica is None:
            return
        url = replica.spec.url
        key = replica.spec.api_key or self._api_key
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        event = await self._ready(url)
        before = self._core.members.heard(replica_id, event, self._now_s())
        if event is not Event.PROBE_OK:
            return
        has_returned = before in (State.STARTING, State.DOWN)
        asked_s, _ = self._described.get(replica_id, (-inf, None))
        if has_returned or not replica.models:
            await self._describe(replica_id, url, headers, is_news=True)
        elif self._now_s() - asked_s > self._describe_s:
            await self._describe(replica_id, url, headers, is_news=False)
        await self._observe(replica_id, url, headers)

    async def _ready(self, url: str) -> Event:
        assert self._http is not None, "probes run after start()"
        try:
            async with self._http.get(f"{url}/ready", allow_redirects=False) as answer:
                # An engine without the endpoint answers, and that is all there is to know.
                is_ready = answer.status in (HTTPStatus.OK, HTTPStatus.NOT_FOUND)
                return Event.PROBE_OK if is_ready else Event.PROBE_NOT_READY
        except aiohttp.ClientConnectorError:
            return Event.CONNECT_FAILED
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return Event.PROBE_FAILED

    async def _describe(
        self, replica_id: str, url: str, headers: dict[str, str], *, is_news: bool
    ) -> None:
        """Ask what a replica is: its capacity and its models.

        Without ``is_news`` only what has changed is told, and silence changes nothing.
        """
        info = await self._json(f"{url}/server_info", headers)
        models = await self._json(f"{url}/v1/models", headers)
        served = models.get("data")
        rows = [
            row
            for row in (served if isinstance(served, list) else [])
            if isinstance(row, dict) and isinstance(row.get("id"), str)
        ]
        names = [row["id"] for row in rows if not isinstance(row.get("parent"), str)]
        # An adapter is told by its own name, and asked for behind its model's.
        adapters = [f"{row['parent']}:{row['id']}" for row in rows if row.get("parent") in names]
        extra = info.get("homeport")
        emulated = extra if isinstance(extra, dict) else {}
        capacity = _count(info.get("max_total_num_tokens")) + _count(emulated.get("host_tokens"))
        profile = emulated.get("profile")
        reports_cached = info.get("enable_cache_report") is True
        if info and not reports_cached and is_news:
            _log.warning(
                "no-cache-report replica=%s (start SGLang with --enable-cache-report)", replica_id
            )
        said = Description(
            capacity_tokens=capacity or None,
            profile=profile if isinstance(profile, str) else None,
            models=tuple(names),
            reports_cached=reports_cached,
            adapters=tuple(adapters),
            n_caches=max(1, _count(info.get("dp_size"))),
        )
        _, before = self._described.get(replica_id, (0.0, None))
        is_told = is_news or (bool(info) and bool(names) and said != before)
        self._described[replica_id] = (self._now_s(), said if is_told or before is None else before)
        if is_told:
            self._core.members.described(replica_id, said)

    async def _observe(self, replica_id: str, url: str, headers: dict[str, str]) -> None:
        """Ask for a replica's load; without an answer the ledger alone speaks."""
        answer = await self._json(f"{url}/v1/loads?include=core", headers)
        rows = answer.get("loads")
        ranks = [row for row in (rows if isinstance(rows, list) else []) if isinstance(row, dict)]
        replica = self._core.fleet.get(replica_id)
        if not ranks or replica is None:
            return
        self._core.members.observed(
            replica_id,
            Observation(
                running=sum(_count(row.get("num_running_reqs")) for row in ranks),
                waiting=sum(_count(row.get("num_waiting_reqs")) for row in ranks),
                waiting_uncached_tokens=sum(
                    _count(row.get("num_waiting_uncached_tokens")) for row in ranks
                ),
                seen_s=self._now_s(),
                ours=replica.load.inflight,
                ours_backlog_s=replica.load.backlog_s,
                used_ratio=sum(map(_used_ratio, ranks)) / len(ranks),
            ),
        )

    async def _json(self, url: str, headers: dict[str, str]) -> dict[str, Any]:
        """A JSON object, or an empty one if the replica does not answer with one."""
        assert self._http is not None, "probes run after start()"
        try:
            async with self._http.get(url, headers=headers, allow_redirects=False) as answer:
                if answer.status != HTTPStatus.OK:
                    return {}
                body = bytearray()
                async for part in answer.content.iter_any():
                    body += part
                    if len(body) > _BODY_BYTES_MAX:
                        return {}
                found = msgspec.json.decode(body)
        except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def _used_ratio(row: dict[str, Any]) -> float:
    """The share of its KV tokens that a rank uses, 0 to 1; 0 if it does not tell."""
    reported = row.get("token_usage")
    if isinstance(reported, int | float) and not isinstance(reported, bool):
        return min(max(float(reported), 0.0), 1.0)
    total = _count(row.get("max_total_num_tokens"))
    return min(_count(row.get("num_used_tokens")) / total, 1.0) if total else 0.0


def _count(value: object) -> int:
    """A count that a replica reported; anything else is 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(min(max(value, 0), _COUNT_MAX))
