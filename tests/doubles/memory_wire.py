"""The front door's own connections over transports in memory: no socket, no waiting, no order of
its own. Both ends are driven by the test, one read at a time."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, cast

from typing_extensions import override

from router.clock import ManualClock
from router.core import RouterCore
from router.edge.client.downstream import ClientConnection
from router.edge.context import Door
from router.edge.replicas.upstream import UpstreamConnection, UpstreamPool
from router.edge.routes.routes import Routes
from router.state.fleet.names import ModelNames
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event
from tests.doubles.door_rig import InOrder, Notes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from router.dialect.base import Dialect
    from router.edge.bounds.limits import EdgeLimits
    from router.edge.replicas.upstream import Receiver

_N_REPLICAS = 3


class MemoryTransport(asyncio.Transport):
    """What a protocol writes is kept; strict where uvloop's transports are."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.7", 1)})
        self.sent = bytearray()
        self._is_closing = False

    @override
    def write(self, data: object) -> None:
        assert type(data) is bytes, "uvloop keeps anything else by reference"
        assert not self._is_closing, "uvloop raises here"
        self.sent += data

    @override
    def writelines(self, list_of_data: Iterable[object]) -> None:
        for data in list_of_data:
            self.write(data)

    @override
    def close(self) -> None:
        self._is_closing = True

    @override
    def abort(self) -> None:
        self._is_closing = True

    @override
    def is_closing(self) -> bool:
        return self._is_closing

    @override
    def can_write_eof(self) -> bool:
        """It has two sides, as plain TCP has."""
        return True

    @override
    def write_eof(self) -> None:
        assert not self._is_closing

    @override
    def get_write_buffer_size(self) -> int:
        return 0

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high
        assert low

    @override
    def pause_reading(self) -> None:
        pass

    @override
    def resume_reading(self) -> None:
        pass


class Link:
    """One connection, as its far end sees it."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self.protocol = protocol
        self.transport = MemoryTransport()
        self.is_lost = False
        protocol.connection_made(self.transport)

    def feed(self, data: bytes) -> None:
        """The far end sends."""
        if data and self.is_open:
            self.protocol.data_received(data)

    def end(self) -> None:
        """The far end closes its side."""
        if self.is_open and not self.protocol.eof_received():
            self.transport.close()

    def take(self) -> bytes:
        """What was sent to the far end since the last time."""
        data = bytes(self.transport.sent)
        self.transport.sent.clear()
        return data

    def lose(self) -> None:
        """The connection is gone."""
        if not self.is_lost:
            self.is_lost = True
            self.transport.abort()
            self.protocol.connection_lost(None)

    @property
    def is_open(self) -> bool:
        """Neither side has closed it."""
        return not self.is_lost and not self.transport.is_closing()


class _Attempt:
    """A connection being made, which the exchange may give up."""

    def __init__(self) -> None:
        self.is_given_up = False

    def cancel(self) -> None:
        self.is_given_up = True


class MemoryPool(UpstreamPool):
    """The pool over links; what it opens comes with the next turn of the wire."""

    def __init__(self, limits: EdgeLimits) -> None:
        super().__init__(limits)
        self.links: list[Link] = []
        self.attempts: list[tuple[_Attempt, UpstreamConnection, Receiver]] = []

    @override
    def connect(self, spec: ReplicaSpec, receiver: Receiver) -> asyncio.Task[None]:
        attempt = _Attempt()
        address = (spec.host, spec.port, spec.is_tls)
        self.attempts.append((attempt, UpstreamConnection(self, address), receiver))
        return cast("asyncio.Task[None]", attempt)


class MemoryWire:
    """A front door without a socket; call :meth:`turn` after each read."""

    def __init__(self, dialects: Mapping[str, Dialect], limits: EdgeLimits) -> None:
        self.clock = ManualClock()
        self.core = RouterCore(InOrder(), random.Random(0))
        for number in range(_N_REPLICAS):
            self.core.members.join(ReplicaSpec(f"r{number}", "127.0.0.1", number + 1), 0.0)
        self.ready()
        self.notes = Notes()
        self.pool = MemoryPool(limits)
        self.door = Door(
            core=self.core,
            routes=Routes(dialects),
            names=ModelNames(self.core.fleet),
            limits=limits,
            observer=self.notes,
            now_s=self.clock,
            pool=self.pool,
        )
        self.clients: list[Link] = []

    def ready(self) -> None:
        """Every replica is found ready (again)."""
        for replica in self.core.fleet.replicas():
            self.core.members.heard(replica.replica_id, Event.PROBE_OK, self.clock())

    def connect(self) -> Link:
        """A client connects."""
        link = Link(ClientConnection(self.door))
        self.clients.append(link)
        return link

    async def turn(self) -> bool:
        """Connections asked for are made, those closed are gone, bodies are decoded.

        Answers whether anything was done.
        """
        has_moved = bool(self.pool.attempts)
        for link in self.clients:
            decoding = cast("ClientConnection", link.protocol)._reception._decoding
            if decoding is not None:
                await asyncio.wait([decoding])
                await asyncio.sleep(0)
                has_moved = True
        attempts, self.pool.attempts = self.pool.attempts, []
        for attempt, connection, receiver in attempts:
            link = Link(connection)
            self.pool.links.append(link)
            if attempt.is_given_up:
                connection.abort()
            else:
                receiver.connected(connection)
        for links in (self.clients, self.pool.links):
            for link in [link for link in links if link.transport.is_closing()]:
                links.remove(link)
                link.lose()
                has_moved = True
        return has_moved

    def leftovers(self) -> dict[str, int]:
        """What is still held though nobody is connected; all zero where nothing leaks."""
        return {
            "clients": len(self.clients),
            "connections": len(self.door.connections),
            "addresses": len(self.door.clients),
            "arriving_bytes": self.door.arriving_bytes,
            "inflight": sum(replica.inflight for replica in self.core.fleet.replicas()),
            "attempts": len(self.pool.attempts),
        }
