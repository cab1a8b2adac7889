"""What is noted during a run, and the figures made of it, against numbers worked out by hand."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from sim.measure.figures import result_of, spread_of
from sim.measure.recording import BUCKETS_MAX, Recording
from sim.measure.result import RunResult, Spread


def figures(recording: Recording, *, until_s: float, from_s: float = 0.0) -> RunResult:
    return result_of(
        recording,
        policy="p",
        scenario="s",
        seed=1,
        measured_s=(from_s, until_s),
        replica_ids=["r0000", "r0001"],
    )


def two_replicas(bucket_s: float = 1.0) -> Recording:
    recording = Recording(bucket_s, lambda _: 0.5)
    for index in range(2):
        recording.joined(4, 0.0)
        recording.serves(index, 0.0, is_serving=True)
    recording.begin(0.0, 0)
    return recording


def test_percentiles_are_nearest_ranks() -> None:
    assert spread_of([]) == Spread()
    assert spread_of([3.0]) == Spread(3.0, 3.0, 3.0, 3.0)
    hundred = spread_of(float(n) for n in range(1, 101))
    assert (hundred.p50, hundred.p90, hundred.p99) == (50.0, 90.0, 99.0)


def test_one_request_of_each_kind() -> None:
    recording = two_replicas()
    warm = recording.rows.add(0.0, 1_000, 101, 900)
    cold = recording.rows.add(1.0, 1_000, 1, 100)
    lost = recording.rows.add(2.0, 500, 10, 0)
    late = recording.rows.add(3.0, 500, 10, 0)
    recording.decided(warm, "home", 950)
    recording.decided(cold, "new", 0)
    recording.began(warm, 0.5, 800, 300, 0)
    recording.began(cold, 2.0, 100, 0, 1)
    recording.answered(warm, 2.0)
    recording.answered(cold, 0.0)
    recording.gave_up(lost)
    recording.close(4.0, 3)
    result = figures(recording, until_s=4.0)
    assert (result.requests, result.errors, result.unfinished) == (4, 1, 1)
    assert result.ttft_warm_s == Spread(0.5, 0.5, 0.5, 0.5)
    assert result.ttft_cold_s == Spread(2.0, 2.0, 2.0, 2.0)
    assert result.ttft_s.mean == 1.25
    assert result.itl_s.mean == 0.02
    assert result.tok_per_s_per_user == 50.0
    assert result.cached_ratio == 0.45
    assert result.cached_ratio_ceiling == 0.5
    assert result.predicted_cached_ratio == 0.475
    assert result.host_ratio == 0.15
    assert result.tokens_per_min_per_gpu == pytest.approx(2_102 / (8 * 4 / 60))
    assert result.reasons == {"home": 1, "new": 1}
    assert result.moves == 3
    assert recording.rows.ttft_s[late] != recording.rows.ttft_s[late]
    assert result.curves.over_time.requests == [1, 1, 1, 1]
    assert result.curves.replicas.hit_ratio[0][0] == 0.8


def test_the_distribution_of_ttft_reaches_into_its_tail() -> None:
    recording = two_replicas()
    n = 10_000
    for number in range(n):
        row = recording.rows.add(0.0, 1_000, 1, 0)
        recording.began(row, float(n - number), 0, 0, 0)
    recording.close(1.0, 0)
    points = figures(recording, until_s=1.0).curves.ttft_cdf
    assert points == sorted(points)
    assert [value for value, _ in points] == [round(share * n) for _, share in points]
    shares = [share for _, share in points]
    assert (shares[0], shares[-1], len(shares)) == (1 / n, 1.0, 104)
    assert {0.995, 0.998, 0.999, 0.9995} <= set(shares)


def test_in_flight_is_averaged_over_time_and_varies_across_replicas() -> None:
    recording = two_replicas()
    recording.inflight(0, 2, 1.0)  # (2, 0): mean 1, variance 1
    recording.inflight(1, 2, 3.0)  # (2, 2): mean 2, variance 0
    recording.close(4.0, 0)
    result = figures(recording, until_s=4.0)
    assert result.inflight_mean == (0 + 1 + 1 + 2) / 4
    assert result.inflight_var_to_mean == (0 + 1 + 1 + 0) / 4
    assert result.curves.inflight_spread == [4 / 8, 0.0, 4 / 8]
    over = result.curves.over_time
    assert over.inflight_mean == [0.0, 1.0, 1.0, 2.0]
    assert over.inflight_max == [0.0, 2.0, 2.0, 2.0]
    assert over.inflight_min == [0.0, 0.0, 0.0, 2.0]
    assert result.curves.replicas.used_ratio == [[0.5] * 4] * 2


def test_who_is_out_of_service_does_not_count() -> None:
    recording = two_replicas()
    recording.inflight(0, 4, 0.0)
    recording.serves(1, 2.0, is_serving=False)
    recording.close(4.0, 0)
    result = figures(recording, until_s=4.0)
    assert result.inflight_mean == (2 + 2 + 4 + 4) / 4
    assert result.inflight_var_to_mean == (4 + 4) / 4 / 3
    assert result.curves.replicas.inflight[1] == [0.0, 0.0, None, None]


def test_exact_integrals_against_a_plain_sum() -> None:
    dice = random.Random(3)
    recording = Recording(0.7, lambda _: None)
    for index in range(5):
        recording.joined(1, 0.0)
        recording.serves(index, 0.0, is_serving=True)
    recording.begin(0.0, 0)
    counts = [0] * 5
    states = [(0.0, list(counts))]
    now = 0.0
    for _ in range(500):
        now += dice.random() * 0.4
        index = dice.randrange(5)
        change = 1 if not counts[index] or dice.random() < 0.5 else -1
        counts[index] += change
        recording.inflight(index, change, now)
        states.append((now, list(counts)))
    recording.close(now, 0)
    result = figures(recording, until_s=now)
    mean = variance = 0.0
    for (at_s, row), (next_s, _) in pairwise(states):
        average = sum(row) / 5
        mean += average * (next_s - at_s)
        variance += (sum(n * n for n in row) / 5 - average**2) * (next_s - at_s)
    assert result.inflight_mean == pytest.approx(mean / now)
    assert result.inflight_var_to_mean == pytest.approx(variance / mean)
    assert len(recording.buckets) <= BUCKETS_MAX
    area = sum(sum(row) for row in recording.buckets.area)
    assert area == pytest.approx(5 * mean)
