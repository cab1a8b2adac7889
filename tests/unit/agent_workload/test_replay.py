"""Rebuilt prompts: their shared prefixes, as the emulator renders them, are those of the trace."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.live.rendering import pages, template
from sim.live.rendering.bodies import ChatBody, TemplateDefaults, chat_prompt, decode
from sim.workload.replay import TraceReplay, TraceSession
from sim.workload.traces.weka_file import BLOCK_TOKENS
from sim.workload.turns import Answer
from sim.workload.weka import Trace, TraceRow


def _row(ids: list[int], *, tail_tokens: int = 7, gap_s: float = 3.0) -> TraceRow:
    return TraceRow(len(ids) * BLOCK_TOKENS + tail_tokens, 20, array("I", ids), gap_s)


def _trace(*rows: TraceRow, head_tokens: int = 640, trace_id: str = "trace_1") -> Trace:
    return Trace(trace_id, head_tokens, rows)


def _prompts(session: TraceSession) -> list[bytes]:
    prompts = []
    while (turn := session.next_turn()) is not None:
        body = decode(turn.request.body, ChatBody)
        assert body.messages[-1].role == "user"
        prompts.append(template.render(chat_prompt(body, TemplateDefaults())))
        session.answered(Answer("ignored"))
    return prompts


def _common(one: bytes, two: bytes) -> int:
    pairs = zip(one, two, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(two)))


@st.composite
def _traces(draw: st.DrawFn) -> Trace:
    """Prefix ids: each row keeps a leading run of the row before and goes on with new ids."""
    rows: list[TraceRow] = []
    ids: list[int] = []
    fresh = 1
    for _ in range(draw(st.integers(1, 5))):
        ids = ids[: draw(st.integers(0, len(ids)))]
        n_new = draw(st.integers(0, 60))
        ids = [*ids, *range(fresh, fresh + n_new)]
        fresh += n_new
        tail_tokens = draw(st.integers(0 if ids else 1, BLOCK_TOKENS - 1))
        rows.append(_row(ids, tail_tokens=tail_tokens))
    return _trace(*rows, head_tokens=draw(st.integers(0, 3_000)))


@settings(deadline=None, max_examples=60)
@given(_traces())
def test_prefixes_are_shared_as_the_trace_says(trace: Trace) -> None:
    prompts = _prompts(TraceSession(trace, salt="s"))
    for index in range(1, len(prompts)):
        one, two = trace.rows[index - 1], trace.rows[index]
        pairs = zip(one.block_ids, two.block_ids, strict=False)
        shortest = min(len(one.block_ids), len(two.block_ids))
        n_shared = next((i for i, (a, b) in enumerate(pairs) if a != b), shortest)
        assert _common(prompts[index - 1], prompts[index]) // pages.PAGE_BYTES == n_shared


def test_prompts_are_as_long_as_recorded() -> None:
    rows = [_row(list(range(1, n + 1))) for n in (600, 800, 1_100)]
    for row, prompt in zip(rows, _prompts(TraceSession(_trace(*rows), salt="s")), strict=True):
        assert 0 <= pages.prompt_tokens(prompt) - row.input_tokens <= 22


def test_prompt_and_answer_fit_the_context() -> None:
    rows = [_row(list(range(1, n + 1))) for n in (60, 61, 62, 63, 64, 90)]
    session = TraceSession(_trace(*rows), salt="s", context_tokens_max=4_096)
    for prompt in _prompts(session):
        assert pages.prompt_tokens(prompt) + 20 <= 4_096


def test_shared_ratio_counts_the_leading_run_of_all_earlier_turns() -> None:
    one, two = list(range(1, 101)), [*range(1, 11), *range(200, 230)]
    session = TraceSession(_trace(_row(one), _row(two), _row(one)), salt="s")
    ratios = []
    while (turn := session.next_turn()) is not None:
        ratios.append(turn.request.shared_ratio)
    assert ratios == [0.0, 640 / (40 * 64 + 7), 6_400 / 6_407]


def test_lanes_and_repetitions_share_no_text() -> None:
    trace = _trace(_row(list(range(1, 40))), _row(list(range(1, 60))))
    source = TraceReplay([trace], lanes=2, seed=1)
    prompts = [_prompts(source.next_session(lane))[0] for lane in (0, 1, 0)]
    start = len("<|im_system|>system<|im_middle|>")
    for one, two in ((0, 1), (0, 2), (1, 2)):
        assert _common(prompts[one], prompts[two]) < start + 16


def test_a_lane_starts_warm_and_goes_on_cold() -> None:
    trace = _trace(*(_row(list(range(1, n + 1)), gap_s=9.0) for n in range(20, 120)))
    source = TraceReplay([trace], lanes=2, seed=3)
    first, later = source.next_session(0), source.next_session(0)
    assert 25 <= len(_prompts(first)) <= 75
    assert len(_prompts(later)) == 100
    turn = source.next_session(1).next_turn()
    assert turn is not None
    assert (turn.gap_s, turn.request.shared_ratio) == (0.0, 0.0)


def test_a_lanes_traces_do_not_depend_on_the_other_lanes() -> None:
    traces = [_trace(_row([1]), trace_id=f"trace_{number}") for number in range(7)]
    one, two = (TraceReplay(traces, lanes=3, seed=1) for _ in range(2))
    played = {lane: [one.next_session(lane).key for _ in range(4)] for lane in (0, 1, 2)}
    assert [two.next_session(2).key for _ in range(4)] == played[2]
    assert len({key for keys in played.values() for key in keys}) == 12
