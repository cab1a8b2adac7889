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

from router.dialect.agents import told_to
from router.edge.answers import error_fields, passed_through, request_id
from router.edge.exchange import Exchange
from router.edge.intake import Intake
from router.edge.relay import Relay
from router.edge.routes import allowed, nearest, own_answer, route
from router.errors import ClientError, Refused, RouterError
from router.framing.events import FramingError, RequestHead
from router.framing.requests import RequestParser
from router.framing.writing import CONTINUE

if TYPE_CHECKING:
    from router.edge.context import Door
    from router.edge.relay import PausableReader
    from router.edge.routes import Route
    from router.framing.events import RequestEvent

_log: Final = logging.getLogger("homeport.edge")

_PROBES_S: Final = (0.05, 0.1, 1.0)
"""After a client's half-close: two writes and a round trip tell a client that is gone."""

_NOTHING: Final = RequestHead(
    method=b"GET",
    target=b"",
    headers=[],
    content_length=None,
    is_chunked=False,
    keep_alive=False,
    expects_continue=False,
    http_version="1.1",
)
"""Stands for a request whose head could not be read."""


class ClientConnection(asyncio.Protocol):
    """One connection of one client."""

    __slots__ = (
        "_ahead_bytes",
        "_close_by_s",
        "_door",
        "_exchange",
        "_has_eof",
        "_head",
        "_idle_since_s",
        "_intake",
        "_is_closing",
        "_is_lingering",
        "_is_pumping",
        "_parser",
        "_paused_since_s",
        "_queue",
        "_reader",
        "_request_id",
        "_route",
        "_started_s",
        "_transport",
        "_unsent_bytes",
        "is_paused",
    )

    def __init__(self, door: Door) -> None:
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._parser = RequestParser(header_bytes_max=door.limits.header_bytes_max)
        self._queue: deque[RequestEvent] = deque()
        self._ahead_bytes = 0
        self._is_pumping = False
        self._head: RequestHead | None = None
        self._route: Route | None = None
        self._request_id = ""
        self._intake = Intake(door)
        self._unsent_bytes = 0
        self._exchange: Exchange | None = None
        self._reader: PausableReader | None = None
        self._started_s: float | None = None
        self._idle_since_s = door.now_s()
        self._close_by_s = 0.0
        self._paused_since_s = 0.0
        self._has_eof = False
        self._is_closing = False
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
        if len(door.connections) >= door.limits.connections_max:
            door.connections.add(self)
            self._refuse(
                Refused("saturated", "Too many connections; come back later.", retry_after_s=1.0)
            )
        else:
            door.connections.add(self)

    @override
    def data_received(self, data: bytes) -> None:
        """The loop: bytes of a request, or of the next ones while an answer is owed."""
        if self._is_closing or self._is_lingering:
            return
        if self._exchange is not None or self.is_paused:
            self._ahead_bytes += len(data)
            if self._ahead_bytes > self._door.limits.pipelined_bytes_max:
                _log.warning("client-ahead bytes=%d", self._ahead_bytes)
                self.abort()
                return
        elif self._started_s is None:
            self._started_s = self._door.now_s()
        self._queue.extend(self._parser.feed(data))
        self._pump()

    @override
    def eof_received(self) -> bool:
        """The loop: the client sends nothing more. Answers True while an answer is owed."""
        self._has_eof = True
        # HTTP/1.0 has no interim answer to find out with: there, a closed side is a client gone.
        if self._exchange is None or self._head is None or self._head.http_version == "1.0":
            return False
        self._probe_later(self._exchange, 0)
        return True

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """The loop: closed, by either side."""
        self._is_closing = True
        self._transport = None
        self._door.connections.discard(self)
        self._parser.close()
        self._queue.clear()
        self._intake.drop()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_gone()

    @override
    def pause_writing(self) -> None:
        """The loop: the client reads too slowly; stop reading from the replica."""
        self.is_paused = True
        self._paused_since_s = self._door.now_s()
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
        head = self._head
        return (
            head is not None
            and head.keep_alive
            and not self._door.is_draining
            and not self._is_last
        )

    def answered(self, *, keep_alive: bool) -> None:
        """The answer is whole; the connection is free for the next request, or closed."""
        self._exchange = None
        self._head = self._route = None
        self._request_id = ""
        self._idle_since_s = self._door.now_s()
        self._started_s = self._idle_since_s if self._queue else None
        is_done = self._door.is_draining or self._has_eof
        if keep_alive and not (is_done and not self._queue and self._parser.is_between):
            self._pump()
        else:
            self._close()

    # Requests

    def _pump(self) -> None:
        """Work through what was read, up to the next answer that has to be waited for."""
        if self._is_pumping:
            return
        self._is_pumping = True
        queue = self._queue
        while queue and self._may_go_on:
            event = queue.popleft()
            if type(event) is bytes:
                self._on_body(event)
            elif isinstance(event, RequestHead):
                self._on_head(event)
            elif isinstance(event, FramingError):
                self._refuse(ClientError(event.code, event.message, http_status=event.status))
            else:
                self._on_end()
        self._is_pumping = False
        if not queue:
            self._ahead_bytes = 0

    @property
    def _may_go_on(self) -> bool:
        """The next event may be worked on: nothing is owed, and the client reads its answers."""
        is_free = self._exchange is None and not self.is_paused
        return is_free and not self._is_closing and not self._is_lingering

    def _on_head(self, head: RequestHead) -> None:
        self._head = head
        self._request_id = request_id(head.headers) or self._door.new_id()
        self._route = found = route(head, self._door.dialects, self._door.limits)
        if found.error is not None and head.has_body:
            self._refuse(found.error)
        elif head.expects_continue and head.has_body and not self._queue:
            self.write(CONTINUE)

    def _on_body(self, data: bytes) -> None:
        error = self._intake.add(data)
        if error is not None:
            self._refuse(error)

    def _on_end(self) -> None:
        head, found, door = self._head, self._route, self._door
        assert head is not None
        assert found is not None
        body = self._intake.take()
        self._started_s = None
        relay = Relay(self, head)
        try:
            if found.error is not None:
                raise found.error  # noqa: TRY301 - one place answers all errors
            if not found.is_generation:
                fields, answer = own_answer(found.path, door.core)
                relay.whole(fields, answer)
                return
            if passed_through(head.headers, door.door_id):
                raise ClientError(  # noqa: TRY301
                    "loop-detected",
                    "This request has come round to this router: one of its replicas leads back here.",
                )
            if door.is_draining:
                raise Refused(  # noqa: TRY301
                    "shutting-down", "The router is shutting down; try again.", retry_after_s=1.0
                )
            self._exchange = exchange = Exchange(
                door=door,
                client=self,
                relay=relay,
                dialect=found.dialect,
                request=head,
                request_id=self._request_id,
            )
            exchange.start(body)
        except (ClientError, Refused) as error:
            self._turn_away(error, relay)
        except Exception:  # noqa: BLE001 - a fault of the router itself is answered as one
            _log.exception("request-failed path=%s", found.path)
            fault = RouterError("internal", "The router failed on this request; it is logged.")
            if self._exchange is None or not self._exchange.abandon(fault):
                self._turn_away(fault, relay)

    def _turn_away(self, error: RouterError, relay: Relay, *, keep_alive: bool = True) -> None:
        """Answer an error without placing the request."""
        door, found = self._door, self._route
        dialect = found.dialect if found is not None else nearest("", door.dialects)
        path = found.path if found is not None else ""
        is_known = found is not None and found.is_generation
        door.observer.turned_away(
            code=error.code, dialect=dialect.name if is_known else "", target=path
        )
        told, more = told_to((self._head or _NOTHING).headers, path, error)
        fields = error_fields(told, self._request_id or door.new_id()) + allowed(error, found)
        relay.whole(fields + more, dialect.error_body(told), keep_alive=keep_alive)

    def _refuse(self, error: RouterError) -> None:
        """Answer an error before the request was read, and read nothing more of the connection.

        The sending side is closed and what the client still sends is thrown away for a moment:
        closing with unread bytes would reset the connection and destroy the answer.
        """
        self._is_lingering = True
        self._intake.drop()
        self._turn_away(error, Relay(self, self._head or _NOTHING), keep_alive=False)

    # Closing

    @property
    def _is_last(self) -> bool:
        return self._has_eof and not self._queue

    def _close(self) -> None:
        transport = self._transport
        self._queue.clear()
        self._close_by_s = self._door.now_s() + self._door.limits.close_s
        if self._is_lingering:
            if transport is not None and not transport.is_closing():
                transport.write_eof()
            return
        self._is_closing = True
        if transport is not None:
            transport.close()

    def _sweep_closing(self, now_s: float) -> None:
        """Close for good in time; a client that goes on reading its answer gets all of it."""
        # The kernel takes more only when much of its own buffer has gone out: progress is coarse.
        transport, limits = self._transport, self._door.limits
        unsent_bytes = 0 if transport is None else transport.get_write_buffer_size()
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes = unsent_bytes
            self._close_by_s = now_s + (limits.stream_idle_s if unsent_bytes else limits.close_s)
        elif now_s >= self._close_by_s:
            self.abort()

    def shut_down(self) -> None:
        """The time to drain is over: tell the client what happened to its answer, then close."""
        if self._exchange is not None:
            error = Refused("shutting-down", "The router is shutting down.", retry_after_s=1.0)
            self._exchange.abandon(error)
        self._close()

    def abort(self) -> None:
        """Close at once, whatever is unsent."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def drain(self) -> None:
        """Close now if idle, else after the answer that is owed."""
        if self._exchange is None and self._head is None and self._parser.is_between:
            self._close()

    def _probe_later(self, exchange: Exchange, step: int) -> None:
        limits = self._door.limits
        wait_s = _PROBES_S[step] if step < len(_PROBES_S) else limits.heartbeat_s
        asyncio.get_running_loop().call_later(wait_s, self._probe, exchange, step)

    def _probe(self, exchange: Exchange, step: int) -> None:
        if self._exchange is exchange and not self._is_closing:
            exchange.probe()
            self._probe_later(exchange, step + 1)

    # Time

    def sweep(self, now_s: float) -> None:
        """Act on what has taken too long; called a few times a second."""
        limits = self._door.limits
        if self._is_closing or self._is_lingering:
            self._sweep_closing(now_s)
        elif self.is_paused and now_s - self._paused_since_s > limits.stream_idle_s:
            _log.warning("client-stuck waited_s=%.0f", now_s - self._paused_since_s)
            self.abort()
        elif self._exchange is not None:
            self._exchange.sweep(now_s)
        elif self._started_s is not None:
            allowed_s = limits.request_read_s + self._intake.n_bytes / limits.request_bytes_per_s
            if now_s - self._started_s > allowed_s:
                self._refuse(
                    ClientError(
                        "request-timeout", f"The request did not arrive within {allowed_s:.0f} s."
                    )
                )
        elif now_s - self._idle_since_s > limits.client_idle_s:
            self._close()
