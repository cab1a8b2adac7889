"""A scenario as typed values. :mod:`sim.scenario.reading` makes one of TOML and refuses what it does not know.

Times are virtual seconds from the run's beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class WorkloadPace(StrEnum):
    """``closed``: a number of lanes, each sends when it was answered. ``open``: at recorded times."""

    CLOSED = "closed"
    OPEN = "open"


class Start(StrEnum):
    """Where a lane's first session begins: somewhere from 25 to 75 % of it, or at its beginning.

    From the middle its first prompt is cold. ``warm`` is as if lanes had played for long: at a moment of all
    sessions' time, with what was sent before cached by the replica that the lane comes to first.
    """

    MIDDLE = "middle"
    WARM = "warm"
    BEGINNING = "beginning"


class FaultKind(StrEnum):
    """What may happen to a fleet."""

    CRASH = "crash"
    SLOW = "slow"
    FLUSH = "flush"
    SCALE_UP = "scale-up"
    SCALE_DOWN = "scale-down"
    ROUTER_LOSS = "router-loss"
    REDIS_LOSS = "redis-loss"
    PARTITION = "partition"
    CLOCK_SKEW = "clock-skew"
    STALE_LOADS = "stale-loads"


@dataclass(slots=True, frozen=True)
class WorkloadSpec:
    """The traffic. ``trace`` None means fitted: drawn by a ``preset``, changed by name in ``mix``.

    Closed loop: ``sessions_per_replica`` lanes for each replica of the fleet's beginning, or
    ``sessions_in_all``. ``is_once``: each session is played once and the run ends when all have, whatever
    ``duration_s`` says. Recorded pauses, in open loop times, are divided by ``rate_factor``.
    ``has_shared_heads``: sessions whose tools and system prompt have equal sizes share them across
    lanes. ``output_tokens_asked`` is what clients allow for an answer, which is all that an engine knows
    of it before (coding agents send 32,000).
    """

    trace: str | None = None
    trace_format: str | None = None
    pace: WorkloadPace = WorkloadPace.CLOSED
    sessions_per_replica: float = 24.0
    sessions_in_all: int | None = None
    is_once: bool = False
    start: Start = Start.MIDDLE
    rate_factor: float = 1.0
    gap_s_max: float = 300.0
    context_tokens_max: int = 250_000
    has_shared_heads: bool = True
    output_tokens_asked: int = 32_000
    preset: str = "claude-code"
    mix: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class FleetSpec:
    """``replicas`` alike ones. What is None is the profile's own."""

    profile: str = "b200-tp4-fp8"
    replicas: int = 16
    capacity_tokens: int | None = None
    host_tokens: int | None = None
    max_running_requests: int | None = None
    chunk_tokens: int | None = None
    accept_length: float | None = None
    accept_spread: float | None = None
    has_draft: bool = True
    speed: float = 1.0


@dataclass(slots=True, frozen=True)
class EngineSpec:
    """How every replica's engine schedules; ``order`` as SGLang's ``--schedule-policy``, or ``priority``.

    ``prefill_decode_interval``: generation steps between two prefill steps, as SGLang's flag of that name.
    """

    order: str = "fcfs"
    prefill_decode_interval: int = 0
    is_chunk_mixed: bool = False
    max_queued_requests: int | None = None


@dataclass(slots=True, frozen=True)
class RouterSpec:
    """``count`` routers, each with beliefs of its own.

    ``probe_s`` apart, each asks every replica; the answer takes ``delay_s``. ``is_spread_by_session``:
    a session's requests go to one router; if not, each to any. ``inflight_max`` limits a replica.
    ``is_shared``: they share sessions and load through a store (``docs/routers.md``); ``is_apart``: they share
    nothing, and place sessions so that all agree.
    """

    count: int = 1
    probe_s: float = 1.0
    delay_s: float = 0.005
    is_spread_by_session: bool = True
    is_shared: bool = False
    is_apart: bool = False
    inflight_max: int | None = None


@dataclass(slots=True, frozen=True)
class FaultSpec:
    """Something that happens at ``at_s``.

    ``replicas`` are numbers in the fleet as it began (later ones are counted on); ``count`` for
    ``scale-up``. ``duration_s``: until a crashed replica's process is started again, how long a replica
    is slow or its loads are stale; None for good. ``factor``: how many times slower. ``startup_s``: from
    a process's start until it is ready. ``drain_s``: the longest wait for a drained replica's requests.
    ``router``: which one is lost, cannot reach the store, or has a clock that is ``skew_s`` ahead.
    """

    kind: FaultKind
    at_s: float
    replicas: tuple[int, ...] = ()
    count: int = 0
    duration_s: float | None = None
    factor: float = 1.0
    startup_s: float = 120.0
    drain_s: float = 300.0
    router: int = 0
    skew_s: float = 0.0


@dataclass(slots=True, frozen=True)
class Slo:
    """What ``homeport sim size`` must meet; None is not asked for."""

    ttft_p50_s: float | None = None
    ttft_p90_s: float | None = None
    ttft_p99_s: float | None = None
    tok_per_s_per_user: float | None = None
    errors_ratio: float = 0.0


@dataclass(slots=True, frozen=True)
class Scenario:
    """One description of a run, the same for every policy that is tried on it."""

    name: str
    about: str = ""
    seed: int = 1
    duration_s: float = 1_800.0
    warmup_s: float = 600.0
    policies: tuple[str, ...] = ("home",)
    workload: WorkloadSpec = field(default_factory=WorkloadSpec)
    fleet: tuple[FleetSpec, ...] = (FleetSpec(),)
    engine: EngineSpec = field(default_factory=EngineSpec)
    routers: RouterSpec = field(default_factory=RouterSpec)
    faults: tuple[FaultSpec, ...] = ()
    slo: Slo = field(default_factory=Slo)

    @property
    def n_replicas(self) -> int:
        """Replicas at the beginning."""
        return sum(group.replicas for group in self.fleet)
