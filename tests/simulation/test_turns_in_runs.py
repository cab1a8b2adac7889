"""Long prompts take turns in runs as they do at the door of a live router."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from typing_extensions import override

from router.core import RouterCore
from router.edge.bounds.limits import HoldLimits
from router.errors import AwaitsTurn
from router.policy import registry
from sim.engine.rules import SHORTEST_PREFILL
from sim.fleet.driver import simulate
from sim.fleet.explaining import Pick, explained
from sim.fleet.parts import Exchange
from sim.fleet.rooms import TURN_S, TURN_SHORT_FIRST_S, Rooms
from sim.kernel import Kernel
from sim.rng import stream
from sim.scenario.model import EngineSpec, FaultKind, FaultSpec, FleetSpec, RouterSpec, Scenario
from tests.doubles.small_play import SmallPlay

if TYPE_CHECKING:
    from router.dialect.base import PromptFacts
    from router.ticket import Ticket
    from sim.fleet.parts import Door
    from sim.measure.result import RunResult

SWAMPED = Scenario(name="swamped", duration_s=120.0, warmup_s=0.0, fleet=(FleetSpec(replicas=2),))


class Watched(RouterCore):
    """A core that remembers when it had how many long prompts at a replica at most."""

    def __init__(self, policy: str, seed: int) -> None:
        super().__init__(registry.make(policy), stream(seed, "router/0"))
        self.most: list[tuple[float, int]] = []

    @override
    def arrive(self, facts: PromptFacts, now_s: float, *, may_wait: bool = False) -> Ticket:
        ticket = super().arrive(facts, now_s, may_wait=may_wait)
        self.most.append((now_s, max(load.long_prefills for _, load in self.ledger.loads())))
        return ticket


def watched(scenario: Scenario, policy: str = "home") -> tuple[RunResult, list[Watched]]:
    cores: list[Watched] = []

    def make_core(name: str, seed: int, number: int, spec: RouterSpec) -> RouterCore:
        del number, spec
        cores.append(Watched(name, seed))
        return cores[-1]

    play = SmallPlay(60, turns=4, first_tokens=120_000, gap_s=2.0)
    more: dict[str, Any] = {"seed": 1, "make_core": make_core}
    return simulate(scenario, policy, play, **more), cores


def test_the_simulated_door_waits_as_long_as_the_live_one() -> None:
    assert HoldLimits().turn_s == TURN_S
    assert HoldLimits().turn_short_first_s == TURN_SHORT_FIRST_S


def test_one_long_prompt_at_a_time() -> None:
    result, (core,) = watched(SWAMPED)
    assert result.errors == 0
    assert len(core.most) > 20
    assert max(n for at_s, n in core.most if at_s < TURN_S) == 1


def test_who_has_waited_long_enough_is_sent() -> None:
    _, (core,) = watched(replace(SWAMPED, duration_s=TURN_S + 40.0))
    assert max(n for at_s, n in core.most if at_s < TURN_S) == 1
    assert max(n for at_s, n in core.most if at_s > TURN_S) > 3


def test_who_waits_where_short_prompts_pass_is_sent_sooner() -> None:
    engine = EngineSpec(order=SHORTEST_PREFILL)
    short = replace(SWAMPED, engine=engine, duration_s=TURN_SHORT_FIRST_S + 30.0)
    _, (core,) = watched(short)
    assert max(n for at_s, n in core.most if at_s < TURN_SHORT_FIRST_S) == 1
    assert max(n for at_s, n in core.most if at_s > TURN_SHORT_FIRST_S) > 3


class OneDoor:
    """A door whose only replica is free for one at a time."""

    number = 0

    def __init__(self) -> None:
        self.is_free = True

    def has_turn(self, replica_id: str) -> bool:
        """Whether the next one may go."""
        return replica_id == "r0" and self.is_free


@pytest.mark.parametrize("is_short_first", [True, False])
def test_the_simulated_door_has_the_order_of_the_engine(*, is_short_first: bool) -> None:
    door, went = OneDoor(), []

    def go(exchange: Exchange, now_s: float) -> None:
        del now_s
        went.append(exchange.order)
        door.is_free = False

    rooms, play = Rooms(Kernel(), go), SmallPlay(4)
    for order, (due, tokens) in enumerate(zip(play.arrivals(), (70, 50, 60, 50), strict=True)):
        exchange = Exchange(due.turn, due.at_s, play.prompt(due.turn))
        exchange.door, exchange.order = cast("Door", door), order
        turn = AwaitsTurn(
            "r0",
            retry_after_s=1.0,
            new_tokens=1_000 * tokens,
            is_short_first=is_short_first,
            fill_ratio=0.5,
        )
        rooms.enter(exchange, turn)
    for _ in range(5):
        door.is_free = True
        rooms.ring(cast("Door", door), "r0", 0.0)
    assert went == ([1, 3, 2, 0] if is_short_first else [0, 1, 2, 3])


def test_a_policy_without_turns_sends_all_at_once() -> None:
    _, (core,) = watched(SWAMPED, "sticky")
    assert max(n for _, n in core.most) > 20


def test_what_is_explained_is_the_decision_that_places_it() -> None:
    def play() -> SmallPlay:
        return SmallPlay(60, turns=4, first_tokens=120_000, gap_s=2.0)

    pick = Pick(rows=frozenset(range(60)))
    watch = explained(replace(SWAMPED, duration_s=TURN_S / 2), "home", play, pick, seed=1)
    held = sorted(found.held_s for found in watch.found.values())
    assert held[0] == pytest.approx(0.0, abs=1e-9)
    assert held[-1] > 60.0
    for found in watch.found.values():
        assert not found.decision.awaits_turn or found.held_s == pytest.approx(TURN_S, abs=2.0)
        assert found.ttft_s is None or found.ttft_s > found.held_s


@pytest.mark.parametrize(
    "fault",
    [
        FaultSpec(FaultKind.ROUTER_LOSS, 40.0, router=0, duration_s=5.0),
        FaultSpec(FaultKind.CRASH, 40.0, replicas=(0, 1), duration_s=5.0, startup_s=5.0),
        FaultSpec(FaultKind.SCALE_DOWN, 40.0, replicas=(0,), drain_s=5.0),
    ],
    ids=["router-loss", "crash", "scale-down"],
)
def test_nobody_who_waits_is_lost(fault: FaultSpec) -> None:
    """The run's own invariants count every request; here, that those go on who waited."""
    result, cores = watched(replace(SWAMPED, faults=(fault,)))
    assert result.errors == 0
    assert any(at_s > 60.0 for core in cores for at_s, _ in core.most)
