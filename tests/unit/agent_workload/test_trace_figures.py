"""The figures: caches against plain ones, the order of requests, and what the table shows."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.workload.figures.caches import cache_figures
from sim.workload.figures.measure import Options, measure
from sim.workload.figures.order import ordered
from sim.workload.figures.spread import spread_of
from sim.workload.figures.table import table_of
from sim.workload.traces.formats import read_workload
from sim.workload.traces.model import Limits
from tests.unit.agent_workload.trace_examples import (
    EXAMPLES,
    lines,
    mooncake_row,
    weka,
    weka_agent,
    weka_row,
)

if TYPE_CHECKING:
    from pathlib import Path

    from sim.workload.traces.model import RecordedWorkload

BLOCK = 512
OPTIONS = Options(Limits(), lanes=3)


def read(folder: Path, raw: bytes) -> RecordedWorkload:
    file = folder / "x"
    file.write_bytes(raw)
    return read_workload(file)


class PlainLru:
    """An LRU pool that moves one block at a time."""

    def __init__(self, n_blocks: int) -> None:
        self._n_blocks = n_blocks
        self._held: OrderedDict[tuple[int, ...], None] = OrderedDict()

    def use(self, blocks: list[int]) -> int:
        prefixes = [tuple(blocks[: i + 1]) for i in range(len(blocks))]
        hits = sum(prefix in self._held for prefix in prefixes)
        for prefix in reversed(prefixes):  # the beginning is used last, so it goes last
            self._held[prefix] = None
            self._held.move_to_end(prefix)
        while len(self._held) > self._n_blocks:
            self._held.popitem(last=False)
        return hits


@given(
    prompts=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=25),
    n_blocks=st.integers(1, 12),
)
@settings(deadline=None)
def test_a_pool_is_an_lru_of_blocks(
    tmp_path_factory: pytest.TempPathFactory, prompts: list[list[int]], n_blocks: int
) -> None:
    rows = [mooncake_row(0, BLOCK * len(ids), 1, ids) for ids in prompts]
    workload = read(tmp_path_factory.getbasetemp(), lines(rows))
    found = cache_figures(workload, range(len(rows)), (n_blocks * BLOCK, 10**9))
    pool, endless = PlainLru(n_blocks), PlainLru(10**9)
    assert found.pool_hits[0] == BLOCK * sum(pool.use(ids) for ids in prompts)
    expected = [BLOCK * endless.use(ids) for ids in prompts]
    assert list(found.any_tokens) == expected
    assert found.pool_hits[1] == sum(expected)


def test_a_session_alone_finds_only_its_own(tmp_path: Path) -> None:
    for number, session in enumerate(("one", "two")):
        rows = [weka_row(0, 256, [1, 2, 3, 4]), weka_row(9, 320, [1, 2, 3, 4, 5])]
        (tmp_path / f"{number}.json").write_bytes(weka(rows, id=session))
    workload = read_workload(tmp_path, share_heads=True)
    found = cache_figures(workload, range(4))
    assert list(found.own_tokens) == [0, 256, 0, 256]
    assert list(found.any_tokens) == [0, 256, 128, 256]
    figures = measure(workload, OPTIONS)
    assert figures.caches is not None
    assert figures.caches.alike_sessions == 1
    assert figures.caches.others_ratio == pytest.approx(128 / 1_152)


def test_lanes_play_sessions_with_their_sub_agents(tmp_path: Path) -> None:
    inner = [weka_row(0, 64, [9], type="n", api_time=30.0)]
    rows = [
        weka_row(0, 64, [1]),
        weka_agent(7, inner),
        weka_row(8, 64, [1]),
        weka_row(900, 64, [1]),
    ]
    (tmp_path / "0.json").write_bytes(weka(rows, id="a"))
    (tmp_path / "1.json").write_bytes(weka([weka_row(0, 64, [1])], id="b"))
    workload = read_workload(tmp_path)
    assert [session.session_id for session in workload.sessions] == ["a", "a/agent_001", "b"]
    # a: 0, its agent at 3 until 33, then 1 s of rest: 34; then 890 s of gap
    assert ordered(workload, lanes=2) == [0, 4, 3, 1, 2]
    assert ordered(workload, lanes=1) == [0, 3, 1, 2, 4]


def test_a_spread_has_values_that_occur() -> None:
    spread = spread_of(range(1, 101))
    assert spread is not None
    assert (spread.n, spread.mean) == (100, 50.5)
    assert (spread.p10, spread.p50, spread.p90, spread.p99, spread.max) == (10, 50, 90, 99, 100)
    assert spread_of([]) is None


def test_sessions_and_sub_agents_are_counted(tmp_path: Path) -> None:
    tokens = [31_000, 40_000, 20_000, 21_000]
    rows = [weka_row(10.0 * i, n, list(range(1, n // 64 + 1))) for i, n in enumerate(tokens)]
    agents = [weka_agent(5, [weka_row(0, 64, [1], type="n")], agent_id=name) for name in ("x", "y")]
    figures = measure(read(tmp_path, weka([rows[0], *agents, *rows[1:]])), OPTIONS)
    assert figures.sessions is not None
    assert figures.sessions.compactions == 1
    assert figures.sessions.turns.max == 4
    assert figures.sessions.growth_tokens is not None
    assert figures.sessions.growth_tokens.max == 9_000
    assert figures.sub_agents is not None
    assert (figures.sub_agents.n, figures.sub_agents.at_once_max) == (2, 2)
    assert figures.models == {"opus": 6}
    assert figures.arrivals is None
    assert figures.gap_s is not None
    assert figures.gap_s.max == 8.0


def test_arrivals_are_counted_on_the_clock(tmp_path: Path) -> None:
    figures = measure(read(tmp_path, EXAMPLES["mooncake"][1]), OPTIONS)
    assert figures.arrivals is not None
    assert figures.arrivals.duration_s == 60.5
    assert figures.arrivals.per_s == pytest.approx(4 / 60.5)
    assert figures.arrivals.peak_per_minute == 3


SILENT = {
    "weka": {"arrivals", "duration"},
    "mooncake": {"sessions", "gap s", "models", "turns a session", "  from the same session"},
    "lmcache": {"models", "answer took s", "sub-agents, waited for, at once"},
    "azure": {"sessions", "held by an infinite cache", "an LRU pool holds", "gap s"},
    "recording": set(),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_a_format_does_not_tell_is_a_dash(tmp_path: Path, name: str) -> None:
    figures = measure(read(tmp_path, EXAMPLES[name][1]), OPTIONS)
    table = table_of(figures, "x")
    rows = [line for line in table.splitlines() if line.rstrip().endswith("  -")]
    labels = {line.split("  -")[0].rstrip() for line in rows}
    assert SILENT[name] <= labels
    assert "nan" not in table
