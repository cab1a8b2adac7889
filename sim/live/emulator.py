"""The emulated replica: the engine model behind SGLang's HTTP surface.

``POST /emulator/fault`` plans faults for tests; see :mod:`sim.live.serving.faults`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import web

from sim.engine.replica_model import ReplicaModel
from sim.live.serving.answers import answer
from sim.live.serving.control_api import ControlApi
from sim.live.serving.counters import Counters
from sim.live.serving.dialects import ChatDialect, Dialect, MessagesDialect
from sim.live.serving.faults import FaultPlan
from sim.live.serving.generation import Generator
from sim.live.serving.health_api import HealthApi
from sim.live.serving.info_api import InfoApi
from sim.live.serving.keys import is_allowed
from sim.live.serving.loads_api import LoadsApi
from sim.live.serving.options import BODY_BYTES_MAX, EmulatorOptions
from sim.live.serving.pacer import Pacer
from sim.live.serving.responses_api import ResponsesApi
from sim.live.serving.scores_api import ScoresApi
from sim.live.serving.text_dialects import CompletionsDialect, GenerateDialect
from sim.live.serving.tokens_api import TokensApi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aiohttp.typedefs import Handler

    from replica.hardware.profiles import EngineFacts
    from sim.engine.requests import Loads
    from sim.live.serving.kv_events import KvEvents

__all__ = ["EmulatedReplica", "EmulatorOptions", "serve_until_signalled", "sized", "start"]

_UNAUTHORIZED: Final = {"error": "Unauthorized"}
_READ_BUFFER_BYTES: Final = 2**20
_SHUTDOWN_S: Final = 0.1
_LOG: Final = logging.getLogger("homeport.emulator")


class EmulatedReplica:
    """One replica that listens on ``url``."""

    def __init__(self, options: EmulatorOptions) -> None:
        self.options = options
        self.url = ""
        self._is_draining = False
        self._counters = Counters()
        model = ReplicaModel(
            options.facts, rules=options.rules, max_queued_requests=options.max_queued_requests
        )
        self._pool = model.pool
        self._events: KvEvents | None = None
        self._pacer = Pacer(model, self._counters, time_scale=options.time_scale)
        self._faults = FaultPlan()
        self._generator = Generator(options, self._pacer, self._faults)

    @property
    def loads(self) -> Loads:
        """The engine's state now."""
        return self._pacer.loads()

    async def drain(self) -> None:
        """Turn unready, go on serving, and return when no request is left."""
        self._is_draining = True
        await self._generator.until_idle()

    @asynccontextmanager
    async def listening(self, *, host: str, port: int) -> AsyncIterator[None]:
        """Serve on a port (0: any free one) until the block ends; then open requests are cut off.

        Raises:
            OSError: the port cannot be bound.
        """
        self._publish(host)
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=self.options.keep_alive_s,
            read_bufsize=_READ_BUFFER_BYTES,
            shutdown_timeout=_SHUTDOWN_S,
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
            bound_host, bound_port = runner.addresses[0][:2]
            self.url = f"http://{bound_host}:{bound_port}"
            async with asyncio.TaskGroup() as group:
                engine = group.create_task(self._pacer.run(), name=f"engine {self.url}")
                try:
                    yield
                finally:
                    await runner.cleanup()
                    engine.cancel()
        finally:
            await runner.cleanup()
            if self._events is not None:
                self._events.stop()

    def _publish(self, host: str) -> None:
        if self.options.has_kv_events:
            from sim.live.serving.kv_events import KvEvents  # noqa: PLC0415  (an extra)

            self._events = KvEvents(self._pool, self.options.facts.page_tokens, host)

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[self._guard])
        options, pacer, events = self.options, self._pacer, self._events
        routes = [
            *HealthApi(options, pacer, is_draining=lambda: self._is_draining).routes(),
            *LoadsApi(options, pacer, self._counters).routes(),
            *InfoApi(options, pacer, None if events is None else events.info()).routes(),
            *TokensApi(options).routes(),
            *ControlApi(pacer, self._faults).routes(),
            *ResponsesApi(options, pacer, self._generator).routes(),
            web.post("/v1/chat/completions", self._generating(ChatDialect())),
            web.post("/v1/messages", self._generating(MessagesDialect())),
            web.post("/v1/completions", self._generating(CompletionsDialect())),
            web.post("/generate", self._generating(GenerateDialect())),
            web.put("/generate", self._generating(GenerateDialect())),
            *ScoresApi(options).routes(),
        ]
        for route in routes:
            route.kwargs["expect_handler"] = self._continue
        app.add_routes(routes)
        return app

    def _generating(self, dialect: Dialect) -> Handler:
        async def serve(request: web.Request) -> web.StreamResponse:
            return await self._generator.serve(request, dialect)

        return serve

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the key before the body is read, and shape the errors of the HTTP layer."""
        if not is_allowed(request, self.options):
            return answer(_UNAUTHORIZED, status=HTTPStatus.UNAUTHORIZED)
        try:
            return await handler(request)
        except web.HTTPException as error:
            response = answer({"detail": error.reason}, status=error.status)
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
            return response

    async def _continue(self, request: web.Request) -> web.StreamResponse | None:
        """Ask for the body of a client that waits to be asked, unless its key is wrong."""
        if not is_allowed(request, self.options):
            return answer(_UNAUTHORIZED, status=HTTPStatus.UNAUTHORIZED)
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # nothing of the answer is out yet
        return None


def sized(
    facts: EngineFacts,
    *,
    capacity_tokens: int | None = None,
    host_tokens: int | None = None,
    max_running_requests: int | None = None,
    context_tokens: int | None = None,
) -> EngineFacts:
    """A profile with other sizes where given, rounded down to whole pages (at least one page)."""
    page = facts.page_tokens
    capacity = facts.capacity_tokens if capacity_tokens is None else capacity_tokens
    host_capacity = facts.host_capacity_tokens if host_tokens is None else host_tokens
    return replace(
        facts,
        capacity_tokens=max(1, capacity // page) * page,
        host_capacity_tokens=host_capacity // page * page,
        max_running_requests=max_running_requests or facts.max_running_requests,
        context_tokens_max=context_tokens or facts.context_tokens_max,
    )


@asynccontextmanager
async def start(
    options: EmulatorOptions, *, count: int = 1, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[list[EmulatedReplica]]:
    """Run ``count`` replicas on consecutive ports, or on free ones where ``port`` is 0.

    Raises:
        OSError: a port cannot be bound.
    """
    async with AsyncExitStack() as stack:
        replicas = []
        for index in range(count):
            replica = EmulatedReplica(options)
            await stack.enter_async_context(
                replica.listening(host=host, port=port + index if port else 0)
            )
            replicas.append(replica)
        yield replicas


async def serve_until_signalled(
    options: EmulatorOptions,
    *,
    count: int,
    host: str,
    port: int,
    announce: Callable[[str], None],
) -> None:
    """Run replicas until SIGINT (at once) or SIGTERM (after a drain); ``announce`` each url when ready.

    Raises:
        OSError: a port cannot be bound.
    """
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()
    terminated = asyncio.Event()
    loop.add_signal_handler(signal.SIGINT, interrupted.set)
    loop.add_signal_handler(signal.SIGTERM, terminated.set)
    async with start(options, count=count, host=host, port=port) as replicas:
        for replica in replicas:
            announce(replica.url)

        async def drained() -> None:
            await terminated.wait()
            _LOG.info("drain replicas=%d", count)
            async with asyncio.TaskGroup() as group:
                for replica in replicas:
                    group.create_task(replica.drain())
            interrupted.set()

        async with asyncio.TaskGroup() as group:
            draining = group.create_task(drained())
            await interrupted.wait()
            draining.cancel()
