"""The control API's answers, built from the core's state when asked for."""

from __future__ import annotations

from dataclasses import asdict
from math import isinf
from typing import TYPE_CHECKING, Any

from msgspec import structs

from router.control.api.shapes import ChangeRow, ChangeRows, DrainEnd
from router.explaining.document import plain
from router.explaining.next_turn import next_turn
from router.state.health.table import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.control.api.changes import Changes
    from router.core import RouterCore
    from router.state.fleet.replica import Replica
    from router.state.history import RequestRecord
    from router.state.sessions.pins import Pin


def fleet_view(
    core: RouterCore, policy: str, now_s: float, sources: Callable[[str], Sequence[str]]
) -> dict[str, Any]:
    """The whole fleet, with totals. ``sources`` answers who names a replica."""
    totals = asdict(core.history.totals)
    return {
        "policy": policy,
        "replicas": [
            _replica(core, replica, now_s) | {"sources": sources(replica.replica_id)}
            for replica in core.fleet.replicas()
        ],
        "sessions": core.pins.live_count,
        "totals": {**totals, "ttft_s": spread(list(core.history.ttfts_s))},
    }


def sessions_view(core: RouterCore, limit: int, now_s: float) -> dict[str, Any]:
    """The most recent sessions, newest first."""
    return {
        "sessions": [
            {
                "key": pin.key,
                "home": pin.home_id,
                "pinned": pinned_to(pin, now_s),
                "requests": pin.n_requests,
                "age_s": round(now_s - pin.created_s, 3),
                "idle_s": round(now_s - pin.used_s, 3),
                "prompt_tokens": pin.prompt_tokens,
            }
            for pin in core.pins.recent(limit)
        ]
    }


def session_view(core: RouterCore, key: str, now_s: float) -> dict[str, Any] | None:
    """One session with its newest decisions; None if it is not known."""
    pin = core.pins.get(key)
    records = core.history.of(key)
    if pin is None and not records:
        return None
    view: dict[str, Any] = {"key": key, "home": None, "decisions": []}
    if pin is not None:
        view |= {
            "source": pin.source,
            "parent": pin.parent_key,
            "home": pin.home_id,
            "pinned": pinned_to(pin, now_s),
            "pin_left_s": pin_left_s(pin, now_s),
            "requests": pin.n_requests,
            "age_s": round(now_s - pin.created_s, 3),
            "idle_s": round(now_s - pin.used_s, 3),
            "prompt_tokens": pin.prompt_tokens,
        }
    view["decisions"] = [_decision(record, now_s) for record in records]
    return view


def explained_view(
    core: RouterCore, policy: str, key: str, now_s: float, *, new_tokens: int
) -> dict[str, Any] | None:
    """What would be decided now on a session's next turn; None if it is not known."""
    pin, decision = core.pins.get(key), next_turn(core, key, now_s, new_tokens=new_tokens)
    if pin is None or decision is None:
        return None
    more = {"requests": pin.n_requests, "told_by": pin.told_by or None}
    return {**plain(decision, policy), "pinned": pinned_to(pin, now_s), **more}


def changes_view(changes: Changes, limit: int, now_s: float) -> ChangeRows:
    """What operators changed, newest first."""
    return ChangeRows(
        [
            ChangeRow(
                row.number,
                round(now_s - row.at_s, 3),
                row.event,
                row.replica,
                row.session,
                row.before,
                row.after,
                row.author.who,
                row.author.why,
            )
            for row in changes.recent(limit)
        ]
    )


def pinned_to(pin: Pin, now_s: float) -> str | None:
    """The replica that an operator pinned a session to; None if the policy decides."""
    return pin.fixed_to(now_s) or None


def pin_left_s(pin: Pin, now_s: float) -> float | None:
    """For how long yet; None for a pin without an end, and without a pin."""
    if not pin.fixed_to(now_s) or isinf(pin.fixed_until_s):
        return None
    return round(pin.fixed_until_s - now_s, 3)


def drain_end(replica: Replica, now_s: float) -> DrainEnd | None:
    """How a replica's drain ends; None if it does not drain."""
    if replica.state is not State.DRAINING:
        return None
    until_s = replica.drain_until_s
    left_s = None if until_s is None else round(max(0.0, until_s - now_s), 3)
    return DrainEnd(replica.leaves_drained, left_s)


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean and percentiles (nearest rank); None where there are no values."""
    if not values:
        return {"mean": None, "p50": None, "p90": None, "p99": None}
    ordered = sorted(values)
    last = len(ordered) - 1
    points = {f"p{p}": ordered[round(p / 100 * last)] for p in (50, 90, 99)}
    return {
        key: round(value, 4)
        for key, value in {"mean": sum(ordered) / len(ordered), **points}.items()
    }


def _replica(core: RouterCore, replica: Replica, now_s: float) -> dict[str, Any]:
    seen = replica.observed
    bytes_per_token = core.ratio.mean_bytes_per_token
    return {
        "id": replica.replica_id,
        "url": replica.spec.url,
        "state": replica.state,
        "source": replica.spec.source,
        "profile": replica.profile,
        "models": replica.models,
        "weight": replica.weight,
        "inflight": replica.inflight,
        "inflight_max": replica.inflight_max,
        "inflight_tokens": replica.inflight_tokens,
        "decoding": replica.decoding,
        "backlog_s": round(replica.prefill_ahead_s, 4),
        "live_sessions": replica.live_sessions,
        "live_tokens": replica.live_tokens,
        "capacity_tokens": replica.capacity_tokens,
        "stated_tokens": replica.stated_tokens,
        "held_tokens": int(core.index.held_bytes(replica.replica_id) / bytes_per_token),
        "idle_lifetime_s": replica.keeping.lifetime_s,
        "prefill_tokens_per_s": round(replica.rate.tokens_per_s, 1),
        "requests_total": replica.counters.requests,
        "prompt_tokens_total": replica.counters.prompt_tokens,
        "cached_tokens_total": replica.counters.cached_tokens,
        "failures_total": replica.counters.failures,
        "cache_losses_total": replica.counters.cache_losses,
        "lost_bytes_total": replica.counters.lost_bytes,
        "stalls_total": replica.counters.stalls,
        "belief": _belief(core, replica, now_s),
        "load": None
        if seen is None
        else {
            "running": seen.running,
            "waiting": seen.waiting,
            "waiting_uncached_tokens": seen.waiting_uncached_tokens,
            "used_ratio": round(seen.used_ratio, 4),
            "age_s": round(now_s - seen.seen_s, 3),
            "ranks": [asdict(rank) for rank in seen.ranks],
        },
        "ready_age_s": None if replica.ready_s is None else round(now_s - replica.ready_s, 3),
        "lease_left_s": None
        if replica.lease_until_s is None
        else round(replica.lease_until_s - now_s, 3),
        "drain": drain_end(replica, now_s),
    }


def _belief(core: RouterCore, replica: Replica, now_s: float) -> dict[str, Any]:
    """What is believed of a replica's cache rests on that."""
    beliefs, replica_id = core.beliefs, replica.replica_id
    age_s, accuracy = beliefs.age_s(replica_id, now_s), beliefs.accuracy(replica_id)
    return {
        "source": beliefs.source(replica_id, reports_cached=replica.reports_cached),
        "age_s": None if age_s is None else round(age_s, 3),
        "known_pages": beliefs.pages(replica_id),
        "reports_total": accuracy.reports,
        "error_tokens_total": accuracy.error_tokens,
    }


def _decision(record: RequestRecord, now_s: float) -> dict[str, Any]:
    return {
        "at_s": round(record.arrived_s - now_s, 3),
        "replica": record.replica_id,
        "reason": record.reason,
        "prompt_tokens": record.prompt_tokens,
        "predicted_cached_tokens": record.predicted_cached_tokens,
        "reported_prompt_tokens": record.reported_prompt_tokens,
        "reported_cached_tokens": record.reported_cached_tokens,
        "output_tokens": record.output_tokens,
        "ttft_s": None if record.ttft_s is None else round(record.ttft_s, 4),
        "outcome": record.outcome,
        "error": record.error_code,
        "tries": record.n_tries,
        "ranked": record.ranked,
        "prices": {
            replica_id: {part: round(value, 4) for part, value in structs.asdict(price).items()}
            for replica_id, price in record.prices.items()
        },
    }
