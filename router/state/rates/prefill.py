"""How long a replica computes a prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_SHOWN_TOKENS: Final = 32_768


@dataclass(slots=True, frozen=True)
class PrefillRate:
    """Seconds of prefill in closed form: ``fixed + linear * n + cross * n * P + half * n * n / 2``.

    ``n`` are new tokens behind ``P`` cached ones. The defaults stand for a TP4 B200 replica with
    FP8 KV, chunks of 8,192 tokens folded into the linear term: 5.2 s for 100k cold tokens, 0.11 s
    for 1k behind 100k.
    """

    fixed_s: float = 0.022
    linear_s: float = 0.000_016_2
    cross_s: float = 7.07e-10
    half_s: float = 7.2e-10

    @property
    def terms(self) -> tuple[float, float, float, float]:
        """Its four terms, in the order above."""
        return self.fixed_s, self.linear_s, self.cross_s, self.half_s

    @property
    def tokens_per_s(self) -> float:
        """How fast it computes a cold prompt of 32,768 tokens."""
        return _SHOWN_TOKENS / self.prefill_s(_SHOWN_TOKENS, 0)

    def prefill_s(self, new_tokens: int, cached_tokens: int) -> float:
        """Seconds of the replica's time; 0 only if nothing is new."""
        if new_tokens <= 0:
            return 0.0
        return (
            self.fixed_s
            + self.linear_s * new_tokens
            + self.cross_s * new_tokens * cached_tokens
            + self.half_s * new_tokens * new_tokens / 2
        )

    def scaled(self, factor: float) -> PrefillRate:
        """The rate of a replica that takes ``factor`` times as long."""
        if factor == 1.0:
            return self
        return PrefillRate(
            self.fixed_s * factor,
            self.linear_s * factor,
            self.cross_s * factor,
            self.half_s * factor,
        )
