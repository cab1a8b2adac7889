"""The clock of the front door: seconds that never go back, read in one place."""

from __future__ import annotations

import time
from typing import Final

now_s: Final = time.monotonic
"""Monotonic seconds; only differences mean anything."""


epoch_s: Final = time.time
"""Seconds since 1970, for people to read; may go back."""


class ManualClock:
    """A clock for tests and replays that moves only when told to."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def __call__(self) -> float:
        """The current time, in seconds."""
        return self._now_s

    def advance(self, by_s: float) -> None:
        """Move forward; a negative step is a fault of the caller."""
        assert by_s >= 0.0, by_s
        self._now_s += by_s
