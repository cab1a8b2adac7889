"""Counting a load's requests."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.live.tally import RequestRecord, Tally, ceiling_tokens, spread

_RECORD = RequestRecord(
    session="s",
    path="/v1/messages",
    started_s=0.0,
    duration_s=2.0,
    ttft_s=0.5,
    status=200,
    error=None,
    replica="r1",
    reason="home",
    n_retries=1,
    prompt_tokens=1_000,
    cached_tokens=640,
    output_tokens=10,
    ceiling_tokens=960,
)


def test_totals_and_ratios() -> None:
    tally = Tally()
    tally.add(_RECORD)
    tally.add(replace(_RECORD, prompt_tokens=None, replica=None, n_retries=0))
    failed = replace(_RECORD, error="no", status=503, prompt_tokens=None, ttft_s=None)
    tally.add(failed)
    summary = tally.summary()
    assert (summary.requests, summary.errors, summary.retries) == (3, 1, 2)
    assert (summary.hit_ratio, summary.hit_ratio_ceiling) == (0.64, 0.96)
    assert summary.mean_prompt_tokens == 1_000
    assert summary.per_replica == {"r1": 1, "unknown": 1}
    assert summary.error_kinds == {"503 no": 1}
    assert summary.ttft_s is not None
    assert summary.ttft_s.p99 == 0.5
    assert json.dumps(summary.as_dict())


def test_nothing_seen_is_no_ratio() -> None:
    summary = Tally().summary()
    assert (summary.hit_ratio, summary.ttft_s, summary.requests) == (None, None, 0)


def test_kinds_of_errors_stay_bounded() -> None:
    tally = Tally()
    for number in range(1_000):
        tally.add(replace(_RECORD, error=f"failure {number}", prompt_tokens=None))
    assert tally.summary().errors == 1_000
    assert len(tally.summary().error_kinds) <= 10


def test_spread_is_nearest_rank() -> None:
    values = spread([float(n) for n in range(1, 101)])
    assert values is not None
    assert (values.mean, values.p50, values.p90, values.p99) == (50.5, 51.0, 91.0, 100.0)
    assert spread([]) is None


@given(st.integers(1, 10**6), st.floats(0.0, 1.0))
def test_a_ceiling_is_whole_pages_and_leaves_a_token_to_compute(tokens: int, ratio: float) -> None:
    ceiling = ceiling_tokens(tokens, ratio)
    assert 0 <= ceiling < tokens
    assert ceiling % 64 == 0
    assert ceiling == pytest.approx(tokens * ratio, abs=66)
