"""How fast one replica computes prompts, learned from the counters of its load reports.

An engine counts the uncached prompt tokens that it computed, and the time it was busy with that. The
router knows of its own requests how many tokens they were, behind how many cached ones, and so how long a replica of
the assumed rate would have been busy. Seconds a token on both sides, over about the last twenty busy seconds:
their ratio is how much slower the replica is than assumed. Time to first token is not used, for most of
it may be waiting; and requests of others spoil nothing as long as they are of the same kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MEMORY_S: Final = 20.0
_MEMORY_TOKENS: Final = 1_000_000.0
"""Old sums fade as new busy time, and new tokens of ours, come in."""

_BUSY_S_MIN: Final = 1.0
_TOKENS_MIN: Final = 10_000
"""Below that much of either nothing is concluded."""

_FACTOR_MIN: Final = 1 / 64
_FACTOR_MAX: Final = 64.0
_STEP: Final = 0.03
"""A change below three percent is none: a new rate makes everybody's order anew."""


@dataclass(slots=True)
class PrefillLearner:
    """One replica's sums. ``factor`` is how many times the assumed seconds it takes, None if not learned.

    ``n_busy_s`` is the busy time it has been learned from.
    """

    factor: float | None = None
    _tokens: int | None = None
    _busy_us: int = 0
    _reported_s: float = 0.0
    _reported_tokens: float = 0.0
    _assumed_s: float = 0.0
    _assumed_tokens: float = 0.0

    def computed(self, new_tokens: int, assumed_s: float) -> None:
        """A request of ours had so many uncached tokens, for which the assumed rate takes so long."""
        if new_tokens <= 0:
            return
        keep = _MEMORY_TOKENS / (_MEMORY_TOKENS + new_tokens)
        self._assumed_s = self._assumed_s * keep + assumed_s
        self._assumed_tokens = self._assumed_tokens * keep + new_tokens

    def reported(self, tokens: int, busy_us: int) -> float | None:
        """The replica's counters now; answers a new factor if it differs from the last.

        Counters that went back are another process's: what was learned stays until it is learned anew.
        """
        before, before_us = self._tokens, self._busy_us
        self._tokens, self._busy_us = tokens, busy_us
        if before is None or tokens < before or busy_us < before_us:
            return None
        new_tokens, busy_s = tokens - before, (busy_us - before_us) / 1e6
        if not new_tokens or busy_s <= 0.0:
            return None
        keep = _MEMORY_S / (_MEMORY_S + busy_s)
        self._reported_s = self._reported_s * keep + busy_s
        self._reported_tokens = self._reported_tokens * keep + new_tokens
        return self._changed()

    def _changed(self) -> float | None:
        if self._reported_s < _BUSY_S_MIN or self._assumed_tokens < _TOKENS_MIN:
            return None
        if self._assumed_s <= 0.0 or self._reported_tokens <= 0.0:
            return None
        reported = self._reported_s / self._reported_tokens
        factor = reported * self._assumed_tokens / self._assumed_s
        factor = min(max(factor, _FACTOR_MIN), _FACTOR_MAX)
        if self.factor is not None and abs(factor - self.factor) <= _STEP * self.factor:
            return None
        self.factor = factor
        return factor
