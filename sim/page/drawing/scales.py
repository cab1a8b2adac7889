"""From values to 0..1 of an axis, and the values worth a tick."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LOG_FLOOR: Final = 1e-3
"""The least value on a log axis: a millisecond is as good as nothing."""
TICK_ROOM: Final = 0.07
"""The least distance of two ticks, as a share of the axis."""
NINES_MAX: Final = 3.0
STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
RATIO_MARKS: Final = (0.0, 0.2, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
MINUTE_STEPS: Final = (1, 2, 5, 10, 15, 20, 30, 60, 120, 240, 360, 720, 1440)


class Kind(StrEnum):
    """How an axis runs. ``nines``: shares by the logarithm of what is left, so the end near 1 has room."""

    LINEAR = "linear"
    LOG = "log"
    NINES = "nines"


@dataclass(slots=True, frozen=True)
class Scale:
    """An axis from ``low`` to ``high``, low < high."""

    low: float
    high: float
    kind: Kind = Kind.LINEAR

    def warped(self, value: float) -> float:
        """The value as the axis counts it."""
        match self.kind:
            case Kind.LINEAR:
                return value
            case Kind.LOG:
                return math.log10(max(value, LOG_FLOOR))
            case Kind.NINES:
                return -math.log10(max(1 - value, 10**-NINES_MAX))

    def share(self, value: float) -> float:
        """Where the value lies, 0..1; what lies outside is put on the nearer end."""
        low, high = self.warped(self.low), self.warped(self.high)
        return min(1.0, max(0.0, (self.warped(value) - low) / (high - low)))

    @property
    def spec(self) -> str:
        """For the script's read-outs: kind and ends."""
        return f"{self.kind} {self.low:g} {self.high:g}"


def log_scale(values: Iterable[float]) -> Scale:
    """A log axis around the values, ending on 1, 2 or 5 of a decade."""
    found = sorted(max(value, LOG_FLOOR) for value in values)
    if not found:
        return Scale(0.01, 100.0, Kind.LOG)
    marks = [m * 10.0**e for e in range(-3, 10) for m in (1, 2, 5)]
    low = max((mark for mark in marks if mark <= found[0] * 1.001), default=marks[0])
    high = min((mark for mark in marks if mark >= found[-1] * 0.999), default=marks[-1])
    return Scale(low, high if high > low else low * 10, Kind.LOG)


def linear_scale(values: Iterable[float], *, has_zero: bool = True) -> Scale:
    """A linear axis around the values, ending on round numbers."""
    found = sorted(values)
    if not found:
        return Scale(0.0, 1.0)
    low, high = (min(0.0, found[0]) if has_zero else found[0]), found[-1]
    if high - low < 1e-9:  # noqa: PLR2004
        low, high = (low, low + 1.0) if has_zero else (low - 0.05, high + 0.05)
    step = _step((high - low) / 5)
    return Scale(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step)


def ratio_scale(values: Iterable[float]) -> Scale:
    """An axis for hit ratios that is stretched towards 1: from 95 to 97 % misses nearly halve.

    It leaves out the lowest fiftieth of the values: the first moments of a run are cold.
    """
    found = sorted(values)
    if not found:
        return Scale(0.0, RATIO_MARKS[-1], Kind.NINES)
    lowest, highest = found[len(found) // 50], found[-1]
    low = max((mark for mark in RATIO_MARKS[:-1] if mark <= lowest), default=RATIO_MARKS[0])
    high = min((mark for mark in RATIO_MARKS if mark >= highest), default=RATIO_MARKS[-1])
    return Scale(low, high if high > low else RATIO_MARKS[RATIO_MARKS.index(low) + 1], Kind.NINES)


def ticks(scale: Scale, about: int = 5) -> list[float]:
    """Values worth a tick, inside the axis, in order."""
    match scale.kind:
        case Kind.NINES:
            return apart([v for v in RATIO_MARKS if scale.low <= v <= scale.high], scale)
        case Kind.LOG:
            decades = math.log10(scale.high / scale.low)
            wanted = (1, 2, 5) if decades * 3 <= about * 1.7 else (1,)
            marks = (m * 10.0**e for e in range(-3, 10) for m in wanted)
            return [mark for mark in marks if scale.low * 0.999 <= mark <= scale.high * 1.001]
        case Kind.LINEAR:
            step = _step((scale.high - scale.low) / about)
            first = math.ceil(scale.low / step - 1e-9)
            last = math.floor(scale.high / step + 1e-9)
            return [round(n * step, 10) for n in range(first, last + 1)]


def apart(places: Sequence[float], scale: Scale) -> list[float]:
    """Of places in order those whose ticks have room after the one before."""
    found: list[float] = []
    for place in places:
        if not found or scale.share(place) - scale.share(found[-1]) >= TICK_ROOM:
            found.append(place)
    return found


def minute_ticks(scale: Scale, about: int = 6) -> list[float]:
    """Moments of a run on whole minutes; seconds where it is short."""
    span_min = (scale.high - scale.low) / 60
    if span_min < about:
        return ticks(scale, about)
    fitting = next((s for s in MINUTE_STEPS if span_min / s <= about), None)
    if fitting is None:
        return ticks(scale, about)
    step = fitting * 60
    return [float(n) for n in range(math.ceil(scale.low / step) * step, int(scale.high) + 1, step)]


def _step(rough: float) -> float:
    """The round step at or above the rough one."""
    unit = 10.0 ** math.floor(math.log10(rough))
    return next(unit * step for step in STEPS if unit * step >= rough * 0.999)
