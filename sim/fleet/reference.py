"""The clairvoyant reference: how well could any router do? A bound to measure policies against, not a proof.

Every replica holds every cache, so no placement costs a recompute and no move leaves a copy behind; one
router knows each engine as it is now, and which process listens. What is left to decide is where to join,
by one of a few plain rules; the best of them for the scenario is the reference, and its result names it.
Engines, limits, workload and faults are the policies' own, but for the faults that are about caches,
routers and stale knowledge: a reference has no such troubles.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from router.errors import Refused
from sim.engine.pool import SharedPrefixes
from sim.fleet.driver import FleetRun
from sim.scenario.model import FaultKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.dialect.base import Usage
    from router.errors import RouterError, UpstreamError
    from router.state.history import Outcome
    from sim.fleet.parts import Door, Exchange, SimReplica
    from sim.measure.result import RunResult
    from sim.scenario.model import Scenario
    from sim.workload.play.turns import Play

    Rule = Callable[["Oracle", SimReplica, Exchange, float], float]

NAME: Final = "reference"

NOISE_RATIO: Final = 0.01
"""A rule whose throughput is that close to the best rule's is as good; its TTFT decides."""

_NEIGHBOUR_S_PER_TOKEN: Final = 0.000_43
"""What one running neighbour adds to an output token: 2.5 ms a verify step of 5.84 tokens."""

_RETRY_AFTER_S: Final = 1.0

_FAULTS: Final = (FaultKind.CRASH, FaultKind.SLOW, FaultKind.SCALE_UP, FaultKind.SCALE_DOWN)


def _backlog(oracle: Oracle, replica: SimReplica, exchange: Exchange, now_s: float) -> float:
    """The shortest prefill backlog, exactly."""
    del oracle, exchange
    return replica.model.prefill_left_s(now_s)


def _fewest(oracle: Oracle, replica: SimReplica, exchange: Exchange, now_s: float) -> float:
    """The fewest requests in flight; of these, the shortest prefill backlog."""
    del exchange, now_s
    return float(oracle.inflight(replica))


def _price(oracle: Oracle, replica: SimReplica, exchange: Exchange, now_s: float) -> float:
    """Backlog, own prefill, and what both sides of the shared steps lose by it, in seconds."""
    turn, cached = exchange.turn, exchange.ceiling_tokens
    prefill_s = replica.facts.prefill_s(turn.prompt_tokens - cached, cached)
    neighbour_s = prefill_s + _NEIGHBOUR_S_PER_TOKEN * turn.output_tokens
    wait_s = replica.model.prefill_left_s(now_s)
    return wait_s + prefill_s * replica.slow_factor + oracle.decoding(replica) * neighbour_s


RULES: Final[dict[str, Rule]] = {
    "shortest-backlog": _backlog,
    "fewest-in-flight": _fewest,
    "least-price": _price,
}


def simulate_reference(
    scenario: Scenario, make_play: Callable[[], Play], *, seed: int
) -> RunResult:
    """Play a workload with each join rule; answer the best: the lowest mean TTFT at the best throughput.

    ``make_play`` makes the same play anew for each rule.

    Raises:
        ValueError: the scenario's fleet cannot be; the message says what.
        InvariantBrokenError: a run did what must not be.
    """
    results = [with_rule(scenario, make_play(), rule, seed=seed) for rule in RULES]
    most = max(result.tokens_per_min_per_gpu for result in results)
    good = [r for r in results if r.tokens_per_min_per_gpu >= (1.0 - NOISE_RATIO) * most]
    return min(good, key=lambda r: inf if r.ttft_s.mean is None else r.ttft_s.mean)


def with_rule(scenario: Scenario, play: Play, rule: str, *, seed: int) -> RunResult:
    """Play a workload with one join rule of :data:`RULES`.

    Raises:
        ValueError: the scenario's fleet cannot be; the message says what.
        InvariantBrokenError: the run did what must not be.
    """

    def open_door(number: int, run: FleetRun) -> Door:
        return Oracle(number, run.replicas, RULES[rule])

    run = FleetRun(
        scenario,
        play,
        open_door,
        seed=seed,
        policy=NAME,
        n_doors=1,
        faults=tuple(fault for fault in scenario.faults if fault.kind in _FAULTS),
        shared=SharedPrefixes(),
    )
    return run.result(NAME, rule=rule)


class Oracle:
    """A door that looks into the engines."""

    def __init__(self, number: int, fleet: Sequence[SimReplica], rule: Rule) -> None:
        self.number = number
        self.is_open = True
        self._fleet = fleet
        self._rule = rule
        self._held: dict[int, int] = {}
        self._decoding: dict[int, int] = {}

    @property
    def moves(self) -> int:
        """Nobody is at home anywhere."""
        return 0

    def inflight(self, replica: SimReplica) -> int:
        """Requests in flight there."""
        return self._held.get(replica.index, 0)

    def decoding(self, replica: SimReplica) -> int:
        """Those of them that have begun to answer."""
        return self._decoding.get(replica.index, 0)

    def place(self, exchange: Exchange, now_s: float) -> tuple[SimReplica, str, int]:
        """The best replica by the rule.

        Raises:
            Refused: no process listens.
        """
        exchange.tried = ()
        replica = self._best(exchange, now_s)
        if replica is None:
            raise Refused("no-replica-ready", "no replica listens", retry_after_s=_RETRY_AFTER_S)
        self._held[replica.index] = self.inflight(replica) + 1
        return replica, "join", exchange.ceiling_tokens

    def has_turn(self, replica_id: str) -> bool:
        """Nobody waits at its door."""
        del replica_id
        return True

    def place_again(
        self, exchange: Exchange, error: UpstreamError, now_s: float
    ) -> SimReplica | None:
        """The best of those that have not failed it yet."""
        del error
        failed = exchange.held
        assert failed is not None, "what failed was placed before"
        exchange.tried = (*exchange.tried, failed)
        replica = self._best(exchange, now_s)
        if replica is not None:
            self._held[failed.index] -= 1
            self._held[replica.index] = self.inflight(replica) + 1
        return replica

    def _best(self, exchange: Exchange, now_s: float) -> SimReplica | None:
        best: SimReplica | None = None
        least = (inf, inf)
        for replica in self._fleet:
            if not replica.is_serving or replica in exchange.tried:
                continue
            cost = (self._rule(self, replica, exchange, now_s), float(self.inflight(replica)))
            if cost < least or best is None:
                best, least = replica, cost
        return best

    def blame(self, exchange: Exchange, error: UpstreamError, now_s: float) -> None:
        """It bears no grudge."""

    def began(self, exchange: Exchange, now_s: float) -> None:
        """A request is past its prefill."""
        del now_s
        replica = exchange.held
        assert replica is not None, "what begins was placed before"
        self._decoding[replica.index] = self.decoding(replica) + 1

    def finish(
        self,
        exchange: Exchange,
        outcome: Outcome,
        now_s: float,
        *,
        usage: Usage | None = None,
        error: RouterError | None = None,
    ) -> None:
        """A request is over."""
        del outcome, now_s, usage, error
        replica = exchange.held
        assert replica is not None, "what ends was placed before"
        self._held[replica.index] -= 1
        if exchange.began_s is not None:
            self._decoding[replica.index] -= 1

    def joined(self, replica: SimReplica, now_s: float, *, is_first: bool = False) -> None:
        """It sees for itself."""

    def draining(self, replica: SimReplica, now_s: float) -> None:
        """It sees for itself."""

    def left(self, replica: SimReplica, now_s: float) -> None:
        """It sees for itself."""

    def changed(self, replica: SimReplica) -> None:
        """It sees for itself."""

    def check(self) -> str:
        """It believes nothing that it does not see."""
        return ""

    def check_end(self) -> str:
        """What is left in its books."""
        left = {index: n for index, n in self._held.items() if n}
        left.update({index: n for index, n in self._decoding.items() if n})
        return f"requests are left at {left}" if left else ""

    def stop(self) -> None:
        """A reference is never lost."""
        self.is_open = False
