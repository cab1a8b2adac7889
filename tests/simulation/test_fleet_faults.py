"""Each fault of a scenario has the consequence that a person would see."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sim.fleet.driver import simulate
from sim.scenario.model import FaultKind, FaultSpec, FleetSpec, RouterSpec, Scenario
from tests.doubles.small_play import SmallPlay

if TYPE_CHECKING:
    from sim.measure.result import RunResult

CALM = Scenario(name="faults", duration_s=160.0, warmup_s=20.0, fleet=(FleetSpec(replicas=4),))
BUCKET_S = 1.6


def run(
    *faults: FaultSpec, policy: str = "home", routers: int = 1, gap_s: float = 6.0
) -> RunResult:
    scenario = replace(CALM, faults=faults, routers=RouterSpec(count=routers))
    return simulate(scenario, policy, SmallPlay(40, turns=200, new_tokens=300, gap_s=gap_s), seed=1)


def told(result: RunResult) -> list[tuple[float, str, str]]:
    return [(event.at_s, event.what, event.replica) for event in result.events]


def hit_ratio(result: RunResult, replica: int, from_s: float, until_s: float) -> float:
    """The mean of a replica's hit ratios in the buckets of that time."""
    row = result.curves.replicas.hit_ratio[replica]
    part = row[int(from_s / BUCKET_S) : int(until_s / BUCKET_S)]
    values = [value for value in part if value is not None]
    return sum(values) / len(values)


def inflight(result: RunResult, replica: int, at_s: float) -> float | None:
    return result.curves.replicas.inflight[replica][int(at_s / BUCKET_S)]


def test_a_crash_loses_the_cache_and_its_requests_are_tried_elsewhere() -> None:
    calm = run()
    result = run(FaultSpec(FaultKind.CRASH, 100.0, replicas=(1,), duration_s=5.0, startup_s=20.0))
    assert told(result) == [(100.0, "crash", "r0001"), (125.0, "ready", "r0001")]
    assert calm.errors == result.errors == 0
    assert result.retries + result.repeats > 0
    assert calm.retries + calm.repeats == 0
    assert inflight(result, 1, 110.0) is None
    assert result.reasons.get("rehome", 0) > 0
    assert result.cached_ratio is not None
    assert calm.cached_ratio is not None
    assert result.cached_ratio < calm.cached_ratio
    assert result.curves.replicas.used_ratio[1][int(110.0 / BUCKET_S)] is None


def test_a_crash_for_good_is_never_followed_by_a_request_there() -> None:
    result = run(FaultSpec(FaultKind.CRASH, 60.0, replicas=(0,)))
    assert told(result) == [(60.0, "crash", "r0000")]
    assert set(result.curves.replicas.inflight[0][40:]) == {None}
    assert result.errors == 0


def test_all_replicas_gone_is_told_to_clients_who_give_up_in_the_end() -> None:
    everybody = FaultSpec(FaultKind.CRASH, 50.0, replicas=(0, 1, 2, 3))
    result = run(everybody)
    assert result.errors > 0
    assert result.repeats > 10 * result.errors / 2


def test_a_slow_replica_is_slow_for_as_long_as_it_is() -> None:
    calm = run(policy="rendezvous")
    result = run(
        FaultSpec(FaultKind.SLOW, 60.0, replicas=(2,), duration_s=60.0, factor=6.0),
        policy="rendezvous",
    )
    assert told(result) == [(60.0, "slow", "r0002"), (120.0, "at-pace", "r0002")]
    slow, usual = inflight(result, 2, 100.0), inflight(calm, 2, 100.0)
    assert slow is not None
    assert usual is not None
    assert slow > 2.0 * usual
    assert result.ttft_s.p99 is not None
    assert calm.ttft_s.p99 is not None
    assert result.ttft_s.p99 > 2.0 * calm.ttft_s.p99


def test_a_flush_waits_for_an_idle_engine_and_then_drops_both_tiers() -> None:
    result = run(FaultSpec(FaultKind.FLUSH, 100.0, replicas=(3,)), policy="rendezvous", gap_s=20.0)
    (flush,) = result.events
    assert (flush.what, flush.replica) == ("flush", "r0003")
    assert flush.at_s >= 100.0
    before = hit_ratio(result, 3, 60.0, 100.0)
    after = hit_ratio(result, 3, flush.at_s, flush.at_s + 8.0)
    assert before > 0.9
    assert after < before - 0.2


def test_new_replicas_join_cold_and_take_new_sessions() -> None:
    scenario = replace(CALM, faults=(FaultSpec(FaultKind.SCALE_UP, 60.0, count=2, startup_s=30.0),))
    result = simulate(scenario, "least_inflight", SmallPlay(60, turns=6, gap_s=3.0), seed=1)
    assert told(result) == [
        (60.0, "starting", "r0004"),
        (60.0, "starting", "r0005"),
        (90.0, "joined", "r0004"),
        (90.0, "joined", "r0005"),
    ]
    assert set(result.curves.replicas.inflight[4][:55]) == {None}
    joined = inflight(result, 4, 130.0)
    assert joined is not None
    assert joined > 0.0
    assert 16.0 < result.gpus_mean < 24.0


def test_a_drained_replica_ends_its_requests_and_leaves() -> None:
    result = run(FaultSpec(FaultKind.SCALE_DOWN, 100.0, replicas=(0,), drain_s=60.0))
    (draining, left) = result.events
    assert (draining.what, left.what, left.replica) == ("draining", "left", "r0000")
    assert 100.0 <= left.at_s < 160.0
    assert result.retries == result.repeats == result.errors == 0
    assert set(result.curves.replicas.inflight[0][64:]) == {None}


def test_what_is_not_done_when_the_drain_is_over_is_cut_off() -> None:
    slow = FaultSpec(FaultKind.SLOW, 90.0, replicas=(0,), factor=30.0)
    drain = FaultSpec(FaultKind.SCALE_DOWN, 100.0, replicas=(0,), drain_s=2.0)
    result = run(slow, drain, policy="rendezvous")
    assert told(result)[-1] == (102.0, "left", "r0000")
    assert result.retries + result.repeats > 0
    assert result.errors == 0


def test_a_lost_router_breaks_its_requests_and_the_next_knows_nothing() -> None:
    calm = run(routers=2)
    result = run(FaultSpec(FaultKind.ROUTER_LOSS, 100.0, router=0, duration_s=50.0), routers=2)
    assert told(result) == [(100.0, "router-loss 0", ""), (150.0, "router-back 0", "")]
    assert result.repeats > 0
    assert calm.repeats == 0
    assert result.reasons["new"] > calm.reasons.get("new", 0)
    assert result.errors == 0


def test_the_only_router_lost_for_good_leaves_clients_with_errors() -> None:
    result = run(FaultSpec(FaultKind.ROUTER_LOSS, 100.0))
    assert result.errors > 0


def test_stale_loads_mislead_routers_that_see_one_another_only_there() -> None:
    frozen = FaultSpec(FaultKind.STALE_LOADS, 10.0, duration_s=45.0)

    def uneven(*faults: FaultSpec) -> float:
        scenario = replace(
            CALM,
            duration_s=60.0,
            faults=faults,
            routers=RouterSpec(count=4, probe_s=0.25),
        )
        play = SmallPlay(60, turns=3, first_tokens=60_000, new_tokens=8_000, gap_s=4.0)
        result = simulate(scenario, "least_inflight", play, seed=2)
        assert result.inflight_var_to_mean is not None
        return result.inflight_var_to_mean

    assert uneven(frozen) > 5.0 * uneven()


def test_faults_may_come_together() -> None:
    result = run(
        FaultSpec(FaultKind.CRASH, 60.0, replicas=(1, 2), duration_s=0.0, startup_s=10.0),
        FaultSpec(FaultKind.SLOW, 60.0, replicas=(1,), duration_s=100.0, factor=2.0),
        FaultSpec(FaultKind.SLOW, 65.0, replicas=(1,), duration_s=20.0, factor=2.0),
        FaultSpec(FaultKind.SCALE_DOWN, 62.0, replicas=(1,), drain_s=3.0),
        FaultSpec(FaultKind.FLUSH, 60.0),
        FaultSpec(FaultKind.CRASH, 70.0, replicas=(2,), duration_s=0.0, startup_s=1.0),
    )
    left = [event for event in result.events if event.what == "left"]
    assert [event.replica for event in left] == ["r0001"]
    assert result.errors == 0
