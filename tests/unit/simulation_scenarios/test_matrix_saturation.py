"""The search for the number of sessions that saturates a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.matrix.saturation import saturation

if TYPE_CHECKING:
    from collections.abc import Sequence


@settings(deadline=None)
@given(
    knee=st.integers(1, 40_000),
    start=st.integers(1, 2_000),
    step=st.integers(1, 64),
    ways=st.integers(1, 16),
)
def test_it_finds_where_throughput_stops_rising(
    knee: int, start: int, step: int, ways: int
) -> None:
    runs: list[int] = []

    def throughputs(lanes: Sequence[int]) -> list[float]:
        assert len(lanes) <= max(2, ways)
        runs.extend(lanes)
        return [float(min(n, knee)) for n in lanes]

    found = saturation(throughputs, start=start, step=step, ways=ways)
    assert len(runs) == len(set(runs)) == len(found.tried) <= 200
    # Within 2 % of the most, and no number a step smaller is.
    assert found.lanes >= 0.98 * min(knee, max(runs))
    assert found.lanes <= 0.98 * knee + step + 1
    assert (found.lanes, float(min(found.lanes, knee))) in found.tried


def test_throughput_may_fall_behind_its_best() -> None:
    found = saturation(
        lambda lanes: [n if n <= 600 else 600 - (n - 600) / 4 for n in lanes], start=100, step=10
    )
    assert 560 < found.lanes <= 600


@settings(deadline=None)
@given(edge=st.integers(1, 20_000), start=st.integers(1, 500), step=st.integers(1, 64))
def test_it_is_looked_for_where_sessions_are_served_soundly(
    edge: int, start: int, step: int
) -> None:
    found = saturation(
        lambda lanes: [float(n) if n <= edge else 0.0 for n in lanes], start=start, step=step
    )
    assert found.lanes <= edge or edge < step
    assert found.lanes >= 0.98 * (edge - step)


def test_what_never_stops_rising_is_said() -> None:
    with pytest.raises(ValueError, match="still rises at"):
        saturation(lambda lanes: [float(n) for n in lanes], start=1, step=1)
