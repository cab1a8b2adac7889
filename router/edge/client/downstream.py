"""Connections from clients: requests read whole, answered one after the other.

A client that closes its sending side while an answer is owed is still answered: it may have closed
only that side. Whether it still listens is found out by sending it something harmless (an interim
answer, or a comment once the stream is open), which a client that is gone answers with a reset.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from typing_extensions import override

from router.edge.bounds.patience import Patience, Verdict
from router.edge.client.peers import admit, leave, peer_of
from router.edge.client.reception import Reception
from router.errors import ClientError, Refused, RouterError
from router.framing.events import FramingError, RequestHead
from router.framing.requests import RequestParser

if TYPE_CHECKING:
    from router.edge.context import Door
    from router.edge.exchange.exchange import Exchange
    from router.edge.wire.relay import PausableReader
    from router.framing.events import RequestEvent
    from router.framing.forwarding import Peer

_log: Final = logging.getLogger("homeport.edge")

_PROBES_S: Final = (0.05, 0.1, 1.0)
"""After a client's half-close: two writes and a round trip tell a client that is gone."""


class ClientConnection(asyncio.Protocol):
    """One connection of one client."""

    __slots__ = (
        "_ahead_bytes",
        "_door",
        "_has_eof",
        "_is_closing",
        "_is_done",
        "_is_lingering",
        "_is_pumping",
        "_parser",
        "_patience",
        "_peer",
        "_queue",
        "_reader",
        "_reception",
        "_transport",
        "is_paused",
    )

    def __init__(self, door: Door) -> None:
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._parser = RequestParser(
            header_bytes_max=door.limits.header_bytes_max, headers_max=door.limits.headers_max
        )
        self._queue: deque[RequestEvent] = deque()
        self._ahead_bytes = 0
        self._is_pumping = False
        self._reader: PausableReader | None = None
        self._patience = Patience(door.limits, door.now_s())
        self._has_eof = False
        self._is_closing = False
        self._is_done = False  # closing or lingering: nothing more is read
        self._is_lingering = False
        self.is_paused = False

    # Called by the loop

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The loop: a client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        door = self._door
        self._transport.set_write_buffer_limits(
            door.limits.write_high_bytes, door.limits.write_low_bytes
        )
        self._peer: Peer = peer_of(transport, door)
        self._reception = Reception(door, self, self._peer)
        error = admit(self._peer, door)
        door.connections.add(self)
        if error is not None:
            self.refuse(error)

    @override
    def data_received(self, data: bytes) -> None:
        """The loop: bytes of a request, or of the next ones while an answer is owed."""
        if self._is_done:
            return
        if self._reception.is_busy or self.is_paused:
            self._ahead_bytes += len(data)
            if self._ahead_bytes > self._door.limits.pipelined_bytes_max:
                _log.warning("client-ahead bytes=%d", self._ahead_bytes)
                self.abort()
                return
        elif self._patience.started_s is None:
            self._patience.started_s = self._door.now_s()
        self._queue.extend(self._parser.feed(data))
        self._pump()

    @override
    def eof_received(self) -> bool:
        """The loop: the client sends nothing more. Answers True while an answer is owed."""
        self._has_eof = True
        reception = self._reception
        head = reception.head
        # HTTP/1.0 has no interim answer to find out with: there, a closed side is a client gone.
        if not reception.is_busy or head is None or head.http_version == "1.0":
            return False
        if self._transport is None or not self._transport.can_write_eof():  # TLS: both sides end
            return False
        self.owed()
        return True

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """The loop: closed, by either side."""
        self._is_closing = self._is_done = True
        self._transport = None
        self._door.connections.discard(self)
        leave(self._peer, self._door)
        self._parser.close()
        self._queue.clear()
        self._reception.lost()

    @override
    def pause_writing(self) -> None:
        """The loop: the client reads too slowly; stop reading from the replica."""
        self.is_paused = True
        self._patience.paused(self._door.now_s())
        if self._reader is not None:
            self._reader.pause()

    @override
    def resume_writing(self) -> None:
        """The loop: the client has caught up."""
        self.is_paused = False
        if self._reader is not None:
            self._reader.resume()
        self._pump()

    # Used by the exchange and the relay

    def write(self, data: bytes) -> None:
        """Send; nothing happens on a connection that is gone."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(data)

    def watch(self, reader: PausableReader | None) -> None:
        """Pause this reader while the client is slow; the one before is let go, running."""
        if self.is_paused:
            if self._reader is not None:
                self._reader.resume()
            if reader is not None:
                reader.pause()
        self._reader = reader

    @property
    def may_keep_alive(self) -> bool:
        """The client asked for another request on this connection and the door is open."""
        head = self._reception.head
        is_last = self._has_eof and not self._queue
        return head is not None and head.keep_alive and not self._door.is_draining and not is_last

    def answered(self, *, keep_alive: bool) -> None:
        """The answer is whole; the connection is free for the next request, or closed."""
        self._reception.answered()
        patience = self._patience
        patience.idle_since_s = now_s = self._door.now_s()
        patience.started_s = now_s if self._queue else None
        is_done = self._door.is_draining or self._has_eof
        if not keep_alive or (is_done and not self._queue and self._parser.is_between):
            self._close()
        elif self._queue:
            self._pump()
        else:
            self._ahead_bytes = 0

    # Requests

    def _pump(self) -> None:
        """Work through what was read, up to the next answer that has to be waited for."""
        if self._is_pumping:
            return
        self._is_pumping = True
        queue, reception = self._queue, self._reception
        try:
            while queue and not (reception.is_busy or self.is_paused or self._is_done):
                event = queue.popleft()
                if type(event) is bytes:
                    reception.on_body(event)
                elif isinstance(event, RequestHead):
                    reception.on_head(event, is_more=bool(queue))
                elif isinstance(event, FramingError):
                    self.refuse(ClientError(event.code, event.message, http_status=event.status))
                else:
                    self._patience.started_s = None
                    reception.on_end()
        except Exception:  # noqa: BLE001 - a fault of the router ends this connection alone
            _log.exception("connection-failed")
            self.abort()
        finally:
            self._is_pumping = False
        if not queue:
            self._ahead_bytes = 0

    def refuse(self, error: RouterError) -> None:
        """Answer an error before the request was read, and read nothing more of the connection.

        The sending side is closed and what the client still sends is thrown away for a moment:
        closing with unread bytes would reset the connection and destroy the answer.
        """
        self._is_lingering = self._is_done = True
        self._reception.drop()
        self._reception.turn_away(error, keep_alive=False)

    # Closing

    def _close(self) -> None:
        transport = self._transport
        self._queue.clear()
        self._patience.closing(self._door.now_s())
        if self._is_lingering:
            # TLS has no half of a connection to close: the client closes when it has its answer.
            if transport is not None and transport.can_write_eof() and not transport.is_closing():
                transport.write_eof()
            return
        self._is_closing = self._is_done = True
        if transport is not None:
            transport.close()

    def shut_down(self) -> None:
        """The time to drain is over: tell the client what happened to its answer, then close."""
        error = Refused("shutting-down", "The router is shutting down.", retry_after_s=1.0)
        if self._reception.exchange is not None:
            self._reception.exchange.abandon(error)
        elif self._reception.is_busy:
            self.refuse(error)
        self._close()

    def abort(self) -> None:
        """Close at once, whatever is unsent."""
        self._is_closing = self._is_done = True
        if self._transport is not None:
            self._transport.abort()

    def drain(self) -> None:
        """Close now if idle, else after the answer that is owed."""
        if self._reception.head is None and self._parser.is_between:
            self._close()

    def owed(self) -> None:
        """An answer is owed; if the client has closed its side, find out whether it listens."""
        exchange = self._reception.exchange
        if self._has_eof and exchange is not None:
            self._probe_later(exchange, 0)

    def _probe_later(self, exchange: Exchange, step: int) -> None:
        limits = self._door.limits
        wait_s = _PROBES_S[step] if step < len(_PROBES_S) else limits.heartbeat_s
        asyncio.get_running_loop().call_later(wait_s, self._probe, exchange, step)

    def _probe(self, exchange: Exchange, step: int) -> None:
        if self._reception.exchange is exchange and not self._is_closing:
            exchange.probe()
            self._probe_later(exchange, step + 1)

    # Time

    def sweep(self, now_s: float) -> None:
        """Act on what has taken too long; called a few times a second."""
        patience, reception = self._patience, self._reception
        if self._is_done:
            transport = self._transport
            unsent_bytes = 0 if transport is None else transport.get_write_buffer_size()
            verdict = patience.of_closing(now_s, unsent_bytes)
        elif self.is_paused and patience.of_reading(now_s) is Verdict.STUCK:
            verdict = Verdict.STUCK
        elif reception.exchange is not None:
            reception.exchange.sweep(now_s)
            return
        elif reception.is_busy:
            return
        else:
            verdict = patience.of_asking(now_s, reception.arrived_bytes)
        if verdict is not Verdict.FINE:
            self._end(verdict)

    def _end(self, verdict: Verdict) -> None:
        if verdict is Verdict.LATE:
            allowed_s = self._patience.allowed_s(self._reception.arrived_bytes)
            what = f"The request did not arrive within {allowed_s:.0f} s."
            self.refuse(ClientError("request-timeout", what))
        elif verdict is Verdict.IDLE:
            self._close()
        else:
            if verdict is Verdict.STUCK:
                _log.warning("client-stuck peer=%s", self._peer.address)
            self.abort()
