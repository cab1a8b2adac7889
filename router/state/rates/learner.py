"""How fast one replica computes prompts, learned from the counters of its load reports.

An engine counts the uncached prompt tokens it has computed, and the time it was busy with that. The router knows which
prompts it sent there, in which order, behind how many cached tokens. So the tokens between two reports are
told apart: first those of the prompts that have begun to be answered, then of the oldest that have not. For
these the assumed rate has a part that grows with the tokens and one that grows with their depth in the
prompt; how much longer or shorter each takes in truth is fitted to the busy times of about the last forty
busy seconds. Time to first token is not used, for most of it may be waiting.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from router.rows import Row
from router.state.rates.prefill import PrefillRate

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEMORY_S: Final = 40.0
_BUSY_S_MIN: Final = 1.0
"""Below that much busy time nothing is concluded."""

_KNOWN_MIN: Final = 0.05
"""A report of which we know a smaller share of the tokens says nothing: others sent the rest."""

_RIDGE: Final = 0.003
"""How strongly the two parts are held together: traffic of one kind cannot tell them apart."""

_OFF_MAX: Final = 0.05
_APART: Final = 4.0
_FACTOR_MIN: Final = 1 / 64
_FACTOR_MAX: Final = 64.0
_STEP: Final = 0.03
"""A change below three percent is none: a new rate makes everybody's order anew."""

_PROBES: Final = ((8_192, 0), (1_000, 100_000))
_LATE_REPORTS: Final = 2
_JOBS_MAX: Final = 1_024


class Job(Row, eq=False):
    """One prompt that a replica has to compute; ``done`` of ``new_tokens`` are, behind ``cached_tokens``.

    ``n_reports`` have come since it has begun to be answered.
    """

    new_tokens: int
    cached_tokens: int
    done: int = 0
    n_reports: int = 0
    has_begun: bool = False
    is_gone: bool = False

    def is_open(self) -> bool:
        """Some of its tokens are still to be counted; asked once a report.

        The counters lack the last step. What they lack after that was cached, though it was not believed to be.
        """
        if self.is_gone or self.done >= self.new_tokens:
            return False
        self.n_reports += self.has_begun
        return self.n_reports < _LATE_REPORTS


@dataclass(slots=True)
class PrefillLearner:
    """One replica's sums; ``start`` is the rate that is assumed, ``rate`` what was learned, None if nothing."""

    start: PrefillRate = field(default_factory=PrefillRate)
    rate: PrefillRate | None = None
    _jobs: deque[Job] = field(default_factory=lambda: deque(maxlen=_JOBS_MAX))
    _tokens: int | None = None
    _busy_us: int = 0
    _busy_s: float = 0.0
    _ll: float = 0.0
    _lq: float = 0.0
    _qq: float = 0.0
    _ly: float = 0.0
    _qy: float = 0.0

    def given(self, new_tokens: int, cached_tokens: int) -> Job:
        """A prompt was sent there. Whoever sent it tells when it has begun to be answered, or is gone."""
        job = Job(new_tokens, cached_tokens)
        self._jobs.append(job)
        return job

    def reported(self, tokens: int, busy_us: int) -> PrefillRate | None:
        """The replica's counters now; answers a new rate if it differs from the last.

        Counters that went back are another process's: what was learned stays until it is learned anew.
        """
        before, before_us = self._tokens, self._busy_us
        self._tokens, self._busy_us = tokens, busy_us
        if before is None:
            return None
        if tokens < before or busy_us < before_us:
            self._jobs.clear()
            return None
        new_tokens, busy_s = tokens - before, (busy_us - before_us) / 1e6
        grown_s, deep_s, known_tokens = self._computed(new_tokens)
        if not new_tokens or busy_s <= 0.0 or known_tokens < _KNOWN_MIN * new_tokens:
            return None
        # What others sent is taken to be of the same kind.
        scale = new_tokens / known_tokens
        self._sum(grown_s * scale, deep_s * scale, busy_s)
        return self._changed()

    def _computed(self, tokens: int) -> tuple[float, float, int]:
        """Assumed seconds of so many tokens of the jobs: by tokens, by depth; and how many were known."""
        grown_s = deep_s = 0.0
        left = tokens
        for job in self._in_order():
            n = min(left, job.new_tokens - job.done)
            if n > 0:
                start, at = self.start, job.done
                grown_s += n * (start.linear_s + start.fixed_s / job.new_tokens)
                deep_s += n * (start.cross_s * job.cached_tokens + start.half_s * (at + n / 2))
                job.done = at + n
                left -= n
            if not left:
                break
        kept = [job for job in self._jobs if job.is_open()]
        self._jobs.clear()
        self._jobs.extend(kept)
        return grown_s, deep_s, tokens - left

    def _in_order(self) -> Iterator[Job]:
        yield from (job for job in self._jobs if job.has_begun)
        yield from (job for job in self._jobs if not job.has_begun)

    def _sum(self, grown_s: float, deep_s: float, busy_s: float) -> None:
        keep = _MEMORY_S / (_MEMORY_S + busy_s)
        self._busy_s = self._busy_s * keep + busy_s
        weight = self._weight(grown_s, deep_s, busy_s)
        self._ll = self._ll * keep + weight * grown_s * grown_s
        self._lq = self._lq * keep + weight * grown_s * deep_s
        self._qq = self._qq * keep + weight * deep_s * deep_s
        self._ly = self._ly * keep + weight * grown_s * busy_s
        self._qy = self._qy * keep + weight * deep_s * busy_s

    def _weight(self, grown_s: float, deep_s: float, busy_s: float) -> float:
        """How much a report counts: less, the worse it fits, for then its tokens were others than was thought."""
        factors = self._fitted() if self.rate is not None else None
        if factors is None:
            return 1.0
        off = abs(busy_s / (factors[0] * grown_s + factors[1] * deep_s) - 1.0)
        return 1.0 if off <= _OFF_MAX else _OFF_MAX / off

    def _changed(self) -> PrefillRate | None:
        if self._busy_s < _BUSY_S_MIN:
            return None
        factors = self._fitted()
        if factors is None:
            return None
        grown, deep = factors
        start = self.start
        rate = PrefillRate(
            start.fixed_s * grown, start.linear_s * grown, start.cross_s * deep, start.half_s * deep
        )
        if self.rate is not None and all(
            abs(rate.prefill_s(*probe) / self.rate.prefill_s(*probe) - 1.0) <= _STEP
            for probe in _PROBES
        ):
            return None
        self.rate = rate
        return rate

    def _fitted(self) -> tuple[float, float] | None:
        """The factors of both parts: least squares, held together by a common one."""
        square = self._ll + 2.0 * self._lq + self._qq
        if square <= 0.0:
            return None
        common = min(max((self._ly + self._qy) / square, _FACTOR_MIN), _FACTOR_MAX)
        ridge = _RIDGE * (self._ll + self._qq)
        ll, qq, lq = self._ll + ridge, self._qq + ridge, self._lq
        ly, qy = self._ly + ridge * common, self._qy + ridge * common
        determinant = ll * qq - lq * lq
        grown = (ly * qq - qy * lq) / determinant
        deep = (qy * ll - ly * lq) / determinant
        low, high = common / _APART, common * _APART
        return min(max(grown, low), high), min(max(deep, low), high)
