"""The clairvoyant reference: every cache everywhere, and the best of a few plain rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.fleet.driver import simulate
from sim.fleet.reference import simulate_reference, with_rule
from sim.scenario.model import FaultKind, FaultSpec, FleetSpec, Scenario
from tests.doubles.small_play import SmallPlay

BUSY = Scenario(name="busy", duration_s=80.0, warmup_s=20.0, fleet=(FleetSpec(replicas=4),))


def play() -> SmallPlay:
    return SmallPlay(80, turns=10, gap_s=6.0)


def test_it_is_the_best_of_its_rules_and_beats_policies_that_know_less() -> None:
    best = simulate_reference(BUSY, play, seed=1)
    assert best.policy == "reference"
    assert best.rule is not None
    assert best == with_rule(BUSY, play(), best.rule, seed=1)
    assert best.cached_ratio == pytest.approx(best.cached_ratio_ceiling, abs=0.001)
    assert best.ttft_s.mean is not None
    for policy in ("rendezvous", "least_inflight"):
        result = simulate(BUSY, policy, play(), seed=1)
        assert result.ttft_s.mean is not None
        assert best.ttft_s.mean < result.ttft_s.mean


def test_faults_of_replicas_hit_it_and_those_of_knowledge_do_not() -> None:
    faults = (
        FaultSpec(FaultKind.CRASH, 40.0, replicas=(0,), duration_s=1.0, startup_s=4.0),
        FaultSpec(FaultKind.ROUTER_LOSS, 50.0),
        FaultSpec(FaultKind.STALE_LOADS, 50.0),
        FaultSpec(FaultKind.FLUSH, 50.0),
        FaultSpec(FaultKind.SCALE_DOWN, 60.0, replicas=(1,)),
        FaultSpec(FaultKind.SCALE_UP, 60.0, count=1, startup_s=5.0),
    )
    result = with_rule(replace(BUSY, faults=faults), play(), "shortest-backlog", seed=1)
    assert [e.what for e in result.events] == [
        "crash", "ready", "draining", "starting", "left", "joined"
    ]  # fmt: skip
    assert result.errors == 0
    assert result.cached_ratio == pytest.approx(result.cached_ratio_ceiling, abs=0.002)
