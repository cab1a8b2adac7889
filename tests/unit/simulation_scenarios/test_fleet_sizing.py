"""The search for the smallest fleet, and what an SLO fails by."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.jobs.sizing import Tried, failures_of, is_asked, replicas_min, search, sized
from sim.scenario.model import FaultKind, FaultSpec, FleetSpec, Scenario, Slo, WorkloadSpec


@settings(deadline=None)
@given(
    need=st.integers(1, 3_000),
    start=st.integers(1, 2_000),
    most=st.integers(1, 2_000),
    least=st.integers(1, 50),
)
def test_it_finds_the_smallest_and_runs_few(need: int, start: int, most: int, least: int) -> None:
    most = max(most, least)
    runs: list[int] = []

    def try_size(size: int) -> Tried:
        runs.append(size)
        return Tried(size, {}, () if size >= need else ("too small",))

    found = search(try_size, start=start, least=least, most=most)
    assert found.smallest == (max(need, least) if need <= most else None)
    assert len(runs) == len(set(runs)) <= 24
    assert all(least <= size <= most for size in runs)
    assert [tried.n_replicas for tried in found.tried] == sorted(runs)
    if found.smallest is not None and found.smallest > least:
        assert found.smallest - 1 in runs


FIGURES: dict[str, object] = {
    "requests": 1_000,
    "errors": 2,
    "tok_per_s_per_user": 90.0,
    "ttft_s": {"mean": 1.0, "p50": 0.4, "p90": 2.0, "p99": 9.0},
}


@pytest.mark.parametrize(
    ("slo", "said"),
    [
        (Slo(ttft_p50_s=0.4, ttft_p90_s=2.0, ttft_p99_s=9.0, errors_ratio=0.002), ()),
        (Slo(ttft_p50_s=0.3, errors_ratio=1.0), ("TTFT p50 0.40 s is over 0.3 s",)),
        (Slo(ttft_p99_s=8.5, errors_ratio=1.0), ("TTFT p99 9.00 s is over 8.5 s",)),
        (
            Slo(tok_per_s_per_user=91, errors_ratio=1.0),
            ("output tokens/s a user 90 is under 91",),
        ),
        (Slo(ttft_p50_s=1.0), ("2 of 1,000 requests failed, over a share of 0",)),
    ],
)
def test_what_is_not_met_is_named(slo: Slo, said: tuple[str, ...]) -> None:
    assert failures_of(FIGURES, slo) == said


def test_where_nothing_was_measured_nothing_is_met() -> None:
    slo = Slo(ttft_p90_s=1.0, tok_per_s_per_user=1.0)
    figures: dict[str, object] = {
        "requests": 0,
        "errors": 0,
        "tok_per_s_per_user": None,
        "ttft_s": {"p90": None},
    }
    assert failures_of(figures, slo) == (
        "TTFT p90 unknown is over 1 s",
        "output tokens/s a user unknown is under 1",
        "nothing was measured",
    )


def test_errors_alone_are_no_slo() -> None:
    assert not is_asked(Slo(errors_ratio=0.5))
    assert is_asked(Slo(ttft_p90_s=1.0))
    assert is_asked(Slo(tok_per_s_per_user=1.0))


def test_a_fleet_of_another_size_keeps_sessions_and_proportions() -> None:
    scenario = Scenario(
        "x",
        workload=WorkloadSpec(sessions_per_replica=10.0),
        fleet=(FleetSpec(replicas=6), FleetSpec(profile="b300-tp4-fp8", replicas=3)),
    )
    for size, counts in ((9, [6, 3]), (3, [2, 1]), (4, [3, 1]), (20, [13, 7]), (1, [1])):
        other = sized(scenario, size)
        assert [group.replicas for group in other.fleet] == counts
        assert other.workload.sessions_in_all == 90


def test_replicas_that_faults_name_stay() -> None:
    assert replicas_min(Scenario("x")) == 1
    fault = FaultSpec(FaultKind.CRASH, 5.0, replicas=(3,))
    assert replicas_min(Scenario("x", faults=(fault,))) == 4
    later = FaultSpec(FaultKind.CRASH, 5.0, replicas=(17,))
    assert replicas_min(Scenario("x", faults=(later,))) == 16
