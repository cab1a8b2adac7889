"""Which runs the matrix takes, what can be chosen of it, and how baselines are ranked."""

from __future__ import annotations

import pytest

from replica.settings import load_recipe
from sim.matrix.plan import BASE, INTERVALS, ORDERS, Place, Plan, Traffic, ranking
from sim.matrix.rules import COLLAPSE_LOAD, NEAR_LOAD_MAX, Run
from sim.scenario.errors import ScenarioError
from sim.scenario.facts import lanes_of
from sim.scenario.finding import draft_named
from sim.scenario.model import Start

PLAN = Plan("/recorded")


def test_every_part_comes_once_the_smallest_fleet_first() -> None:
    parts = PLAN.parts()
    assert len(parts) == len(set(parts)) == 3 * 2 * 2
    assert [part.size.n_replicas for part in parts] == [16] * 4 + [64] * 4 + [200] * 4
    assert {part.order for part in parts} == set(ORDERS)
    assert all(part.traffic is Traffic.GENERATOR for part in Plan().parts())


def test_every_rule_can_be_judged_in_every_part() -> None:
    for part in PLAN.parts():
        assert min(part.size.loads) <= NEAR_LOAD_MAX
        # The largest is for what grows with size; whether throughput is kept shows on the others.
        assert COLLAPSE_LOAD in part.size.loads or part.size == max(PLAN.sizes)


def test_a_place_is_a_scenario_that_begins_warm() -> None:
    for part in PLAN.parts():
        place = PLAN.place(part, part.size.loads[0], 3, saturated_lanes=800)
        draft = draft_named(BASE)
        for key, value in PLAN.values(place).items():
            draft = draft.with_value(key, value, by="test")
        scenario = draft.scenario()
        assert scenario.workload.start is Start.WARM
        assert scenario.n_replicas == part.size.n_replicas
        assert scenario.engine.order == part.order
        assert scenario.engine.prefill_decode_interval == INTERVALS[part.order]
        assert scenario.seed == 3
        assert lanes_of(scenario) == round(part.size.loads[0] * 50 * part.size.n_replicas)
        assert (scenario.workload.trace is None) == (part.traffic is Traffic.GENERATOR)


def test_engines_of_the_recipes_order_are_launched_as_the_recipes_do() -> None:
    scheduling = load_recipe("kimi-k2.6-nvfp4").resolved().scheduling
    assert scheduling.policy is not None
    assert scheduling.prefill_decode_interval is not None
    assert INTERVALS[scheduling.policy.value] == scheduling.prefill_decode_interval.value


def test_light_and_heavy_loads_run_for_longer() -> None:
    part = PLAN.parts()[0]
    times = {}
    for load in part.size.loads:
        values = PLAN.values(PLAN.place(part, load, 1, saturated_lanes=800))
        times[load] = (values["warmup_s"], values["duration_s"])
    assert times[0.1] == times[0.25] == (240.0, 1_200.0)
    assert times[0.5] == times[0.75] == (240.0, 600.0)
    assert times[0.9] == times[1.0] == times[1.3] == (840.0, 1_200.0)
    assert PLAN.values(Place(part, 900, 1))["duration_s"] == 600.0


def test_parts_are_chosen() -> None:
    chosen = PLAN.only(["size=64,16", "order=fcfs", "workload=trace", "load=50, 90"])
    parts = chosen.parts()
    assert [(p.size.n_replicas, p.traffic, p.order) for p in parts] == [
        (16, Traffic.TRACE, "fcfs"),
        (64, Traffic.TRACE, "fcfs"),
    ]
    assert all(part.size.loads == (0.5, 0.9) for part in parts)
    assert Plan().only(["workload=trace"]).parts() == []
    # Only one fleet has this load.
    assert {part.size.n_replicas for part in PLAN.only(["load=25"]).parts()} == {16}


@pytest.mark.parametrize(
    "words", ["size=17", "order=lifo", "load=91", "seed=1", "size", "", "load="]
)
def test_what_is_not_there_cannot_be_chosen(words: str) -> None:
    with pytest.raises(ScenarioError, match="--only"):
        PLAN.only([words])


def test_another_fleet_is_judged_as_the_smallest() -> None:
    plan = PLAN.on(2).with_seeds(3)
    (size,) = plan.sizes
    assert (size.n_replicas, size.loads, size.n_seeds) == (2, PLAN.sizes[0].loads, 3)
    assert plan.ranked(plan.parts()[0]).size.n_replicas == 2
    assert plan.place(plan.parts()[0], 1.0, 1, saturated_lanes=90).n_lanes == 90


def run(throughput: float, mean_s: float | None, p99_s: float | None) -> Run:
    return Run(throughput, mean_s, p99_s, 0.9, 0.9, 1.0, 1.0)


def test_baselines_are_ranked_by_their_places() -> None:
    runs = {
        "slow": [run(9.0, 5.0, 50.0), run(9.0, 5.0, 50.0)],
        "even": [run(8.0, 2.0, 20.0), run(8.0, 2.0, 20.0)],
        "quick": [run(7.0, 1.0, 10.0), run(7.0, 1.0, 10.0)],
        "silent": [run(0.0, None, None), run(0.0, None, None)],
        "also": [run(8.0, 2.0, 20.0), run(8.0, 2.0, 20.0)],
    }
    assert ranking(runs) == ["also", "even", "quick", "slow", "silent"]
    assert ranking({}) == []
