"""The shapes of the control API's answers, as ``GET /openapi.json`` tells them.

Times are seconds, sizes tokens; what is null is not known or does not apply.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from router.state.beliefs import Source
from router.state.health.table import State


class ErrorText(msgspec.Struct):
    """A stable code, and words for a person: what happened, and what to do."""

    code: str
    message: str


class ErrorAnswer(msgspec.Struct):
    """Every error has this shape."""

    error: ErrorText


class Alive(msgspec.Struct):
    """The process lives."""

    status: Literal["ok"]


class Readiness(msgspec.Struct):
    """Whether some replica may take a request, and the router does not drain."""

    ready: bool


class RankReport(msgspec.Struct):
    """One data-parallel rank's part of a load report."""

    rank: int
    running: int
    waiting: int
    waiting_uncached_tokens: int
    used_ratio: float


class LoadReport(msgspec.Struct):
    """A replica's last load report; ``age_s`` since it last said something new."""

    running: int
    waiting: int
    waiting_uncached_tokens: int
    used_ratio: float
    age_s: float
    ranks: list[RankReport]


class Belief(msgspec.Struct):
    """What the belief about a replica's cache rests on, how old that is, and how far off it was."""

    source: Source
    age_s: float | None
    known_pages: int
    reports_total: int
    error_tokens_total: int


class DrainEnd(msgspec.Struct):
    """How a drain ends: by removal once nothing is in flight (``remove``), at the latest in ``left_s``."""

    remove: bool
    left_s: float | None


class ReplicaView(msgspec.Struct):
    """One replica as the router believes it to be."""

    id: str
    url: str
    state: State
    source: str
    sources: list[str]
    profile: str | None
    models: list[str]
    weight: float
    inflight: int
    inflight_max: int | None
    inflight_tokens: int
    decoding: int
    backlog_s: float
    live_sessions: int
    live_tokens: int
    capacity_tokens: int
    stated_tokens: int
    held_tokens: int
    idle_lifetime_s: float | None
    prefill_tokens_per_s: float
    requests_total: int
    prompt_tokens_total: int
    cached_tokens_total: int
    failures_total: int
    cache_losses_total: int
    lost_bytes_total: int
    stalls_total: int
    belief: Belief
    load: LoadReport | None
    ready_age_s: float | None
    lease_left_s: float | None
    drain: DrainEnd | None


class Spread(msgspec.Struct):
    """Mean and percentiles."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None


class Totals(msgspec.Struct):
    """Sums since the router started."""

    requests: int
    errors: int
    client_gone: int
    retries: int
    moves: int
    splits: int
    rehomes: int
    prompt_tokens: int
    cached_tokens: int
    predicted_cached_tokens: int
    ttft_s: Spread


class FleetView(msgspec.Struct):
    """The whole fleet; ``sessions`` counts the live ones."""

    policy: str
    replicas: list[ReplicaView]
    sessions: int
    totals: Totals


class SessionRow(msgspec.Struct):
    """One session in a list; ``pinned`` is the replica that an operator pinned it to."""

    key: str
    home: str
    pinned: str | None
    requests: int
    age_s: float
    idle_s: float
    prompt_tokens: int


class SessionRows(msgspec.Struct):
    """The most recent sessions, newest first."""

    sessions: list[SessionRow]


class Parts(msgspec.Struct):
    """A price, in seconds over the replica's weight."""

    wait_s: float
    prefill_s: float
    interference_s: float
    pressure_s: float


class DecisionView(msgspec.Struct):
    """One decision; ``at_s`` is negative, in the past."""

    at_s: float
    replica: str
    reason: str
    prompt_tokens: int
    predicted_cached_tokens: int
    reported_prompt_tokens: int | None
    reported_cached_tokens: int | None
    output_tokens: int | None
    ttft_s: float | None
    outcome: str | None
    error: str | None
    tries: int
    ranked: list[str]
    prices: dict[str, Parts]


class SessionView(msgspec.Struct, omit_defaults=True):
    """One session with its newest decisions; without a home only key, home and decisions are there."""

    key: str
    home: str | None
    decisions: list[DecisionView]
    source: str | None = None
    parent: str | None = None
    pinned: str | None = None
    pin_left_s: float | None = None
    requests: int | None = None
    age_s: float | None = None
    idle_s: float | None = None
    prompt_tokens: int | None = None


class ExplainedPrice(Parts):
    """A price with its sum."""

    total_s: float


class BeliefAge(msgspec.Struct):
    """What the belief about a replica's cache rests on, and how old that is."""

    source: Source
    age_s: float | None


class ReplicaReasons(msgspec.Struct):
    """One replica in a decision; ``why_not`` is null for the chosen one, ``price`` where nothing is priced.

    ``compared`` is what the policy's rule compares, in words. Who is no ``candidate`` cannot take the request now.
    """

    id: str
    state: State
    candidate: bool
    why_not: str | None
    compared: str | None
    price: ExplainedPrice | None
    cached_tokens: int
    backlog_s: float
    inflight: int
    inflight_max: int | None
    live_sessions: int
    live_tokens: int
    capacity_tokens: int
    weight: float
    report_age_s: float | None
    belief: BeliefAge


class ExplanationView(msgspec.Struct):
    """What would be decided now on a session's next turn; ``chosen`` null: it would be refused.

    ``awaits_turn``: streamed, it would wait at the door first, while the chosen replica computes another long prompt.
    ``told_by`` is the router or worker that served its last turn, null for this one. ``replicas`` are all: the chosen one,
    the other candidates from the cheapest on, and those that are none.
    """

    key: str
    policy: str
    model: str | None
    chosen: str | None
    reason: str
    rule: str
    awaits_turn: bool
    home: str
    home_age_s: float
    session_inflight: int
    prompt_tokens: int
    output_tokens: int
    auxiliary: bool
    replicas: list[ReplicaReasons]
    pinned: str | None
    requests: int
    told_by: str | None


class Registered(msgspec.Struct):
    """A replica that is now known."""

    id: str
    url: str
    state: State
    lease_s: float | None


class Beaten(msgspec.Struct):
    """A lease that starts anew."""

    id: str
    state: State
    lease_s: float | None


class ReplicaState(msgspec.Struct):
    """A replica after an operator's change."""

    id: str
    state: State
    inflight: int
    weight: float
    inflight_max: int | None
    held_tokens: int
    drain: DrainEnd | None


class SessionState(msgspec.Struct):
    """A session after an operator's change."""

    key: str
    home: str
    pinned: str | None
    pin_left_s: float | None


class ChangeRow(msgspec.Struct):
    """One change by an operator; ``before`` and ``after`` hold what it changed."""

    number: int
    age_s: float
    event: str
    replica: str | None
    session: str | None
    before: dict[str, Any]
    after: dict[str, Any]
    who: str
    why: str | None


class ChangeRows(msgspec.Struct):
    """The newest changes, newest first; the last 1,000 since the router started are kept."""

    changes: list[ChangeRow]
