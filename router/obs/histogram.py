"""A histogram of plain integers, filled on the path and read at a scrape."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Histogram:
    """Counts below fixed bounds, in seconds, and a sum: what a scrape needs."""

    __slots__ = ("_bounds_s", "counts", "sum_s")

    def __init__(self, bounds_s: Sequence[float]) -> None:
        """``bounds_s`` rise; one more bucket holds what is above the last."""
        self._bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def add(self, value_s: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self._bounds_s, value_s)] += 1
        self.sum_s += value_s

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by upper bound, the last one infinite."""
        rows: list[tuple[str, float]] = []
        total = 0
        for bound_s, count in zip((*self._bounds_s, None), self.counts, strict=True):
            total += count
            rows.append(("+Inf" if bound_s is None else str(bound_s), total))
        return rows
