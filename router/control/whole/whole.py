"""What one worker answers for all: sums, and changes that every worker makes.

Any worker may be asked. A change goes to the oldest one that serves, which makes it and tells all others,
one change after the other: so all have them in the same order.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web

from router.clock import now_s
from router.control.api.changes import ACTOR_HEADER, RELAYED
from router.control.api.server import AMONG_SIBLINGS, TTFTS
from router.control.api.views import spread
from router.control.whole.calls import LEADS, REJOIN, Calls, SiblingAway
from router.errors import ClientError
from router.state.history import DECISIONS_A_SESSION
from router.workers.board import Stage
from router.workers.sums import counted, summed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp.typedefs import Handler, Middleware

    from router.control.whole.calls import Said
    from router.workers.board import Row
    from router.workers.place import Place

_log: Final = logging.getLogger("homeport.control")
_HEARING: Final = (Stage.LISTENING, Stage.READY, Stage.LEAVING)
_READING: Final = ("GET", "HEAD")
_GOOD: Final = 200
_BAD: Final = 400
_JOIN_S_MAX: Final = 30.0
_TRIES: Final = 3
_STUCK_S: Final = 3.0
_KEPT_HEADERS: Final = ("content-type", "x-homeport-actor", "x-homeport-reason")
_ADDED: Final = (
    "requests_total",
    "prompt_tokens_total",
    "cached_tokens_total",
    "failures_total",
    "cache_losses_total",
    "lost_bytes_total",
    "stalls_total",
)


class Whole:
    """One worker's part in answering for all of them."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._calls = Calls(place)
        self._one_at_a_time = asyncio.Lock()
        self._behind: set[int] = (
            set()
        )  # siblings that were not told of a change, or did not know of what
        self.joined = asyncio.Event()
        """What siblings knew before is known here: from now on their changes can follow."""

    @property
    def public(self) -> Middleware:
        """Around the calls that come in at the control port."""

        @web.middleware
        async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.method in _READING:
                return await self._read(request, handler)
            lead = self._lead()
            if lead is None:
                return await self._change(request, handler)
            headers = _headers(request) | {LEADS: "1"}
            headers.setdefault(ACTOR_HEADER, request.remote or "unknown")
            try:
                said = await self._ask(lead, request, headers)
            except SiblingAway as away:
                _log.warning("worker-unheard what=change reason=%r", str(away))
                return await self._change(request, handler)
            return web.Response(
                status=said.status,
                body=said.body or None,
                headers={"content-type": said.content_type} if said.body else None,
            )

        return answered

    @property
    def inner(self) -> Middleware:
        """Around the calls of siblings."""

        @web.middleware
        async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path.startswith("/worker/"):
                return await handler(request)
            if request.method not in _READING:
                if LEADS in request.headers:
                    return await self._change(request, handler)
                request[RELAYED] = True
                async with asyncio.timeout(_JOIN_S_MAX):
                    await self.joined.wait()
            request[AMONG_SIBLINGS] = True
            answer = await handler(request)
            if request.path == "/metrics":
                self._keep(_body_of(answer))
            return answer

        return answered

    # Changes

    def _lead(self) -> Row | None:
        """The sibling that makes changes for all, the oldest that does not hang; None if that is this worker."""
        since_s = now_s() - _STUCK_S
        serving = [row for row in self._place.siblings(Stage.READY) if row.beat_s >= since_s]
        if not serving or serving[0].serial > self._place.serial:
            return None
        return serving[0]

    async def _change(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Make a change here, then everywhere."""
        async with self._one_at_a_time:
            answer = await handler(request)
            if answer.status < _BAD:
                headers, siblings = _headers(request), self._place.siblings(*_HEARING)
                self._behind &= {row.serial for row in siblings}
                await asyncio.gather(*(self._tell(row, request, headers) for row in siblings))
        return answer

    async def _tell(self, row: Row, request: web.Request, headers: Mapping[str, str]) -> None:
        if row.stage is Stage.READY and row.beat_s < now_s() - _STUCK_S:
            self._behind.add(row.serial)  # who hangs delays nobody's heartbeat
            return
        try:
            if row.serial in self._behind:
                await self._calls.ask(row, "POST", REJOIN)
                self._behind.discard(row.serial)
            said = await self._ask(row, request, headers)
        except SiblingAway as away:
            _log.warning("worker-untold what=%s reason=%r", request.path, str(away))
            self._behind.add(row.serial)
            return
        if said.status >= _BAD:
            self._behind.add(row.serial)
            _log.warning(
                "worker-refused worker=%d what=%s status=%d", row.serial, request.path, said.status
            )

    async def _ask(self, row: Row, request: web.Request, headers: Mapping[str, str]) -> Said:
        body = await request.read()
        return await self._calls.ask(
            row, request.method, request.rel_url.raw_path_qs, body=body, headers=headers
        )

    # Sums

    async def _read(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        path = request.path
        add: Callable[[web.Request, Handler], Awaitable[web.StreamResponse]] | None = None
        if path == "/metrics":
            add = self._metrics
        elif path == "/fleet":
            add = self._fleet
        elif path.startswith("/sessions/"):
            add = self._explained if _is_explained(request) else self._session
        return await (handler(request) if add is None else add(request, handler))

    async def _others(self, path: str) -> list[tuple[Row, Said | None]]:
        """What siblings answer; None for those that do not."""
        rows = self._place.siblings(*_HEARING)

        async def asked(row: Row) -> Said | None:
            try:
                return await self._calls.ask(row, "GET", path)
            except SiblingAway as away:
                _log.warning("worker-unheard what=%s reason=%r", path, str(away))
                return None

        return list(zip(rows, await asyncio.gather(*map(asked, rows)), strict=True))

    async def _metrics(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        answer = await handler(request)
        own = _body_of(answer)
        board = self._place.board
        texts: list[bytes] = []
        for _ in range(
            _TRIES
        ):  # once more if a worker's counts became those of a gone one meanwhile
            gone = board.gone
            texts = [gone]
            for row, said in await self._others("/metrics"):
                if said is not None and said.status == _GOOD:
                    texts.append(said.body)
                elif board.row(row.slot).serial == row.serial:
                    texts.append(counted([board.counts(row.slot) or b""]))
            if board.gone == gone:
                break
        self._keep(own)
        return web.Response(body=summed(own, texts), headers=answer.headers)

    def _keep(self, text: bytes) -> None:
        """What was told has to stand should this worker die, for counters never go back."""
        self._place.board.keep_counts(self._place.slot, text)

    async def _fleet(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        request[AMONG_SIBLINGS] = True
        views = [_json(await handler(request))]
        views += [
            msgspec.json.decode(said.body)
            for _, said in await self._others("/fleet")
            if said is not None and said.status == _GOOD
        ]
        return web.Response(body=msgspec.json.encode(added(views)), content_type="application/json")

    async def _session(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """A session's decisions were made by several workers."""
        fault: Exception | None = None
        views: list[dict[str, Any]] = []
        try:
            views.append(_json(await handler(request)))
        except Exception as failure:  # noqa: BLE001  (raised again unless a sibling knows the session)
            fault = failure
        views += [
            msgspec.json.decode(said.body)
            for _, said in await self._others(request.rel_url.raw_path_qs)
            if said is not None and said.status == _GOOD
        ]
        if not views:
            assert fault is not None, "nobody knows it, not even this worker"
            raise fault
        whole = max(views, key=len)
        decisions = [decision for view in views for decision in view["decisions"]]
        newest_last = sorted(decisions, key=lambda decision: decision["at_s"])
        whole["decisions"] = newest_last[-DECISIONS_A_SESSION:]
        return web.Response(body=msgspec.json.encode(whole), content_type="application/json")

    async def _explained(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The word of the worker that served the session last, which knows most of its prompt."""
        fault: ClientError | None = None
        views: list[dict[str, Any]] = []
        try:
            views.append(_json(await handler(request)))
        except ClientError as failure:
            if failure.code != "unknown-session":
                raise
            fault = failure
        # All are asked: who served it last may not have been heard here yet.
        others = await self._others(request.rel_url.raw_path_qs)
        views += [
            msgspec.json.decode(said.body)
            for _, said in others
            if said is not None and said.status == _GOOD
        ]
        if not views:
            assert fault is not None, "nobody knows it, not even this worker"
            raise fault
        best = last_served(views)
        return web.Response(body=msgspec.json.encode(best), content_type="application/json")


def _is_explained(request: web.Request) -> bool:
    """A session's key may end so, but with its slash encoded."""
    return request.rel_url.raw_path.removeprefix("/sessions/").endswith("/explain")


def last_served(views: list[dict[str, Any]]) -> dict[str, Any]:
    """Of several workers' explanations of one session, that of who served it last: itself, and the furthest on.

    Workers whose turns crossed may count as many requests; the later turn has the longer prompt.
    """
    return max(
        views, key=lambda view: (view["told_by"] is None, view["requests"], view["prompt_tokens"])
    )


def added(views: list[dict[str, Any]]) -> dict[str, Any]:
    """Several workers' views of one fleet as one: the first one's, with what all have counted."""
    whole = views[0]
    replicas = {row["id"]: row for row in whole["replicas"]}
    ttfts = [value for view in views for value in view.pop(TTFTS, [])]
    for view in views[1:]:
        for row in view["replicas"]:
            known = replicas.get(row["id"])
            for name in _ADDED if known is not None else ():
                replicas[row["id"]][name] += row[name]
        for name, value in view["totals"].items():
            if isinstance(value, (int, float)):
                whole["totals"][name] += value
    whole["totals"]["ttft_s"] = spread(ttfts)
    return whole


def _headers(request: web.Request) -> dict[str, str]:
    return {name: request.headers[name] for name in _KEPT_HEADERS if name in request.headers}


def _body_of(answer: web.StreamResponse) -> bytes:
    """What one of our own handlers answered; they answer whole, and with bytes."""
    assert isinstance(answer, web.Response), "an answer of the control port is no stream"
    assert isinstance(answer.body, bytes), "an answer of the control port has bytes"
    return answer.body


def _json(answer: web.StreamResponse) -> dict[str, Any]:
    view: dict[str, Any] = msgspec.json.decode(_body_of(answer))
    return view
