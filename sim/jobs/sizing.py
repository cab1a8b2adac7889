"""The smallest fleet that meets what is asked: doubled or halved until bracketed, then bisected.

More replicas for the same sessions are taken to be no worse. Faults and chance can break that by a
replica or so; the answer is always a size that was run and met it, one above a size that was run and did not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sim.scenario.facts import lanes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.scenario.model import Scenario, Slo

    Figures = dict[str, object]

_TTFT: Final = (("p50", "ttft_p50_s"), ("p90", "ttft_p90_s"), ("p99", "ttft_p99_s"))


@dataclass(frozen=True, slots=True)
class Tried:
    """One size: what it gave, and what it failed by (nothing: it meets all)."""

    n_replicas: int
    figures: Figures
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sizing:
    """All sizes that were run in order of size, and the smallest that meets, None if none does."""

    tried: tuple[Tried, ...]
    smallest: int | None


def failures_of(figures: Figures, slo: Slo) -> tuple[str, ...]:
    """What of the SLO is not met, in words."""
    found: list[str] = []
    ttft = figures.get("ttft_s")
    for name, field in _TTFT:
        limit = getattr(slo, field)
        value = ttft.get(name) if isinstance(ttft, dict) else None
        if limit is not None and not (isinstance(value, int | float) and value <= limit):
            found.append(f"TTFT {name} {_seconds(value)} is over {limit:g} s")
    speed = figures.get("tok_per_s_per_user")
    least = slo.tok_per_s_per_user
    if least is not None and not (isinstance(speed, int | float) and speed >= least):
        said = f"{speed:.0f}" if isinstance(speed, int | float) else "unknown"
        found.append(f"output tokens/s a user {said} is under {least:g}")
    requests, errors = figures.get("requests"), figures.get("errors")
    if not isinstance(requests, int) or not isinstance(errors, int) or not requests:
        found.append("nothing was measured")
    elif errors > slo.errors_ratio * requests:
        found.append(
            f"{errors:,} of {requests:,} requests failed, over a share of {slo.errors_ratio:g}"
        )
    return tuple(found)


def _seconds(value: object) -> str:
    return f"{value:.2f} s" if isinstance(value, int | float) else "unknown"


def is_asked(slo: Slo) -> bool:
    """Whether anything but the share of errors is asked for."""
    return any(getattr(slo, field) is not None for _, field in _TTFT) or (
        slo.tok_per_s_per_user is not None
    )


def sized(scenario: Scenario, n_replicas: int) -> Scenario:
    """The scenario's sessions on a fleet of this size, its groups in the same proportion."""
    groups = scenario.fleet
    shares = [group.replicas * n_replicas / scenario.n_replicas for group in groups]
    counts = [int(share) for share in shares]
    rest = sorted(range(len(groups)), key=lambda index: (counts[index] - shares[index], index))
    for index in rest[: n_replicas - sum(counts)]:
        counts[index] += 1
    kept = tuple(
        replace(group, replicas=count) for group, count in zip(groups, counts, strict=True) if count
    )
    workload = replace(scenario.workload, sessions_in_all=lanes_of(scenario))
    return replace(scenario, fleet=kept, workload=workload)


def replicas_min(scenario: Scenario) -> int:
    """The smallest fleet that has every replica that faults name, of those it begins with."""
    named = [replica + 1 for fault in scenario.faults for replica in fault.replicas]
    return min(scenario.n_replicas, max(named, default=1))


def search(try_size: Callable[[int], Tried], *, start: int, least: int, most: int) -> Sizing:
    """Find the smallest size within ``least`` and ``most``; at most about 2 log2(most) runs."""
    tried: dict[int, Tried] = {}

    def is_met(size: int) -> bool:
        if size not in tried:
            tried[size] = try_size(size)
        return not tried[size].failures

    high = min(max(start, least), most)
    low = least - 1
    if is_met(high):
        while high > least:
            lower = max(least, high // 2)
            if not is_met(lower):
                low = lower
                break
            high = lower
    else:
        while high < most:
            low, high = high, min(most, high * 2)
            if is_met(high):
                break
        else:
            return Sizing(_in_order(tried), None)
    while high - low > 1:
        middle = (low + high) // 2
        if is_met(middle):
            high = middle
        else:
            low = middle
    return Sizing(_in_order(tried), high)


def _in_order(tried: dict[int, Tried]) -> tuple[Tried, ...]:
    return tuple(tried[size] for size in sorted(tried))
