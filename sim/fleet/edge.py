"""The front door's part of an exchange in virtual time: send, try elsewhere, time out, give up.

The rules are those of ``router.edge`` (``exchange.py``, ``tries.py``): before its first token a failed
request moves to another replica, a bounded number of times; afterwards it ends with an error. A replica
that is gone cuts its connections: a request that has not begun may have started there. One thing is left
out: the live edge also ends a stream that brings nothing for 300 s; here it goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.dialect.base import Usage
from router.errors import (
    AwaitsTurn,
    ConnectFailed,
    FirstEventTimeout,
    Refused,
    UpstreamError,
    UpstreamProtocol,
    UpstreamStatus,
)
from router.state.history import Outcome
from router.ticket import priority_of
from sim.engine.requests import Began, Ended, EndReason, EngineRequest, PromptTooLong, QueueFull
from sim.fleet.rooms import TURN_S, Rooms
from sim.kernel import Alarm, Rank

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.fleet.checks import Checks
    from sim.fleet.parts import ClientSide, Door, Exchange, SimReplica
    from sim.kernel import Kernel
    from sim.measure.recording import Recording

TRIES_MAX: Final = 5
STARTED_TRIES_MAX: Final = 2
FIRST_EVENT_S: Final = 600.0
"""These three as ``router.edge.bounds.limits`` has them."""

_ARRIVAL: Final = Rank.ARRIVAL
_STOP: Final = EndReason.STOP
_DONE: Final = Outcome.DONE

_OVERLOADED: Final = 503
_REJECTED: Final = 400


class Edge:
    """All exchanges between routers and replicas.

    ``asked_tokens``: the most that clients allow for an answer.
    ``has_priorities``: engines serve by priority. A request of which the router expects at least half of
    the prompt to be cached where it goes first has priority 1, others 0: warm turns pass cold ones.
    """

    def __init__(
        self,
        kernel: Kernel,
        recording: Recording,
        checks: Checks,
        clients: ClientSide,
        *,
        asked_tokens: int,
        has_priorities: bool = False,
    ) -> None:
        self._kernel = kernel
        self._recording = recording
        self._checks = checks
        self._clients = clients
        self._asked_tokens = asked_tokens
        self._has_priorities = has_priorities
        self._serial = 0
        self._deadlines: dict[str, tuple[float, SimReplica]] = {}
        self._timer = Alarm(_ARRIVAL, self._time_out, None)
        self._is_timing = False
        self._rooms = Rooms(kernel, self._set_out)

    def start(self, exchange: Exchange) -> None:
        """A client's try has come to its router."""
        now_s = self._kernel.now_s
        exchange.sends = exchange.started = 0
        exchange.began_s = None
        exchange.turn_by_s = now_s + TURN_S
        exchange.has_waited = False
        self._set_out(exchange, now_s)

    def _set_out(self, exchange: Exchange, now_s: float) -> None:
        """Place it, and send it; or let it wait for its turn."""
        door = exchange.door
        assert door is not None, "a turn comes to a router"
        try:
            replica, reason, predicted = door.place(exchange, now_s)
        except AwaitsTurn as turn:
            if self._rooms.is_to_wait(exchange, turn, now_s):
                self._rooms.enter(exchange, turn)
            else:
                exchange.has_waited = True
                self._set_out(exchange, now_s)
            return
        except Refused as refused:
            self._clients.failed(exchange, now_s, retry_after_s=refused.retry_after_s)
            return
        self._checks.placed(exchange, replica)
        if exchange.tries == 1:
            self._recording.decided(exchange.row, reason, predicted)
        if self._has_priorities:
            exchange.priority = priority_of(exchange.turn.prompt_tokens, predicted)
        self._send(exchange, replica, now_s)

    def wake(self, replica: SimReplica) -> None:
        """A replica's engine has something to tell."""
        kernel = self._kernel
        now_s = kernel.now_s
        model = replica.model
        for event in model.advance(now_s, with_progress=False):
            if isinstance(event, Began):
                self._began(replica, event, now_s)
            elif isinstance(event, Ended):
                self._ended(replica, event, now_s)
        kernel.arm(replica.alarm, model.next_at())

    def crash(self, replica: SimReplica) -> None:
        """A replica's process is gone: its connections are cut."""
        now_s = self._kernel.now_s
        exchanges = list(replica.exchanges.values())
        replica.exchanges.clear()
        replica.model.crash(now_s)
        self._recording.inflight(replica.index, -len(exchanges), now_s)
        self._kernel.arm(replica.alarm, None)
        for exchange in exchanges:
            exchange.replica = None
            if exchange.began_s is None:
                what = f"{replica.replica_id} closed the connection without an answer"
                self._fail(exchange, UpstreamProtocol("bad-upstream-response", what), now_s)
            else:
                self._cut(exchange, f"{replica.replica_id}'s stream ended", now_s)

    def cancel(self, exchange: Exchange) -> None:
        """The router closes the connection: the engine's work on it ends, or its wait at the door."""
        self._rooms.leave(exchange)
        replica, now_s = exchange.replica, self._kernel.now_s
        if replica is None:
            return
        del replica.exchanges[exchange.rid]
        exchange.replica = None
        self._recording.inflight(replica.index, -1, now_s)
        replica.model.cancel(exchange.rid, now_s)
        self._kernel.arm(replica.alarm, replica.model.next_at())

    def leave(self, door: Door, replica: SimReplica, may_leave: Callable[[Exchange], bool]) -> None:
        """A door sees that a replica does not move: what has not begun there goes elsewhere."""
        now_s = self._kernel.now_s
        for exchange in list(replica.exchanges.values()):
            if exchange.door is door and exchange.began_s is None and may_leave(exchange):
                self.cancel(exchange)
                what = f"{replica.replica_id} does not move"
                self._fail(exchange, FirstEventTimeout("replica-stalled", what), now_s)

    # Sending

    def _send(self, exchange: Exchange, replica: SimReplica, now_s: float) -> None:
        """Submit it to the chosen replica; while one refuses, to the next."""
        while (error := self._submit(exchange, replica, now_s)) is not None:
            if error.http_status == _REJECTED:
                self._finish(exchange, Outcome.REJECTED, now_s, error)
                self._clients.rejected(exchange, now_s)
                return
            other = self._elsewhere(exchange, error, now_s)
            if other is None:
                self._finish(exchange, Outcome.FAILED, now_s, error)
                self._clients.failed(exchange, now_s, retry_after_s=None)
                return
            replica = other

    def _submit(
        self, exchange: Exchange, replica: SimReplica, now_s: float
    ) -> UpstreamError | None:
        """Hand it to a replica's engine; answers why that failed."""
        exchange.sends += 1
        turn, prompt = exchange.turn, exchange.prompt
        assert prompt is not None, "only what is not over is sent"
        self._checks.sending(exchange, replica)
        if not replica.is_listening:
            replica.touch()
            return ConnectFailed("connect-failed", f"{replica.replica_id} refused the connection")
        if prompt.warm_tokens:
            replica.model.warm(prompt.pages, prompt.warm_tokens, now_s)
            prompt.warm_tokens = 0
        self._serial += 1
        rid = str(self._serial)
        output_tokens, asked_tokens = turn.output_tokens, self._asked_tokens
        request = EngineRequest(
            rid,
            turn.prompt_tokens,
            output_tokens,
            prompt.pages,
            prompt.output_pages,
            exchange.priority,
            max(asked_tokens, output_tokens),
        )
        try:
            replica.model.submit(request, now_s)
        except QueueFull as full:
            return UpstreamStatus("upstream-status", str(full), http_status=_OVERLOADED)
        except (PromptTooLong, ValueError) as failure:
            return UpstreamStatus("upstream-status", str(failure), http_status=_REJECTED)
        replica.submitted += 1
        replica.exchanges[rid] = exchange
        exchange.rid = rid
        exchange.replica = replica
        self._recording.inflight(replica.index, 1, now_s)
        self._kernel.arm(replica.alarm, replica.model.next_at())
        self._deadlines[rid] = (now_s + FIRST_EVENT_S, replica)
        if not self._is_timing:
            self._is_timing = True
            self._kernel.arm(self._timer, now_s + FIRST_EVENT_S)
        if replica.n_asleep:
            replica.touch()
        return None

    def _elsewhere(
        self, exchange: Exchange, error: UpstreamError, now_s: float
    ) -> SimReplica | None:
        """Let the router decide anew; None if the request is not to be sent again."""
        door = exchange.door
        assert door is not None, "a turn comes through a door"
        if not isinstance(error, (ConnectFailed, UpstreamStatus)):
            exchange.started += 1
            if exchange.started >= STARTED_TRIES_MAX:
                door.blame(exchange, error, now_s)
                return None
        if exchange.sends >= TRIES_MAX:
            door.blame(exchange, error, now_s)
            return None
        replica = door.place_again(exchange, error, now_s)
        if replica is not None:
            self._checks.placed(exchange, replica)
            self._recording.retried()
        return replica

    # From the replicas

    def _began(self, replica: SimReplica, event: Began, now_s: float) -> None:
        """The first token of a try."""
        rid = event.rid
        exchange = replica.exchanges.get(rid)
        self._checks.began(replica, exchange, event)
        self._deadlines.pop(rid, None)
        replica.cached_tokens += event.cached_tokens
        if exchange is None:
            return
        door = exchange.door
        assert door is not None, "a turn comes through a door"
        exchange.began_s = now_s
        exchange.cached_tokens = event.cached_tokens
        door.began(exchange, now_s)
        self._rooms.ring(door, replica.replica_id, now_s)
        if not exchange.has_token:
            exchange.has_token = True
            self._recording.began(
                exchange.row,
                exchange.waited_s(now_s),
                event.cached_tokens,
                event.host_tokens,
                replica.index,
            )
            self._clients.waits_no_longer(exchange)

    def _ended(self, replica: SimReplica, event: Ended, now_s: float) -> None:
        """The last event of a try; of one that was cancelled nobody wants to know."""
        exchange = replica.exchanges.pop(event.rid, None)
        self._checks.ended(replica, exchange, event)
        if exchange is None:
            return
        self._recording.inflight(replica.index, -1, now_s)
        exchange.replica = None
        if event.reason is not _STOP:
            self._aborted(exchange, replica, now_s)
            return
        door, began_s = exchange.door, exchange.began_s
        assert door is not None, "a turn comes through a door"
        assert began_s is not None, "an answer begins before it ends"
        usage = Usage(exchange.turn.prompt_tokens, event.output_tokens, exchange.cached_tokens)
        door.finish(exchange, _DONE, now_s, usage=usage)
        self._checks.finished(exchange)
        self._rooms.ring(door, replica.replica_id, now_s)
        self._recording.answered(exchange.row, now_s - began_s)
        self._clients.over(exchange, now_s)

    def _aborted(self, exchange: Exchange, replica: SimReplica, now_s: float) -> None:
        """The engine itself ended it, for another request's sake: an error event, status 503."""
        what = f"{replica.replica_id} ended the request"
        if exchange.began_s is None:
            error = UpstreamStatus("upstream-status", what, http_status=_OVERLOADED)
            self._fail(exchange, error, now_s)
        else:
            self._cut(exchange, what, now_s)

    # Failing

    def _fail(self, exchange: Exchange, error: UpstreamError, now_s: float) -> None:
        """A replica failed it before its first token: try another, or tell the client."""
        replica = self._elsewhere(exchange, error, now_s)
        if replica is not None:
            self._send(exchange, replica, now_s)
            return
        self._finish(exchange, Outcome.FAILED, now_s, error)
        self._clients.failed(exchange, now_s, retry_after_s=None)

    def _cut(self, exchange: Exchange, what: str, now_s: float) -> None:
        """A stream that has begun ends with an error."""
        self._finish(exchange, Outcome.FAILED, now_s, UpstreamProtocol("stream-cut", what))
        self._clients.failed(exchange, now_s, retry_after_s=None)

    def _time_out(self, _: None) -> None:
        """The oldest request that was sent and has not begun may have waited for too long."""
        now_s = self._kernel.now_s
        deadlines = self._deadlines
        while deadlines:
            rid, (at_s, replica) = next(iter(deadlines.items()))
            exchange = replica.exchanges.get(rid)
            if exchange is not None and at_s > now_s:
                self._kernel.arm(self._timer, at_s)
                break
            del deadlines[rid]
            if exchange is not None:
                self.cancel(exchange)
                what = f"No answer from {replica.replica_id} in {FIRST_EVENT_S:g} s."
                self._fail(exchange, FirstEventTimeout("first-event-timeout", what), now_s)
        self._is_timing = bool(deadlines)

    def _finish(
        self, exchange: Exchange, outcome: Outcome, now_s: float, error: UpstreamError
    ) -> None:
        """The try has failed for its router."""
        door = exchange.door
        assert door is not None, "a turn comes through a door"
        held = exchange.held
        door.finish(exchange, outcome, now_s, error=error)
        self._checks.finished(exchange)
        if held is not None:
            self._rooms.ring(door, held.replica_id, now_s)
