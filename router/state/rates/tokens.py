"""What is learned from reports (bytes a token, how much of an answer comes back)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

_RATIO_START: Final = 4.0
_RATIO_MIN: Final = 0.5
_RATIO_MAX: Final = 32.0
_MEMORY_TOKENS: Final = 1_000_000.0
_KEYS_MAX: Final = 1024
_ANSWERED_MEMORY_TOKENS: Final = 50_000.0
_PAGE_TOKENS: Final = 64


@dataclass(slots=True)
class _Sums:
    """What was reported of one pair, and the ratio of both, within bounds."""

    n_bytes: float = 0.0
    n_tokens: float = 0.0
    ratio: float = _RATIO_START


def _bounded(ratio: float) -> float:
    return min(max(ratio, _RATIO_MIN), _RATIO_MAX)


@dataclass(slots=True)
class TokenRatio:
    """Canonical bytes a token, by (model, dialect), learned from reported prompt tokens.

    It starts at 4 bytes a token and is then the ratio of two sums over the reports of about the
    last million tokens: a report counts by its size, for in tiny prompts the template weighs most.
    """

    _sums: dict[tuple[str, str], _Sums] = field(default_factory=dict)

    def bytes_per_token(self, model: str, dialect: str) -> float:
        """The present estimate, between 0.5 and 32."""
        sums = self._sums.get((model, dialect))
        return _RATIO_START if sums is None else sums.ratio

    @property
    def mean_bytes_per_token(self) -> float:
        """Over all pairs, by their tokens; 4 at first."""
        n_tokens = sum([sums.n_tokens for sums in self._sums.values()])
        n_bytes = sum([sums.n_bytes for sums in self._sums.values()])
        return _bounded(n_bytes / n_tokens) if n_tokens else _RATIO_START

    def learn(self, model: str, dialect: str, *, prompt_bytes: int, prompt_tokens: int) -> None:
        """An engine counted ``prompt_tokens`` for a prompt of ``prompt_bytes`` canonical bytes."""
        if prompt_bytes <= 0 or prompt_tokens <= 0:
            return
        key = (model, dialect)
        sums = self._sums.get(key)
        if sums is None:
            if len(self._sums) >= _KEYS_MAX:
                del self._sums[next(iter(self._sums))]
            sums = self._sums[key] = _Sums()
        keep = _MEMORY_TOKENS / (_MEMORY_TOKENS + prompt_tokens)
        sums.n_bytes = n_bytes = sums.n_bytes * keep + prompt_bytes
        sums.n_tokens = n_tokens = sums.n_tokens * keep + prompt_tokens
        ratio = n_bytes / n_tokens
        sums.ratio = ratio if _RATIO_MIN < ratio < _RATIO_MAX else _bounded(ratio)


@dataclass(slots=True)
class AnswerShare:
    """The share of an answer's tokens that the session's next prompt begins with, by (model, dialect).

    1 where a client sends back what it was answered, token for token; less where the template drops
    its reasoning, or the client rewrites it. What an engine cached of an answer that comes back tells
    it, in whole pages: half a page is added to each report, so that the sums are right on average.
    """

    _sums: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)

    def share(self, model: str, dialect: str) -> float:
        """The present estimate, between 0 and 1; 1 at first."""
        sums = self._sums.get((model, dialect))
        return 1.0 if sums is None else sums[0] / sums[1]

    def learn(self, model: str, dialect: str, *, answered_tokens: int, beyond_tokens: int) -> None:
        """A prompt that goes on had ``beyond_tokens`` more cached than the last prompt's tokens.

        A page less says that the replica did not hold the last prompt, and far more than
        the answer that it held another prompt: neither tells of the answer.
        """
        if answered_tokens <= 0:
            return
        if not -_PAGE_TOKENS < beyond_tokens <= answered_tokens + _PAGE_TOKENS:
            return
        key = (model, dialect)
        sums = self._sums.get(key)
        if sums is None:
            if len(self._sums) >= _KEYS_MAX:
                del self._sums[next(iter(self._sums))]
            sums = (0.0, 0.0)
        back, answered = sums
        keep = _ANSWERED_MEMORY_TOKENS / (_ANSWERED_MEMORY_TOKENS + answered_tokens)
        answered = answered * keep + answered_tokens
        back = back * keep + beyond_tokens + _PAGE_TOKENS / 2
        # Pages say more of short answers than these hold: what cannot be is not carried along.
        if not 0.0 <= back <= answered:
            back = min(max(back, 0.0), answered)
        self._sums[key] = back, answered
