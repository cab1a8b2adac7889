"""Whole runs: determinism, what is conserved, several routers, skipped polls, and parity with the core."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from router.errors import ConfigError
from router.policy import registry
from sim.fleet.driver import simulate
from sim.fleet.reference import simulate_reference
from sim.fleet.routers import plain_core
from sim.scenario.model import (
    EngineSpec,
    FaultKind,
    FaultSpec,
    FleetSpec,
    RouterSpec,
    Scenario,
    Start,
    WorkloadSpec,
)
from sim.workload.play.building import build, load, places_of
from tests.doubles.small_play import SmallPlay

if TYPE_CHECKING:
    from sim.measure.result import RunResult
    from sim.workload.play.turns import Play

SMALL = Scenario(name="small", duration_s=120.0, warmup_s=30.0, fleet=(FleetSpec(replicas=4),))
EVERYTHING = replace(
    SMALL,
    routers=RouterSpec(count=3, is_spread_by_session=False),
    faults=(
        FaultSpec(FaultKind.CRASH, 40.0, replicas=(1,), duration_s=10.0, startup_s=20.0),
        FaultSpec(FaultKind.SLOW, 40.0, replicas=(0,), duration_s=20.0, factor=3.0),
        FaultSpec(FaultKind.SCALE_UP, 45.0, count=2, startup_s=10.0),
        FaultSpec(FaultKind.STALE_LOADS, 50.0, duration_s=20.0),
        FaultSpec(FaultKind.ROUTER_LOSS, 55.0, router=1, duration_s=15.0),
        FaultSpec(FaultKind.FLUSH, 60.0, replicas=(2,)),
        FaultSpec(FaultKind.SCALE_DOWN, 65.0, replicas=(3,), drain_s=5.0),
        FaultSpec(FaultKind.CRASH, 80.0, replicas=(0, 2), duration_s=0.0, startup_s=5.0),
    ),
)


def run(
    scenario: Scenario, policy: str = "home", *, sessions: int = 40, seed: int = 1
) -> RunResult:
    return simulate(scenario, policy, SmallPlay(sessions, turns=8, gap_s=6.0), seed=seed)


def as_bytes(result: RunResult) -> str:
    return json.dumps(result.to_plain(), sort_keys=True)


@pytest.mark.parametrize("scenario", [SMALL, EVERYTHING], ids=["quiet", "faults"])
def test_equal_arguments_give_equal_bytes(scenario: Scenario) -> None:
    first = as_bytes(run(scenario))
    assert as_bytes(run(scenario)) == first
    assert as_bytes(run(scenario, seed=2)) != first


def test_a_quiet_fleet_answers_everything_from_its_caches() -> None:
    result = run(SMALL)
    assert result.requests > 200
    assert result.errors == result.retries == result.repeats == 0
    assert result.cached_ratio is not None
    assert result.cached_ratio_ceiling is not None
    assert 0.95 * result.cached_ratio_ceiling < result.cached_ratio <= result.cached_ratio_ceiling
    assert result.ttft_s.p50 is not None
    assert 0.02 < result.ttft_s.p50 < 1.0
    assert sum(result.reasons.values()) == result.requests
    assert sum(result.curves.inflight_spread) == pytest.approx(1.0)
    assert result.gpus_mean == 16.0
    assert result.requests_per_wall_s is None
    assert result.timed(2.0).requests_per_wall_s == result.requests_total / 2.0


def test_a_warm_fleet_begins_as_it_goes_on() -> None:
    def cold_share(start: Start, policy: str) -> float:
        spec = WorkloadSpec(start=start, sessions_per_replica=12.0)
        scenario = replace(SMALL, workload=spec, warmup_s=0.0)
        content = places_of(spec, load(spec, 1), page_tokens=64)

        def make_play() -> Play:
            return build(spec, content, n_lanes=48, seed=1)

        if policy == "reference":
            result = simulate_reference(scenario, make_play, seed=1)
        else:
            result = simulate(scenario, policy, make_play(), seed=1)
        assert result.cached_ratio is not None
        return 1.0 - result.cached_ratio

    for policy in ("home", "reference"):
        assert cold_share(Start.WARM, policy) < 0.12
        assert cold_share(Start.MIDDLE, policy) > 0.3


def test_a_workload_that_is_played_once_ends_by_itself() -> None:
    scenario = replace(SMALL, workload=WorkloadSpec(is_once=True), warmup_s=0.0, duration_s=10.0)
    play = SmallPlay(6, turns=5, gap_s=8.0, is_once=True)
    result = simulate(scenario, "home", play, seed=1)
    assert result.requests == result.requests_total == 30
    assert play.n_prompts == play.n_ended == 30
    assert result.unfinished == 0
    assert result.window_s[1] > 20.0
    assert len(result.curves.over_time.requests) <= 120


@pytest.mark.parametrize(
    ("policy", "count", "sessions"),
    [
        ("home", 1, 40),
        ("home", 3, 2),
        ("least_inflight", 3, 40),
        ("least_inflight", 1, 2),
        ("power_of_two", 3, 2),
    ],
)
def test_skipping_polls_that_change_nothing_changes_nothing(
    policy: str, count: int, sessions: int
) -> None:
    faults = tuple(f for f in EVERYTHING.faults if f.router < count)
    scenario = replace(EVERYTHING, routers=RouterSpec(count=count, delay_s=0.2), faults=faults)

    def once(*, can_sleep: bool) -> str:
        play = SmallPlay(sessions, turns=8, gap_s=6.0)
        return as_bytes(simulate(scenario, policy, play, seed=5, can_sleep=can_sleep))

    assert once(can_sleep=True) == once(can_sleep=False)


def test_each_router_knows_of_the_others_only_what_replicas_tell() -> None:
    one = run(replace(SMALL, routers=RouterSpec(count=1)), "least_inflight", sessions=60)
    blind = replace(SMALL, routers=RouterSpec(count=4, probe_s=60.0))
    many = run(blind, "least_inflight", sessions=60)
    assert one.inflight_var_to_mean is not None
    assert many.inflight_var_to_mean is not None
    assert many.inflight_var_to_mean > one.inflight_var_to_mean


def test_a_full_queue_sends_requests_elsewhere_and_then_back_to_the_client() -> None:
    tight = replace(
        SMALL,
        fleet=(FleetSpec(replicas=2, max_running_requests=1),),
        engine=EngineSpec(max_queued_requests=1),
    )
    result = run(tight, "rendezvous", sessions=40)
    assert result.retries > 0
    assert result.repeats > 0
    assert result.requests > 0


def test_a_limit_of_in_flight_requests_refuses_and_clients_come_back() -> None:
    limited = replace(SMALL, routers=RouterSpec(inflight_max=1), fleet=(FleetSpec(replicas=2),))
    result = run(limited, sessions=40)
    assert result.repeats > 0
    assert len(result.curves.inflight_spread) <= 2


def test_what_still_waits_at_the_end_counts_with_its_wait_so_far() -> None:
    swamped = replace(SMALL, duration_s=60.0, warmup_s=0.0, fleet=(FleetSpec(replicas=1),))
    play = SmallPlay(80, turns=2, first_tokens=120_000, gap_s=2.0)
    result = simulate(swamped, "home", play, seed=1)
    assert 0 < result.unfinished < result.requests < 100
    waits_s = [wait_s for wait_s, _ in result.curves.ttft_cdf]
    assert len(waits_s) == result.requests
    assert waits_s[-1] > 170.0
    assert result.window_s == (0.0, 60.0)


def test_what_has_not_begun_leaves_a_replica_that_stands_still() -> None:
    stuck = FaultSpec(FaultKind.SLOW, 50.0, replicas=(0,), factor=1e6)
    scenario = replace(
        SMALL, duration_s=900.0, warmup_s=0.0, fleet=(FleetSpec(replicas=2),), faults=(stuck,)
    )
    result = simulate(scenario, "rendezvous", SmallPlay(6, turns=50, gap_s=30.0), seed=1)
    assert result.retries > 0
    waits_s = [wait_s for wait_s, _ in result.curves.ttft_cdf]
    # Those whose answer had begun wait on; whoever had not is served within seconds.
    assert sum(wait_s > 60.0 for wait_s in waits_s) <= 3


def test_a_request_without_a_token_in_ten_minutes_is_tried_elsewhere() -> None:
    stuck = FaultSpec(FaultKind.SLOW, 50.0, replicas=(0,), factor=1e6)
    scenario = replace(
        SMALL,
        duration_s=900.0,
        warmup_s=0.0,
        fleet=(FleetSpec(replicas=2),),
        faults=(stuck,),
        routers=RouterSpec(probe_s=5_000.0),  # nobody looks whether it moves
    )
    result = simulate(scenario, "rendezvous", SmallPlay(6, turns=50, gap_s=30.0), seed=1)
    assert result.retries > 0
    assert result.ttft_s.p99 is not None
    assert result.ttft_s.p99 > 600.0


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(ConfigError, match="'nowhere' is not known"):
        run(SMALL, "nowhere")


def test_every_policy_of_the_registry_runs() -> None:
    short = replace(SMALL, duration_s=30.0, warmup_s=5.0)
    for policy in registry.POLICIES:
        result = simulate(short, policy, SmallPlay(12, gap_s=4.0), seed=1, make_core=plain_core)
        assert result.requests > 20, policy
        assert result.errors == 0, policy
