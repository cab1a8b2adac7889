"""Numbered invariants of a run, on in every run. Those of the engine are in :mod:`sim.engine.checks`.

20. Time never goes back.
21. Every turn that was sent ends exactly once: answered, rejected or given up; or the run ends first.
22. What a router's ledger says is in flight at a replica is what it placed there and has not finished:
    every request is released, and once.
23. When everything is over every ledger is back at zero.
24. What was submitted to an engine has ended or is in flight; its requests in flight are the run's.
25. A request begins once, and only when it was submitted; an answer has the tokens that were asked for.
26. No replica finds more of a prompt cached than was ever sent or answered.
27. Cached tokens that answers tell are tokens that the engine counted.
28. A replica that drains, or is gone, is sent nothing.
29. Every session's home is a replica that the router was told of; what is live at homes adds up.
30. What is measured as in flight is what is in flight.

A broken one ends the run with :class:`InvariantBrokenError`, an ``AssertionError``. Turn by turn are checked 21, 22, 25, 26 and
28; the rest for one replica and one router at each of a number of moments, and at the end for all.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NoReturn

from sim.engine.checks import check_state
from sim.engine.requests import EndReason
from sim.workload.play.prompts import common_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.engine.requests import Began, Ended
    from sim.fleet.parts import Door, Exchange, SimReplica
    from sim.kernel import Kernel
    from sim.measure.recording import Recording
    from sim.workload.play.turns import PlayedPrompt, Run

SAMPLES: Final = 64
"""Moments of a run at which state is checked."""

_SENT_MAX: Final = 1_024
"""Prompts of which invariant 26 knows where they lie; of what it has forgotten nothing is claimed."""

_STOP: Final = EndReason.STOP


class InvariantBrokenError(AssertionError):
    """A run did what must not be: a fault of the program, with all it takes to see it again.

    ``number`` is the invariant's, ``at_s`` virtual time, ``request`` the session's key or empty.
    """

    def __init__(self, number: int, what: str, *, at_s: float, request: str, repeat: str) -> None:
        whose = f" (session {request})" if request else ""
        super().__init__(
            f"invariant {number} is broken at {at_s!r} s{whose}: {what}. To repeat: {repeat}"
        )
        self.number = number
        self.at_s = at_s
        self.request = request


class Checks:
    """The invariants of one run."""

    def __init__(
        self, kernel: Kernel, recording: Recording, replicas: Sequence[SimReplica], *, repeat: str
    ) -> None:
        self._kernel = kernel
        self._recording = recording
        self._replicas = replicas
        self._repeat = repeat
        # Turns in the order in which they were sent, from the first on that was not over when the last
        # was: where each lies, and, by its number modulo their most, whether it is over. Turns
        # themselves are let go when they are.
        self._sent: deque[tuple[Run, ...]] = deque()
        self._is_over = bytearray(_SENT_MAX)
        self._first_order = 1
        self._n_sent = self._n_over = 0
        self._dropped_order = 0
        self._sampled = 0

    def fail(self, number: int, what: str, exchange: Exchange | None = None) -> NoReturn:
        """End the run.

        Raises:
            InvariantBrokenError: always.
        """
        raise InvariantBrokenError(
            number,
            what,
            at_s=self._kernel.now_s,
            request="" if exchange is None else exchange.turn.session_key,
            repeat=self._repeat,
        )

    # Turn by turn

    def sent(self, exchange: Exchange, prompt: PlayedPrompt) -> None:
        """A turn is sent for the first time."""
        exchange.order = self._n_sent = order = self._n_sent + 1
        sent, is_over, first = self._sent, self._is_over, self._first_order
        while sent and is_over[first % _SENT_MAX]:
            sent.popleft()
            first += 1
        if len(sent) == _SENT_MAX:
            sent.popleft()
            self._dropped_order = first
            first += 1
        sent.append(prompt.path)
        is_over[order % _SENT_MAX] = 0
        exchange.order_floor = self._first_order = first

    def placed(self, exchange: Exchange, replica: SimReplica) -> None:
        """A door has a turn in its books, at this replica."""
        door = exchange.door
        assert door is not None, "a turn comes through a door"
        number, old = door.number, exchange.held
        if old is not None:
            old.placed[number] -= 1
        exchange.held = replica
        placed = replica.placed
        placed[number] = placed.get(number, 0) + 1

    def sending(self, exchange: Exchange, replica: SimReplica) -> None:
        """A turn is about to be submitted."""
        if replica.is_draining or replica.is_gone:
            self.fail(
                28, f"{replica.replica_id} drains, or is gone, and is sent a request", exchange
            )

    def began(self, replica: SimReplica, exchange: Exchange | None, event: Began) -> None:
        """An engine began to answer."""
        if exchange is None:
            return  # cancelled in this very moment
        if exchange.began_s is not None or exchange.replica is not replica:
            self.fail(25, f"{event} of a request that is not waiting there", exchange)
        if event.cached_tokens > exchange.ceiling_tokens:
            self._explain(replica, exchange, event.cached_tokens)

    def ended(self, replica: SimReplica, exchange: Exchange | None, event: Ended) -> None:
        """An engine ended a request."""
        if exchange is None:
            return
        if event.reason is _STOP and event.output_tokens != exchange.turn.output_tokens:
            wanted = exchange.turn.output_tokens
            self.fail(25, f"{event} at {replica.replica_id} instead of {wanted} tokens", exchange)

    def finished(self, exchange: Exchange) -> None:
        """A try is over for its door."""
        door, replica = exchange.door, exchange.held
        if door is None or replica is None:
            self.fail(21, "a try ends that is in nobody's books", exchange)
        number, placed = door.number, replica.placed
        placed[number] = n = placed[number] - 1
        exchange.held = None
        inflight = door.inflight(replica)
        if inflight is not None and inflight != n:
            what = f"{inflight} in flight at {replica.replica_id} by the ledger of router {number}"
            self.fail(22, f"{what}, {n} were placed and are not finished", exchange)

    def over(self, exchange: Exchange) -> None:
        """A turn ends for its client."""
        if exchange.is_over:
            self.fail(21, "a turn ends twice", exchange)
        self._n_over += 1
        if exchange.order >= self._first_order:
            self._is_over[exchange.order % _SENT_MAX] = 1

    def lost(self, exchange: Exchange) -> None:
        """The door of a try is lost, with its books."""
        door, replica = exchange.door, exchange.held
        assert door is not None, "a turn comes through a door"
        if replica is not None:
            replica.placed[door.number] -= 1
            exchange.held = None

    # Moments

    def sample(self, doors: Sequence[Door]) -> None:
        """Look at one replica and one router, the next in turn."""
        number = self._sampled
        self._sampled += 1
        replica = self._replicas[number % len(self._replicas)]
        if not replica.is_gone:
            self._look_at(replica)
        door = doors[number % len(doors)]
        if door.is_open and (what := door.check()):
            self.fail(29, f"router {door.number}: {what}")

    def at_end(self, doors: Sequence[Door], n_open: int) -> None:
        """Everything was ended: look at all that is left."""
        if self._n_sent != self._n_over + n_open:
            self.fail(21, f"{self._n_sent} turns sent, {self._n_over} over, {n_open} open")
        for replica in self._replicas:
            if replica.exchanges:
                self.fail(24, f"{replica.replica_id} still has {len(replica.exchanges)} requests")
            if replica.is_listening:
                self._look_at(replica)
        for door in doors:
            if door.is_open and (what := door.check()):
                self.fail(29, f"router {door.number}: {what}")
            if door.is_open and (what := door.check_end()):
                self.fail(23, f"router {door.number}: {what}")
        left = {r.replica_id: r.placed for r in self._replicas if any(r.placed.values())}
        if left:
            self.fail(23, f"still placed, by replica and router: {left}")

    def _look_at(self, replica: SimReplica) -> None:
        try:
            check_state(replica.model)
        except AssertionError as failure:
            self.fail(_number(failure), f"{replica.replica_id}: {failure}")
        name, now_s = replica.replica_id, self._kernel.now_s
        loads = replica.model.loads(now_s)
        inflight = len(replica.exchanges)
        if replica.submitted != loads.total_ended + inflight:
            what = f"{replica.submitted} submitted to {name}, {loads.total_ended} ended"
            self.fail(24, f"{what}, {inflight} in flight")
        if self._recording.inflight_of(replica.index) != inflight:
            measured = self._recording.inflight_of(replica.index)
            self.fail(30, f"{measured} measured in flight at {name}, {inflight} are")
        if replica.cached_tokens > loads.total_cached_tokens:
            what = f"{replica.cached_tokens} cached tokens told by answers of {name}"
            self.fail(27, f"{what}, {loads.total_cached_tokens} counted")

    def _explain(self, replica: SimReplica, exchange: Exchange, cached: int) -> None:
        """More was cached than had been sent before: somebody must have sent it since, or this turn itself."""
        prompt = exchange.prompt
        assert prompt is not None, "what begins is not over"
        if exchange.tries > 1 or exchange.sends > 1 or self._dropped_order >= exchange.order_floor:
            return
        for order, path in enumerate(self._sent, self._first_order):
            if order != exchange.order and common_tokens(prompt.path, path) >= cached:
                return
        what = f"{cached} tokens of the prompt cached at {replica.replica_id}"
        self.fail(26, f"{what}; {exchange.ceiling_tokens} were ever sent or answered", exchange)


def _number(failure: AssertionError) -> int:
    """The invariant's number, with which the message of an engine check begins."""
    digits = str(failure).partition(":")[0]
    return int(digits) if digits.isdigit() else 1
