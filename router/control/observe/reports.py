"""What replicas answer, read: load reports, what they are, what they serve.

Nothing here trusts a replica: what has another form than expected is not there, and counts are bounded.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from router.state.fleet.replica import Description, Observation, RankLoad

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from router.state.fleet.replica import Replica

_COUNT_MAX: Final = 10**12
_TOTAL_MAX: Final = 10**15
"""Microseconds of prefill in thirty years."""
_RANKS_MAX: Final = 1_024
_SHORT_FIRST: Final = "shortest-prefill-first"
"""SGLang's name of the order in which prompts with the fewest tokens to be computed go first."""
_PROCESS_FACTS: Final = ("startup_time", "random_seed", "launch_command")
"""Of these SGLang measures the first and draws the second at each start, unless it is told a seed."""


class RankReport(msgspec.Struct):
    """One rank's row of a load report, under SGLang's names; any of them may be anything."""

    dp_rank: Any = None
    timestamp: Any = None
    num_running_reqs: Any = None
    num_waiting_reqs: Any = None
    num_waiting_uncached_tokens: Any = None
    num_used_tokens: Any = None
    max_total_num_tokens: Any = None
    token_usage: Any = None
    total_prefill_uncached_tokens: Any = None
    total_prefill_busy_us: Any = None


class _LoadReport(msgspec.Struct):
    loads: list[RankReport]


_loads: Final = msgspec.json.Decoder(_LoadReport)


def read_loads(body: bytes) -> list[RankReport] | None:
    """The ranks of ``/v1/loads``; None if it is not a load report."""
    try:
        ranks = _loads.decode(body).loads
    except (ValueError, RecursionError):
        return None
    return ranks[:_RANKS_MAX]


def observation(ranks: Sequence[RankReport], replica: Replica, seen_s: float) -> Observation:
    """What a replica's ranks, at least one, report together, beside our own share at this time."""
    loads: list[RankLoad] = []
    running = waiting = uncached = prefilled = busy_us = 0
    used = 0.0
    for number, rank in enumerate(ranks):
        load = RankLoad(
            number if rank.dp_rank is None else count(rank.dp_rank),
            count(rank.num_running_reqs),
            count(rank.num_waiting_reqs),
            count(rank.num_waiting_uncached_tokens),
            _used_ratio(rank),
        )
        loads.append(load)
        running += load.running
        waiting += load.waiting
        uncached += load.waiting_uncached_tokens
        used += load.used_ratio
        prefilled += count(rank.total_prefill_uncached_tokens, _TOTAL_MAX)
        busy_us += count(rank.total_prefill_busy_us, _TOTAL_MAX)
    return Observation(
        running=running,
        waiting=waiting,
        waiting_uncached_tokens=uncached,
        seen_s=seen_s,
        ours=replica.load.inflight,
        ours_backlog_s=replica.load.backlog_s,
        used_ratio=used / len(loads),
        stamp=_stamp([rank.timestamp for rank in ranks]),
        prefill_tokens=prefilled,
        prefill_busy_us=busy_us,
        heard_s=replica.load.heard_s,
        ranks=tuple(loads),
    )


def has_gone_back(before: Observation, seen: Observation) -> bool:
    """A clock or a total is behind what it was: another process, most likely."""
    are_stamped = bool(before.stamp) and bool(seen.stamp)
    return (
        seen.prefill_tokens < before.prefill_tokens
        or seen.prefill_busy_us < before.prefill_busy_us
        or (are_stamped and len(before.stamp) != len(seen.stamp))
        or any(now < then for then, now in zip(before.stamp, seen.stamp, strict=False))
    )


def read_object(body: bytes) -> dict[str, Any]:
    """A JSON object, empty if the body is none."""
    try:
        found = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def description(info: Mapping[str, Any], models: Mapping[str, Any]) -> Description:
    """What ``/server_info`` and ``/v1/models`` say together; either may be empty."""
    served = models.get("data")
    rows = [
        row
        for row in (served if isinstance(served, list) else [])
        if isinstance(row, dict) and _is_name(row.get("id"))
    ]
    names = [row["id"] for row in rows if not isinstance(row.get("parent"), str)]
    # An adapter is told by its own name, and asked for behind its model's.
    adapters = [f"{row['parent']}:{row['id']}" for row in rows if row.get("parent") in names]
    extra = info.get("homeport")
    emulated = extra if isinstance(extra, dict) else {}
    capacity = count(info.get("max_total_num_tokens")) + count(emulated.get("host_tokens"))
    profile = emulated.get("profile")
    return Description(
        capacity_tokens=capacity or None,
        profile=profile if _is_name(profile) else None,
        models=tuple(names),
        reports_cached=info.get("enable_cache_report") is True,
        adapters=tuple(adapters),
        n_caches=max(1, count(info.get("dp_size"))),
        started=_started(info),
        chunk_tokens=count(info.get("chunked_prefill_size")),
        has_priorities=info.get("enable_priority_scheduling") is True,
        is_short_first=info.get("schedule_policy") == _SHORT_FIRST,
    )


def count(value: object, most: int = _COUNT_MAX) -> int:
    """A count that a replica reported, at most ``most``; anything else is 0."""
    if type(value) is int:  # nearly always
        return value if 0 <= value <= most else 0 if value < 0 else most
    if not isinstance(value, float) or math.isnan(value):
        return 0
    return int(min(max(value, 0.0), most))


def _is_name(told: object) -> bool:
    """A text that can be shown to a person as it is."""
    return isinstance(told, str) and told.isprintable()


def _started(info: Mapping[str, Any]) -> str:
    """A digest of what differs from one start of an engine to the next; empty if nothing is told."""
    facts = [info.get(name) for name in _PROCESS_FACTS]
    if facts[0] is None and facts[1] is None:
        return ""
    try:
        encoded = msgspec.json.encode(facts, order="deterministic")
    except (ValueError, OverflowError, RecursionError):
        return ""
    return hashlib.blake2b(encoded, digest_size=8).hexdigest()


def _stamp(times: Sequence[object]) -> tuple[float, ...]:
    """When each rank made its report; empty where one does not tell."""
    told = [
        float(min(max(time, -_TOTAL_MAX), _TOTAL_MAX))
        for time in times
        if isinstance(time, int | float) and not isinstance(time, bool)
    ]
    return tuple(told) if len(told) == len(times) else ()


def _used_ratio(rank: RankReport) -> float:
    """The share of its KV tokens that a rank uses, 0 to 1; 0 if it does not tell."""
    reported = rank.token_usage
    if isinstance(reported, int | float) and not isinstance(reported, bool):
        return 0.0 if math.isnan(reported) else min(max(float(reported), 0.0), 1.0)
    total = count(rank.max_total_num_tokens)
    return min(count(rank.num_used_tokens) / total, 1.0) if total else 0.0
