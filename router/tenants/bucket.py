"""A token bucket that may go into debt."""

from __future__ import annotations

from typing import Final

_MINUTE_S: Final = 60.0


class Bucket:
    """Holds at most a minute's worth, fills evenly, and is open while anything is left in it.

    What a request costs is known only once it is there, so it is taken whole and may leave a debt:
    the next one waits until that is paid. In the long run the rate is exact, and a single request
    larger than the limit is late, not impossible.
    """

    __slots__ = ("_at_s", "_level", "_per_min")

    def __init__(self, per_min: int, now_s: float) -> None:
        self._per_min = per_min
        self._level = float(per_min)
        self._at_s = now_s

    def resize(self, per_min: int) -> None:
        """Another limit from now on; a debt stays."""
        self._per_min = per_min
        self._level = min(self._level, float(per_min))

    def wait_s(self, now_s: float) -> float:
        """Seconds until the bucket is open; 0 if it is."""
        rate = self._per_min / _MINUTE_S
        level = self._level + (now_s - self._at_s) * rate
        if level > self._per_min:
            level = float(self._per_min)
        self._level, self._at_s = level, now_s
        return 0.0 if level >= 1.0 else (1.0 - level) / rate

    def take(self, amount: float) -> None:
        """Take out, or with a negative amount put back."""
        level = self._level - amount
        self._level = level if level < self._per_min else float(self._per_min)
