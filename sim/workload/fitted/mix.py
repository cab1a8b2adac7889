"""The parameters of the fitted generator, where each comes from, and the presets.

Names end in their units; ``_p10`` to ``_p99`` are percentiles. Sources: *Weka*, the Claude Code traces
of kv-cache-tester (Apache-2.0), as published and as measured on 455 of them; *TraceLab*, its
published statistics (arXiv 2606.30560); *fitted*, chosen so that drawn traffic has the prompts and
the hit ratios of Weka; *assumed*, for want of data.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Mix:
    """What traffic is drawn from.

    Sessions (Weka):

    - ``n_sessions``: how many are drawn.
    - ``mid_ratio``: share that is met in the middle of it (first prompt over 60k).
    - ``fresh_turns_*``, ``mid_turns_*``: turns of a session that begins afresh, of one met in its middle.
    - ``fresh_first_*_tokens``, ``mid_first_*_tokens``: their first prompts.
    - ``mid_turns_correlation``: of first prompt and turns in the latter (fitted).

    Growth (Weka):

    - ``growth_*_tokens``: how much longer each prompt is than the one before.
    - ``opening_growth_*_tokens``: the same where a fresh session reads itself in: its second turn, and
      the n-th one after the first with a chance of n to the power of minus ``opening_decay``.
    - ``growth_session_correlation``: the share of a session's own in the score (fitted).
    - ``growth_turns_correlation``: of that share with the session's turns (fitted).
    - ``growth_answer_correlation``: with the answer before (assumed).
    - ``output_*_tokens``: answers.
    - ``latency_*_s``: how long an answer took where it was recorded; ``latency_output_correlation``
      with its length (assumed), ``latency_gap_correlation`` with the session's share in its gaps
      (fitted). Plays have answers of their own.

    Cuts:

    - ``limit_*_tokens``: the context at which a session is compacted (Weka: half lie from 145k to
      158k); ``long_ratio`` of the fresh sessions, ``mid_long_ratio`` of the others and those met
      above it have none (fitted).
    - ``limit_ends_ratio``: share of the sessions that end at their limit instead (fitted).
    - ``compacted_*_tokens``: the prompt after that, of which tools and system prompt stay (Weka).
    - ``reset_ratio``: turns at which a session is cut before its limit (fitted).
    - ``rewrite_ratio``: turns that lose part of what was cached though they grow, for a context of
      ``rewrite_context_tokens``; as the context grows they become rarer in proportion (fitted).
    - ``rewrite_kept_*_ratio``: how much stays then (Weka).

    Gaps:

    - ``user_ratio``: share of turns that a person begins (Weka 7 %, TraceLab 11 %: one of 8.8).
    - ``user_stays_ratio``: share of those among the turns that follow one (fitted).
    - ``tool_gap_*_s``, ``user_gap_*_s``: from an answer to the next request.
    - ``gap_session_correlation``: the share of a session's own in the score (fitted).

    Shared beginnings: ``heads`` versions of tools and system prompt, ``head_*_tokens`` long, the n-th
    most frequent in proportion to n to the power of minus ``heads_zipf`` (Weka: 343 in 710 sessions,
    the most frequent 25 times; tools p50 12.3k and system prompt p50 2.8k).

    Sub-agents (Weka): ``agents_ratio`` of the sessions have them, ``agents_burst_ratio`` of their turns
    begin some, up to ``agents_max`` at once, of ``agent_turns_*`` requests; ``agents_joined_ratio``
    of the bursts are waited for. They begin with one of ``agent_heads`` heads (assumed).

    Thick sessions (assumed): ``thick_ratio`` of the sessions have at ``thick_burst_ratio`` of their
    turns from ``thick_min`` to ``thick_max`` branches at once that go on from their prompt.

    Auxiliary calls (assumed): ``auxiliary_ratio`` of the fresh sessions begin with a title of
    ``auxiliary_*_tokens``.
    """

    n_sessions: float = 2_000
    mid_ratio: float = 0.39
    fresh_turns_p10: float = 10
    fresh_turns_p50: float = 110
    fresh_turns_p90: float = 222
    fresh_turns_p99: float = 430
    mid_turns_p10: float = 5
    mid_turns_p50: float = 33
    mid_turns_p90: float = 89
    mid_turns_p99: float = 234
    fresh_first_p10_tokens: float = 13_700
    fresh_first_p50_tokens: float = 19_400
    fresh_first_p90_tokens: float = 28_300
    fresh_first_p99_tokens: float = 57_000
    mid_first_p10_tokens: float = 66_900
    mid_first_p50_tokens: float = 133_000
    mid_first_p90_tokens: float = 410_000
    mid_first_p99_tokens: float = 800_000
    mid_turns_correlation: float = -0.35
    growth_p10_tokens: float = 190
    growth_p50_tokens: float = 645
    growth_p90_tokens: float = 3_350
    growth_p99_tokens: float = 15_000
    opening_growth_p10_tokens: float = 310
    opening_growth_p50_tokens: float = 3_700
    opening_growth_p90_tokens: float = 33_000
    opening_growth_p99_tokens: float = 92_000
    opening_decay: float = 1.3
    growth_session_correlation: float = 0.4
    growth_turns_correlation: float = -0.45
    growth_answer_correlation: float = 0.3
    output_p10_tokens: float = 105
    output_p50_tokens: float = 217
    output_p90_tokens: float = 885
    output_p99_tokens: float = 3_640
    latency_p10_s: float = 3.3
    latency_p50_s: float = 6.1
    latency_p90_s: float = 18.2
    latency_p99_s: float = 60.0
    latency_output_correlation: float = 0.55
    latency_gap_correlation: float = 0.55
    limit_p10_tokens: float = 135_000
    limit_p50_tokens: float = 153_000
    limit_p90_tokens: float = 170_000
    limit_p99_tokens: float = 200_000
    long_ratio: float = 0.08
    mid_long_ratio: float = 0.4
    limit_ends_ratio: float = 0.5
    compacted_p10_tokens: float = 22_000
    compacted_p50_tokens: float = 38_000
    compacted_p90_tokens: float = 90_000
    compacted_p99_tokens: float = 150_000
    reset_ratio: float = 0.0006
    rewrite_ratio: float = 0.021
    rewrite_context_tokens: float = 60_000
    rewrite_kept_p10_ratio: float = 0.05
    rewrite_kept_p50_ratio: float = 0.2
    rewrite_kept_p90_ratio: float = 0.6
    rewrite_kept_p99_ratio: float = 0.98
    user_ratio: float = 0.073
    user_stays_ratio: float = 0.15
    tool_gap_p10_s: float = 3.7
    tool_gap_p50_s: float = 8.3
    tool_gap_p90_s: float = 71.0
    tool_gap_p99_s: float = 608.0
    user_gap_p10_s: float = 20.0
    user_gap_p50_s: float = 165.0
    user_gap_p90_s: float = 2_326.0
    user_gap_p99_s: float = 26_635.0
    gap_session_correlation: float = 0.52
    heads: float = 340
    heads_zipf: float = 0.55
    head_p10_tokens: float = 9_500
    head_p50_tokens: float = 15_000
    head_p90_tokens: float = 19_000
    head_p99_tokens: float = 30_000
    agents_ratio: float = 0.03
    agents_burst_ratio: float = 0.03
    agents_max: float = 3
    agents_joined_ratio: float = 0.93
    agent_heads: float = 12
    agent_turns_p10: float = 5
    agent_turns_p50: float = 10
    agent_turns_p90: float = 17
    agent_turns_p99: float = 24
    thick_ratio: float = 0.02
    thick_burst_ratio: float = 0.1
    thick_min: float = 3
    thick_max: float = 10
    auxiliary_ratio: float = 0.5
    auxiliary_p10_tokens: float = 300
    auxiliary_p50_tokens: float = 700
    auxiliary_p90_tokens: float = 2_000
    auxiliary_p99_tokens: float = 3_500

    def percentiles(self, name: str, unit: str = "") -> tuple[float, ...]:
        """The four percentiles of a quantity; ``unit`` with its underscore."""
        return tuple(getattr(self, f"{name}_p{p}{unit}") for p in (10, 50, 90, 99))


CLAUDE_CODE: Final = Mix()
"""Fitted to Weka: gaps are seconds at least, as recorded there."""

FAST_TOOLS: Final = replace(
    CLAUDE_CODE,
    user_ratio=0.11,
    tool_gap_p10_s=0.02,
    tool_gap_p50_s=0.1,
    tool_gap_p90_s=10.0,
    tool_gap_p99_s=192.0,
    user_gap_p10_s=15.0,
    user_gap_p50_s=86.0,
    user_gap_p90_s=1_260.0,
    user_gap_p99_s=50_400.0,
)
"""The same sessions with the gaps of TraceLab: half the tools answer within 0.1 s."""

PRESETS: Final = {"claude-code": CLAUDE_CODE, "fast-tools": FAST_TOOLS}
_NAMES: Final = tuple(field.name for field in fields(Mix))
_SESSIONS_MAX: Final = 100_000
_COUNT_MAX: Final = 100_000
_AT_ONCE_MAX: Final = 100
_TOKENS_MAX: Final = 1_000_000
_TURNS_MAX: Final = 10_000
_SECONDS_MAX: Final = 1e6
_POWER_MAX: Final = 5.0
_PARTS: Final = ("_p10", "_p50", "_p90", "_p99")


def mixed(overrides: Mapping[str, float], preset: str = "claude-code") -> Mix:
    """A preset with some parameters changed.

    Raises:
        ValueError: no such preset or parameter, or a value out of its range; the message lists the
            names, or the range.
    """
    if preset not in PRESETS:
        raise ValueError(f"no preset {preset!r} of the mix; there are: {', '.join(PRESETS)}")
    for name, value in overrides.items():
        if name not in _NAMES:
            raise ValueError(f"no parameter {name!r} of the mix; there are: {', '.join(_NAMES)}")
        least, most = _range(name)
        if not least <= value <= most or not math.isfinite(value):
            raise ValueError(f"mix: {name} of {value} lies outside {least:g} to {most:g}")
    mix = replace(PRESETS[preset], **overrides)
    _check(mix)
    return mix


def _range(name: str) -> tuple[float, float]:
    """What a parameter may be."""
    ranges = (
        ("_correlation", -1.0, 1.0),
        ("_ratio", 0.0 if "_p" not in name else 0.001, 1.0),
        ("_tokens", 1.0, _TOKENS_MAX),
        ("_s", 0.001, _SECONDS_MAX),
        ("n_sessions", 1.0, _SESSIONS_MAX),
        ("_zipf", 0.0, _POWER_MAX),
        ("_decay", 0.0, _POWER_MAX),
        ("heads", 1.0, _COUNT_MAX),
        ("_max", 1.0, _AT_ONCE_MAX),
        ("_min", 1.0, _AT_ONCE_MAX),
    )
    for ending, least, most in ranges:
        if name.endswith(ending):
            return least, most
    return 1.0, _TURNS_MAX


def _check(mix: Mix) -> None:
    """Refuse percentiles that are out of order."""
    values = asdict(mix)
    for name in _NAMES:
        for below, above in pairwise(_PARTS):
            if below in name and values[name] > values[other := name.replace(below, above)]:
                raise ValueError(
                    f"mix: {name} of {values[name]:g} lies above {other} of {values[other]:g}"
                )
    if mix.thick_min > mix.thick_max:
        raise ValueError(
            f"mix: thick_min of {mix.thick_min:g} lies above thick_max of {mix.thick_max:g}"
        )
