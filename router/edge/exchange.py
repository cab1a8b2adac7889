"""One exchange: placed by the core, tried on replicas until one answers, relayed to the client.

``arrive -> dispatch -> hold the head until the first event -> stream -> done``. Before the first
model event reaches the client a failure moves the request to another replica; afterwards a failure
ends the stream with an error event of the dialect. The ticket is finished exactly once, whichever
way the exchange ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.edge.answers import (
    error_fields,
    placement_fields,
    relayed_fields,
    request_head,
    waiting_fields,
)
from router.edge.opening import opened
from router.edge.reading import RETRIED, AnswerReader, Step, outcome_of
from router.edge.relay import EVENT_ENDS, HEARTBEAT, SILENT_S
from router.edge.tries import Tries, who
from router.errors import (
    FirstEventTimeout,
    StreamStalled,
    UpstreamProtocol,
    UpstreamStatus,
)
from router.state.history import Outcome

if TYPE_CHECKING:
    import asyncio

    from router.core import Ticket
    from router.dialect.base import Dialect
    from router.edge.context import Door
    from router.edge.relay import Client, Relay
    from router.edge.tenancy import Visit
    from router.edge.upstream import UpstreamConnection
    from router.errors import RouterError, UpstreamError
    from router.framing.events import RequestHead, ResponseEvent

_BODILESS: Final = (204, 304)


class Exchange:
    """One request of one client, from its whole body to its last byte."""

    __slots__ = (
        "_body",
        "_client",
        "_connecting",
        "_deadline_s",
        "_dialect",
        "_door",
        "_fields",
        "_is_flowing",
        "_is_heard",
        "_is_over",
        "_is_raced",
        "_is_stream",
        "_last_beat_s",
        "_last_heard_s",
        "_reader",
        "_relay",
        "_request",
        "_request_id",
        "_started_s",
        "_strip_usage",
        "_tail",
        "_ticket",
        "_tries",
        "_upstream",
        "_visit",
    )

    def __init__(
        self,
        *,
        door: Door,
        client: Client,
        relay: Relay,
        dialect: Dialect,
        request: RequestHead,
        request_id: str,
        visit: Visit | None = None,
    ) -> None:
        self._door = door
        self._client = client
        self._relay = relay
        self._dialect = dialect
        self._request = request
        self._request_id = request_id
        self._visit = visit
        self._body = b""
        self._fields = b""
        self._tail = b""
        self._strip_usage = False
        self._is_stream = False
        self._tries = Tries(door.limits)
        self._is_raced = False
        self._is_heard = False
        self._is_flowing = False
        self._is_over = False
        self._ticket: Ticket | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._upstream: UpstreamConnection | None = None
        self._reader: AnswerReader | None = None
        self._started_s = self._last_beat_s = self._last_heard_s = self._deadline_s = 0.0

    # Placing

    def start(self, body: bytes) -> None:
        """Place the request and dispatch it, in one step.

        Raises:
            ClientError: the body cannot be read.
            Refused: no replica can take the request.
        """
        door, visit = self._door, self._visit
        facts, self._body, self._strip_usage, self._fields = opened(
            door, self._dialect, self._request, body, self._request_id, visit=visit
        )
        self._is_stream = facts.is_stream
        self._started_s = door.now_s()
        self._ticket = door.arrive(facts, self._started_s, self._request, self._request_id)
        if visit is not None:
            visit.placed(self._ticket, len(body))
        self._dispatch(self._started_s)

    def _dispatch(self, now_s: float, *, is_fresh: bool = False) -> None:
        ticket = self._ticket
        assert ticket is not None
        limits = self._door.limits
        self._deadline_s = now_s + (limits.first_event_s if self._is_stream else limits.answer_s)
        self._reader = AnswerReader(
            self._dialect,
            strip_usage=self._strip_usage,
            hold_bytes_max=limits.body_hold_bytes_max,
        )
        pool = self._door.pool
        connection = None if is_fresh else pool.take(ticket.spec, now_s)
        if connection is None:
            self._connecting = pool.connect(ticket.spec, self)
        else:
            self.connected(connection)

    # From the replica

    def connected(self, connection: UpstreamConnection) -> None:
        """A connection to the replica is there: send the request."""
        self._connecting = None
        ticket, request = self._ticket, self._request
        if self._is_over or ticket is None:
            connection.abort()
            return
        self._upstream = connection
        self._client.watch(connection)
        fields = self._fields + self._door.keys.line(ticket.spec)
        head = request_head(request.method, request.target, ticket.spec, fields)
        connection.send(self, head, self._body)

    def connect_failed(self, error: UpstreamError) -> None:
        """No connection could be made in time."""
        self._connecting = None
        if not self._is_over:
            self._fail(error)

    def on_read(self, events: list[ResponseEvent]) -> None:
        """What one read from the replica brought; it goes out in one write."""
        reader = self._reader
        assert reader is not None
        self._is_heard = True
        step = reader.read(events)
        if step is Step.ELSEWHERE:
            assert reader.error is not None
            if self._try_elsewhere(reader.error):
                return
            step = reader.accept()
        if step is Step.RELAY:
            self._forward(reader)
        elif step is Step.BROKEN:
            assert reader.error is not None
            self._fail(reader.error)

    def on_lost(self) -> None:
        """The connection is gone without a fault in what it brought so far."""
        upstream, self._upstream = self._upstream, None
        assert upstream is not None
        if upstream.is_reused and not upstream.has_answered and not self._is_raced:
            # The keep-alive race: the replica closed an idle connection as this request was sent.
            self._is_raced = True
            self._client.watch(None)
            self._dispatch(self._door.now_s(), is_fresh=True)
            return
        when = "before its answer was whole" if upstream.has_answered else "without an answer"
        assert self._ticket is not None
        what = f"{who(self._ticket)} closed the connection {when}."
        self._fail(UpstreamProtocol("bad-upstream-response", what))

    # To the client

    def _forward(self, reader: AnswerReader) -> None:
        if not self._is_flowing:
            self._begin(reader)
        elif not reader.is_end:
            data = reader.take()
            self._tail = (data[-4:] or self._tail) if reader.is_stream else b""
            self._relay.send(data)
        elif reader.is_cut:
            self._cut(
                UpstreamProtocol("stream-cut", "The replica's stream ended without its end mark.")
            )
        else:
            data = reader.take()
            self._settle(reader)
            self._relay.end(data)

    def _begin(self, reader: AnswerReader) -> None:
        """Send the head with the first bytes; from here on nothing is tried again."""
        head, ticket = reader.head, self._ticket
        assert head is not None
        assert ticket is not None
        failure = reader.failure()
        if reader.is_stream and failure is not None and not reader.has_begun:
            # The client gets the error as a status it can act on, or as an event if it is too late.
            self._give_up(failure)
            return
        if self._relay.is_open and not reader.is_stream:
            # Comments were sent: the status of this answer can only be told in an event.
            what = "The replica did not answer with a stream."
            self._give_up(failure or UpstreamStatus("upstream-status", what))
            return
        self._is_flowing = True
        self._body = b""
        if reader.has_begun:
            self._door.core.began(ticket, self._door.now_s())
        retry_after_s = self._door.core.retry_after_s if head.status in RETRIED else None
        fields = relayed_fields(head, ticket, self._request_id, retry_after_s=retry_after_s)
        data = reader.take()
        self._tail = data[-4:] if reader.is_stream else b""
        if reader.is_end:
            self._settle(reader, failure)
        if reader.is_stream or not reader.is_end:
            self._relay.stream(fields, data, is_last=reader.is_end)
        elif head.status in _BODILESS:
            self._relay.bodiless(fields)
        else:
            self._relay.whole(fields, data)

    # Failing

    def _fail(self, error: UpstreamError) -> None:
        """The replica failed this request: try another, or tell the client."""
        if self._is_flowing:
            self._cut(error)
        elif not self._try_elsewhere(error):
            self._give_up(error)

    def _try_elsewhere(self, error: UpstreamError) -> bool:
        """Let the core move the request; False if it stays, with its connection, where it is."""
        ticket = self._ticket
        assert ticket is not None
        now_s = self._door.now_s()
        if not self._tries.may_go_on(error, ticket):
            self._door.core.blame(ticket, error, now_s)
            return False
        if not self._door.core.retry(ticket, error, now_s):
            return False
        self._drop_upstream()
        self._is_raced = False
        self._dispatch(now_s)
        return True

    def _cut(self, error: RouterError) -> None:
        """End a stream that has begun with what is left of it and an error event."""
        reader = self._reader
        assert reader is not None
        if isinstance(error, UpstreamProtocol):
            error = UpstreamProtocol("stream-cut", error.message)
        data = reader.take()
        if reader.is_stream:
            if not (data or self._tail).endswith(EVENT_ENDS):
                data += b"\n\n"  # the error must not become a part of a half-sent event
            data += self._dialect.error_event(error)
        self._drop_upstream()
        self._finish(Outcome.FAILED, error=error)
        if reader.is_stream:
            self._relay.end(data)
        else:
            self._relay.tear(data)

    def _give_up(self, error: RouterError) -> None:
        """Nobody is left: answer the error in the dialect's shape."""
        ticket = self._ticket
        assert ticket is not None
        if error.retry_after_s is None and error.http_status in RETRIED:
            error.retry_after_s = self._door.core.retry_after_s
        placement = placement_fields(ticket, self._request_id)
        self._drop_upstream()
        self._finish(outcome_of(error), error=error)
        if self._relay.is_open:
            self._relay.end(self._dialect.error_event(error))
        else:
            fields = error_fields(error, self._request_id, placement)
            self._relay.whole(fields, self._dialect.error_body(error))

    # Ending

    def abandon(self, error: RouterError) -> bool:
        """The router itself fails this request; tell ``error``. False if nothing was placed yet."""
        if self._ticket is None or self._is_over:
            return False
        if self._is_flowing:
            self._cut(error)
        else:
            self._give_up(error)
        return True

    def client_gone(self) -> None:
        """The client left: stop the replica's work at once."""
        if not self._is_over and self._ticket is not None:
            self._drop_upstream()
            self._finish(Outcome.CLIENT_GONE)

    def _settle(self, reader: AnswerReader, failure: UpstreamError | None = None) -> None:
        """The answer is whole: give the connection back and close the books."""
        upstream, self._upstream = self._upstream, None
        self._client.watch(None)
        if upstream is not None:
            upstream.release(self._door.now_s())
        failure = failure or reader.failure()
        self._finish(outcome_of(failure), error=failure)

    def _drop_upstream(self) -> None:
        connecting, self._connecting = self._connecting, None
        upstream, self._upstream = self._upstream, None
        self._client.watch(None)
        if connecting is not None:
            connecting.cancel()
        if upstream is not None:
            upstream.abort()

    def _finish(self, outcome: Outcome, *, error: RouterError | None = None) -> None:
        ticket, reader = self._ticket, self._reader
        assert ticket is not None
        assert not self._is_over
        self._is_over = True
        self._body = b""
        door = self._door
        usage = None if reader is None else reader.usage
        door.observer.finished(
            door.core.finish(ticket, outcome, door.now_s(), usage=usage, error=error)
        )

    # Time

    def sweep(self, now_s: float) -> None:
        """Act on what has taken too long; called a few times a second."""
        if self._ticket is None:
            return
        if self._is_heard or self._client.is_paused:
            self._is_heard = False
            self._last_heard_s = now_s
        limits = self._door.limits
        if self._is_flowing:
            if now_s - self._last_heard_s > limits.stream_idle_s:
                what = f"No byte from {who(self._ticket)} for {limits.stream_idle_s:g} s."
                self._cut(StreamStalled("stream-stalled", what))
        elif now_s >= self._deadline_s:
            waited_s = limits.first_event_s if self._is_stream else limits.answer_s
            what = f"No answer from {who(self._ticket)} in {waited_s:g} s."
            self._fail(FirstEventTimeout("first-event-timeout", what))
        elif self._is_stream:
            self._beat(now_s)

    def probe(self) -> None:
        """The client has closed its side: make sure that it still listens."""
        if not self._is_over and (not self._is_flowing or self._is_stalled()):
            self._relay.probe()

    def _is_stalled(self) -> bool:
        """Nothing has come for a while behind a whole event: writing does not find out by itself."""
        is_silent = not self._is_heard and self._door.now_s() - self._last_heard_s >= SILENT_S
        return is_silent and self._tail.endswith(EVENT_ENDS)

    def _beat(self, now_s: float) -> None:
        """Once the head has been held for too long, send it and a comment now and then."""
        relay, limits = self._relay, self._door.limits
        if not relay.is_open:
            if now_s - self._started_s >= limits.head_hold_s:
                assert self._ticket is not None
                self._last_beat_s = now_s
                relay.open(waiting_fields(self._ticket, self._request_id), HEARTBEAT)
        elif now_s - self._last_beat_s >= limits.heartbeat_s and not self._client.is_paused:
            self._last_beat_s = now_s
            relay.send(HEARTBEAT)
