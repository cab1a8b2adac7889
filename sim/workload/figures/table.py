"""The figures of a recording as text: what a format does not tell is a dash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.workload.traces.errors import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sim.workload.figures.measure import Caches, Figures
    from sim.workload.figures.spread import Spread

_LABEL: Final = 34
_CELL: Final = 12
_MODELS: Final = 3
_SPREAD: Final = ("mean", "p10", "p50", "p90", "p99", "max")
_PACES: Final = {
    "closed": "a request follows the answer before it",
    "calls": "a request follows the call before it; gaps hold the time of that call",
    "open": "requests arrive at their times",
}


def table_of(figures: Figures, name: str) -> str:
    """All figures, for a terminal of 106 columns."""
    return "\n".join([*_head(figures, name), "", *_sizes(figures), "", *_counts(figures)])


def _head(figures: Figures, name: str) -> Iterator[str]:
    yield f"{name}: {figures.format}, {_PACES[figures.pace]}"
    capped = "" if figures.gap_s_max is None else f", gaps at {figures.gap_s_max:g} s"
    yield (
        f"contexts cut at {figures.context_tokens_max:,} tokens ({figures.n_cut:,} requests)"
        + (f"{capped} ({figures.n_capped:,})" if capped else "")
    )
    if figures.is_estimated:
        yield "tokens are estimated: four characters each"


def _sizes(figures: Figures) -> Iterator[str]:
    sessions, agents = figures.sessions, figures.sub_agents
    caches = figures.caches
    yield " " * _LABEL + "".join(f"{title:>{_CELL}}" for title in _SPREAD)
    rows: list[tuple[str, Spread | None, int]] = [
        ("prompt tokens", figures.prompt_tokens, 0),
        ("output tokens", figures.output_tokens, 0),
        ("turns a session", sessions.turns if sessions else None, 0),
        ("first prompt tokens", sessions.first_prompt_tokens if sessions else None, 0),
        ("growth a turn, tokens", sessions.growth_tokens if sessions else None, 0),
        ("gap s", figures.gap_s, 1),
        ("answer took s", figures.latency_s, 1),
        ("first token took s", figures.ttft_s, 1),
        ("requests a sub-agent", agents.requests if agents else None, 0),
        ("begins as another did, tokens", caches.alike_tokens if caches else None, 0),
    ]
    for label, spread, digits in rows:
        yield _row(label, _cells(spread, digits))


def _cells(spread: Spread | None, digits: int) -> list[str]:
    if spread is None:
        return ["-"] * len(_SPREAD)
    return [f"{getattr(spread, name):,.{digits}f}" for name in _SPREAD]


def _counts(figures: Figures) -> Iterator[str]:
    sessions, agents, arrivals = figures.sessions, figures.sub_agents, figures.arrivals
    yield _row("sessions", [f"{sessions.n:,}" if sessions else "-"])
    yield _row("requests", [f"{figures.requests:,}"])
    yield _row(
        "tokens in / out", [f"{figures.prompt_tokens_sum:,} / {figures.output_tokens_sum:,}"]
    )
    compacted = f"{sessions.compactions:,} in {sessions.compacted_sessions:,}" if sessions else "-"
    yield _row("compactions, sessions with them", [compacted])
    told = "-"
    if agents is not None:
        waited_for = "-" if agents.waited_for is None else f"{agents.waited_for:,}"
        told = f"{agents.n:,}, {waited_for}, {agents.at_once_max:,}"
    yield _row("sub-agents, waited for, at once", [told])
    rate = "-"
    if arrivals is not None:
        rate = f"{arrivals.per_s:,.3g} a second, {arrivals.peak_per_minute:,} in the fullest minute"
    yield _row("arrivals", [rate])
    yield _row("duration", [f"{arrivals.duration_s:,.0f} s" if arrivals else "-"])
    models = figures.models or {}
    shares = [
        f"{clean(model)} {_percent(n / figures.requests)}"
        for model, n in list(models.items())[:_MODELS]
    ]
    yield _row("models", [", ".join(shares) or "-"])
    yield from _cache_rows(figures.caches, figures.lanes)


def _cache_rows(caches: Caches | None, lanes: int | None) -> Iterator[str]:
    if caches is None:
        yield _row("held by an infinite cache", ["-"])
        yield _row("an LRU pool holds", ["-"])
        return
    yield _row("held by an infinite cache", [_percent(caches.any_ratio)])
    yield _row("  each tenth of the requests", _list(caches.over_time))
    own = "-" if caches.own_ratio is None else _percent(caches.own_ratio)
    yield _row("  from the same session", [own])
    others = "-" if caches.others_ratio is None else _percent(caches.others_ratio)
    yield _row("  from other sessions alone", [others])
    alike = "-" if caches.alike_sessions is None else f"{caches.alike_sessions:,}"
    yield _row("sessions that begin as another did", [alike])
    yield ""
    with_lanes = f" ({lanes} sessions at a time)" if lanes is not None else ""
    yield f"an LRU pool of so many tokens holds{with_lanes}"
    for pool in caches.pools:
        yield f"{pool.tokens:>{_LABEL},}{_percent(pool.hit_ratio):>{_CELL}}"


def _list(shares: Sequence[float]) -> list[str]:
    return [" ".join(f"{100.0 * share:.1f}" for share in shares)]


def _percent(share: float) -> str:
    return f"{100.0 * share:.2f} %"


def _row(label: str, cells: Sequence[str]) -> str:
    first, *rest = cells
    if not rest:
        return f"{label:<{_LABEL}}  {first}"
    return f"{label:<{_LABEL}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)
