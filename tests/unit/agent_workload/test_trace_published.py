"""What the published traces are known to hold; skipped where they are not at hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from sim.workload.figures.caches import cache_figures
from sim.workload.figures.measure import Options, measure
from sim.workload.figures.order import ordered
from sim.workload.figures.spread import spread_of
from sim.workload.traces.formats import read_workload
from sim.workload.traces.model import NO_PARENT, Limits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.workload.figures.measure import Figures
    from sim.workload.traces.model import RecordedWorkload

DATA: Final = Path(__file__).resolve().parents[3].parent / "shared" / "data"
WEKA: Final = DATA / "weka-claude-code-dev.tar.xz"
UNCUT: Final = Limits(context_tokens_max=1 << 24, gap_s_max=math.inf)


def published(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(
            f"needs the published traces: no {name} in a folder shared/data beside this one"
        )
    return path


def figures_of(name: str) -> Figures:
    return measure(read_workload(published(name)), Options(UNCUT, lanes=20))


@pytest.fixture(scope="module")
def weka() -> RecordedWorkload:
    return read_workload(published(WEKA.name))


def main_turns(workload: RecordedWorkload, *, from_turn: int = 0) -> list[int]:
    return [
        turn
        for session in workload.sessions
        if session.parent == NO_PARENT
        for turn in range(session.first + from_turn, session.end)
    ]


def percentiles(values: Iterable[float]) -> tuple[float, ...]:
    spread = spread_of(values)
    assert spread is not None
    return (spread.p10, spread.p50, spread.p90, spread.p99)


def test_claude_code_sizes(weka: RecordedWorkload) -> None:
    main = main_turns(weka)
    inner = sorted(set(range(len(weka.turns))) - set(main))
    prompts, outputs = weka.turns.prompt_tokens, weka.turns.output_tokens
    assert len(main) == 31_203
    assert sum(prompts[i] for i in main) == 3_637_695_853
    assert sum(outputs[i] for i in main) == 13_527_056 + 14  # 14 answers of no token count as one
    assert (len(inner), len(weka.sessions) - 455) == (611, 57)
    assert sum(prompts[i] for i in inner) == 27_425_758
    assert sum(outputs[i] for i in inner) == 316_331
    assert percentiles(prompts[i] for i in main) == (43_835, 101_555, 199_076, 459_707)
    assert percentiles(outputs[i] for i in main) == (106, 218, 868, 3_624)
    assert max(prompts) == 878_882
    assert sum(prompts[i] > 262_144 for i in main) == 1_952
    assert sum(math.isnan(weka.turns.latency_s[i]) for i in main) == 2_827


def test_claude_code_sessions(weka: RecordedWorkload) -> None:
    sessions = measure(weka, Options(UNCUT, lanes=20)).sessions
    assert sessions is not None
    assert sessions.n == 455
    turns = sessions.turns
    assert (turns.p10, turns.p50, turns.p90, turns.p99) == (7, 44, 152, 350)
    assert turns.mean == pytest.approx(68.6, abs=0.05)
    assert sessions.compactions == 173
    assert sessions.compacted_sessions / sessions.n == pytest.approx(0.204, abs=0.0005)
    starts = [weka.turns.prompt_tokens[s.first] for s in weka.sessions if s.parent == NO_PARENT]
    assert sum(start > 60_000 for start in starts) / 455 == pytest.approx(0.389, abs=0.0005)


def test_claude_code_gaps(weka: RecordedWorkload) -> None:
    timed = [
        weka.turns.gap_s[i]
        for i in main_turns(weka, from_turn=1)
        if not math.isnan(weka.turns.latency_s[i - 1])
    ]
    spread = spread_of(timed)
    assert spread is not None
    assert spread.mean == pytest.approx(120.5, abs=0.2)
    assert (spread.p50, spread.p90, spread.p99) == pytest.approx((9, 124, 1_893), rel=0.05)


def test_claude_code_ceiling(weka: RecordedWorkload) -> None:
    main = main_turns(weka)
    found = cache_figures(weka, ordered(weka, lanes=20), (1,))
    whole = sum(weka.turns.prompt_tokens[i] for i in main)
    assert sum(found.own_tokens[i] for i in main) / whole == pytest.approx(0.9632, abs=0.00005)


@pytest.mark.parametrize(
    ("lanes", "hits"),
    [
        (5, (90.3, 96.4, 96.4, 96.4, 96.4)),
        (10, (62.1, 88.6, 96.2, 96.2, 96.2)),
        (20, (32.4, 66.6, 89.5, 96.4, 96.4)),
        (40, (7.3, 33.2, 68.1, 88.5, 96.5)),
    ],
)
def test_claude_code_pool_curve(
    weka: RecordedWorkload, lanes: int, hits: tuple[float, ...]
) -> None:
    """Measured on all 710 sessions of which these are two thirds: close, and the same knee."""
    prompts = weka.turns.prompt_tokens
    kept = weka.selected(
        lambda s: s.end - s.first >= 5 and max(prompts[s.first : s.end]) <= 262_144
    )
    sizes = (450_000, 900_000, 1_800_000, 3_500_000, 7_000_000)
    caches = measure(kept, Options(Limits(gap_s_max=300.0), lanes, sizes)).caches
    assert caches is not None
    assert [100 * pool.hit_ratio for pool in caches.pools] == pytest.approx(list(hits), abs=4.5)


def test_mooncake() -> None:
    figures = figures_of("mooncake/synthetic_trace.jsonl.xz")
    assert figures.requests == 3_993
    assert figures.prompt_tokens.p50 == 11_587
    assert figures.prompt_tokens.p99 == pytest.approx(66_458, rel=0.001)
    assert figures.prompt_tokens.mean == pytest.approx(15_325, abs=1)
    assert figures.output_tokens.mean == pytest.approx(149, abs=0.5)
    assert figures.caches is not None
    assert figures.caches.any_ratio == pytest.approx(0.651, abs=0.0005)


def test_mini_swe() -> None:
    figures = figures_of("lmcache-agent-trace/miniswe.tar.xz")
    assert (figures.requests, figures.sessions and figures.sessions.n) == (402, 20)
    assert figures.gap_s is not None
    assert (figures.gap_s.p50, figures.gap_s.p99) == pytest.approx((1.1, 3.0), abs=0.35)
    assert figures.prompt_tokens_sum / figures.output_tokens_sum == pytest.approx(53, abs=0.5)
    assert figures.prompt_tokens.p50 == pytest.approx(3_800, rel=0.01)
    assert figures.caches is not None
    assert figures.caches.any_ratio == pytest.approx(0.93, abs=0.005)


def test_tau_bench() -> None:
    figures = figures_of("lmcache-agent-trace/taubench")
    assert (figures.requests, figures.sessions and figures.sessions.n) == (471, 24)
    assert figures.gap_s is not None
    assert (figures.gap_s.p50, figures.gap_s.p99) == pytest.approx((0.3, 1.6), abs=0.1)
    assert figures.caches is not None
    assert figures.caches.any_ratio == pytest.approx(0.69, abs=0.006)


@pytest.mark.parametrize(
    ("name", "requests", "prompt", "output"),
    [
        ("code", 8_819, (2_048, 1_469, 7_437), (28, 13)),
        ("conv", 19_366, (1_155, 1_020, 14_050), (211, 129)),
    ],
)
def test_azure(name: str, requests: int, prompt: tuple[int, ...], output: tuple[int, ...]) -> None:
    figures = figures_of(f"azure-llm/AzureLLMInferenceTrace_{name}.csv.xz")
    assert figures.requests == requests
    spread = figures.prompt_tokens
    assert (round(spread.mean), spread.p50, spread.max) == prompt
    assert (round(figures.output_tokens.mean), figures.output_tokens.p50) == output
    assert figures.arrivals is not None
    assert figures.arrivals.duration_s == pytest.approx(58 * 60, rel=0.02)
