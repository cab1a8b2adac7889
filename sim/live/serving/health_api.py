"""Whether the replica lives: ``/health``, ``/health_generate`` and ``/ready``."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.live.serving.options import EmulatorOptions
    from sim.live.serving.pacer import Pacer


class HealthApi:
    """A health check asks the engine for output; readiness only repeats what the last check found."""

    def __init__(
        self, options: EmulatorOptions, pacer: Pacer, *, is_draining: Callable[[], bool]
    ) -> None:
        self._options = options
        self._pacer = pacer
        self._is_draining = is_draining
        self._is_healthy = True

    def routes(self) -> list[web.RouteDef]:
        """The routes that this class answers."""
        return [
            web.get("/health", self._health, allow_head=False),
            web.get("/health_generate", self._health, allow_head=False),
            web.get("/ready", self._ready, allow_head=False),
        ]

    async def _health(self, request: web.Request) -> web.Response:
        if not self._is_draining():
            self._is_healthy = await self._answers()
        return await self._ready(request)

    async def _answers(self) -> bool:
        """Look for output in steps, so that no answer comes sooner than after one of them."""
        waited_s = 0.0
        while waited_s < self._options.health_timeout_s:
            await asyncio.sleep(self._options.health_check_s)
            waited_s += self._options.health_check_s
            if not self._pacer.is_frozen:
                return True
        return False

    async def _ready(self, request: web.Request) -> web.Response:
        del request
        is_ready = self._is_healthy and not self._is_draining()
        return web.Response(status=HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)
