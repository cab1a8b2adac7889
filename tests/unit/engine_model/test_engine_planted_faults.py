"""Faults planted in the model are caught by the invariant whose business they are."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from replica.hardware.profiles import profile_named
from sim.engine.cache import PrefixTree
from sim.engine.checks import check_events, check_state
from sim.engine.pool import KvPool
from sim.engine.replica_model import ReplicaModel
from sim.engine.requests import EngineRequest, Event
from sim.engine.rules import EngineRules
from sim.engine.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.engine.job import Job
    from sim.engine.pool import Holding
    from sim.engine.prefill_step import PrefillStep

PAGE = 64
FACTS = replace(
    profile_named("b200-tp4-fp8"),
    capacity_tokens=40 * PAGE,
    host_capacity_tokens=400 * PAGE,
    chunk_tokens=4 * PAGE,
    max_running_requests=4,
    accept_length=1.0,
    verify_tokens=1,
)


def request(number: int, turn: int) -> EngineRequest:
    prompt, output = 500 + 200 * turn, 700
    ids = [(number << 32) + page for page in range((prompt + output) // PAGE)]
    first = prompt // PAGE
    return EngineRequest(
        f"{number}.{turn}", prompt, output, array("Q", ids[:first]), array("Q", ids[first:])
    )


def run(model: ReplicaModel) -> None:
    """Three sessions of a few turns each, that evict, load back and are retracted, under all checks."""
    taken: list[EngineRequest] = []
    events: list[Event] = []
    now_s = 0.0
    for turn in range(4):
        for number in range(3):
            taken.append(request(number, turn))
            model.submit(taken[-1], now_s)
            check_state(model)
            now_s += 0.3
            events += model.advance(now_s)
        while (at_s := model.next_at()) is not None:
            now_s = at_s
            events += model.advance(at_s)
            check_state(model)
    check_events(taken, events)
    assert model.loads(now_s).total_retracted
    assert model.loads(now_s).total_host_tokens


class TreeThatForgetsToForget(PrefixTree):
    """Matches stay good for ever, whatever was evicted since."""

    @override
    def evict(self, n_pages: int) -> int:
        before = [(node, node.version) for node in self.nodes()]
        dropped = super().evict(n_pages)
        for node, version in before:
            if node.parent is None:
                node.version = version
        return dropped


class PoolThatCallsHostMemoryHbm(KvPool):
    """Whatever the host tier holds counts as found on the device."""

    @override
    def load(self, holding: Holding, pages: array[int]) -> int:
        super().load(holding, pages)
        holding.device_pages += holding.host_pages
        holding.host_pages = 0
        return 0


class PoolThatLoadsNothing(KvPool):
    """What the host tier holds is used where it lies."""

    @override
    def load(self, holding: Holding, pages: array[int]) -> int:
        del pages
        holding.host_pages = max(0, holding.host_stored - holding.stored)
        return holding.host_pages


class PoolThatLoadsForNothing(KvPool):
    """A load is made, and neither told nor paid for."""

    @override
    def load(self, holding: Holding, pages: array[int]) -> int:
        super().load(holding, pages)
        return 0


class ScheduleThatPrefersDecode(Scheduler):
    """While somebody generates, a prompt is let in only every other time."""

    is_turn = False

    @override
    def _form_prefill(self, at_s: float) -> PrefillStep | None:
        self.is_turn = not self.is_turn
        if self.decoding and not self.is_turn and not self.admission.is_full:
            return None
        return super()._form_prefill(at_s)


class ScheduleThatLosesTheRetracted(Scheduler):
    """A retracted request goes nowhere."""

    @override
    def retract(self, job: Job) -> None:
        super().retract(job)
        self.waiting.remove(job)


class ScheduleThatRetractsSilently(Scheduler):
    """A retracted request keeps its pages while it waits."""

    @override
    def retract(self, job: Job) -> None:
        holding = job.holding
        super().retract(job)
        job.holding = holding


class ScheduleThatTellsTwice(Scheduler):
    """What a retracted request has told is told again."""

    @override
    def retract(self, job: Job) -> None:
        super().retract(job)
        job.reported = 0


def with_schedule(model: ReplicaModel, kind: type[Scheduler]) -> None:
    model.schedule.__class__ = kind


def with_tree(model: ReplicaModel, kind: type[PrefixTree]) -> None:
    model.pool.tree.__class__ = kind
    model.pool.host.tree.__class__ = kind


def with_pool(model: ReplicaModel, kind: type[KvPool]) -> None:
    model.pool.__class__ = kind


@dataclass(frozen=True)
class Fault:
    """How one fault is planted, and the number of the invariant that catches it."""

    name: str
    plant: Callable[[ReplicaModel], None]
    number: int


FAULTS = (
    Fault("matched past eviction", lambda m: with_tree(m, TreeThatForgetsToForget), 4),
    Fault("host tier as HBM", lambda m: with_pool(m, PoolThatCallsHostMemoryHbm), 7),
    Fault("host pages not on the device", lambda m: with_pool(m, PoolThatLoadsNothing), 7),
    Fault("host load for nothing", lambda m: with_pool(m, PoolThatLoadsForNothing), 7),
    Fault("decode before prefill", lambda m: with_schedule(m, ScheduleThatPrefersDecode), 6),
    Fault("dropped at retraction", lambda m: with_schedule(m, ScheduleThatLosesTheRetracted), 8),
    Fault("retracted with its pages", lambda m: with_schedule(m, ScheduleThatRetractsSilently), 8),
    Fault("told twice", lambda m: with_schedule(m, ScheduleThatTellsTwice), 5),
)


def model_to_plant_in() -> ReplicaModel:
    return ReplicaModel(FACTS, rules=EngineRules(output_ratio=0.0))


def test_without_a_fault_the_run_passes() -> None:
    run(model_to_plant_in())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_breaks_its_invariant(fault: Fault) -> None:
    model = model_to_plant_in()
    fault.plant(model)
    with pytest.raises(AssertionError, match=f"^{fault.number}: "):
        run(model)
