"""All figures of a recorded workload, as one tree of plain values."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from sim.workload.figures.caches import cache_figures
from sim.workload.figures.order import ordered
from sim.workload.figures.spread import Spread, spread_of
from sim.workload.traces.model import NO_PARENT, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sim.workload.figures.caches import CacheFigures
    from sim.workload.traces.model import RecordedSession, RecordedWorkload

COMPACTED_FROM_TOKENS: Final = 30_000
COMPACTED_RATIO: Final = 0.7
"""A prompt under this share of the one before it, where that was longer than the above, was cut."""
_PARTS: Final = 10
_ALL: Final = 0.9999
_MINUTE_S: Final = 60.0
_MODELS: Final = 20


@dataclass(frozen=True, slots=True)
class Options:
    """How a workload is measured.

    ``lanes``: how many sessions run at a time where they have no common clock. ``pool_tokens``:
    sizes of the pools, none: some that fit.
    """

    limits: Limits
    lanes: int
    pool_tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sessions:
    """Chains of turns; sub-agents apart."""

    n: int
    turns: Spread
    first_prompt_tokens: Spread
    growth_tokens: Spread | None
    compactions: int
    compacted_sessions: int


@dataclass(frozen=True, slots=True)
class SubAgents:
    """Lines that run beside their session; ``at_once_max`` of them began at one place.

    ``waited_for``: how many their session is known to have waited for, None if that is not told.
    """

    n: int
    waited_for: int | None
    requests: Spread
    at_once_max: int


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests on the recording's clock."""

    duration_s: float
    per_s: float
    peak_per_minute: int


@dataclass(frozen=True, slots=True)
class Pool:
    """How much of all prompts an LRU pool of this size would have held."""

    tokens: int
    hit_ratio: float


@dataclass(frozen=True, slots=True)
class Caches:
    """Shares of all prompt tokens.

    ``any_ratio``: sent before by any session. ``own_ratio``: by the same session or its
    sub-agents. ``others_ratio``: by others alone. ``over_time``: ``any_ratio`` of each tenth of
    the requests. ``alike_sessions``: sessions that began as one before them had.
    """

    any_ratio: float
    own_ratio: float | None
    others_ratio: float | None
    over_time: tuple[float, ...]
    alike_sessions: int | None
    alike_tokens: Spread | None
    pools: tuple[Pool, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """What is in a recording; None stands for what its format does not tell."""

    format: str
    pace: str
    is_estimated: bool
    context_tokens_max: int
    n_cut: int
    gap_s_max: float | None
    n_capped: int
    lanes: int | None
    requests: int
    models: dict[str, int] | None
    prompt_tokens: Spread
    prompt_tokens_sum: int
    output_tokens: Spread
    output_tokens_sum: int
    gap_s: Spread | None
    latency_s: Spread | None
    ttft_s: Spread | None
    sessions: Sessions | None
    sub_agents: SubAgents | None
    arrivals: Arrivals | None
    caches: Caches | None


def measure(
    recorded: RecordedWorkload,
    options: Options,
    on_turns: Callable[[int], None] | None = None,
) -> Figures:
    """Measure a workload, cut at the limits first."""
    workload = recorded.cut(options.limits)
    columns = workload.turns
    prompt_tokens, output_tokens = (
        spread_of(columns.prompt_tokens),
        spread_of(columns.output_tokens),
    )
    assert prompt_tokens is not None
    assert output_tokens is not None
    gap_s_max = options.limits.gap_s_max
    return Figures(
        format=workload.format,
        pace=workload.pace,
        is_estimated=workload.is_estimated,
        context_tokens_max=options.limits.context_tokens_max,
        n_cut=workload.n_cut,
        gap_s_max=gap_s_max if math.isfinite(gap_s_max) else None,
        n_capped=workload.n_capped,
        lanes=None if workload.has_clock else options.lanes,
        requests=len(columns),
        models=_models(workload),
        prompt_tokens=prompt_tokens,
        prompt_tokens_sum=sum(columns.prompt_tokens),
        output_tokens=output_tokens,
        output_tokens_sum=sum(columns.output_tokens),
        gap_s=spread_of(_gaps(workload)) if workload.has_sessions else None,
        latency_s=spread_of(took for took in columns.latency_s if not math.isnan(took)),
        ttft_s=spread_of(took for took in columns.ttft_s if not math.isnan(took)),
        sessions=_sessions(workload) if workload.has_sessions else None,
        sub_agents=_sub_agents(workload),
        arrivals=_arrivals(workload) if workload.has_clock else None,
        caches=_caches(workload, options, on_turns) if workload.block_tokens != 0 else None,
    )


def _main(workload: RecordedWorkload) -> Iterator[RecordedSession]:
    return (s for s in workload.sessions if s.parent == NO_PARENT and s.end > s.first)


def _models(workload: RecordedWorkload) -> dict[str, int] | None:
    counts = Counter(workload.turns.model)
    named = {workload.models[i]: n for i, n in counts.most_common(_MODELS) if workload.models[i]}
    return named or None


def _gaps(workload: RecordedWorkload) -> Iterator[float]:
    for session in workload.sessions:
        yield from workload.turns.gap_s[session.first + 1 : session.end]


def _sessions(workload: RecordedWorkload) -> Sessions | None:
    prompts = workload.turns.prompt_tokens
    growth: list[int] = []
    compactions, compacted = 0, 0
    for session in _main(workload):
        steps = list(pairwise(prompts[session.first : session.end]))
        growth.extend(after - before for before, after in steps if after >= before)
        cuts = sum(
            before > COMPACTED_FROM_TOKENS and after < COMPACTED_RATIO * before
            for before, after in steps
        )
        compactions, compacted = compactions + cuts, compacted + (cuts > 0)
    turns = spread_of(session.end - session.first for session in _main(workload))
    first = spread_of(prompts[session.first] for session in _main(workload))
    if turns is None or first is None:
        return None
    return Sessions(turns.n, turns, first, spread_of(growth), compactions, compacted)


def _sub_agents(workload: RecordedWorkload) -> SubAgents | None:
    children = [session for session in workload.sessions if session.parent != NO_PARENT]
    requests = spread_of(session.end - session.first for session in children)
    if requests is None:
        return None
    together = Counter((session.parent, session.after_turn) for session in children)
    return SubAgents(
        n=len(children),
        waited_for=sum(session.is_joined for session in children) or None,
        requests=requests,
        at_once_max=max(together.values()),
    )


def _arrivals(workload: RecordedWorkload) -> Arrivals:
    at_s = workload.turns.at_s
    duration_s = max(at_s) - min(at_s)
    minutes = Counter(int(when // _MINUTE_S) for when in at_s)
    per_s = len(at_s) / duration_s if duration_s else 0.0
    return Arrivals(duration_s, per_s, max(minutes.values()))


def _caches(
    workload: RecordedWorkload, options: Options, on_turns: Callable[[int], None] | None
) -> Caches:
    order = ordered(workload, options.lanes)
    found = cache_figures(workload, order, options.pool_tokens, on_turns)
    prompts = workload.turns.prompt_tokens
    whole = sum(prompts)
    others = sum(
        max(0, known - own) for known, own in zip(found.any_tokens, found.own_tokens, strict=True)
    )
    alike = [tokens for s in _main(workload) if (tokens := found.any_tokens[s.first])]
    told = workload.has_sessions
    return Caches(
        any_ratio=sum(found.any_tokens) / whole,
        own_ratio=sum(found.own_tokens) / whole if told else None,
        others_ratio=others / whole if told else None,
        over_time=tuple(_over_time(prompts, found, order)),
        alike_sessions=len(alike) if told else None,
        alike_tokens=spread_of(alike) if told else None,
        pools=tuple(_pools(found, whole, is_asked=bool(options.pool_tokens))),
    )


def _pools(found: CacheFigures, whole: int, *, is_asked: bool) -> Iterator[Pool]:
    """The pools, up to the first that holds all there is to hold unless they were asked for."""
    most = sum(found.any_tokens)
    for tokens, hits in zip(found.pool_tokens, found.pool_hits, strict=True):
        yield Pool(tokens, hits / whole)
        if hits >= _ALL * most and not is_asked:
            return


def _over_time(
    prompts: Sequence[int], found: CacheFigures, order: Sequence[int]
) -> Iterator[float]:
    for part in range(_PARTS):
        turns = order[part * len(order) // _PARTS : (part + 1) * len(order) // _PARTS]
        if turns:
            yield sum(found.any_tokens[i] for i in turns) / sum(prompts[i] for i in turns)
