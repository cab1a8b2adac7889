"""What a load has seen: one record a request, and totals that stay right when records are dropped.

Times are engine seconds. The ceiling is what an infinite cache would have hit on the same requests,
counted in whole pages and with at least one token of each prompt computed.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE_TOKENS: Final = 64
_RECORDS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as its client saw it, retries included in its times.

    ``status`` is 0 if no answer came. Token counts are None where the answer carried no usage.
    """

    session: str
    path: str
    started_s: float
    duration_s: float
    ttft_s: float | None
    status: int
    error: str | None
    replica: str | None
    reason: str | None
    n_retries: int
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    ceiling_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of the newest values, in engine seconds."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class Summary:
    """A load's result; ratios are shares (0-1) of the prompt tokens of answers with usage."""

    requests: int
    errors: int
    retries: int
    sessions: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    mean_prompt_tokens: float
    hit_ratio: float | None
    hit_ratio_ceiling: float | None
    ttft_s: Spread | None
    duration_s: Spread | None
    per_replica: dict[str, int]
    reasons: dict[str, int]
    error_kinds: dict[str, int]

    def as_dict(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return asdict(self)


class Tally:
    """Counts finished requests; keeps the newest records for percentiles."""

    def __init__(self) -> None:
        self.records: deque[RequestRecord] = deque(maxlen=_RECORDS_MAX)
        self.n_requests = 0
        self.n_sessions = 0
        self._n_errors = 0
        self._n_retries = 0
        self._n_with_usage = 0
        self._tokens: Counter[str] = Counter()
        self._per_replica: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._error_kinds: Counter[str] = Counter()

    def add(self, record: RequestRecord) -> None:
        """Count one finished request."""
        self.records.append(record)
        self.n_requests += 1
        self._n_retries += record.n_retries
        if record.error is not None:
            self._n_errors += 1
            self._error_kinds[f"{record.status} {record.error}"[:160]] += 1
            if len(self._error_kinds) > 100:  # noqa: PLR2004 - texts of errors may be endless
                self._error_kinds = Counter(dict(self._error_kinds.most_common(50)))
        else:
            self._per_replica[record.replica or "unknown"] += 1
            self._reasons[record.reason or "unknown"] += 1
        if record.prompt_tokens is not None:
            self._n_with_usage += 1
            self._tokens["prompt"] += record.prompt_tokens
            self._tokens["cached"] += record.cached_tokens or 0
            self._tokens["output"] += record.output_tokens or 0
            self._tokens["ceiling"] += record.ceiling_tokens or 0

    def summary(self) -> Summary:
        """Everything so far."""
        prompt_tokens = self._tokens["prompt"]
        return Summary(
            requests=self.n_requests,
            errors=self._n_errors,
            retries=self._n_retries,
            sessions=self.n_sessions,
            prompt_tokens=prompt_tokens,
            cached_tokens=self._tokens["cached"],
            output_tokens=self._tokens["output"],
            mean_prompt_tokens=prompt_tokens / max(1, self._n_with_usage),
            hit_ratio=self._tokens["cached"] / prompt_tokens if prompt_tokens else None,
            hit_ratio_ceiling=self._tokens["ceiling"] / prompt_tokens if prompt_tokens else None,
            ttft_s=spread([r.ttft_s for r in self.records if r.ttft_s is not None]),
            duration_s=spread([r.duration_s for r in self.records if r.error is None]),
            per_replica=dict(sorted(self._per_replica.items())),
            reasons=dict(self._reasons.most_common()),
            error_kinds=dict(self._error_kinds.most_common(10)),
        )


def spread(values: Sequence[float]) -> Spread | None:
    """Mean and percentiles (nearest rank) of ``values``, or None of nothing."""
    if not values:
        return None
    ordered = sorted(values)

    def percentile(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return Spread(statistics.fmean(ordered), percentile(0.5), percentile(0.9), percentile(0.99))


def ceiling_tokens(prompt_tokens: int, shared_ratio: float) -> int:
    """Tokens of a prompt that an infinite cache would hold: whole pages, never all of the prompt."""
    shared = min(round(prompt_tokens * shared_ratio), prompt_tokens - 1)
    return max(0, shared // PAGE_TOKENS * PAGE_TOKENS)
