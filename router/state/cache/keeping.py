"""How much a replica keeps, and for how long: learned from what its answers report.

What an engine states is what its pools can hold. What it really keeps of *our* prompts is less where others use
it too, where requests in flight take room, or where entries expire; and more where it has a tier that it
does not tell of. Both show in its answers: a part that was lost while later ones were kept bounds the
room from above, a part that was kept though we had given it up bounds it from below.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import Final

_SHRINK_MIN: Final = 0.8
_GROWTH: Final = 1.15
"""One report moves the capacity by no more than that: it may have had another cause."""

_START_FACTOR: Final = 1.25
"""More than is stated: what is wrongly believed to be there is put right by the first report, what is wrongly given up is
seldom found out, for its session is served elsewhere then."""

_FLOOR_RATIO: Final = 0.02
_CEILING_RATIO: Final = 16.0
"""Bounds, as parts of what is stated."""

_EDGES_S: Final = tuple(30.0 * 2.0**n for n in range(10))
"""Idle times are told apart by these: half a minute to four hours."""

_SAMPLES_MIN: Final = 2.8
"""Three, of which the older have faded a little."""

_SAMPLES_MEMORY: Final = 0.95
_LOST_RATIO: Final = 0.5


@dataclass(slots=True)
class Keeping:
    """One replica's lessons. ``factor`` is the room that nothing has spoken against, as a part of what is stated."""

    factor: float = _START_FACTOR
    _kept: list[float] = field(default_factory=lambda: [0.0] * (len(_EDGES_S) + 1))
    _lost: list[float] = field(default_factory=lambda: [0.0] * (len(_EDGES_S) + 1))

    def lost(self, left_bytes: int, capacity_bytes: int) -> bool:
        """A part was lost while ``left_bytes``, used later, had room; True if that shows less room."""
        if left_bytes >= capacity_bytes:
            return False
        step = max(left_bytes / capacity_bytes, _SHRINK_MIN)
        return self._set(self.factor * step)

    def found(self, held_bytes: int, capacity_bytes: int) -> bool:
        """It had what was given up for want of room; True if it shows more room."""
        if held_bytes < 0.9 * capacity_bytes:
            return False
        return self._set(self.factor * _GROWTH)

    def held(self, prompt_bytes: int, capacity_bytes: int) -> bool:
        """A prompt of that size was computed, so there is room for it; True if that is news."""
        if prompt_bytes <= capacity_bytes:
            return False
        return self._set(self.factor * prompt_bytes / capacity_bytes)

    def returned(self, idle_s: float, *, is_kept: bool) -> None:
        """A session came back to it after so long, and found its past there, or did not."""
        at = bisect_right(_EDGES_S, idle_s)
        for counts, is_hit in ((self._kept, is_kept), (self._lost, not is_kept)):
            counts[at] = counts[at] * _SAMPLES_MEMORY + is_hit

    @property
    def shown_factor(self) -> float:
        """The room that has shown itself, as a part of what is stated: all of that, until reports say more or less."""
        return 1.0 if 1.0 < self.factor <= _START_FACTOR else self.factor

    @property
    def lifetime_s(self) -> float | None:
        """From this idle time on most sessions find nothing any more; None if that was not seen."""
        lower_s = 0.0
        for edge_s, kept, lost in zip((*_EDGES_S, 0.0), self._kept, self._lost, strict=True):
            if lost + kept >= _SAMPLES_MIN and lost >= _LOST_RATIO * (lost + kept):
                return lower_s or None
            lower_s = edge_s
        return None

    def _set(self, factor: float) -> bool:
        before = self.factor
        self.factor = min(max(factor, _FLOOR_RATIO), _CEILING_RATIO)
        return self.factor != before


class Ages:
    """Which uses of the index are how old: a mark every so often, oldest first."""

    _EVERY_S: Final = 15.0
    _MARKS_MAX: Final = 2_000

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque(maxlen=self._MARKS_MAX)

    def mark(self, now_s: float, n_uses: int) -> bool:
        """So many uses until now; True if it was time for a mark."""
        if self._marks and now_s - self._marks[-1][0] < self._EVERY_S:
            return False
        self._marks.append((now_s, n_uses))
        return True

    def until(self, at_s: float) -> int:
        """The last use that was certainly no later than that; 0 if none is known."""
        found = 0
        for marked_s, n_uses in self._marks:
            if marked_s > at_s:
                break
            found = n_uses
        return found
