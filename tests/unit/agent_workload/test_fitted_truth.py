"""Fitted traffic against what is published of Claude Code sessions, and against them where at hand.

Published are two measurements: of all 710 sessions, and of the 455 that may be tuned on. A drawn
figure has to be within 10 % of either, or between them.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from sim.workload.figures.caches import cache_figures
from sim.workload.figures.measure import Options, measure
from sim.workload.figures.order import ordered
from sim.workload.figures.spread import spread_of
from sim.workload.fitted.generator import generate
from sim.workload.fitted.mix import mixed
from sim.workload.traces.formats import read_workload
from sim.workload.traces.model import NO_PARENT, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.workload.traces.model import RecordedWorkload

WEKA: Final = (
    Path(__file__).resolve().parents[3].parent / "shared" / "data" / "weka-claude-code-dev.tar.xz"
)
PUBLISHED: Final = {  # percentiles 50 and 90: of 710 sessions, of 455
    "turns": ((45, 156), (44, 152)),
    "prompt tokens": ((104_600, 235_900), (101_555, 199_076)),
    "output tokens": ((216, 899), (218, 868)),
    "growth tokens": ((646, 3_511),),
    "uncached tokens": ((705, 4_064),),
    "gap s": ((9.0, 123.0), (9.0, 125.0)),
    "first prompt tokens": ((24_800, 246_093),),
    "first prompt tokens, fresh": ((19_300, 30_900),),
}
HIT: Final = (0.9636, 0.9632)
GAPS_OVER: Final = {"60 s": 0.156, "300 s": 0.050}  # 0.153 and 0.049 of 710 sessions
LANES: Final = 20
POOL: Final = {
    180_000: (96.2, 96.4),
    90_000: (88.5, 90.2),
    45_000: (62.0, 68.1),
    22_500: (29.7, 33.0),
    11_250: (7.0, 9.4),
}
"""Hit in %, by pool tokens per live session: as published, and of the recorded file as it is played here."""


@pytest.fixture(scope="module")
def drawn() -> RecordedWorkload:
    """What is published is of single sessions: none shares anything, none is thick."""
    apart = {"heads": 100_000.0, "heads_zipf": 0.0, "agent_heads": 100_000.0}
    return generate(mixed({**apart, "thick_ratio": 0.0, "auxiliary_ratio": 0.0}), seed=1)


@pytest.fixture(scope="module")
def recorded() -> RecordedWorkload | None:
    return read_workload(WEKA) if WEKA.exists() else None


def figures(workload: RecordedWorkload) -> dict[str, tuple[float, float]]:
    """Percentiles 50 and 90 of the main sessions."""
    turns = workload.turns
    main = [session for session in workload.sessions if session.parent == NO_PARENT]
    numbers = [turn for session in main for turn in range(session.first, session.end)]
    later = [turn for session in main for turn in range(session.first + 1, session.end)]
    prompts = turns.prompt_tokens
    known = cache_figures(workload, ordered(workload, LANES), (1,)).own_tokens
    firsts = [prompts[session.first] for session in main]
    timed = [turn for turn in later if not math.isnan(turns.latency_s[turn - 1])]
    values = {
        "turns": [session.end - session.first for session in main],
        "prompt tokens": [prompts[turn] for turn in numbers],
        "output tokens": [turns.output_tokens[turn] for turn in numbers],
        "growth tokens": [prompts[turn] - prompts[turn - 1] for turn in later],
        "uncached tokens": [prompts[turn] - known[turn] for turn in later],
        "gap s": [turns.gap_s[turn] for turn in timed],
        "first prompt tokens": firsts,
        "first prompt tokens, fresh": [first for first in firsts if first <= 60_000],
    }
    whole = sum(prompts[turn] for turn in numbers)
    found = {name: middle_and_high(of_name) for name, of_name in values.items()}
    found["hit"] = (sum(known[turn] for turn in numbers) / whole,) * 2
    found["mid"] = (sum(first > 60_000 for first in firsts) / len(firsts),) * 2
    steps = [pair for s in main for pair in pairwise(prompts[s.first : s.end])]
    cut = sum(before > 30_000 and after < 0.7 * before for before, after in steps)
    found["compactions"] = (100.0 * cut / len(numbers),) * 2
    for seconds in (60.0, 300.0):
        over = sum(turns.gap_s[turn] > seconds for turn in timed) / len(timed)
        found[f"gaps over {seconds:.0f} s"] = (over, over)
    return found


def middle_and_high(values: list[int] | list[float]) -> tuple[float, float]:
    spread = spread_of(values)
    assert spread is not None
    return spread.p50, spread.p90


def test_sizes_and_gaps(drawn: RecordedWorkload, recorded: RecordedWorkload | None) -> None:
    found = figures(drawn)
    measured = {} if recorded is None else figures(recorded)
    wrong = []
    for name, published in PUBLISHED.items():
        references = [*published, *([measured[name]] if measured else [])]
        for i, value in enumerate(found[name]):
            least, most = (f(pair[i] for pair in references) for f in (min, max))
            if not 0.9 * least <= value <= 1.1 * most:
                wrong.append((name, i, value, least, most))
    assert not wrong
    assert found["hit"][0] == pytest.approx(HIT[0], abs=0.005)
    assert found["hit"][0] == pytest.approx(HIT[1], abs=0.005)
    assert found["mid"][0] == pytest.approx(0.39, abs=0.02)
    assert found["compactions"][0] == pytest.approx(0.5, abs=0.2)
    assert found["gaps over 60 s"][0] == pytest.approx(GAPS_OVER["60 s"], abs=0.015)
    assert found["gaps over 300 s"][0] == pytest.approx(GAPS_OVER["300 s"], abs=0.01)
    if measured:
        assert found["hit"][0] == pytest.approx(measured["hit"][0], abs=0.005)


def test_pool_curve(drawn: RecordedWorkload, recorded: RecordedWorkload | None) -> None:
    """An LRU pool of LANES live sessions, as the published curve was measured."""
    half = drawn.selected(lambda session: session.session_id < "fitted-01000")
    found = list(pool_curve(half))
    measured = found if recorded is None else list(pool_curve(recorded))
    wrong = []
    for (tokens, published), value, of_file in zip(POOL.items(), found, measured, strict=True):
        references = (*published, of_file) if recorded is not None else published
        if not min(references) - 2.0 <= value <= max(references) + 2.0:
            wrong.append((tokens, value, references))
    assert not wrong


def pool_curve(workload: RecordedWorkload) -> Iterator[float]:
    prompts = workload.turns.prompt_tokens
    kept = workload.selected(
        lambda s: s.end - s.first >= 5 and max(prompts[s.first : s.end]) <= 262_144
    )
    sizes = tuple(tokens * LANES for tokens in sorted(POOL, reverse=True))
    caches = measure(kept, Options(Limits(gap_s_max=300.0), LANES, sizes)).caches
    assert caches is not None
    return (100.0 * pool.hit_ratio for pool in caches.pools)
