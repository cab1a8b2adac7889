"""What a replica's record says: how many of its requests failed lately, and how often it has fallen.

A replica that falls once is taken back as soon as it is seen ready. One that falls again and again, or that
fails too large a share of what it is given, is kept away for a while that doubles with every fall, and
comes back on trial: a request at a time until one succeeds, then twice as many with each success.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import exp2
from typing import Final

_SLOT_S: Final = 5.0
_SLOTS: Final = 6
"""Requests of the last half minute count."""

_JUDGED_MIN: Final = 5
_FAILED_RATIO_MAX: Final = 0.5
"""At least so many requests, and at least that share of them failed: it is no accident."""

_FALLS_HALF_LIFE_S: Final = 60.0
_FALLS_FREE: Final = 1.5
"""One fall is free; a second within about a minute is not."""

_AWAY_S_MIN: Final = 2.0
_AWAY_S_MAX: Final = 60.0

RAMP_START: Final = 2
RAMP_END: Final = 32
"""Requests in flight that a replica that is back may have: it begins with the first, and is free at the last."""


@dataclass(slots=True)
class Standing:
    """One replica's record. Times are those of the caller's clock, and do not go back."""

    _slots: deque[tuple[float, list[int]]] = field(default_factory=lambda: deque(maxlen=_SLOTS))
    _falls: float = 0.0
    _falls_at_s: float = 0.0
    _away_until_s: float = 0.0
    _n_missed: int = 0

    def probed(self, *, is_answered: bool) -> int:
        """A readiness probe was answered, or was not; answers how many in a row were not."""
        self._n_missed = 0 if is_answered else self._n_missed + 1
        return self._n_missed

    def succeeded(self, now_s: float) -> None:
        """A request was answered."""
        self._slot(now_s)[0] += 1

    def failed(self, now_s: float) -> None:
        """A request failed there. Being full is no failure."""
        self._slot(now_s)[1] += 1

    def failed_ratio(self, now_s: float) -> float:
        """The share of the last half minute's requests that failed; 0 if there were too few to tell."""
        since_s = now_s - _SLOT_S * _SLOTS
        slots = [counts for begun_s, counts in self._slots if begun_s > since_s]
        failed = sum([counts[1] for counts in slots])
        n = sum([counts[0] for counts in slots]) + failed
        return failed / n if n >= _JUDGED_MIN else 0.0

    def is_poor(self, now_s: float) -> bool:
        """Too many failed lately."""
        return bool(self._slots) and self.failed_ratio(now_s) >= _FAILED_RATIO_MAX

    def fell(self, now_s: float) -> None:
        """It was in use, and is not any more, by a fault of its own."""
        self._falls = self.falls(now_s) + 1.0
        self._falls_at_s = now_s
        if self._falls > _FALLS_FREE:
            away_s = _AWAY_S_MIN * exp2(min(self._falls - _FALLS_FREE, 6.0))
            self._away_until_s = now_s + min(away_s, _AWAY_S_MAX)

    def falls(self, now_s: float) -> float:
        """Its falls; each counts for half after a minute."""
        if not self._falls:
            return 0.0
        return self._falls * exp2(-max(0.0, now_s - self._falls_at_s) / _FALLS_HALF_LIFE_S)

    def is_kept_away(self, now_s: float) -> bool:
        """It is too early to take it back."""
        return now_s < self._away_until_s

    def needs_trial(self, now_s: float) -> bool:
        """It comes back on trial only."""
        return self.falls(now_s) > _FALLS_FREE or self.is_poor(now_s)

    def passed(self) -> None:
        """It came through its trial: what failed before counts no more, but that it fell does."""
        self._slots.clear()

    def _slot(self, now_s: float) -> list[int]:
        if self._slots:
            begun_s, counts = self._slots[-1]
            if now_s - begun_s < _SLOT_S:
                return counts
        counts = [0, 0]
        self._slots.append((now_s, counts))
        return counts
