"""Connections to replicas: one protocol, and the pool that keeps them for a moment."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Protocol, cast

from typing_extensions import override

from router.edge.entry.tls import client_context
from router.errors import ConnectFailed, UpstreamError, UpstreamStatus
from router.framing.responses import ResponseParser
from router.lookup import Lookups
from router.tasks import spawn

if TYPE_CHECKING:
    import ssl

    from router.edge.bounds.limits import EdgeLimits
    from router.framing.events import ResponseEvent
    from router.state.fleet.replica import ReplicaSpec

    Address = tuple[str, int, bool]
    """Host, port, and whether it speaks TLS."""


class Receiver(Protocol):
    """Who waits for an answer: one exchange."""

    def connected(self, connection: UpstreamConnection) -> None:
        """The connection asked for is there."""

    def connect_failed(self, error: UpstreamError) -> None:
        """It could not be made, or not in time."""

    def on_read(self, events: list[ResponseEvent]) -> None:
        """What one read from the replica brought; never empty."""

    def on_lost(self) -> None:
        """The connection is gone, without any fault in what it brought so far."""


class UpstreamConnection(asyncio.Protocol):
    """One connection to a replica; carries one exchange at a time."""

    __slots__ = (
        "_parser",
        "_pool",
        "_receiver",
        "_transport",
        "_was_early",
        "address",
        "idle_since_s",
        "is_reused",
    )

    def __init__(self, pool: UpstreamPool, address: Address) -> None:
        self._pool = pool
        self.address = address
        self.is_reused = False
        self.idle_since_s = 0.0
        self._was_early = False
        self._receiver: Receiver | None = None
        self._transport: asyncio.Transport | None = None
        self._parser = ResponseParser(header_bytes_max=pool.limits.header_bytes_max)

    # Used by the exchange

    def send(self, receiver: Receiver, head: bytes, body: bytes) -> None:
        """Send a request and hand its answer to ``receiver`` until :meth:`release`."""
        assert self._receiver is None
        self._receiver = receiver
        self._was_early = False
        self._parser.start(is_head=head.startswith(b"HEAD "))
        transport = self._transport
        if transport is None:  # lost before it could be used
            asyncio.get_running_loop().call_soon(self.connection_lost, None)
        elif not transport.is_closing():
            transport.writelines((head, body))

    @property
    def has_answered(self) -> bool:
        """A byte of the present answer has come."""
        return self._parser.has_bytes

    def release(self, now_s: float) -> None:
        """The exchange is over: keep the connection if the answer leaves it usable."""
        self._receiver = None
        transport = self._transport
        if (
            transport is None
            or transport.is_closing()
            or self._was_early
            or not self._parser.can_reuse
            or not self._pool.keep(self, now_s)
        ):
            self.abort()

    def pause(self) -> None:
        """Stop reading: the client is slower than the replica."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once: the replica stops working on what was sent."""
        self._receiver = None
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_usable(self) -> bool:
        """Open, as far as is known."""
        return self._transport is not None and not self._transport.is_closing()

    # Called by the loop

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The loop: connected."""
        self._transport = cast("asyncio.Transport", transport)
        limits = self._pool.limits
        self._transport.set_write_buffer_limits(limits.write_high_bytes, limits.write_low_bytes)

    @override
    def data_received(self, data: bytes) -> None:
        """The loop: bytes of an answer, or bytes nobody asked for."""
        receiver = self._receiver
        if receiver is None:
            self.abort()
            return
        if not self._parser.has_bytes:
            # Answered before the request was sent: the rest is never sent, nothing else fits here.
            transport = self._transport
            self._was_early = transport is not None and transport.get_write_buffer_size() > 0
        if events := self._parser.feed(data):
            receiver.on_read(events)

    @override
    def eof_received(self) -> bool:
        """The loop: the replica sends nothing more. Answers False: the transport closes."""
        receiver = self._receiver
        if receiver is not None and self._parser.has_bytes and (events := self._parser.feed_eof()):
            receiver.on_read(events)
        return False

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """The loop: closed, by either side."""
        receiver, self._receiver = self._receiver, None
        self._transport = None
        self._pool.forget(self)
        self._parser.close()
        if receiver is not None:
            receiver.on_lost()


class UpstreamPool:
    """Idle connections by replica, the latest first; kept under the replica's own keep-alive."""

    def __init__(
        self,
        limits: EdgeLimits,
        tls: ssl.SSLContext | None = None,
        lookups: Lookups | None = None,
    ) -> None:
        self.limits = limits
        self._lookups = lookups or Lookups()
        self._tls = tls
        self._idle: dict[Address, list[UpstreamConnection]] = {}

    def take(self, spec: ReplicaSpec, now_s: float) -> UpstreamConnection | None:
        """The connection that was used last, None if none is fresh enough."""
        idle = self._idle.get((spec.host, spec.port, spec.is_tls))
        oldest_s = now_s - self.limits.upstream_reuse_s
        while idle:
            connection = idle.pop()
            if connection.idle_since_s >= oldest_s and connection.is_usable:
                connection.is_reused = True
                return connection
            connection.abort()
        return None

    def keep(self, connection: UpstreamConnection, now_s: float) -> bool:
        """Keep an idle connection for the next request; False if there are enough."""
        idle = self._idle.setdefault(connection.address, [])
        if len(idle) >= self.limits.upstream_idle_connections_max:
            return False
        connection.idle_since_s = now_s
        idle.append(connection)
        return True

    def forget(self, connection: UpstreamConnection) -> None:
        """A connection is gone."""
        idle = self._idle.get(connection.address)
        if idle and connection in idle:
            idle.remove(connection)

    def connect(self, spec: ReplicaSpec, receiver: Receiver) -> asyncio.Task[None]:
        """Open a connection and tell ``receiver``; cancelling the task gives it up."""
        return spawn(self._connect(spec, receiver), name=f"connect-{spec.host}:{spec.port}")

    def sweep(self, now_s: float) -> None:
        """Close what has been idle for too long; forget replicas without connections."""
        oldest_s = now_s - self.limits.upstream_reuse_s
        for key, idle in list(self._idle.items()):
            stale = [connection for connection in idle if connection.idle_since_s < oldest_s]
            for connection in stale:
                idle.remove(connection)
                connection.abort()
            if not idle:
                del self._idle[key]

    def close(self) -> None:
        """Close every idle connection."""
        for idle in self._idle.values():
            for connection in idle:
                connection.abort()
        self._idle.clear()

    def _secure(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = client_context()
        return self._tls

    async def _connect(self, spec: ReplicaSpec, receiver: Receiver) -> None:
        host, port = spec.host, spec.port
        address = (host, port, spec.is_tls)
        try:
            async with asyncio.timeout(self.limits.connect_s):
                connection = await self._lookups.connect(
                    lambda: UpstreamConnection(self, address),
                    host,
                    port,
                    tls=self._secure() if spec.is_tls else None,
                )
        except TimeoutError:
            receiver.connect_failed(
                ConnectFailed(
                    "connect-timeout",
                    f"No connection to {host}:{port} within {self.limits.connect_s:g} s.",
                )
            )
        except (OSError, UnicodeError) as fault:
            receiver.connect_failed(_unconnected(fault, host, port))
        else:
            receiver.connected(connection)


_OUR_LIMITS = frozenset((errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS))


def _unconnected(fault: OSError | UnicodeError, host: str, port: int) -> UpstreamError:
    """Why there is no connection; where this machine has run out, the replica is not to blame."""
    if isinstance(fault, OSError) and fault.errno in _OUR_LIMITS:
        what = f"The router cannot open a connection to {host}:{port}: {fault}."
        return UpstreamStatus("saturated", what, retry_after_s=1.0)
    return ConnectFailed("connect-failed", f"No connection to {host}:{port}: {fault}.")
