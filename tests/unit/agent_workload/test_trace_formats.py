"""Every reader, on a few invented requests: what they become, and what is said of mistakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.recording.records import Arrive
from sim.workload.figures.measure import Options, measure
from sim.workload.figures.table import table_of
from sim.workload.traces.errors import TraceError
from sim.workload.traces.formats import FORMATS, read_workload
from sim.workload.traces.model import Limits, Pace
from tests.doubles.core_drill import Drill
from tests.doubles.recordings import packed, recorded
from tests.unit.agent_workload.trace_examples import (
    AZURE,
    EXAMPLES,
    LMCACHE,
    MOONCAKE,
    WEKA,
    RecordingWriter,
    lines,
    lmcache_row,
    mooncake_row,
    weka,
    weka_agent,
    weka_row,
)

if TYPE_CHECKING:
    from pathlib import Path

    from sim.workload.traces.model import RecordedWorkload


def read(folder: Path, raw: bytes, *, format_name: str | None = None) -> RecordedWorkload:
    file = folder / "x"
    file.write_bytes(raw)
    return read_workload(file, format_name=format_name)


def runs(workload: RecordedWorkload, turn: int) -> list[tuple[int, int, int]]:
    row = workload.turn(turn)
    return [
        (run.branch, run.start, run.end) for run in workload.tree.runs(row.branch, row.named_tokens)
    ]


def shared(workload: RecordedWorkload, one: int, other: int) -> int:
    """How many leading tokens two prompts have in common."""
    depths = {branch: end for branch, _, end in runs(workload, one)}
    return max(
        (min(end, depths[branch]) for branch, _, end in runs(workload, other) if branch in depths),
        default=0,
    )


def test_there_is_an_example_of_every_format() -> None:
    assert set(EXAMPLES) == set(FORMATS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_format_is_recognised_whatever_its_file_is_called(tmp_path: Path, name: str) -> None:
    raw = EXAMPLES[name][1]
    workload = read(tmp_path, raw)
    assert workload.format == name
    named = read(tmp_path, raw, format_name=name)
    assert list(named.turns.prompt_tokens) == list(workload.turns.prompt_tokens)
    assert all(session.parent < number for number, session in enumerate(workload.sessions))
    assert workload.sessions[-1].end == len(workload.turns)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_workload_is_not_changed_by_accident(tmp_path: Path, name: str) -> None:
    workload = read(tmp_path, EXAMPLES[name][1])
    for column in (workload.turns.at_s, workload.turns.branch, workload.tree.parents):
        with pytest.raises(TypeError):
            column[0] = 1  # type: ignore[index]


def test_claude_code_sessions_have_sub_agents_and_gaps(tmp_path: Path) -> None:
    workload = read(tmp_path, WEKA)
    main, agent = workload.sessions
    assert workload.pace is Pace.CLOSED
    assert not workload.has_clock
    assert (main.session_id, main.head_tokens) == ("trace_0001", 128)
    assert (agent.session_id, agent.parent, agent.after_turn) == ("trace_0001/agent_001", 0, 1)
    assert agent.is_joined
    assert agent.delay_s == pytest.approx(1.0)  # began at 17 - 4, the answer ended at 12
    turns = list(workload.turns_of(main))
    assert [turn.gap_s for turn in turns] == [0.0, 8.0, 6.0, pytest.approx(5.9)]
    assert [turn.rest_s for turn in turns] == [None, None, 1.0, None]
    assert [turn.named_tokens for turn in turns] == [192, 320, 384, 256]
    assert [turn.latency_s for turn in turns] == [2.0, 2.0, None, 2.0]
    assert [turn.ttft_s for turn in turns] == [None, 0.5, None, None]
    inner = list(workload.turns_of(agent))
    assert [turn.at_s for turn in inner] == [13.0, 15.5]
    assert [turn.output_tokens for turn in inner] == [5, 1]
    assert {turn.model for turn in inner} == {"haiku"}
    assert [shared(workload, 0, turn) for turn in range(1, 6)] == [192, 192, 192, 64, 64]
    assert shared(workload, 1, 2) == 320


def test_sub_agents_that_nobody_waits_for_begin_at_their_launch(tmp_path: Path) -> None:
    rows = [weka_row(3.0, 130, [1, 6], type="n"), weka_row(5.0, 130, [1, 6], type="n")]
    absolute = weka_agent(3.0, rows, status="async_launched", duration_ms=None)
    first, last = weka_row(0.0, 130, [1, 2]), weka_row(9.0, 130, [1, 2])
    workload = read(tmp_path, weka([first, absolute, last]))
    agent = workload.sessions[1]
    assert not agent.is_joined
    assert (agent.after_turn, agent.delay_s) == (0, 1.0)
    assert [turn.at_s for turn in workload.turns_of(agent)] == [3.0, 5.0]
    assert workload.turn(1).rest_s is None


def test_sessions_with_equal_heads_begin_alike_if_asked(tmp_path: Path) -> None:
    one = weka([weka_row(0.0, 256, [1, 2, 3, 4]), weka_row(9.0, 256, [1, 5, 6, 7])], id="one")
    rows = [weka_row(0.0, 256, [8, 9, 3, 4]), weka_row(9.0, 192, [8, 9, 3])]
    two = weka([*rows, weka_row(18.0, 128, [11, 12])], id="two")  # the last: another model
    other = weka([weka_row(0.0, 256, [1, 2, 3, 4])], id="other", tool_tokens=65)
    for number, raw in enumerate((one, two, other)):
        (tmp_path / f"{number}.json").write_bytes(raw)
    apart = read_workload(tmp_path)
    assert [shared(apart, 0, turn) for turn in range(1, 6)] == [64, 0, 0, 0, 0]
    alike = read_workload(tmp_path, share_heads=True)
    assert [shared(alike, 0, turn) for turn in range(1, 6)] == [64, 128, 128, 0, 0]
    assert shared(alike, 2, 3) == 192


def test_mooncake_requests_share_across_the_file(tmp_path: Path) -> None:
    workload = read(tmp_path, MOONCAKE)
    assert workload.pace is Pace.OPEN
    assert not workload.has_sessions
    assert list(workload.turns.at_s) == [0.0, 0.5, 0.5, 60.5]
    assert list(workload.turns.named_tokens) == [1_000, 2_000, 600, 100]
    assert list(workload.turns.output_tokens) == [20, 1, 7, 7]
    assert [shared(workload, 0, turn) for turn in (1, 2, 3)] == [512, 600, 0]


def test_lmcache_calls_are_sorted_and_named_by_their_text(tmp_path: Path) -> None:
    workload = read(tmp_path, LMCACHE)
    assert workload.is_estimated
    assert [session.session_id for session in workload.sessions] == ["s1", "s2"]
    assert list(workload.turns.at_s) == [0.0, 2.5, 1.0]
    assert list(workload.turns.gap_s) == [0.0, 2.5, 0.0]
    assert list(workload.turns.prompt_tokens) == [193, 318, 145]
    assert list(workload.turns.named_tokens) == [192, 256, 128]
    assert (shared(workload, 0, 1), shared(workload, 0, 2)) == (192, 128)


def test_azure_requests_are_times_and_lengths(tmp_path: Path) -> None:
    workload = read(tmp_path, AZURE)
    assert workload.block_tokens == 0
    assert list(workload.turns.at_s) == [0.0, pytest.approx(0.052), pytest.approx(1.02004)]
    assert list(workload.turns.prompt_tokens) == [4_808, 3_180, 1]
    assert list(workload.turns.output_tokens) == [10, 8, 1]
    assert set(workload.turns.named_tokens) == {0}


def test_a_recording_becomes_lines_that_follow_one_another(tmp_path: Path) -> None:
    workload = read(tmp_path, EXAMPLES["recording"][1])
    main, beside, child, other = workload.sessions
    assert beside.session_id == f"{main.session_id}/1"
    assert (beside.parent, beside.after_turn, beside.delay_s) == (0, 0, 3.0)
    assert (child.parent, child.after_turn, child.delay_s) == (0, 0, 4.0)
    assert other.parent == -1
    turns = list(workload.turns_of(main))
    assert [turn.at_s for turn in turns] == [0.0, 5.0, 15.0]
    assert [turn.gap_s for turn in turns] == [0.0, 2.0, 5.0]
    assert [turn.latency_s for turn in turns] == [3.0, 5.0, 1.0]
    assert [turn.ttft_s for turn in turns] == [2.5, 4.5, 0.5]
    assert [turn.prompt_tokens for turn in turns] == [200, 400, 500]
    assert [turn.output_tokens for turn in turns] == [30, 40, 50]
    assert [turn.named_tokens for turn in turns] == [200, 400, 500]  # 4 bytes a token, as reported
    (unreported,) = workload.turns_of(beside)
    assert (unreported.prompt_tokens, unreported.output_tokens) == (300, 1)
    (refused,) = workload.turns_of(other)
    assert refused.latency_s is None
    assert shared(workload, 0, 1) == 200
    assert shared(workload, main.first + 1, other.first) == 300


def test_who_waits_at_the_door_and_is_tried_each_second_is_one_turn(tmp_path: Path) -> None:
    writer = RecordingWriter()
    first = writer.ask(100.0, "main", [1, 2])
    writer.answer(first, 103.0, 200, 30)
    for at_s in (105.0, 106.0, 107.0):
        writer.ask(at_s, "main", [1, 2, 3, 4], is_refused=True)
    other = writer.ask(107.5, "main", [1, 2, 9])
    writer.answer(other, 108.0, 300, 10)
    second = writer.ask(108.5, "main", [1, 2, 3, 4])
    writer.answer(second, 112.0, 400, 40)
    writer.ask(
        115.0, "main", [1, 2, 3, 4, 5], is_refused=True
    )  # and its client goes on from before
    last = writer.ask(120.0, "main", [1, 2, 3, 4, 6])
    writer.answer(last, 121.0, 500, 50)
    workload = read(tmp_path, writer.packed())
    main, beside = workload.sessions
    turns = list(workload.turns_of(main))
    assert [turn.at_s for turn in turns] == [0.0, 5.0, 15.0, 20.0]
    assert [turn.output_tokens for turn in turns] == [30, 40, 1, 50]
    assert (turns[1].latency_s, turns[1].ttft_s) == (7.0, 6.5)
    assert [turn.at_s for turn in workload.turns_of(beside)] == [7.5]


def test_a_recording_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    writer = RecordingWriter()
    writer.ask(1.0, "main", [1])
    assert len(read(tmp_path, writer.packed(end=None)).turns) == 1


@pytest.mark.parametrize("seed", range(4))
def test_what_a_core_records_is_read_whole(tmp_path: Path, seed: int) -> None:
    core, journal = recorded(seed=seed)
    drill = Drill(core, seed)
    drill.run(300)
    workload = read(tmp_path, packed(journal.records))
    # What was refused and comes again is one turn.
    assert 0 <= drill.n_placed + drill.n_refused - len(workload.turns) <= drill.n_refused
    keys = {record.session.hex() for record in journal.records if isinstance(record, Arrive)}
    assert {session.session_id.split("/")[0] for session in workload.sessions} == keys
    for session in workload.sessions:
        ends = [turn.at_s + (turn.latency_s or 0.0) for turn in workload.turns_of(session)]
        starts = [turn.at_s for turn in workload.turns_of(session)]
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


def test_limits_cut_prompts_with_their_names_and_cap_gaps(tmp_path: Path) -> None:
    workload = read(tmp_path, WEKA).cut(Limits(context_tokens_max=130, gap_s_max=6.0))
    assert set(workload.turns.prompt_tokens) == {130}
    assert max(workload.turns.named_tokens) == 130
    assert shared(workload, 0, 3) == 130
    assert list(workload.turns.gap_s)[:4] == [0.0, 6.0, 6.0, pytest.approx(5.9)]
    assert (workload.n_cut, workload.n_capped) == (5, 1)


def test_families_are_selected_whole(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(weka([weka_row(0.0, 64, [1])], id="short"))
    (tmp_path / "b.json").write_bytes(WEKA)
    whole = read_workload(tmp_path)
    kept = whole.selected(lambda session: session.end - session.first > 1)
    assert [session.session_id for session in kept.sessions] == [
        "trace_0001",
        "trace_0001/agent_001",
    ]
    assert kept.sessions[1].parent == 0
    assert [kept.turn(i) for i in range(6)] == [whole.turn(i + 1) for i in range(6)]


WRONG = [
    (b"", "no trace in it"),
    (b"hello", "no known format: it begins with b'hello'"),
    (b"{}", "no known format"),
    (weka([]), "no main request"),
    (weka([weka_row(0, 64, [1])], block_size=16), "block_size is 16, expected 64"),
    (weka([weka_row(0, 64, [1], colour=1)]), r"requests\[0\]: .*unknown field `colour`"),
    (weka([weka_row(0, 64, [1], out=-3)]), r"requests\[0\]\.out: .*got -3"),
    (weka([weka_row(0, 1 << 40, [1])]), r"requests\[0\]\.in: .*got 1099511627776"),
    (weka([weka_row(0, 64, [1], api_time="2")]), r"requests\[0\]\.api_time: .*got '2'"),
    (weka([weka_row(5, 64, [1]), weka_row(4, 64, [1])]), r"requests\[1\]\.t: 4.0 is before 5.0"),
    (weka([weka_row(0, 64, [1]), weka_row(1, 128, [1, -7])]), r"requests\[1\]\.hash_ids: -7 lies"),
    (weka([weka_row(0, 64, [1 << 63])]), "hash_ids: 9223372036854775808 lies outside"),
    (
        weka([weka_row(0, 64, [1]), weka_row(1, 128, [1, "x"])]),  # type: ignore[list-item]
        r"hash_ids\[1\]: .*'x'",
    ),
    (weka([weka_row(0, 128, "1, 2")]), "hash_ids: Expected `array`"),  # type: ignore[arg-type]
    (
        weka([weka_row(0, 64, [1]), weka_agent(4, [weka_row(0, 64, [], type="n")])]),
        r"requests\[1\]\.requests\[0\]: 0 hash_ids for 64 tokens, expected 1",
    ),
    (lines([mooncake_row(0, 600, 1, [1])]), "line 1: 1 hash_ids for 600 tokens, expected 2"),
    (
        lines([mooncake_row(9, 5, 1, [1]), mooncake_row(8, 5, 1, [1])]),
        "line 2: timestamp: 8 is before 9",
    ),
    (
        MOONCAKE + b'\n{"timestamp": 99e99, "input_length": 1}',
        r"line 6: timestamp: .*got 9.9e\+100",
    ),
    (MOONCAKE[:-9], "line 4: "),
    (
        lines([lmcache_row(0, "a", "b", "s") | {"timestamp": "now"}]),
        "line 1: timestamp: .*got 'now'",
    ),
    (LMCACHE + b'{"timestamp": 1, "input": "a", "output": 3}', "line 4: output: .*got 3"),
    (AZURE + b"2023-11-16 18:17:06,1,-2\r\n", "line 5: GeneratedTokens: .*got '-2'"),
    (AZURE + b"2023-11-16 18:17:06,nan,2\r\n", "line 5: ContextTokens: .*got 'nan'"),
    (AZURE + b"2023-13-16 18:17:06,1,2\r\n", "line 5: TIMESTAMP: .*'2023-13-16 18:17:06'"),
    (AZURE + b"2023-11-16 18:17:01,1,2\r\n", "line 5: TIMESTAMP: .* before"),
    (AZURE + b"2023-11-16 18:17:06,1\r\n", "line 5: 2 columns, expected 3"),
    (AZURE.splitlines()[0], "no request in it"),
    (EXAMPLES["recording"][1][:40], "homeport-recording|the recording"),
    (b"homeport-recording 9\n", "has version 9"),
]


@pytest.mark.parametrize(("raw", "said"), WRONG)
def test_a_mistake_is_told_with_its_place_and_value(tmp_path: Path, raw: bytes, said: str) -> None:
    with pytest.raises(TraceError, match=said) as caught:
        read(tmp_path, raw)
    assert str(tmp_path / "x") in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("prompt", "at_s", "said"), [(-1, 9.0, "of -1"), (5, 0.5, "back"), (5, float("nan"), "nan")]
)
def test_a_recording_with_absurd_numbers_is_refused(
    tmp_path: Path, prompt: int, at_s: float, said: str
) -> None:
    writer = RecordingWriter()
    writer.answer(writer.ask(1.0, "main", [1]), at_s, prompt, 1)
    with pytest.raises(TraceError, match=said):
        read(tmp_path, writer.packed())


def test_an_unknown_format_lists_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no format 'wika'; there are: weka, mooncake"):
        read(tmp_path, WEKA, format_name="wika")


@pytest.mark.parametrize("name", EXAMPLES)
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_no_garbage_crashes_a_reader(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    raw = bytearray(EXAMPLES[name][1])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        to = data.draw(st.integers(at, min(len(raw), at + 12)))
        raw[at:to] = data.draw(st.binary(max_size=6) | st.sampled_from(JUNK))
    file = tmp_path_factory.getbasetemp() / f"garbage-{name}"
    file.write_bytes(raw)
    try:
        workload = read_workload(file, format_name=data.draw(st.sampled_from([None, name])))
        said = table_of(measure(workload, Options(Limits(), lanes=2)), "x").replace("\n", " ")
    except TraceError as failure:
        said = str(failure)
    assert said.isprintable()


JUNK = [b"1e400", b"-1", b"null", b"[", b"{", b'"', b"99999999999999999999", b"\n", b"NaN", b","]
