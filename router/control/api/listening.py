"""The control port's socket: how many connections it has, and for how long one may say nothing.

aiohttp serves what comes in; it has no limit for connections, and none for the first head of one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import web
from typing_extensions import override

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Sequence

    from aiohttp.typedefs import Handler, Middleware
    from aiohttp.web_protocol import RequestHandler

CONNECTIONS_MAX: Final = 256
HEAD_S: Final = 10.0
ANSWER_S: Final = 10.0
_TLS_CLOSE_S: Final = 2.0


class Listener:
    """Accepts connections for an aiohttp server, so many at a time.

    One more is closed at once, one without a whole head within ``head_s`` then, and one that does not
    take an answer within ``answer_s`` then.
    """

    def __init__(
        self,
        *,
        connections_max: int = CONNECTIONS_MAX,
        head_s: float = HEAD_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._connections_max = connections_max
        self._head_s = head_s
        self._answer_s = answer_s
        self._silent: dict[object, tuple[asyncio.Transport, asyncio.TimerHandle]] = {}
        self._servers: list[asyncio.Server] = []

    async def start(
        self,
        server: web.Server,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        handshake_s: float,
        sockets: Sequence[socket.socket] = (),
    ) -> int:
        """Listen; answers the port that was bound. ``handshake_s`` is for one of TLS.

        ``sockets`` are bound already, and listened on instead of ``host`` and ``port``.
        """
        is_tls = tls is not None
        places: list[dict[str, Any]] = [{"sock": sock} for sock in sockets]
        for place in places or [{"host": host, "port": port, "reuse_address": True}]:
            self._servers.append(
                await asyncio.get_running_loop().create_server(
                    lambda: _Entry(self, server),
                    ssl=tls,
                    ssl_handshake_timeout=handshake_s if is_tls else None,
                    ssl_shutdown_timeout=_TLS_CLOSE_S if is_tls else None,
                    **place,
                )
            )
        bound: int = self._servers[0].sockets[0].getsockname()[1]
        return bound

    def stop(self) -> None:
        """Accept nothing more; open connections are the aiohttp server's to close."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for _, timer in self._silent.values():
            timer.cancel()
        self._silent.clear()

    def enter(self, transport: asyncio.Transport, server: web.Server) -> None:
        """A connection is there, its handshake done."""
        if len(server.connections) >= self._connections_max:
            transport.abort()
            return
        protocol = server()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if len(self._silent) >= 2 * self._connections_max:
            self._forget_closed()
        timer = asyncio.get_running_loop().call_later(self._head_s, self._overdue, protocol)
        self._silent[protocol] = transport, timer

    @property
    def middleware(self) -> Middleware:
        """Notes that a head has come, and sees to it that the answer is taken."""

        @web.middleware
        async def heard(request: web.Request, handler: Handler) -> web.StreamResponse:
            self._end_silence(request.protocol)
            answer = await handler(request)
            transport = request.transport
            try:
                async with asyncio.timeout(self._answer_s):
                    await answer.prepare(request)
                    await answer.write_eof()
            except TimeoutError:
                if transport is not None:
                    transport.abort()
            except ConnectionError:
                return answer  # gone, which aiohttp finds out as well
            return answer

        return heard

    def _end_silence(self, protocol: RequestHandler | None) -> None:
        if (found := self._silent.pop(protocol, None)) is not None:
            found[1].cancel()

    def _overdue(self, protocol: object) -> None:
        self._silent.pop(protocol)[0].abort()

    def _forget_closed(self) -> None:
        for protocol, (transport, timer) in list(self._silent.items()):
            if transport.is_closing():
                timer.cancel()
                del self._silent[protocol]


class _Entry(asyncio.Protocol):
    """Stands where a connection comes in until it is counted."""

    def __init__(self, listener: Listener, server: web.Server) -> None:
        self._listener = listener
        self._server = server

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The loop: connected."""
        self._listener.enter(cast("asyncio.Transport", transport), self._server)
