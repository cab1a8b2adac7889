"""What a run tells, as typed values and as plain ones for JSON. :mod:`sim.measure.figures` makes it.

*Measured* are the requests that clients send first at or after the end of warm-up and before the end of
the run. A ratio or time that nothing was measured for is None.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace


@dataclass(slots=True, frozen=True)
class Spread:
    """Mean and nearest-rank percentiles of one time, in seconds; all None if nothing was measured."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


@dataclass(slots=True, frozen=True)
class OverTime:
    """The whole run, warm-up included, in buckets of ``bucket_s``; one value a bucket in each list.

    Requests count in the bucket in which they were sent first: ``requests``, the two cache ratios,
    and the two TTFTs. ``inflight_mean`` is requests in flight a replica in service, averaged over the
    bucket; ``inflight_min`` and ``inflight_max`` the least and the most loaded replica's average.
    """

    bucket_s: float
    at_s: list[float] = field(default_factory=list)
    cached_ratio: list[float | None] = field(default_factory=list)
    cached_ratio_ceiling: list[float | None] = field(default_factory=list)
    ttft_mean_s: list[float | None] = field(default_factory=list)
    ttft_p99_s: list[float | None] = field(default_factory=list)
    inflight_mean: list[float | None] = field(default_factory=list)
    inflight_min: list[float | None] = field(default_factory=list)
    inflight_max: list[float | None] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class ReplicaCurves:
    """The first :data:`sim.measure.recording.TOLD_REPLICAS` replicas, a row each, a value a bucket.

    ``inflight`` is averaged over the bucket, None where the replica was not in service;
    ``used_ratio`` is the share of the device pool that holds something (held by running requests, or
    cached) at the bucket's end; ``hit_ratio`` is cached over prompt tokens of what began in it.
    """

    bucket_s: float
    ids: list[str] = field(default_factory=list)
    inflight: list[list[float | None]] = field(default_factory=list)
    used_ratio: list[list[float | None]] = field(default_factory=list)
    hit_ratio: list[list[float | None]] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class Curves:
    """What is drawn.

    ``ttft_cdf`` are about a hundred points (seconds, share of the measured requests at or below), closer
    together behind 99 %.
    ``inflight_spread[n]`` is the share of measured replica-time with ``n`` requests in flight.
    """

    ttft_cdf: list[tuple[float, float]]
    over_time: OverTime
    inflight_spread: list[float]
    replicas: ReplicaCurves


@dataclass(slots=True, frozen=True)
class RunEvent:
    """A fault or a change of membership; ``replica`` is its id, empty where it is about a router."""

    at_s: float
    what: str
    replica: str = ""


@dataclass(slots=True, frozen=True)
class RunResult:
    """One policy's run. :mod:`sim.measure.figures` says how each figure is defined.

    ``rule`` names the join rule of the clairvoyant reference, None for a policy's run.
    ``requests_total`` counts those of the whole run and the grace after it, which is what
    ``requests_per_wall_s`` divides. ``wall_s`` is put in by the caller, who has a clock.
    """

    policy: str
    scenario: str
    seed: int
    requests: int
    ttft_s: Spread
    ttft_warm_s: Spread
    ttft_cold_s: Spread
    itl_s: Spread
    tok_per_s_per_user: float | None
    tokens_per_min_per_gpu: float
    cached_ratio: float | None
    cached_ratio_ceiling: float | None
    predicted_cached_ratio: float | None
    host_ratio: float | None
    inflight_mean: float
    inflight_var_to_mean: float | None
    moves: int
    errors: int
    unfinished: int
    retries: int
    repeats: int
    reasons: dict[str, int]
    curves: Curves
    events: list[RunEvent]
    window_s: tuple[float, float]
    gpus_mean: float
    requests_total: int
    rule: str | None = None
    wall_s: float | None = None

    @property
    def requests_per_wall_s(self) -> float | None:
        """Requests of the whole run a wall second; None as long as nobody put the wall time in."""
        return self.requests_total / self.wall_s if self.wall_s else None

    def timed(self, wall_s: float) -> RunResult:
        """The same result with the wall seconds that it took."""
        return replace(self, wall_s=wall_s)

    def to_plain(self) -> dict[str, object]:
        """Numbers, strings, lists and dicts, in a fixed order: equal runs give equal JSON."""
        plain: dict[str, object] = asdict(self)
        plain["reasons"] = dict(sorted(self.reasons.items()))
        plain["window_s"] = list(self.window_s)
        plain["requests_per_wall_s"] = self.requests_per_wall_s
        return plain
