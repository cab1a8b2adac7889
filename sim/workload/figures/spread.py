"""The spread of a quantity: its mean and its percentiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of ``n`` values; a percentile is one of the values (nearest rank)."""

    n: int
    mean: float
    p10: float
    p50: float
    p90: float
    p99: float
    max: float


def spread_of(values: Iterable[float]) -> Spread | None:
    """The spread of some values, None of none."""
    ordered = sorted(values)
    if not ordered:
        return None
    n = len(ordered)
    p10, p50, p90, p99 = (ordered[-(-n * percent // 100) - 1] for percent in (10, 50, 90, 99))
    return Spread(n, sum(ordered) / n, p10, p50, p90, p99, ordered[-1])
