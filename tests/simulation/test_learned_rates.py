"""Two kinds of replicas in one fleet whose rates nobody told: after a minute of load each is known."""

from __future__ import annotations

import pytest

from sim.fleet.driver import routed
from sim.fleet.routers import SimRouter
from sim.scenario.model import FleetSpec, Scenario, WorkloadSpec
from sim.workload.play.building import build, load, places_of

PROMPTS = ((1_000, 100_000), (3_000, 30_000), (20_000, 0), (60_000, 0), (2_000, 150_000))
"""New tokens behind cached ones: turns and cold prompts of agents."""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_prefill_rates_are_known_within_a_tenth_after_a_minute(seed: int) -> None:
    kinds = ("b200-tp4-fp8", "b300-tp4-fp8")
    scenario = Scenario(
        "rates",
        fleet=tuple(FleetSpec(profile=kind, replicas=4, host_tokens=2_000_000) for kind in kinds),
        duration_s=60.0,
        warmup_s=0.0,
        workload=WorkloadSpec(sessions_per_replica=16.0),
    )
    content = places_of(scenario.workload, load(scenario.workload, seed), page_tokens=64)
    play = build(scenario.workload, content, n_lanes=128, seed=seed)
    run = routed(scenario, "home", play, seed=seed)
    [door] = run.doors
    assert isinstance(door, SimRouter)
    run.result("home")
    for replica in run.replicas:
        known, facts = door.core.fleet.get(replica.replica_id), replica.facts
        assert known is not None
        assert known.is_rate_known
        assert not known.is_rate_told
        for new_tokens, cached_tokens in PROMPTS:
            true_s = facts.times.prompt_s(
                new_tokens, cached_tokens, chunk_tokens=facts.chunk_tokens
            )
            assert known.prefill_s(new_tokens, cached_tokens) == pytest.approx(true_s, rel=0.1)
