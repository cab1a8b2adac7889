"""The front door: listens, looks after the time-outs, and closes without losing an answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop

from router.edge.bounds.memory import keep_large_blocks
from router.edge.client.downstream import ClientConnection
from router.edge.context import Door
from router.edge.entry.credentials import EdgeSecurity
from router.edge.entry.turns import Turns
from router.edge.replicas.upstream import UpstreamPool
from router.edge.routes.routes import Routes
from router.framing.forwarding import ForwardingRules
from router.state.fleet.names import ModelNames

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from router.core import RouterCore
    from router.dialect.base import Dialect
    from router.edge.bounds.limits import EdgeLimits
    from router.edge.context import Observer, Sharing, Tying
    from router.edge.entry.turns import Share
    from router.edge.replicas.holders import Holders
    from router.lookup import Lookups

_BACKLOG = 1024
_FAREWELL_S = 1.0
_T = TypeVar("_T")


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run ``main`` on the data plane's event loop, in a process that is set up for it."""
    keep_large_blocks()
    return uvloop.run(main)


class FrontDoor:
    """Serves the dialects' paths by placing each request through the core."""

    def __init__(
        self,
        *,
        core: RouterCore,
        dialects: Mapping[str, Dialect],
        limits: EdgeLimits,
        observer: Observer,
        now_s: Callable[[], float],
        security: EdgeSecurity | None = None,
        forwarding: ForwardingRules | None = None,
        names: ModelNames | None = None,
        engine_paths: Sequence[str] = (),
        tying: Tying | None = None,
        sharing: Sharing | None = None,
        lookups: Lookups | None = None,
    ) -> None:
        """``names`` resolves models, without aliases if not given; ``engine_paths`` are let through.

        ``lookups`` finds replicas' addresses.
        """
        assert dialects, "a front door without a dialect serves nothing"
        security = security or EdgeSecurity()
        self._door = Door(
            core=core,
            routes=Routes(dialects, engine_paths),
            names=names or ModelNames(core.fleet),
            limits=limits,
            observer=observer,
            now_s=now_s,
            pool=UpstreamPool(limits, security.replica_tls, lookups),
            gate=security.gate,
            keys=security.keys,
            tying=tying,
            sharing=sharing,
            forwarding=replace(
                forwarding or ForwardingRules(),
                is_key_dropped=not security.keys.is_client_forwarded,
            ),
        )
        self._security = security
        self._server: asyncio.Server | None = None
        self._turns: Turns | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_empty = asyncio.Event()

    @property
    def is_draining(self) -> bool:
        """It accepts nothing more."""
        return self._door.is_draining

    async def start(self, host: str, port: int) -> int:
        """Listen; answers the port, which the system chooses if ``port`` is 0.

        Raises:
            OSError: the address cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: ClientConnection(self._door),
            host,
            port,
            backlog=_BACKLOG,
            **self._secured(),
        )
        self._sweep()
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    @property
    def holders(self) -> Holders:
        """Which replica keeps which response."""
        return self._door.holders

    def share(self, sockets: Sequence[socket.socket], share: Share, door_id: str) -> None:
        """Serve what comes in at sockets that siblings listen on too.

        ``door_id`` names all of them in the header by which a request that comes round is recognised.
        """
        self._door.door_id = door_id
        self._turns = Turns(
            sockets,
            share,
            lambda: ClientConnection(self._door),
            lambda: len(self._door.connections),
            self._secured(),
        )
        self._sweep()

    def _secured(self) -> dict[str, Any]:
        """What a listening socket needs for TLS; nothing without."""
        security = self._security
        if security.tls is None:
            return {}
        return {
            "ssl": security.tls.context,
            "ssl_handshake_timeout": security.handshake_s,
            # An idle client may not answer the farewell before its next request.
            "ssl_shutdown_timeout": _FAREWELL_S,
        }

    async def leave(self, grace_s: float) -> None:
        """Leave what comes in to siblings, and end what is here, for at most ``drain_s``.

        For ``grace_s`` answers only say that they are the last of their connection: who has just connected,
        or sends the next request at this moment, is answered and not cut off. Who waits goes on waiting.
        """
        door = self._door
        if self._turns is not None:
            await self._turns.stop()
        door.is_leaving = True
        if not await self._empty_within(grace_s):
            for connection in list(door.connections):
                connection.drain()
            await self._empty_within(door.limits.drain_s)

    async def stop(self) -> None:
        """Accept nothing more, let running answers end for at most ``drain_s``, then close."""
        door = self._door
        door.is_draining = True
        if self._server is not None:
            self._server.close()
        if self._turns is not None:
            await self._turns.stop()
        for connection in list(door.connections):
            connection.drain()
        if not await self._empty_within(door.limits.drain_s):
            for connection in list(door.connections):
                connection.shut_down()
            await self._empty_within(door.limits.close_s)
            for connection in list(door.connections):
                connection.abort()
        if self._timer is not None:
            self._timer.cancel()
        door.pool.close()
        door.decoders.close()

    async def _empty_within(self, wait_s: float) -> bool:
        """Wait until no client is connected; False if some still are after ``wait_s``."""
        try:
            async with asyncio.timeout(wait_s):
                while self._door.connections:
                    self._is_empty.clear()
                    await self._is_empty.wait()
        except TimeoutError:
            return False
        return True

    def _sweep(self) -> None:
        """The one timer: a tick a few times a second, instead of a timer for every wait."""
        door = self._door
        self._timer = asyncio.get_running_loop().call_later(door.limits.sweep_s, self._sweep)
        now_s = door.now_s()
        door.sweep(now_s)
        if self._turns is not None:
            self._turns.tell()
        for connection in list(door.connections):
            connection.sweep(now_s)
        door.pool.sweep(now_s)
        if not door.connections:
            self._is_empty.set()
