"""Routers that share, in virtual time: what that is worth, and what is left while it ends for a while."""

from __future__ import annotations

import re
import subprocess
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

from sim.fleet.driver import simulate
from sim.scenario.model import FaultKind, FaultSpec, FleetSpec, RouterSpec, Scenario
from tests.doubles.processes import COMMAND
from tests.doubles.small_play import SmallPlay

if TYPE_CHECKING:
    from pathlib import Path

    from sim.measure.result import RunResult


def run(count: int, *faults: FaultSpec, **routers: Any) -> RunResult:  # noqa: ANN401
    """Sixty sessions of twenty turns, any of which may come to any router."""
    scenario = Scenario(
        name="shared",
        duration_s=400.0,
        warmup_s=100.0,
        fleet=(FleetSpec(replicas=4),),
        faults=faults,
        routers=RouterSpec(count=count, is_spread_by_session=False, **routers),
    )
    return simulate(scenario, "home", SmallPlay(60, turns=20, gap_s=6.0), seed=1)


def hit(result: RunResult) -> float:
    assert result.errors == 0
    assert result.cached_ratio is not None
    return result.cached_ratio


@pytest.fixture(scope="module")
def one() -> RunResult:
    return run(1)


@pytest.mark.parametrize("count", [2, 4])
def test_routers_that_share_do_as_one_does(one: RunResult, count: int) -> None:
    shared = run(count, is_shared=True)
    assert hit(shared) >= hit(one) - 0.005
    assert shared.ttft_s.p99 <= 1.2 * one.ttft_s.p99
    assert hit(run(count)) < hit(one) - 0.03


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_on_the_steady_scenario_the_slowest_wait_a_tenth_longer_at_most(tmp_path: Path) -> None:
    """Means of six seeds: of one alone p99 differs by that much from another's."""
    figures: dict[int, list[tuple[float, float]]] = {1: [], 2: [], 4: []}
    for seed, count in product(range(1, 7), figures):
        file = tmp_path / f"{seed}-{count}.json"
        routers = [f"count={count}", f"shared={str(count > 1).lower()}", "spread_by_session=false"]
        sets = [word for value in routers for word in ("--set", f"routers.{value}")]
        asked = ["sim", "run", "steady", "--policies", "home", "--seed", str(seed), *sets]
        subprocess.run([*COMMAND, *asked, "--json", str(file)], check=True, capture_output=True)
        text = file.read_text()
        found = re.search(r'"ttft_s":\s*{[^}]*"p99":\s*([\d.]+)', text)
        ratio = re.search(r'"cached_ratio":\s*([\d.]+)', text)
        assert found is not None
        assert ratio is not None
        figures[count].append((float(found[1]), float(ratio[1])))
    p99_s, hits = ({n: fmean(r[at] for r in rows) for n, rows in figures.items()} for at in (0, 1))
    for count in (2, 4):
        assert p99_s[count] <= 1.1 * p99_s[1]
        assert hits[count] >= hits[1] - 0.01


@pytest.mark.parametrize("count", [2, 4])
def test_routers_that_are_apart_agree(one: RunResult, count: int) -> None:
    assert hit(run(count, is_apart=True)) >= hit(one) - 0.03


FAULTS = {
    "redis-loss": (FaultSpec(FaultKind.REDIS_LOSS, 150.0, duration_s=100.0),),
    "partition": (FaultSpec(FaultKind.PARTITION, 150.0, router=1, duration_s=100.0),),
    "skew": (
        FaultSpec(FaultKind.CLOCK_SKEW, 10.0, router=2, skew_s=3_600.0),
        FaultSpec(FaultKind.CLOCK_SKEW, 10.0, router=3, skew_s=40.0),
    ),
    "loss-of-both": (
        FaultSpec(FaultKind.REDIS_LOSS, 150.0, duration_s=60.0),
        FaultSpec(FaultKind.ROUTER_LOSS, 160.0, router=0, duration_s=20.0),
    ),
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_a_fault_of_what_is_shared_costs_balance_and_few_caches(
    one: RunResult, faults: tuple[FaultSpec, ...]
) -> None:
    result = run(4, *faults, is_shared=True)
    assert hit(result) >= hit(one) - 0.03
    told = [event.what.split()[0] for event in result.events]
    assert told[0] == faults[0].kind.value


def test_equal_runs_are_equal() -> None:
    results = [run(3, *FAULTS["redis-loss"], is_shared=True) for _ in range(2)]
    assert results[0].reasons == results[1].reasons
    assert results[0].ttft_s == results[1].ttft_s
