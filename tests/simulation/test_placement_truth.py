"""The simulator against what is known without it: sessions that are hashed onto replicas are binomial.

The published fleet (Modal, "How to serve trillions of tokens for trillion-parameter coding agents"): 250
sessions on 50 replicas leave 4 % of them with one or none, and 0.5 % with twelve or more.
"""

from __future__ import annotations

from functools import cache
from math import comb, sqrt
from statistics import fmean, pvariance

import pytest

from router.core import RouterCore
from router.policy import registry
from router.state.history import Outcome
from sim.fleet.driver import simulate
from sim.rng import stream
from sim.scenario.model import FleetSpec, Scenario, WorkloadSpec
from tests.doubles.small_play import SmallPlay

SESSIONS, REPLICAS, SEEDS = 250, 50, 60
PUBLISHED = {"one or none": 0.04, "twelve or more": 0.005}


def binomial(n: int) -> float:
    """The chance that a replica is home to ``n`` sessions."""
    p = 1.0 / REPLICAS
    return comb(SESSIONS, n) * p**n * (1.0 - p) ** (SESSIONS - n)


@cache
def sessions_by_replica(seed: int) -> list[int]:
    """Where rendezvous puts the sessions, as the ledger of a simulated router has it at the end."""
    cores: list[RouterCore] = []

    def make_core(policy: str, *_: object) -> RouterCore:
        cores.append(RouterCore(registry.make(policy), stream(seed, "core")))
        return cores[-1]

    scenario = Scenario(
        name="hashed",
        duration_s=5.0,
        warmup_s=0.0,
        fleet=(FleetSpec(replicas=REPLICAS),),
        workload=WorkloadSpec(is_once=True),
    )
    play = SmallPlay(
        SESSIONS, seed=seed, turns=1, first_tokens=200, output_tokens=2, gap_s=1.0, is_once=True,
        name=f"run-{seed}",
    )  # fmt: skip
    result = simulate(scenario, "rendezvous", play, seed=seed, make_core=make_core)
    assert result.requests == SESSIONS
    assert Outcome.FAILED not in {r.outcome for r in cores[0].history.of(f"run-{seed}-0")}
    return [cores[0].pins.totals(f"r{n:04d}").live_sessions for n in range(REPLICAS)]


def test_few_and_many_sessions_on_a_replica_are_as_likely_as_the_binomial_says() -> None:
    counts = [n for seed in range(SEEDS) for n in sessions_by_replica(seed)]
    assert sum(counts) == SEEDS * SESSIONS
    found = {
        "one or none": sum(n <= 1 for n in counts),
        "twelve or more": sum(n >= 12 for n in counts),
    }
    expected = {
        "one or none": sum(binomial(n) for n in range(2)),
        "twelve or more": sum(binomial(n) for n in range(12, SESSIONS + 1)),
    }
    for tail, share in expected.items():
        assert share == pytest.approx(PUBLISHED[tail], rel=0.03)
        sigma = sqrt(share * (1.0 - share) * len(counts))
        assert abs(found[tail] - share * len(counts)) < 3.0 * sigma < share * len(counts)


def test_sessions_are_spread_as_unevenly_as_by_chance() -> None:
    counts = [n for seed in range(SEEDS) for n in sessions_by_replica(seed)]
    sigma = sqrt(2.0 / len(counts))
    assert pvariance(counts) / fmean(counts) == pytest.approx(1.0 - 1.0 / REPLICAS, abs=3.0 * sigma)
