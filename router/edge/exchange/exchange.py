"""One exchange: placed by the core, tried on replicas until one answers, relayed to the client.

``arrive -> dispatch -> hold the head until the first event -> stream -> done``. Before the first
model event reaches the client a failure moves the request to another replica, within the tries of
one request and the budget of all; a refusal may let it wait at the door. Afterwards a failure ends
the stream with an error event of the dialect. A ticket is finished exactly once.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from router.edge.bounds.tries import who
from router.edge.context import Pressure
from router.edge.exchange.answering import Answer
from router.edge.exchange.line import Line
from router.edge.exchange.placing import Move, Placement
from router.edge.replicas.reading import RETRIED, AnswerReader, Step, outcome_of, with_time
from router.edge.wire.answers import relayed_fields
from router.edge.wire.relay import EVENT_ENDS, SILENT_S
from router.errors import (
    FirstEventTimeout,
    Refused,
    StreamStalled,
    UpstreamProtocol,
    UpstreamStatus,
)
from router.state.history import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.dialect.base import Dialect
    from router.edge.context import Door
    from router.edge.exchange.tenancy import Visit
    from router.edge.replicas.upstream import UpstreamConnection
    from router.edge.wire.relay import Client, Relay
    from router.errors import RouterError, UpstreamError
    from router.framing.events import RequestHead, ResponseEvent

_ELSEWHERE: Final = Step.ELSEWHERE  # reading a member of an enumeration costs as much as a call
_RELAY: Final = Step.RELAY
_BROKEN: Final = Step.BROKEN


class Exchange:
    """One request of one client, from its whole body to its last byte."""

    __slots__ = (
        "_client",
        "_deadline_s",
        "_door",
        "_flow",
        "_is_heard",
        "_is_over",
        "_last",
        "_last_heard_s",
        "_line",
        "_place",
        "_reader",
        "_relay",
        "_request",
        "_request_id",
        "_send",
        "_words",
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
        self._request = request
        self._request_id = request_id
        self._place = Placement(door, dialect, request, visit)
        self._words: Answer | None = None
        self._relay = relay
        self._send = relay.send
        self._last = b""
        self._line = Line(door.pool, door.keys, client)
        self._is_heard = False
        self._is_over = False
        self._reader: AnswerReader | None = None
        self._flow: Callable[[bytes], bytes] | None = None  # set once the answer is passed on
        self._last_heard_s = self._deadline_s = 0.0

    # Placing

    def start(self, body: bytes, kept_id: str = "") -> None:
        """Place the request and dispatch it, in one step; or let it wait for room.

        ``kept_id`` is the response that its path is about.

        Raises:
            ClientError: the body cannot be read.
            Refused: no replica can take the request, and it may not wait.
        """
        self._place.read(body, self._request_id, kept_id)
        if not self._place.asks(self._set_out, self._turn_out):
            self._set_out()

    def _set_out(self) -> None:
        if not self._is_over and self._place.arrive(self, now_s := self._door.now_s()):
            self._dispatch(now_s)

    def try_again(self, now_s: float) -> bool:
        """Place a request that waits, if there is room; False if there is none for anybody."""
        found = self._place.find_room(self, now_s)
        if found:
            self._dispatch(now_s)
        return found is not False

    def _dispatch(self, now_s: float, *, is_new: bool = False) -> None:
        place, limits = self._place, self._door.limits
        self._is_heard = False
        self._deadline_s = now_s + (limits.first_event_s if place.is_stream else limits.answer_s)
        self._reader = AnswerReader(
            place.dialect,
            strip_usage=place.strips_usage,
            hold_bytes_max=limits.body_hold_bytes_max,
        )
        self._line.dial(self, place, now_s, is_new=is_new)

    # From the replica

    def connected(self, connection: UpstreamConnection) -> None:
        """A connection to the replica is there: send the request."""
        if self._is_over:
            connection.abort()
        else:
            self._line.send(self, connection, self._request, self._place)

    def connect_failed(self, error: UpstreamError) -> None:
        """No connection could be made in time."""
        self._line.failed()
        if not self._is_over:
            self._fail(error)

    def on_read(self, events: list[ResponseEvent]) -> None:
        """What one read from the replica brought; it goes out in one write."""
        self._is_heard = True
        flow = self._flow
        if flow is not None and len(events) == 1:
            data = events[0]
            if type(data) is bytes:  # the busiest path: the next bytes of a stream that flows
                if data := flow(data):
                    self._last = data
                    self._send(data)
                return
        reader = self._reader
        assert reader is not None
        step = reader.read(events)
        if step is _ELSEWHERE:
            assert reader.error is not None
            if self._go_elsewhere(reader.error) or self._may_wait(reader.error):
                return
            step = reader.accept()
        if step is _RELAY:
            self._forward(reader)
        elif step is _BROKEN:
            assert reader.error is not None
            self._fail(reader.error)

    def on_lost(self) -> None:
        """The connection is gone without a fault in what it brought so far."""
        is_race, has_answered = self._line.lost()
        if is_race:
            self._dispatch(self._door.now_s(), is_new=True)
            return
        when = "before its answer was whole" if has_answered else "without an answer"
        assert self._place.ticket is not None
        what = f"{who(self._place.ticket)} closed the connection {when}."
        self._fail(UpstreamProtocol("bad-upstream-response", what))

    # To the client

    def _forward(self, reader: AnswerReader) -> None:
        if self._flow is None:
            self._begin(reader)
        elif not reader.is_end:
            data = reader.take()
            self._last = data or self._last
            self._send(data)
        elif reader.is_cut:
            what = "The replica's stream ended without its end mark."
            self._cut(UpstreamProtocol("stream-cut", what))
        else:
            data = reader.take()
            self._settle(reader.failure(), self._door.now_s())
            self._relay.end(data)

    def _begin(self, reader: AnswerReader) -> None:
        """Send the head with the first bytes; from here on nothing is tried again."""
        place, relay, head = self._place, self._relay, reader.head
        assert place.ticket is not None
        assert head is not None
        failure = reader.failure()
        if reader.is_stream and failure is not None and not reader.has_begun:
            # The client gets the error as a status it can act on, or as an event if it is too late.
            self._give_up(failure)
            return
        if relay.is_open and not reader.is_stream:
            # Comments were sent: the status of this answer can only be told in an event.
            what = "The replica did not answer with a stream."
            self._give_up(failure or UpstreamStatus("upstream-status", what))
            return
        self._flow = reader.flow
        place.let_go()
        if place.wait is not None:
            place.leave(self, Pressure.HELD_PLACED)
        now_s = self._door.now_s()
        if reader.has_begun:
            place.began(now_s)
        if kept_id := reader.kept_id:
            self._door.holders.keep(kept_id, place.ticket.record)
        if head.status in RETRIED:
            fields = self._answer.refused_fields(reader, place.ticket)
        else:
            fields = relayed_fields(head, place.ticket, self._request_id)
        self._last = data = reader.take()
        if reader.is_end:
            self._settle(failure, now_s)
        relay.pass_on(
            fields, data, status=head.status, is_stream=reader.is_stream, is_whole=reader.is_end
        )

    @property
    def _answer(self) -> Answer:
        """What the client is told besides a replica's answer; most are told nothing else."""
        if self._words is None:
            self._words = Answer(self._door, self._relay, self._place, self._request_id)
        return self._words

    # Failing

    def _fail(self, error: UpstreamError) -> None:
        """The replica failed this request: try another, or tell the client."""
        if self._flow is not None:
            self._cut(error)
        elif not self._go_elsewhere(error):
            self._give_up(error)

    def _go_elsewhere(self, error: UpstreamError) -> bool:
        """Send the request on, or once more in a moment; False if it stays where it is."""
        now_s = self._door.now_s()
        move = self._place.move(error, now_s)
        if move is Move.STAYS:
            return False
        self._line.drop()
        if move is Move.MOVED:
            self._dispatch(now_s)
        return True

    def _may_wait(self, error: RouterError) -> bool:
        """Every replica that was asked is full: take the request back to the door, if it may."""
        if not self._place.hold(with_time(error, self._door.core), self, self._door.now_s()):
            return False
        self._line.drop()
        self._reader = None
        return True

    def _cut(self, error: RouterError) -> None:
        """End a stream that has begun with what is left of it and an error event."""
        reader = self._reader
        assert reader is not None
        if isinstance(error, UpstreamProtocol):
            error = UpstreamProtocol("stream-cut", error.message)
        rest = reader.take()
        self._line.drop()
        self._finish(Outcome.FAILED, error=error)
        self._answer.cut(error, rest=rest, last=self._last, is_stream=reader.is_stream)

    def _give_up(self, error: RouterError) -> None:
        """Nobody is left: wait, if the replicas were only full, or tell the client."""
        ticket = self._place.ticket
        assert ticket is not None
        if self._may_wait(error):
            return
        placement = self._answer.placement(ticket)
        self._line.drop()
        self._place.leave(self, Pressure.HELD_GIVEN_UP)
        self._finish(outcome_of(error), error=error)
        self._answer.refuse(error, placement)

    # Ending

    def abandon(self, error: RouterError) -> bool:
        """The router itself fails this request; tell ``error``. False if nobody is to be told."""
        place = self._place
        if self._is_over:
            return False
        if place.is_waiting:
            self._turn_out(error)
            return True
        if place.ticket is None:
            return False
        if self._flow is not None:
            self._cut(error)
        else:
            self._give_up(error)
        return True

    def client_gone(self) -> None:
        """The client left: stop the replica's work at once, and wait no more."""
        if self._is_over:
            return
        self._place.leave(self, Pressure.HELD_CLIENT_GONE)
        if self._place.ticket is not None:
            self._line.drop()
            self._finish(Outcome.CLIENT_GONE)
        self._is_over = True

    def _turn_out(self, error: RouterError) -> None:
        """It has waited long enough at the door: tell the client why."""
        place, target = self._place, self._request.path.decode("ascii", "replace")
        place.leave(self, Pressure.HELD_GIVEN_UP)
        place.body = b""
        self._is_over = True
        self._door.observer.turned_away(code=error.code, dialect=place.dialect.name, target=target)
        self._answer.refuse(with_time(error, self._door.core))

    def _settle(self, failure: UpstreamError | None, now_s: float) -> None:
        """The answer is whole: give the connection back and close the books."""
        self._line.give_back(now_s)
        self._finish(outcome_of(failure), error=failure, now_s=now_s)

    def _finish(
        self, outcome: Outcome, *, error: RouterError | None = None, now_s: float | None = None
    ) -> None:
        reader = self._reader
        assert not self._is_over
        self._is_over = True
        usage = None if reader is None else reader.usage
        now_s = self._door.now_s() if now_s is None else now_s
        self._place.finish(outcome, now_s, usage=usage, error=error)

    # Time

    def sweep(self, now_s: float) -> None:
        """Act on what has taken too long; called a few times a second."""
        place, limits = self._place, self._door.limits
        ticket = place.ticket
        if ticket is None:
            self._sweep_waiting(now_s)
            return
        if self._is_heard:
            ticket.entry.load.heard_s = now_s
        if self._is_heard or self._client.is_paused:
            self._is_heard = False
            self._last_heard_s = now_s
        if self._flow is not None:
            if now_s - self._last_heard_s > limits.stream_idle_s:
                what = f"No byte from {who(ticket)} for {limits.stream_idle_s:g} s."
                self._cut(StreamStalled("stream-stalled", what))
        elif now_s >= place.again_s:
            place.again_s = inf
            self._dispatch(now_s, is_new=True)
        elif now_s >= self._deadline_s:
            waited_s = limits.first_event_s if place.is_stream else limits.answer_s
            what = f"No answer from {who(ticket)} in {waited_s:g} s."
            self._fail(FirstEventTimeout("first-event-timeout", what))
        elif place.may_leave(now_s):
            what = f"{who(ticket)} does not move: its scheduler stands still, or it is gone."
            self._go_elsewhere(FirstEventTimeout("replica-stalled", what))
        elif place.is_stream:
            self._answer.beat(now_s)

    def _sweep_waiting(self, now_s: float) -> None:
        place = self._place
        if not place.is_waiting:
            return
        if self._door.is_draining:
            what = "The router is shutting down; try again."
            self._turn_out(Refused("shutting-down", what, retry_after_s=1.0))
        elif place.is_over(now_s):
            self._turn_out(place.refusal)
        elif place.is_stream:
            self._answer.beat(now_s)

    def probe(self) -> None:
        """The client has closed its side: make sure that it still listens."""
        if not self._is_over and (self._flow is None or self._is_stalled()):
            self._relay.probe()

    def _is_stalled(self) -> bool:
        """Nothing has come for a while behind a whole event: writing does not find out by itself."""
        is_silent = not self._is_heard and self._door.now_s() - self._last_heard_s >= SILENT_S
        is_between = self._reader is not None and self._reader.is_stream
        return is_silent and is_between and self._last.endswith(EVENT_ENDS)
