"""A run that does what must not be stops, and says which invariant, when, whose request, and how to repeat."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from router.core import RouterCore
from router.edge.bounds.limits import EdgeLimits
from router.policy import registry
from router.policy.baselines import LeastInflight
from router.policy.view import Ranking
from router.recording.player import Player
from sim.fleet import edge
from sim.fleet.checks import InvariantBrokenError
from sim.fleet.driver import routed, simulate
from sim.fleet.routers import SimRouter, plain_core
from sim.kernel import Rank
from sim.scenario.model import FaultKind, FaultSpec, FleetSpec, RouterSpec, Scenario
from tests.doubles.recordings import packed, reading, recorded
from tests.doubles.small_play import SmallPlay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.policy.view import FleetView, RouteRequest
    from router.recording.records import Record
    from router.state.history import RequestRecord
    from router.ticket import Ticket
    from sim.fleet.driver import FleetRun
    from sim.workload.play.turns import Due, PlayedPrompt, PlayedTurn

SHORT = Scenario(name="short", duration_s=60.0, warmup_s=5.0, fleet=(FleetSpec(replicas=3),))


def broken(play: SmallPlay | None = None, **kinds: object) -> InvariantBrokenError:
    """Run it, and answer how it broke."""
    scenario = kinds.pop("scenario", SHORT)
    with pytest.raises(InvariantBrokenError) as caught:
        simulate(
            scenario,  # type: ignore[arg-type]
            "home",
            play or SmallPlay(20, turns=6, gap_s=4.0),
            seed=3,
            **kinds,  # type: ignore[arg-type]
        )
    return caught.value


class ReleasesTwice(RouterCore):
    """Every fifth request leaves the ledger twice."""

    @override
    def finish(self, ticket: Ticket, *args: object, **kinds: object) -> RequestRecord:
        record = super().finish(ticket, *args, **kinds)  # type: ignore[arg-type]
        if ticket.request.serial % 5 == 0:
            self.ledger.load(ticket.replica_id).inflight -= 1
        return record


def test_22_a_request_released_twice() -> None:
    failure = broken(
        make_core=lambda policy, seed, *_: ReleasesTwice(registry.make(policy), random.Random(seed))
    )
    assert failure.number == 22
    assert failure.at_s > 0.0
    assert failure.request.startswith("session-")
    assert "homeport sim run short --policies home --seed 3" in str(failure)


class KeepsTokens(RouterCore):
    """Tokens stay behind in the ledger."""

    @override
    def finish(self, ticket: Ticket, *args: object, **kinds: object) -> RequestRecord:
        record = super().finish(ticket, *args, **kinds)  # type: ignore[arg-type]
        self.ledger.load(ticket.replica_id).inflight_tokens += 1
        return record


def test_23_a_ledger_that_does_not_return_to_zero() -> None:
    failure = broken(
        make_core=lambda policy, seed, *_: KeepsTokens(registry.make(policy), random.Random(seed))
    )
    assert failure.number == 23


class Prescient(SmallPlay):
    """Says that nothing was ever sent before."""

    @override
    def prompt(self, turn: PlayedTurn) -> PlayedPrompt:
        prompt = super().prompt(turn)
        prompt.ceiling_tokens = 0
        return prompt


def test_26_more_cached_than_was_ever_sent() -> None:
    failure = broken(Prescient(20, turns=6, gap_s=4.0))
    assert failure.number == 26
    assert "0 were ever sent" in str(failure)


class Hasty(SmallPlay):
    """Wants its next turn sent before the last one was answered."""

    @override
    def ended(self, turn: PlayedTurn, now_s: float) -> Sequence[Due]:
        return [due._replace(at_s=now_s - 5.0) for due in super().ended(turn, now_s)]


def test_20_a_turn_in_the_past() -> None:
    assert broken(Hasty(20, turns=6, gap_s=4.0)).number == 20


def ends_a_turn_twice(run: FleetRun) -> None:
    run.checks.over(next(iter(run.clients.unfinished.values())))
    next(iter(run.clients.unfinished.values())).is_over = True


def loses_a_request(run: FleetRun) -> None:
    run.replicas[1].submitted += 1


def begins_again(run: FleetRun) -> None:
    """Of those that wait for a first token, as soon as anybody does."""
    waiting = [e for e in run.clients.unfinished.values() if e.replica and e.began_s is None]
    for exchange in waiting:
        exchange.began_s = 0.0
    if not waiting:
        run.kernel.at(run.kernel.now_s + 0.1, Rank.SAMPLE, begins_again, run)


def tells_too_much(run: FleetRun) -> None:
    run.replicas[0].cached_tokens += 10**12


def has_a_home_nowhere(run: FleetRun) -> None:
    door = run.doors[0]
    assert isinstance(door, SimRouter)
    door.core.pins.touch("somebody", "r9999", run.kernel.now_s, tokens=1)


def counts_in_flight_wrongly(run: FleetRun) -> None:
    run.recording.inflight(2, 1, run.kernel.now_s)


@pytest.mark.parametrize(
    ("number", "tamper"),
    [
        (21, ends_a_turn_twice),
        (24, loses_a_request),
        (25, begins_again),
        (27, tells_too_much),
        (29, has_a_home_nowhere),
        (30, counts_in_flight_wrongly),
    ],
)
def test_what_must_not_be_is_noticed(number: int, tamper: Callable[[FleetRun], None]) -> None:
    run = routed(SHORT, "home", SmallPlay(60, turns=6, gap_s=4.0), seed=3)
    run.kernel.at(20.0, Rank.SAMPLE, tamper, run)
    with pytest.raises(InvariantBrokenError) as caught:
        run.result("home")
    assert caught.value.number == number
    assert caught.value.at_s >= 20.0


class Stubborn(LeastInflight):
    """Names a replica that drains."""

    @override
    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        ranking = super().rank(request, fleet, dice)
        return Ranking(("r0000",), ranking.reason, {})


def test_28_a_request_for_a_replica_that_drains() -> None:
    drain = FaultSpec(FaultKind.SCALE_DOWN, 20.0, replicas=(0,), drain_s=30.0)
    failure = broken(
        scenario=replace(SHORT, faults=(drain,)),
        make_core=lambda _, seed, *__: RouterCore(Stubborn(), random.Random(seed)),
    )
    assert failure.number == 28
    assert failure.at_s >= 20.0


def test_the_edge_of_the_simulator_has_the_limits_of_the_live_one() -> None:
    live = EdgeLimits()
    assert live.is_started_repeated
    assert (
        live.tries_max,
        live.started_tries_max,
        live.first_event_s,
    ) == (edge.TRIES_MAX, edge.STARTED_TRIES_MAX, edge.FIRST_EVENT_S)


FAULTS = (
    FaultSpec(FaultKind.CRASH, 20.0, replicas=(1,), duration_s=2.0, startup_s=8.0),
    FaultSpec(FaultKind.SCALE_UP, 20.0, count=1, startup_s=5.0),
    FaultSpec(FaultKind.SCALE_DOWN, 40.0, replicas=(0,), drain_s=3.0),
)


def records_of(policy: str, *, can_sleep: bool) -> list[Record]:
    """What one router of a run was told and answered."""
    core, journal = recorded(policy, seed=9)
    scenario = replace(SHORT, faults=FAULTS, routers=RouterSpec(probe_s=0.5))
    play = SmallPlay(20, turns=6, gap_s=4.0)
    result = simulate(
        scenario, policy, play, seed=9, make_core=lambda *_: core, can_sleep=can_sleep
    )
    assert result.requests > 50
    return journal.records


@pytest.mark.parametrize("policy", ["home", "power_of_two", "sticky"])
def test_what_a_simulated_router_was_told_makes_a_live_core_decide_alike(policy: str) -> None:
    recording = reading(packed(records_of(policy, can_sleep=True)))
    player = Player(recording.header)
    assert list(player.play(recording)) == []
    assert player.tally.placed > 50


def test_polls_that_change_nothing_are_not_told() -> None:
    assert len(records_of("home", can_sleep=True)) < len(records_of("home", can_sleep=False))


def test_a_core_is_the_plain_one_if_nobody_asks() -> None:
    core = plain_core("home", 1, 0, RouterSpec(inflight_max=3))
    assert type(core) is RouterCore
