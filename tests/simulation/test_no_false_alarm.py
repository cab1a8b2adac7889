"""Long prefills are no hang: cold contexts of up to 250,000 tokens, more of them than a replica can serve."""

from __future__ import annotations

import pytest

from sim.fleet.driver import routed
from sim.fleet.routers import SimRouter
from sim.scenario.model import FleetSpec, Scenario, WorkloadSpec
from sim.workload.play.building import build, load, places_of


@pytest.mark.parametrize(
    ("profile", "chunk_tokens"),
    [("b200-tp4-fp8", 16_384), ("b200-tp4-bf16", 8_192), ("b300-tp8-fp8", 16_384)],
)
def test_nobody_is_taken_for_hung_while_he_computes(profile: str, chunk_tokens: int) -> None:
    replicas, sessions = 4, 24
    scenario = Scenario(
        "long-prefills",
        fleet=(
            FleetSpec(
                profile=profile,
                replicas=replicas,
                host_tokens=2_000_000,
                chunk_tokens=chunk_tokens,
            ),
        ),
        duration_s=150.0,
        warmup_s=0.0,
        workload=WorkloadSpec(sessions_per_replica=sessions, context_tokens_max=250_000),
    )
    content = places_of(scenario.workload, load(scenario.workload, 1), page_tokens=64)
    play = build(scenario.workload, content, n_lanes=replicas * sessions, seed=1)
    run = routed(scenario, "home", play, seed=1)
    [door] = run.doors
    assert isinstance(door, SimRouter)
    result = run.result("home")
    assert result.requests > 20
    assert result.retries == 0
    assert [r.counters.stalls for r in door.core.fleet.replicas()] == [0] * replicas
