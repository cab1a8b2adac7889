"""Lanes: which sessions they play, when turns fall due, and what is the same on every run."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING

import pytest

from sim.scenario.model import Start, WorkloadPace, WorkloadSpec
from sim.workload.play.building import build, load, places_of
from sim.workload.play.content import Content, Sharing
from sim.workload.play.lanes import LaneOptions, Lanes
from sim.workload.play.turns import TurnKind
from tests.doubles.played import BLOCK, Drawn, Row, play_all, workload_of
from tests.unit.agent_workload.trace_examples import EXAMPLES

if TYPE_CHECKING:
    from pathlib import Path

    from sim.workload.play.turns import PlayedTurn
    from tests.doubles.played import Sent


def chain_of(n_turns: int, *, start: int = 0, gap_s: float = 5.0) -> list[Row]:
    return [Row(range(start, start + 2 * (step + 1)), 5, gap_s) for step in range(n_turns)]


def lanes(sessions: list[Drawn], n_lanes: int, *, seed: int = 1, **options: bool) -> Lanes:
    content = Content(workload_of(sessions), 16, Sharing())
    return Lanes(content, LaneOptions(n_lanes, seed, **options))


def by_session(sent: list[Sent]) -> dict[str, list[Sent]]:
    found = defaultdict(list)
    for one in sent:
        found[one.turn.session_key].append(one)
    return found


SEVEN = [Drawn(chain_of(4 + number, start=100 * number)) for number in range(7)]


def test_each_session_is_played_once() -> None:
    sent = list(play_all(lanes(SEVEN, 3, is_once=True)))
    assert Counter(one.turn.output_tokens for one in sent) == Counter(range(1, len(sent) + 1))
    assert len(sent) == sum(len(session.rows) for session in SEVEN)
    assert {one.lane for one in sent} == {0, 1, 2}


def test_more_lanes_than_sessions_end_at_once() -> None:
    sent = list(play_all(lanes(SEVEN[:2], 5, is_once=True)))
    assert len(by_session(sent)) == 2


def test_a_lane_begins_in_the_middle() -> None:
    sessions = [Drawn(chain_of(20, start=100 * number)) for number in range(40)]
    played = by_session(list(play_all(lanes(sessions, 40), n_max=1_600)))
    firsts = [ones for key, ones in played.items() if key.endswith("-0")]
    assert len(firsts) == 40
    assert {5, 14} <= {20 - len(ones) for ones in firsts} <= set(range(5, 15))
    later = [ones for key, ones in played.items() if not key.endswith("-0")]
    assert max(len(ones) for ones in later) == 20


def test_a_lane_begins_at_the_beginning() -> None:
    sent = list(play_all(lanes(SEVEN, 7, is_from_middle=False), n_max=7))
    assert all(one.turn.prompt_tokens == 2 * BLOCK + 5 for one in sent)


def test_warm_lanes_begin_at_moments_of_all_time_with_what_was_answered_before() -> None:
    long = [Row(range(2 * (step + 1)), 5, 300.0 if step == 3 else 1.0) for step in range(6)]
    short = [Row(range(100, 102 + 2 * step), 5, 1.0) for step in range(2)]
    play = lanes([Drawn(long), Drawn(short)], 300, is_warm=True)
    due = list(play.arrivals())
    assert [one.at_s for one in due] == sorted(one.at_s for one in due)
    # Nearly all of the time is in the one long pause, and lanes are evenly far in it.
    waits = [one for one in due if one.turn.prompt_tokens == 8 * BLOCK + 5]
    assert 260 < len(waits) < 295
    assert 130.0 < sum(one.at_s for one in waits) / len(waits) < 170.0
    for one in waits[:3]:
        prompt = play.prompt(one.turn)
        # What is sent goes on from the answer before: all that was sent by then is there, in whole pages.
        assert prompt.warm_tokens == prompt.ceiling_tokens >= 6 * BLOCK // 16 * 16
        (after,) = play.ended(one.turn, one.at_s + 2.0)
        assert play.prompt(after.turn).warm_tokens == 0
    begins = [one for one in due if one.turn.prompt_tokens == 2 * BLOCK + 5]
    assert begins
    assert play.prompt(begins[0].turn).warm_tokens == 0


def test_lanes_begin_spread_over_the_mean_gap() -> None:
    due = list(lanes(SEVEN, 200).arrivals())
    assert len(due) == 200
    assert [one.at_s for one in due] == sorted(one.at_s for one in due)
    assert 0.0 <= due[0].at_s < 0.5
    assert 4.5 < due[-1].at_s <= 5.0
    assert 2.0 < sum(one.at_s for one in due) / 200 < 3.0


def test_gaps_begin_when_the_answer_ends() -> None:
    rows = [Row(range(2 * (step + 1)), 0, 3.0 + step) for step in range(4)]
    sent = list(play_all(lanes([Drawn(rows)], 1, is_once=True), lambda turn: turn.output_tokens))
    times = [one.at_s - sent[0].at_s for one in sent]
    assert times == pytest.approx([0.0, 1 + 4.0, 5 + 2 + 5.0, 12 + 3 + 6.0])


def test_the_next_session_follows_at_once() -> None:
    sent = list(play_all(lanes(SEVEN, 1), lambda _: 2.0, n_max=60))
    ends = [ones[-1].at_s + 2.0 for ones in by_session(sent).values()]
    begins = [ones[0].at_s for ones in by_session(sent).values()]
    assert begins[1:] == pytest.approx(ends[:-1])


def test_what_a_lane_plays_is_the_same_however_fast_it_is_answered() -> None:
    def content_of(
        took_s: dict[int, float], n_lanes: int = 4
    ) -> dict[int, list[tuple[object, ...]]]:
        found = defaultdict(list)

        def took(turn: PlayedTurn) -> float:
            return took_s[int(turn.session_key.split("-")[-2])]

        for one in play_all(lanes(SEVEN, n_lanes), took, n_max=400):
            found[one.lane].append(one.content)
        return found

    dice = random.Random(3)
    slow = content_of({lane: dice.uniform(0.1, 90.0) for lane in range(4)})
    fast = content_of(dict.fromkeys(range(4), 1.0))
    for lane in range(4):
        n = min(len(slow[lane]), len(fast[lane]))
        assert n > 5
        assert slow[lane][:n] == fast[lane][:n]


def test_a_seed_is_a_run() -> None:
    def run(seed: int) -> list[tuple[object, ...]]:
        return [
            (one.at_s, one.prompt.ceiling_tokens, *one.content)
            for one in play_all(lanes(SEVEN, 4, seed=seed), n_max=100)
        ]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_lanes_share_nothing() -> None:
    session = Drawn(chain_of(6))
    pages: defaultdict[str, set[int]] = defaultdict(set)
    for one in play_all(lanes([session], 3), n_max=60):
        pages[one.turn.session_key] |= {*one.prompt.pages, *one.prompt.chain}
        assert one.prompt.ceiling_tokens < one.turn.prompt_tokens
    assert len(pages) > 6
    assert sum(map(len, pages.values())) == len(set().union(*pages.values()))


def test_heads_are_shared() -> None:
    heads = [0, 1, 2]
    sessions = [
        Drawn([Row((*heads, 10 + n)), Row((*heads, 10 + n, 20 + n))], head_tokens=3 * BLOCK + 7)
        for n in range(2)
    ]
    play = lanes(sessions, 2, is_once=True)
    first, second, *_ = play_all(play)
    shared = 3 * BLOCK // 16
    assert first.prompt.pages[:shared] == second.prompt.pages[:shared]
    assert not set(first.prompt.pages[shared:]) & set(second.prompt.pages)
    assert second.prompt.ceiling_tokens == shared * 16
    assert first.prompt.head_segments == 1
    assert first.prompt.ends_bytes[0] == 3 * BLOCK * 4
    assert first.prompt.chain[0] == second.prompt.chain[0]
    apart = Lanes(
        Content(workload_of(sessions), 16, Sharing(has_heads=False)),
        LaneOptions(2, 1, is_once=True),
    )
    one, other, *_ = play_all(apart)
    assert not set(one.prompt.pages) & set(other.prompt.pages)
    assert one.prompt.head_segments == 1


def test_long_prompts_have_a_segment_every_1024_tokens() -> None:
    prompt = next(play_all(lanes([Drawn([Row(range(200))])], 1))).prompt
    assert list(prompt.ends_bytes) == [4096, 8192, 12288, 16384, 4 * 200 * BLOCK]


def family(*, is_joined: bool = True, rest_s: float | None = 2.0) -> list[Drawn]:
    """A session that begins two sub-agents after its first turn, and one of them another."""
    main = [Row((0,)), Row((0, 1), gap_s=50.0, rest_s=rest_s), Row((0, 1, 2))]
    return [
        Drawn(main),
        Drawn(chain_of(2, start=10), 0, 0, 1.0, is_joined=is_joined),
        Drawn(chain_of(1, start=20), 0, 0, 3.0, is_joined=is_joined),
        Drawn(chain_of(1, start=30), 1, -1, 0.5),
    ]


def times_of(sessions: list[Drawn]) -> dict[int, float]:
    sent = list(play_all(lanes(sessions, 1, is_once=True), lambda _: 10.0))
    assert len(sent) == 7
    assert len({one.turn.session_key for one in sent}) == 1
    return {one.turn.output_tokens - 1: one.at_s - sent[0].at_s for one in sent}


def test_sub_agents_are_waited_for() -> None:
    at_s = times_of(family())
    assert at_s[3] == pytest.approx(10.0 + 1.0)
    assert at_s[4] == pytest.approx(11.0 + 10.0 + 5.0)
    assert at_s[5] == pytest.approx(10.0 + 3.0)
    assert at_s[6] == pytest.approx(11.0 + 0.5)
    last_s = 26.0 + 10.0
    assert at_s[1] == pytest.approx(last_s + 2.0)


def _took(took_s: float, turn: PlayedTurn) -> float:
    del turn
    return took_s


@pytest.mark.parametrize("is_joined", [True, False])
def test_pauses_are_divided_and_answers_take_what_they_take(is_joined: bool) -> None:  # noqa: FBT001
    """Of the family's times: what is not an answer of 10 s is a pause, a delay or a rest."""
    times = []
    for rate_factor, took_s in ((1.0, 10.0), (0.25, 40.0)):
        content = Content(workload_of(family(is_joined=is_joined)), 16, Sharing())
        play = Lanes(content, LaneOptions(1, 1, is_once=True, rate_factor=rate_factor))
        sent = list(play_all(play, partial(_took, took_s)))
        times.append({s.turn.output_tokens - 1: s.at_s - sent[0].at_s for s in sent})
    assert times[1] == {turn: pytest.approx(4.0 * at_s) for turn, at_s in times[0].items()}


def test_sub_agents_that_nobody_waits_for() -> None:
    at_s = times_of(family(is_joined=False))
    assert at_s[1] == pytest.approx(10.0 + 50.0)


def test_without_a_rest_the_gap_counts() -> None:
    assert times_of(family(rest_s=None))[1] == pytest.approx(10.0 + 50.0)


def test_a_lane_waits_for_all_of_a_family() -> None:
    sessions = [Drawn([Row((0,))]), Drawn(chain_of(3, start=10), 0, 0, 1.0), Drawn([Row((5,))])]
    for seed in range(6):
        sent = list(play_all(lanes(sessions, 1, seed=seed, is_once=True), lambda _: 10.0))
        played = list(by_session(sent).values())
        assert [len(ones) for ones in played] in ([4, 1], [1, 4])
        assert played[1][0].at_s == pytest.approx(played[0][-1].at_s + 10.0)


def test_kinds_and_keys() -> None:
    sessions = [*family(), Drawn([Row((7,))], 0, 0, name="elsewhere")]
    sent = list(play_all(lanes(sessions, 1, is_once=True)))
    kinds = {one.turn.output_tokens - 1: one.turn.kind for one in sent}
    assert {turn: kinds[turn] for turn in (0, 1, 3, 6)} == {
        0: TurnKind.MAIN,
        1: TurnKind.MAIN,
        3: TurnKind.SUB_AGENT,
        6: TurnKind.SUB_AGENT,
    }
    keys = {one.turn.session_key.split("-")[0] for one in sent}
    assert keys == {"s0", "elsewhere"}


def test_a_branch_begins_with_what_its_parent_sent() -> None:
    parent = Drawn([Row(range(10)), Row(range(12))])
    branch = Drawn([Row((*range(10), 50, 51))], 0, 0, 0.1)
    sent = list(play_all(lanes([parent, branch], 1, is_once=True), lambda _: 1.0))
    beside = next(one for one in sent if one.turn.kind == TurnKind.SUB_AGENT)
    assert beside.prompt.ceiling_tokens == 10 * BLOCK // 16 * 16
    first = sent[0].prompt
    assert beside.prompt.chain[: len(first.chain)] == first.chain


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_format_plays_in_closed_loop(name: str, tmp_path: Path) -> None:
    file, data = EXAMPLES[name]
    (tmp_path / file).write_bytes(data)
    spec = WorkloadSpec(trace=str(tmp_path / file), is_once=True, start=Start.BEGINNING)
    workload = load(spec, 1)
    play = build(spec, places_of(spec, workload, page_tokens=64), n_lanes=2, seed=1)
    sent = list(play_all(play, page_tokens=64))
    assert len(sent) == len(workload.turns)
    assert sum(one.turn.prompt_tokens for one in sent) == sum(workload.turns.prompt_tokens)


def test_traffic_in_closed_loop_pauses_as_it_is_told(tmp_path: Path) -> None:
    file, data = EXAMPLES["weka"]
    (tmp_path / file).write_bytes(data)
    ends = []
    for rate_factor in (1.0, 0.5):
        spec = WorkloadSpec(trace=str(tmp_path / file), is_once=True, rate_factor=rate_factor)
        play = build(spec, places_of(spec, load(spec, 1), page_tokens=64), n_lanes=1, seed=1)
        sent = list(play_all(play, lambda _: 0.0, page_tokens=64))
        ends.append(sent[-1].at_s - sent[0].at_s)
    assert ends[0] > 0.0
    assert ends[1] == pytest.approx(2.0 * ends[0])


def test_a_recording_keeps_its_own_keys(tmp_path: Path) -> None:
    (tmp_path / "monday.rec").write_bytes(EXAMPLES["recording"][1])
    spec = WorkloadSpec(trace=str(tmp_path / "monday.rec"), is_once=True)
    play = build(spec, places_of(spec, load(spec, 1), page_tokens=64), n_lanes=1, seed=1)
    sent = list(play_all(play, page_tokens=64))
    sizes = sorted(map(len, by_session(sent).values()))
    assert sizes == [1, 1, 4]  # what was refused, the sub-agent, and both lines of the session


def test_prompts_leave_room_for_their_answers(tmp_path: Path) -> None:
    file, data = EXAMPLES["mooncake"]
    (tmp_path / file).write_bytes(data)
    spec = WorkloadSpec(trace=str(tmp_path / file), context_tokens_max=262_140)
    workload = load(spec, 1)
    turns = workload.turns
    assert all(
        prompt + output <= 262_144
        for prompt, output in zip(turns.prompt_tokens, turns.output_tokens, strict=True)
    )


def test_fitted_traffic_has_no_open_loop() -> None:
    spec = WorkloadSpec(pace=WorkloadPace.OPEN, mix={"n_sessions": 5})
    with pytest.raises(ValueError, match="no common clock"):
        places_of(spec, load(spec, 1), page_tokens=64)
