"""Whether a replica's scheduler moves: judged by the age of its load report, on our clock.

An engine tells its load at the end of each prefill step, every 15 generation steps and about once a second
when idle. While its scheduler hangs, its HTTP server goes on answering, with the old report. So a report that
stays the same for longer than the longest step of what the replica was given can take says that it hangs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp2
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from router.state.rates.prefill import PrefillRate

_SLACK_S: Final = 1.6
"""Beyond the longest step. A report is read at most about 1.1 s after it changed, and then every quarter of a
second while it does not: so a hang is noticed within 3 s and that step."""

_UNKNOWN_STEP_S: Final = 15.0
"""What a step may take where the replica's rate is neither told nor learned yet, and it was given a prompt."""

_EXTRA_FACTOR: Final = 1.25
_EXTRA_S_MAX: Final = 60.0
_EXTRA_HALF_LIFE_S: Final = 600.0
"""Who went on by himself, so much later than was predicted, may need as long again: its machine is shared."""

_READ_S_MAX: Final = 1.5

_GENERATION_STEPS: Final = 15
_GENERATION_STEP_S: Final = 0.05
"""Between two reports of a replica that only generates; a large batch's step of verification takes 40 ms."""

_CHUNK_TOKENS: Final = 16_384
"""What SGLang computes of prompts in one step on a GPU of 160 GB and more, where it has not told."""

_FOREIGN_TOKENS: Final = 262_144
"""The longest prompt that others may have sent."""


class Work(Protocol):
    """What is read of a replica's load: ``router.state.fleet.ledger`` says what these are."""

    inflight: int
    decoding: int
    given_tokens: int
    deepest_tokens: int


@dataclass(slots=True)
class Progress:
    """One replica's signs of life, by rank: ``stamp`` is what its last load report was marked with."""

    stamp: tuple[float, ...] = ()
    _moved_s: list[float] = field(default_factory=list)
    _extra_s: float = 0.0
    _extra_at_s: float = 0.0
    _read_s: float = 0.0

    def reported(
        self, stamp: tuple[float, ...], heard_s: float, longest_s: float, now_s: float
    ) -> bool:
        """A load report was read; answers whether it is a new one. Without a stamp each is.

        ``longest_s`` is what the longest step may have taken until now.
        """
        before, since_read_s = self.stamp, now_s - self._read_s
        self._read_s = now_s
        if stamp and stamp == before:
            return False
        self.stamp = stamp
        if len(stamp) != len(before):
            self._moved_s = [now_s] * len(stamp)
            return True
        for rank, (now, then) in enumerate(zip(stamp, before, strict=True)):
            if now != then:
                since_s = self._moved_s[rank]
                if len(stamp) == 1:
                    since_s = max(since_s, heard_s)
                if (
                    since_read_s <= _READ_S_MAX
                ):  # else nobody looked, and it may have gone on long ago
                    self._went_on(now_s - since_s - longest_s, now_s)
                self._moved_s[rank] = now_s
        return True

    def _went_on(self, extra_s: float, now_s: float) -> None:
        """A rank told something new, so much later than its longest step would have it."""
        known_s = max(self._known_extra_s(now_s), _SLACK_S)
        if extra_s > known_s:
            # A hang is not told from a long step: at most twice what was thought possible is learned from one.
            self._extra_s = min(extra_s, 2.0 * known_s, _EXTRA_S_MAX)
            self._extra_at_s = now_s

    def still_s(self, heard_s: float, now_s: float) -> float:
        """For how long nothing has moved: of several ranks, in the one that has stood still longest.

        ``heard_s`` is when an answer last brought something; which rank sent it is not known.
        """
        if not self._moved_s:
            return 0.0
        if len(self._moved_s) == 1:
            return now_s - max(self._moved_s[0], heard_s)
        return now_s - min(self._moved_s)

    def is_stalled(self, heard_s: float, longest_s: float, now_s: float) -> bool:
        """It should have told something new since; ``longest_s`` is what its longest step may take."""
        slack_s = max(_SLACK_S, _EXTRA_FACTOR * self._known_extra_s(now_s))
        return self.still_s(heard_s, now_s) > slack_s + longest_s

    def _known_extra_s(self, now_s: float) -> float:
        """The most that it was late and went on, as far as it is not long ago."""
        if not self._extra_s:
            return 0.0
        return self._extra_s * exp2(-max(0.0, now_s - self._extra_at_s) / _EXTRA_HALF_LIFE_S)


def longest_step_s(
    load: Work,
    rate: PrefillRate,
    *,
    is_rate_known: bool,
    chunk_tokens: int,
    is_foreign: bool,
) -> float:
    """The longest that a step can take of what a replica was given, in seconds.

    ``is_foreign``: others have sent it requests, too, of which only their number is known.
    """
    step_s = _GENERATION_STEPS * _GENERATION_STEP_S if load.decoding or is_foreign else 0.0
    # How much of a prompt is cached may be believed wrongly: a step may be a whole chunk of the longest.
    deepest = load.deepest_tokens
    new_tokens = deepest if load.given_tokens else 0
    if is_foreign:
        new_tokens, deepest = _FOREIGN_TOKENS, _FOREIGN_TOKENS
    if not is_rate_known and (new_tokens or load.inflight):
        return step_s + _UNKNOWN_STEP_S
    return step_s + rate.prefill_s(min(new_tokens, chunk_tokens or _CHUNK_TOKENS), deepest)
