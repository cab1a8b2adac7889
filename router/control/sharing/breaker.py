"""Whether requests wait for the store: not while it is away, nor after it was late a few times in a row."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

_LATE_MAX: Final = 3
_SHUT_S: Final = (0.5, 1.5)
"""Drawn from these; then one request tries."""


@dataclass(slots=True)
class Breaker:
    """Shut by answers that come late; one that comes in time opens it."""

    dice: random.Random
    _n_late: int = 0
    _shut_until_s: float = -inf

    def may_wait(self, now_s: float) -> bool:
        """A request may wait now; after a while of none, one at a time."""
        if self._n_late < _LATE_MAX:
            return True
        if now_s < self._shut_until_s:
            return False
        self._shut_until_s = now_s + self.dice.uniform(*_SHUT_S)
        return True

    def came(self) -> None:
        """An answer came in time."""
        self._n_late = 0

    def late(self, now_s: float) -> None:
        """None came in time."""
        self._n_late += 1
        if self._n_late >= _LATE_MAX:
            self._shut_until_s = now_s + self.dice.uniform(*_SHUT_S)
