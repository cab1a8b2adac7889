"""The fitted generator: what it draws, by which parameters, and what it refuses."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from sim.scenario.model import WorkloadSpec
from sim.workload.figures.measure import Options, measure
from sim.workload.fitted.generator import generate
from sim.workload.fitted.mix import CLAUDE_CODE, FAST_TOOLS, PRESETS, mixed
from sim.workload.fitted.quantiles import Table
from sim.workload.play.building import build, load, places_of
from sim.workload.play.turns import TurnKind
from sim.workload.traces.model import NO_PARENT, TYPE_CODES, Limits
from sim.workload.traces.tree import ROOT
from tests.doubles.played import play_all

if TYPE_CHECKING:
    from sim.workload.traces.model import RecordedSession, RecordedWorkload


def drawn(seed: int = 1, *, preset: str = "claude-code", **overrides: float) -> RecordedWorkload:
    return generate(mixed({"n_sessions": 60, **overrides}, preset), seed=seed)


def columns_of(workload: RecordedWorkload) -> list[bytes]:
    return [bytes(getattr(workload.turns, name)) for name in TYPE_CODES]


def roots_of(workload: RecordedWorkload) -> list[RecordedSession]:
    return [session for session in workload.sessions if session.parent == NO_PARENT]


def test_a_seed_is_a_workload() -> None:
    assert columns_of(drawn()) == columns_of(drawn())
    assert drawn().sessions == drawn().sessions
    assert columns_of(drawn()) != columns_of(drawn(2))


def test_more_sessions_are_the_same_and_others() -> None:
    few, many = drawn(n_sessions=20), drawn(n_sessions=40)
    assert many.sessions[: len(few.sessions)] == few.sessions
    n = len(few.turns)
    assert list(many.turns.prompt_tokens[:n]) == list(few.turns.prompt_tokens)


EXTREMES: list[dict[str, float]] = [
    {},
    {"thick_ratio": 1.0, "thick_burst_ratio": 1.0, "n_sessions": 5},
    {"agents_ratio": 1.0, "agents_burst_ratio": 1.0, "n_sessions": 5},
    {"mid_ratio": 1.0},
    {"mid_ratio": 0.0, "long_ratio": 0.0, "limit_ends_ratio": 0.0},
    {"reset_ratio": 1.0},
    {"rewrite_ratio": 1.0},
    {"heads": 1, "heads_zipf": 0.0},
    {"heads": 100_000, "heads_zipf": 5.0},
    {"user_ratio": 1.0},
    {"user_ratio": 0.0, "user_stays_ratio": 1.0},
    {"growth_session_correlation": 1.0, "growth_answer_correlation": -1.0},
    {"gap_session_correlation": 1.0, "latency_output_correlation": -1.0},
]


@pytest.mark.parametrize("overrides", EXTREMES)
def test_what_is_drawn_is_sound(overrides: dict[str, float]) -> None:
    workload = drawn(**overrides)
    turns, tree = workload.turns, workload.tree
    end = 0
    for number, session in enumerate(workload.sessions):
        assert session.first == end < session.end
        assert session.parent < number
        assert turns.gap_s[session.first] == 0.0
        end = session.end
    assert end == len(turns)
    for turn in map(workload.turn, range(end)):
        assert turn.named_tokens == turn.prompt_tokens - turn.prompt_tokens % 64
        assert turn.output_tokens >= 1
        assert turn.gap_s >= 0.0
        assert turn.named_tokens <= tree.end_tokens[turn.branch]
        assert turn.branch == ROOT or tree.fork_tokens[turn.branch] <= turn.named_tokens
    for branch in range(1, len(tree)):
        assert tree.parents[branch] < branch
        assert tree.fork_tokens[branch] <= tree.end_tokens[tree.parents[branch]] or (
            tree.parents[branch] == ROOT
        )


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_it_plays(preset: str) -> None:
    spec = WorkloadSpec(preset=preset, mix={"n_sessions": 40.0, "thick_ratio": 0.2})
    workload = load(spec, 1)
    play = build(spec, places_of(spec, workload, page_tokens=64), n_lanes=60, seed=1)
    sent = list(
        play_all(play, lambda turn: 1.0 + turn.output_tokens / 100, page_tokens=64, n_max=4_000)
    )
    assert len(sent) == 4_000
    assert {one.turn.kind for one in sent} == set(TurnKind)
    assert max(one.turn.prompt_tokens for one in sent) <= spec.context_tokens_max
    later = sent[1_000:]
    ceiling = sum(one.prompt.ceiling_tokens for one in later)
    assert 0.85 < ceiling / sum(one.turn.prompt_tokens for one in later) < 0.99


def test_figures_are_measured_on_it() -> None:
    figures = measure(drawn(), Options(Limits(), lanes=20))
    assert figures.sessions is not None
    assert figures.sessions.n == 60
    assert figures.caches is not None
    assert figures.caches.others_ratio is not None
    assert figures.caches.others_ratio > 0.0


def test_heads_are_versions_that_sessions_share() -> None:
    few = {"p10": 2, "p50": 3, "p90": 4, "p99": 5}
    short = {f"{kind}_turns_{p}": n for kind in ("fresh", "mid") for p, n in few.items()}
    workload = drawn(n_sessions=2_000, **short)
    first_branches = Counter(
        list(workload.tree.runs(workload.turns.branch[s.first], s.head_tokens))[-1].branch
        for s in roots_of(workload)
    )
    assert 250 < len(first_branches) <= 340
    assert 0.02 < first_branches.most_common(1)[0][1] / 2_000 < 0.06


def test_thick_sessions_have_branches_at_once() -> None:
    uncut = {"rewrite_ratio": 0.0, "reset_ratio": 0.0}
    workload = drawn(thick_ratio=1.0, auxiliary_ratio=0.0, agents_ratio=0.0, **uncut)
    beside = [session for session in workload.sessions if session.parent != NO_PARENT]
    together = Counter((session.parent, session.after_turn) for session in beside)
    assert set(together.values()) == set(range(3, 11))
    for session in beside:
        parent = workload.sessions[session.parent]
        assert session.session_id.startswith(parent.session_id + "/")
        assert not session.is_joined
        from_turn = parent.first + session.after_turn
        depth = workload.turns.named_tokens[from_turn]
        branch = workload.turns.branch[session.first]
        if workload.turns.named_tokens[session.first] > depth:
            fork = workload.tree.at(branch, depth)
            assert fork == workload.tree.at(workload.turns.branch[from_turn], depth)


def test_sub_agents_are_waited_for_with_a_rest() -> None:
    workload = drawn(
        agents_ratio=1.0, agents_joined_ratio=1.0, thick_ratio=0.0, auxiliary_ratio=0.0
    )
    agents = [session for session in workload.sessions if session.parent != NO_PARENT]
    assert agents
    for session in agents:
        parent = workload.sessions[session.parent]
        after = parent.first + session.after_turn + 1
        assert session.is_joined
        assert session.head_tokens > 0
        if after < parent.end:
            assert 0.0 < workload.turns.rest_s[after] < 2.0
    waits = sum(not math.isnan(rest_s) for rest_s in workload.turns.rest_s)
    assert waits <= len(agents)


def test_auxiliary_calls_are_small() -> None:
    workload = drawn(auxiliary_ratio=1.0, mid_ratio=0.0)
    titles = [session for session in workload.sessions if session.is_auxiliary]
    assert len(titles) == 60
    assert all(session.end - session.first == 1 for session in titles)
    assert max(workload.turns.prompt_tokens[session.first] for session in titles) < 10_000


@pytest.mark.parametrize("user_ratio", [0.0, 0.07, 0.4, 0.9, 1.0])
def test_persons_begin_as_many_turns_as_said(user_ratio: float) -> None:
    times = {"tool_gap_p10_s": 1, "tool_gap_p50_s": 1, "tool_gap_p90_s": 1, "tool_gap_p99_s": 1}
    times |= {"user_gap_p10_s": 9, "user_gap_p50_s": 9, "user_gap_p90_s": 9, "user_gap_p99_s": 9}
    workload = drawn(n_sessions=80, user_ratio=user_ratio, **times)
    gaps = [
        workload.turns.gap_s[turn]
        for session in roots_of(workload)
        for turn in range(session.first + 1, session.end)
    ]
    assert sum(gap > 5.0 for gap in gaps) / len(gaps) == pytest.approx(user_ratio, abs=0.03)


def test_presets() -> None:
    assert mixed({}) == CLAUDE_CODE
    assert mixed({}, "fast-tools") == FAST_TOOLS
    fast, slow = drawn(preset="fast-tools"), drawn()
    assert sorted(fast.turns.gap_s)[len(fast.turns) // 2] < 1.0
    assert sorted(slow.turns.gap_s)[len(slow.turns) // 2] > 5.0


@pytest.mark.parametrize(
    ("overrides", "preset", "words"),
    [
        ({"gap_p50": 1.0}, "claude-code", r"no parameter 'gap_p50'.*tool_gap_p50_s"),
        ({"thick_ratio": 1.5}, "claude-code", r"thick_ratio of 1.5 lies outside 0 to 1"),
        ({"heads": 0}, "claude-code", r"heads of 0 lies outside 1 to 100000"),
        ({"n_sessions": math.inf}, "claude-code", r"n_sessions of inf lies outside"),
        ({"n_sessions": math.nan}, "claude-code", r"n_sessions of nan lies outside"),
        (
            {"tool_gap_p50_s": 100.0},
            "claude-code",
            r"tool_gap_p50_s of 100 lies above tool_gap_p90_s",
        ),
        ({"thick_min": 11}, "claude-code", r"thick_min of 11 lies above thick_max of 10"),
        ({}, "slow-tools", r"no preset 'slow-tools'.*claude-code, fast-tools"),
    ],
)
def test_what_is_refused(overrides: dict[str, float], preset: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        mixed(overrides, preset)


def test_a_table_has_its_percentiles() -> None:
    table = Table((2.0, 10.0, 50.0, 400.0), least=1.0, most=1_000.0)
    scores = (-1.2816, 0.0, 1.2816, 2.3263)
    assert [table.at(z) for z in scores] == pytest.approx([2.0, 10.0, 50.0, 400.0], rel=0.02)
    assert table.at(-50.0) == 1.0
    assert table.at(50.0) == 1_000.0
    assert table.values == sorted(table.values)
