"""Draws from a distribution that is given by four of its percentiles."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

Z10: Final = -1.2816
Z90: Final = 1.2816
Z99: Final = 2.3263
Z_MAX: Final = 4.0
STEPS_PER_Z: Final = 128
_POINTS: Final = (Z10, 0.0, Z90, Z99)


class Table:
    """Values by a standard normal score, tabulated.

    Between and beyond the percentiles the logarithm is linear in the score, so equal steps in them
    are a lognormal. Values end at ``least`` and ``most``.
    """

    __slots__ = ("values",)

    def __init__(self, percentiles: Sequence[float], *, least: float, most: float) -> None:
        """``percentiles``: the 10th, 50th, 90th and 99th, above 0 and in order."""
        logs = [math.log(value) for value in percentiles]
        n = int(2 * Z_MAX * STEPS_PER_Z)
        self.values = [
            min(most, max(least, math.exp(_line(logs, (i + 0.5) / STEPS_PER_Z - Z_MAX))))
            for i in range(n)
        ]

    def at(self, z: float) -> float:
        """The value of this score."""
        index = int((z + Z_MAX) * STEPS_PER_Z)
        values = self.values
        return values[index if 0 <= index < len(values) else 0 if index < 0 else -1]


def _line(logs: Sequence[float], z: float) -> float:
    piece = 0 if z < 0.0 else 1 if z < Z90 else 2
    low, high = _POINTS[piece], _POINTS[piece + 1]
    share = (z - low) / (high - low)
    return logs[piece] + share * (logs[piece + 1] - logs[piece])
