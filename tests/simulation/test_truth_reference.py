"""No policy does better than the clairvoyant reference, in any shipped scenario, by more than noise.

A figure of a policy may be better than the reference's by :data:`NOISE_RATIO`, or by two standard errors
of the difference over the seeds where there are several: in a closed loop other answers lead to other
requests, so that two runs never measure the same ones.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

import pytest

from router.policy.registry import POLICIES
from sim.jobs.running import REFERENCE, Job, run_job
from sim.scenario.finding import draft_named, shipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sim.scenario.model import FaultSpec, Scenario

NOISE_RATIO = 0.03
SEEDS = (1, 2, 3)
SHRUNK = 8
"""A shrunk fleet has an eighth of each group's replicas, and of the sessions."""
SHRUNK_MOST = 3
SHRUNK_S = 900.0
SHRUNK_WARMUP_S = 300.0
SHRUNK_DRAWN = 100


class Figures(NamedTuple):
    """What is compared; lower TTFTs are better, higher values of the others."""

    ttft_mean_s: float
    ttft_p99_s: float
    tokens_per_min_per_gpu: float
    cached_ratio: float


LOWER_IS_BETTER = ("ttft_mean_s", "ttft_p99_s")


def shrunk(scenario: Scenario) -> Scenario:
    """The same on a small fleet in little time, faults and all."""
    fleet = tuple(
        replace(group, replicas=min(SHRUNK_MOST, -(-group.replicas // SHRUNK)))
        for group in scenario.fleet
    )
    n_replicas = sum(group.replicas for group in fleet)
    share = SHRUNK_S / scenario.duration_s

    def in_time(fault: FaultSpec) -> FaultSpec:
        hit = {number * n_replicas // scenario.n_replicas for number in fault.replicas}
        lasts_s = None if fault.duration_s is None else fault.duration_s * share
        return replace(
            fault,
            at_s=fault.at_s * share,
            replicas=tuple(sorted(hit))[: n_replicas - 1],
            count=-(-fault.count // SHRUNK),
            duration_s=lasts_s,
            startup_s=fault.startup_s * share,
        )

    drawn = scenario.workload.mix.get("n_sessions", SHRUNK_DRAWN)
    mix = {**scenario.workload.mix, "n_sessions": min(drawn, SHRUNK_DRAWN)}
    return replace(
        scenario,
        duration_s=SHRUNK_S,
        warmup_s=SHRUNK_WARMUP_S,
        fleet=fleet,
        workload=replace(scenario.workload, mix=mix),
        faults=tuple(in_time(fault) for fault in scenario.faults),
    )


@cache
def figures_of(name: str, policy: str, seed: int, *, is_shrunk: bool) -> Figures:
    """Figures of one run of a policy, or of the reference."""
    scenario = replace(draft_named(name).scenario(), seed=seed)
    found = run_job(Job(shrunk(scenario) if is_shrunk else scenario, policy)).figures
    ttft_s = found["ttft_s"]
    assert isinstance(ttft_s, dict)
    rate, hits = found["tokens_per_min_per_gpu"], found["cached_ratio"]
    values = (ttft_s["mean"], ttft_s["p99"], rate, hits)
    assert all(isinstance(value, float) for value in values), (name, policy, seed)
    return Figures(*values)


def beaten(
    name: str, policies: Iterable[str], seeds: Sequence[int], *, is_shrunk: bool
) -> list[str]:
    """Where a policy's figure is better than the reference's by more than noise."""
    told: list[str] = []
    for policy in policies:
        for figure in Figures._fields:
            sign = -1.0 if figure in LOWER_IS_BETTER else 1.0
            gains: list[float] = []
            for seed in seeds:
                has = getattr(figures_of(name, policy, seed, is_shrunk=is_shrunk), figure)
                bound = getattr(figures_of(name, REFERENCE, seed, is_shrunk=is_shrunk), figure)
                gains.append(sign * (has - bound) / bound)
            noise = NOISE_RATIO
            if len(seeds) > 1:
                noise = max(noise, 2.0 * stdev(gains) / sqrt(len(seeds)))
            if fmean(gains) > noise:
                shown = ", ".join(f"{gain:+.1%}" for gain in gains)
                told.append(f"{name}: {policy} beats the reference in {figure} by {shown}")
    return told


@pytest.mark.parametrize("name", shipped())
def test_no_policy_of_a_scenario_beats_the_reference(name: str) -> None:
    # What a policy does better with one seed may be luck: then all are asked.
    better = [
        policy
        for policy in draft_named(name).scenario().policies
        if beaten(name, [policy], SEEDS[:1], is_shrunk=True)
    ]
    assert beaten(name, better, SEEDS, is_shrunk=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped())
def test_no_policy_at_all_beats_the_reference(name: str) -> None:
    assert beaten(name, sorted(POLICIES), SEEDS, is_shrunk=False) == []
