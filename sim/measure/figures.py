"""The figures of a run, from what was recorded.

Measured are the requests that clients send first at or after the end of warm-up and before the run's end.
The run goes on after its end, under load, until each of them has had its first token, for a bounded
grace; what is still waiting then counts with the time it has waited so far, a lower bound.

- ``ttft_s``: from the client's first try to the first token with the client, waits and tries included.
  Requests that were given up without a token have none; they are ``errors``.
- ``ttft_warm_s``, ``ttft_cold_s``: of the requests of which a cache that never forgets would have held at
  least half of the prompt (``ceiling_tokens``), and the rest: the same sets for every policy in an
  open loop, and alike ones in a closed one.
- ``itl_s``: a request's mean time between tokens, ``decode time / (output tokens - 1)``, over answered
  requests of two tokens and more; decode time is from its first token to its last, of the last try.
- ``tok_per_s_per_user``: ``output tokens - 1`` of all those over their decode time.
- ``tokens_per_min_per_gpu``: prompt and output tokens of the requests that were answered in the window,
  whenever they were sent, a minute and a GPU. A GPU counts from its replica's start until it leaves.
- ``cached_ratio``: cached over prompt tokens of the measured requests that began; ``host_ratio`` the part
  that came from the host tier, ``predicted_cached_ratio`` what the router expected where it placed them
  first, ``cached_ratio_ceiling`` what a cache that never forgets would have held, all over the same tokens.
- ``inflight_mean``: requests in flight a replica in service, averaged over time. ``inflight_var_to_mean``:
  their variance across the replicas at each instant, averaged over time, over that mean.
- ``moves``: sessions given another home though the old one could be used, counted at placing; ``retries``:
  how often a router sent a request to another replica; ``repeats``: how often a client tried again;
  ``reasons``: of the first placements. All in the window.
- ``errors``: measured requests that were given up. ``unfinished``: measured ones neither answered nor
  given up when the run stopped.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from math import ceil, isnan
from typing import TYPE_CHECKING, Final

from sim.measure.recording import ANSWERED, GIVEN_UP, OPEN, TOLD_REPLICAS
from sim.measure.result import Curves, OverTime, ReplicaCurves, RunResult, Spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sim.measure.recording import Recording, Rows

CDF_POINTS: Final = 100
"""Evenly spaced points of the distribution of TTFT."""
CDF_TAIL: Final = (0.995, 0.998, 0.999, 0.9995)
"""Shares at which it has further points: what few requests wait is what is looked at."""

_MINUTE_S: Final = 60.0


def spread_of(values: Iterable[float]) -> Spread:
    """Mean and nearest-rank percentiles."""
    ordered = sorted(values)
    n = len(ordered)
    if not n:
        return Spread()
    p50, p90, p99 = (ordered[ceil(n * part / 100) - 1] for part in (50, 90, 99))
    return Spread(mean=sum(ordered) / n, p50=p50, p90=p90, p99=p99)


def result_of(
    recording: Recording,
    *,
    policy: str,
    scenario: str,
    seed: int,
    measured_s: tuple[float, float],
    replica_ids: Sequence[str],
    rule: str | None = None,
) -> RunResult:
    """The figures of a run that has stopped; ``measured_s`` is from when to when requests count."""
    rows = recording.rows
    from_s, until_s = measured_s
    first, end = bisect_left(rows.due_s, from_s), bisect_left(rows.due_s, until_s)
    sums = _sums(rows, first, end)
    window_s = max(0.0, recording.closed_s - recording.began_s) if recording.has_begun else 0.0
    mean = recording.mean_area / window_s if window_s else 0.0
    variance = recording.variance_area / window_s if window_s else 0.0
    gpu_minutes = recording.gpu_s / _MINUTE_S
    states = rows.state[first:end]
    return RunResult(
        policy=policy,
        scenario=scenario,
        seed=seed,
        requests=end - first,
        ttft_s=spread_of(sums.warm_s + sums.cold_s),
        ttft_warm_s=spread_of(sums.warm_s),
        ttft_cold_s=spread_of(sums.cold_s),
        itl_s=spread_of(sums.itl_s),
        tok_per_s_per_user=_share(sums.decoded_tokens, sums.decode_s),
        tokens_per_min_per_gpu=recording.tokens / gpu_minutes if gpu_minutes else 0.0,
        cached_ratio=_share(sums.cached_tokens, sums.prompt_tokens),
        cached_ratio_ceiling=_share(sums.ceiling_tokens, sums.prompt_tokens),
        predicted_cached_ratio=_share(sums.predicted_tokens, sums.prompt_tokens),
        host_ratio=_share(sums.host_tokens, sums.prompt_tokens),
        inflight_mean=mean,
        inflight_var_to_mean=variance / mean if mean else None,
        moves=recording.moves,
        errors=states.count(GIVEN_UP),
        unfinished=states.count(OPEN),
        retries=recording.retries,
        repeats=recording.repeats,
        reasons=dict(sorted(recording.reasons.items())),
        curves=Curves(
            ttft_cdf=_cdf(sums.warm_s + sums.cold_s),
            over_time=_over_time(recording),
            inflight_spread=_shares(recording.spread_s),
            replicas=_replica_curves(recording, replica_ids),
        ),
        events=list(recording.events),
        window_s=(recording.began_s, recording.closed_s) if recording.has_begun else (0.0, 0.0),
        gpus_mean=recording.gpu_s / window_s if window_s else 0.0,
        requests_total=len(rows),
        rule=rule,
    )


@dataclass(slots=True)
class _Sums:
    """What some rows come to; tokens are those of the requests that began."""

    warm_s: list[float] = field(default_factory=list)
    cold_s: list[float] = field(default_factory=list)
    itl_s: list[float] = field(default_factory=list)
    decode_s: float = 0.0
    decoded_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    ceiling_tokens: int = 0
    predicted_tokens: int = 0
    host_tokens: int = 0


def _sums(rows: Rows, first: int, end: int) -> _Sums:
    """Sums over the rows from ``first`` up to ``end``."""
    sums = _Sums()
    part = slice(first, end)
    for ttft_s, prompt, cached, ceiling in zip(
        rows.ttft_s[part],
        rows.prompt_tokens[part],
        rows.cached_tokens[part],
        rows.ceiling_tokens[part],
        strict=True,
    ):
        if not isnan(ttft_s):
            (sums.warm_s if 2 * ceiling >= prompt else sums.cold_s).append(ttft_s)
        if cached >= 0:
            sums.prompt_tokens += prompt
            sums.cached_tokens += cached
            sums.ceiling_tokens += ceiling
    for cached, predicted, host in zip(
        rows.cached_tokens[part], rows.predicted_tokens[part], rows.host_tokens[part], strict=True
    ):
        if cached >= 0:
            sums.predicted_tokens += predicted
            sums.host_tokens += host
    for state, decode_s, output in zip(
        rows.state[part], rows.decode_s[part], rows.output_tokens[part], strict=True
    ):
        if state == ANSWERED and output > 1:
            sums.itl_s.append(decode_s / (output - 1))
            sums.decode_s += decode_s
            sums.decoded_tokens += output - 1
    return sums


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _shares(spread_s: Sequence[float]) -> list[float]:
    total_s = sum(spread_s)
    return [part_s / total_s for part_s in spread_s] if total_s else []


def _cdf(values: list[float]) -> list[tuple[float, float]]:
    """The values at evenly spaced ranks, the least and the greatest included, and at those of the tail."""
    ordered = sorted(values)
    n = len(ordered)
    if n <= CDF_POINTS:
        return [(value, (i + 1) / n) for i, value in enumerate(ordered)]
    ranks = {1 + round(k * (n - 1) / (CDF_POINTS - 1)) for k in range(CDF_POINTS)}
    ranks.update(ceil(n * share) for share in CDF_TAIL)
    return [(ordered[r - 1], r / n) for r in sorted(ranks)]


def _over_time(recording: Recording) -> OverTime:
    buckets = recording.buckets
    width_s, n = buckets.width_s, len(buckets)
    sent = _by_bucket(recording.rows, width_s, n)
    curves = OverTime(width_s)
    for number in range(n):
        curves.at_s.append(number * width_s)
        _add_requests(curves, recording.rows, sent[number])
        served_s = buckets.served_s[number]
        means = [
            area / time_s
            for area, time_s in zip(buckets.area[number], served_s, strict=True)
            if time_s > 0.0
        ]
        curves.inflight_mean.append(_share(sum(buckets.area[number]), sum(served_s)))
        curves.inflight_min.append(min(means, default=None))
        curves.inflight_max.append(max(means, default=None))
    return curves


def _by_bucket(rows: Rows, width_s: float, n: int) -> list[range]:
    """The rows of each bucket: they are in order of time."""
    edges = [bisect_left(rows.due_s, number * width_s) for number in range(n)]
    last = len(rows)
    return [range(a, b) for a, b in zip(edges, [*edges[1:], last], strict=True)]


def _add_requests(curves: OverTime, rows: Rows, sent: range) -> None:
    sums = _sums(rows, sent.start, sent.stop)
    ttft = spread_of(sums.warm_s + sums.cold_s)
    curves.requests.append(len(sent))
    curves.cached_ratio.append(_share(sums.cached_tokens, sums.prompt_tokens))
    curves.cached_ratio_ceiling.append(_share(sums.ceiling_tokens, sums.prompt_tokens))
    curves.ttft_mean_s.append(ttft.mean)
    curves.ttft_p99_s.append(ttft.p99)


def _replica_curves(recording: Recording, ids: Sequence[str]) -> ReplicaCurves:
    buckets = recording.buckets
    told = list(ids[:TOLD_REPLICAS])
    curves = ReplicaCurves(buckets.width_s, told)
    for replica in range(len(told)):
        curves.inflight.append(
            [
                _share(area[replica], time_s[replica]) if replica < len(area) else None
                for area, time_s in zip(buckets.area, buckets.served_s, strict=True)
            ]
        )
        curves.used_ratio.append(
            [used[replica] if replica < len(used) else None for used in buckets.used]
        )
        curves.hit_ratio.append(
            [
                _share(cached[replica], prompt[replica]) if replica < len(cached) else None
                for cached, prompt in zip(buckets.cached, buckets.prompt, strict=True)
            ]
        )
    return curves
