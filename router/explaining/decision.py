"""One decision as it is told: every replica, what it would cost there, and why it is not that one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.policy.view import Weighed
from router.rows import Row
from router.state.fleet.by_model import may_serve
from router.state.fleet.homes import reason_of
from router.state.fleet.turns import awaits_turn
from router.state.health.table import KEEPING, State

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from router.core import RouterCore
    from router.policy.view import Explanation, Price, RouteRequest
    from router.state.beliefs import Source
    from router.state.fleet.replica import Replica


class ReplicaReasons(Row):
    """One replica at the moment of a decision.

    ``why_not`` is "" for the chosen one. ``is_candidate`` False: it could not take the request, and ``why_not`` says
    why. ``price`` None: the policy prices nothing, or it is no candidate. ``backlog_s`` is prefill that has not begun to
    answer, in its own seconds; of a price the weight is a divisor. ``report_age_s`` is how long ago its load report last
    said something new, ``cache_age_s`` how long ago its cache was heard of by ``cache_source``; None: never.
    """

    replica_id: str
    state: State
    is_candidate: bool
    why_not: str
    compared: str
    price: Price | None
    cached_tokens: int
    backlog_s: float
    inflight: int
    inflight_max: int | None
    live_sessions: int
    live_tokens: int
    capacity_tokens: int
    weight: float
    report_age_s: float | None
    cache_source: Source
    cache_age_s: float | None


class Decision(Row):
    """Where a request goes, and why nowhere else; tokens are estimates.

    ``chosen_id`` "": nobody can take it, and the reason is the error's code. ``replicas`` are all: the chosen one, the
    other candidates from the cheapest on, and those that are none. ``awaits_turn``: if it may wait, it does, until the
    chosen one has computed another long prompt.
    """

    session_key: str
    reason: str
    rule: str
    home_id: str | None
    home_age_s: float
    session_inflight: int
    prompt_tokens: int
    output_tokens: int
    is_auxiliary: bool
    replicas: tuple[ReplicaReasons, ...]
    chosen_id: str = ""
    model: str = ""
    awaits_turn: bool = False


def told(
    core: RouterCore,
    request: RouteRequest,
    explanation: Explanation,
    now_s: float,
    *,
    model: str = "",
    tried: Collection[str] = (),
) -> Decision:
    """The decision on ``request`` that ``explanation`` has; to be told before the core changes."""
    ranking = explanation.ranking
    reason = reason_of(ranking.reason, request.home_id, core.fleet)
    weighed = {row.replica_id: row for row in explanation.candidates}
    rows = _rows(core, request, weighed, now_s, model=model, tried=tried)
    decision = _decision(request, rows, reason, explanation.rule)
    chosen_id = ranking.ranked[0]
    decision.chosen_id, decision.model = chosen_id, model
    chosen = core.fleet.get(chosen_id)
    decision.awaits_turn = (
        ranking.takes_turns and chosen is not None and awaits_turn(request, chosen)
    )
    return decision


def refused(
    core: RouterCore, request: RouteRequest, code: str, now_s: float, *, model: str = ""
) -> Decision:
    """Nobody can take the request, and ``code`` is the error that it would be answered with."""
    rows = _rows(core, request, {}, now_s, model=model)
    decision = _decision(request, rows, code, "no replica can take it now")
    decision.model = model
    return decision


def _decision(
    request: RouteRequest, rows: list[ReplicaReasons], reason: str, rule: str
) -> Decision:
    return Decision(
        session_key=request.session_key,
        reason=reason,
        rule=rule,
        home_id=request.home_id,
        home_age_s=request.home_age_s,
        session_inflight=request.session_inflight,
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        is_auxiliary=request.is_auxiliary,
        replicas=tuple(sorted(rows, key=_order)),
    )


def _rows(
    core: RouterCore,
    request: RouteRequest,
    weighed: Mapping[str, Weighed],
    now_s: float,
    *,
    model: str,
    tried: Collection[str] = (),
) -> list[ReplicaReasons]:
    """All replicas, those that are no candidates with why that is so."""
    eligible = {replica.replica_id for replica in core.fleet.eligible(model)}
    rows = []
    for replica in core.fleet.replicas():
        replica_id = replica.replica_id
        row = weighed.get(replica_id)
        if row is None:
            is_kept = replica_id == request.home_id and replica.state in KEEPING
            why = _barred(replica, model, tried, is_taking=is_kept or replica_id in eligible)
            row = Weighed(replica_id, "", why)
        rows.append(_told(core, request, replica, row, now_s))
    return rows


def _barred(replica: Replica, model: str, tried: Collection[str], *, is_taking: bool) -> str:
    """Why a replica is no candidate, in one phrase."""
    if replica.replica_id in tried:
        return "tried already for this request"
    if not may_serve(replica, model):
        return f"serves other models: {', '.join(replica.serves[:3])}"
    if not is_taking:
        return _STATES[replica.state]
    if replica.is_full:
        return f"at its limit: {replica.load.inflight} of {replica.inflight_max} in flight"
    return f"coming back: has the {replica.allowance} in flight that it may have so far"


_STATES: Final = {
    State.STARTING: "starting: not seen ready yet",
    State.READY: "ready",
    State.TRIAL: "on trial",
    State.FULL: "full: turned a request away, takes its own sessions only",
    State.SUSPECT: "suspect: failed a request or a probe, takes its own sessions only",
    State.STALLED: "stalled: its scheduler stands still",
    State.NOT_READY: "not ready, as it says itself",
    State.DRAINING: "draining: takes no new requests",
    State.DOWN: "down: cannot be reached",
}
assert _STATES.keys() == set(State), "words for every state"


def _told(
    core: RouterCore, request: RouteRequest, replica: Replica, row: Weighed, now_s: float
) -> ReplicaReasons:
    replica_id, seen, beliefs = replica.replica_id, replica.observed, core.beliefs
    return ReplicaReasons(
        replica_id,
        replica.state,
        bool(row.compared),
        row.why_not,
        row.compared,
        row.price,
        request.cached_tokens.get(replica_id),
        replica.prefill_ahead_s,
        replica.inflight,
        replica.inflight_max,
        replica.live_sessions,
        replica.live_tokens,
        replica.capacity_tokens,
        replica.weight,
        None if seen is None else now_s - seen.seen_s,
        beliefs.source(replica_id, reports_cached=replica.reports_cached),
        beliefs.age_s(replica_id, now_s),
    )


def _order(row: ReplicaReasons) -> tuple[bool, bool, float, str]:
    total_s = 0.0 if row.price is None else row.price.total_s
    return not row.is_candidate, row.why_not != "", total_s, row.replica_id
