"""Which replica keeps which response, told to siblings: a request about one may come to any worker."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

from router.control.whole.calls import Calls, SiblingAway
from router.tasks import spawn
from router.workers.board import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from router.workers.board import Row
    from router.workers.place import Place

_log: Final = logging.getLogger("homeport.workers")

RESPONSES: Final = "/worker/responses"
_A_TIME: Final = 250
"""Fit in the body of one call."""
_WAITING_MAX: Final = 10_000
_JOINING_MAX: Final = 20_000

Kept = tuple[str, tuple[str, str, str]]
"""A response's id, and where it is: replica, session, owner."""

_decode: Final = msgspec.msgpack.Decoder(list[Kept]).decode


class KeptResponses:
    """Passes on what is learned here, and takes what siblings learn.

    ``hear`` is called with what comes, ``newest`` answers what is known. What finds no room to wait, or a
    sibling that does not answer, is told no more.
    """

    def __init__(
        self,
        place: Place,
        hear: Callable[[Kept], None],
        newest: Callable[[int], Iterable[Kept]],
    ) -> None:
        self._place = place
        self._calls = Calls(place)
        self._hear = hear
        self._newest = newest
        self._waiting: list[Kept] = []
        self._telling: asyncio.Task[None] | None = None

    @property
    def routes(self) -> list[web.RouteDef]:
        """What siblings may ask, and tell."""
        return [web.post(RESPONSES, self._told), web.get(RESPONSES, self._asked)]

    def note(self, kept: Kept) -> None:
        """A replica has said that it keeps this one."""
        if len(self._waiting) < _WAITING_MAX:
            self._waiting.append(kept)
        if self._telling is None or self._telling.done():
            self._telling = spawn(self._tell(), name="tell-responses")

    async def learn(self, row: Row) -> None:
        """Take what a sibling knows.

        Raises:
            SiblingAway: it does not say.
        """
        data = bytearray()
        async for chunk in self._calls.chunks(row, RESPONSES, 10.0):
            data += chunk
        for kept in _decode(data):
            self._hear(kept)

    async def _tell(self) -> None:
        while self._waiting:
            kept, self._waiting = self._waiting[:_A_TIME], self._waiting[_A_TIME:]
            body = msgspec.msgpack.encode(kept)
            rows = self._place.siblings(Stage.LISTENING, Stage.READY)
            await asyncio.gather(*(self._tell_one(row, body) for row in rows))

    async def _tell_one(self, row: Row, body: bytes) -> None:
        try:
            await self._calls.ask(row, "POST", RESPONSES, body=body)
        except SiblingAway as away:
            _log.warning("worker-untold what=responses reason=%r", str(away))

    async def _told(self, request: web.Request) -> web.Response:
        for kept in _decode(await request.read()):
            self._hear(kept)
        return web.Response(status=204)

    async def _asked(self, _: web.Request) -> web.Response:
        return web.Response(body=msgspec.msgpack.encode(list(self._newest(_JOINING_MAX))))
