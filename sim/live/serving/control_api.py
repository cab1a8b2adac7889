"""What changes the replica: ``/flush_cache``, ``/abort_request``, and the faults that tests plan."""

from __future__ import annotations

import asyncio
import math
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

from sim.live.rendering.bodies import BadBodyError, decode
from sim.live.serving.answers import invalid
from sim.live.serving.faults import Fault, FaultKind
from sim.live.serving.generation import require_json

if TYPE_CHECKING:
    from sim.live.serving.faults import FaultPlan
    from sim.live.serving.pacer import Pacer

_FLUSHED: Final = (
    "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting "
    "requests, the operation will not be performed.)\n"
)
_FLUSH_POLL_S: Final = 0.02


class _AbortBody(msgspec.Struct):
    rid: str = ""
    abort_all: bool = False


class ControlApi:
    """Control of one replica."""

    def __init__(self, pacer: Pacer, faults: FaultPlan) -> None:
        self._pacer = pacer
        self._faults = faults

    def routes(self) -> list[web.RouteDef]:
        """The routes that this class answers."""
        return [
            web.get("/flush_cache", self._flush, allow_head=False),
            web.post("/flush_cache", self._flush),
            web.post("/abort_request", self._abort),
            web.post("/emulator/fault", self._fault),
        ]

    async def _flush(self, request: web.Request) -> web.Response:
        """Flush now, or wait for an idle engine up to the time-out (wall seconds)."""
        try:
            timeout_s = float(request.query.get("timeout", "0"))
        except ValueError as error:
            return invalid(f"timeout: {error}")
        if not (math.isfinite(timeout_s) and timeout_s >= 0.0):
            return invalid(f"timeout must be 0 or more seconds, got {timeout_s}")
        await self._pacer.until_running()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        is_flushed = self._pacer.flush()
        while not is_flushed and loop.time() < until_s:
            await asyncio.sleep(_FLUSH_POLL_S)
            is_flushed = self._pacer.flush()
        if is_flushed:
            return web.Response(text=_FLUSHED)
        text = "Timed out waiting for idle state." if timeout_s else "Flush cache failed.\n"
        return web.Response(status=HTTPStatus.BAD_REQUEST, text=text)

    async def _abort(self, request: web.Request) -> web.Response:
        raw = await request.read()
        try:
            require_json(request)
            body = decode(raw, _AbortBody)
        except BadBodyError as error:
            return invalid(str(error))
        if body.abort_all:
            self._pacer.cancel_all("")
        elif self._pacer.is_live(body.rid):
            # A live id takes along all that begin with it; any other ends nothing.
            self._pacer.cancel_all(body.rid)
        return web.Response()

    async def _fault(self, request: web.Request) -> web.Response:
        try:
            fault = decode(await request.read(), Fault)
        except BadBodyError as error:
            return invalid(str(error))
        if fault.kind is FaultKind.HANG:
            self._pacer.freeze(is_frozen=fault.count > 0)
        else:
            self._faults.add(fault)
        return web.Response()
