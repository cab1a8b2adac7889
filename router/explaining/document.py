"""A decision as plain values: what the control API answers, and what the simulator writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

if TYPE_CHECKING:
    from router.explaining.decision import Decision, ReplicaReasons
    from router.policy.view import Price


def plain(decision: Decision, policy: str) -> dict[str, Any]:
    """The document; times are seconds, sizes tokens, null is not known or does not apply."""
    return {
        "key": decision.session_key,
        "policy": policy,
        "model": decision.model or None,
        "chosen": decision.chosen_id or None,
        "reason": decision.reason,
        "rule": decision.rule,
        "awaits_turn": decision.awaits_turn,
        "home": decision.home_id,
        "home_age_s": None if decision.home_id is None else round(decision.home_age_s, 3),
        "session_inflight": decision.session_inflight,
        "prompt_tokens": decision.prompt_tokens,
        "output_tokens": decision.output_tokens,
        "auxiliary": decision.is_auxiliary,
        "replicas": [_row(row) for row in decision.replicas],
    }


def _row(row: ReplicaReasons) -> dict[str, Any]:
    return {
        "id": row.replica_id,
        "state": row.state,
        "candidate": row.is_candidate,
        "why_not": row.why_not or None,
        "compared": row.compared or None,
        "price": None if row.price is None else _parts(row.price),
        "cached_tokens": row.cached_tokens,
        "backlog_s": round(row.backlog_s, 4),
        "inflight": row.inflight,
        "inflight_max": row.inflight_max,
        "live_sessions": row.live_sessions,
        "live_tokens": row.live_tokens,
        "capacity_tokens": row.capacity_tokens,
        "weight": row.weight,
        "report_age_s": _rounded(row.report_age_s),
        "belief": {"source": row.cache_source, "age_s": _rounded(row.cache_age_s)},
    }


def _parts(price: Price) -> dict[str, float]:
    parts = {**structs.asdict(price), "total_s": price.total_s}
    return {name: round(value, 4) for name, value in parts.items()}


def _rounded(age_s: float | None) -> float | None:
    return None if age_s is None else round(age_s, 3)
