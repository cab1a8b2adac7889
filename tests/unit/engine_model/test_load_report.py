"""When a replica tells its load, and what it says then."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.hardware.profiles import profile_named
from sim.engine.replica_model import ReplicaModel
from sim.engine.reporting import HIT_WINDOW_S, REPORT_STEPS
from sim.engine.requests import EngineRequest, LoadReport

FACTS = replace(profile_named("b200-tp4-fp8"), accept_length=1.0, verify_tokens=1)
"""One token a step, so that steps can be counted in tokens."""

PAGE = FACTS.page_tokens
CHUNK = FACTS.chunk_tokens


def request(
    rid: str, prompt_tokens: int, output_tokens: int = 500, *, session: int = 1
) -> EngineRequest:
    ids = [(session << 32) + page for page in range(prompt_tokens // PAGE)]
    return EngineRequest(rid, prompt_tokens, output_tokens, array("Q", ids))


def end_of_step(model: ReplicaModel) -> float:
    """Let the step in progress end; when it did."""
    step = model.schedule.step
    assert step is not None
    at_s = step.end_s
    model.advance(at_s)
    return at_s


def step_ends(model: ReplicaModel, began_s: float, prompt_tokens: int, count: int) -> list[float]:
    """When the first generation steps after a prefill end, one request alone."""
    ends = [began_s]
    for step in range(count):
        ends.append(ends[-1] + model.facts.step_s(1, prompt_tokens + 1 + step))
    return ends[1:]


def test_before_anything_happened_there_is_nothing() -> None:
    assert ReplicaModel(FACTS).report(3.0) == LoadReport(3.0)


def test_an_idle_engine_tells_all_the_time() -> None:
    model = ReplicaModel(FACTS)
    model.submit(request("a", 1_000, 20), 0.0)
    ended_s = 0.0
    while model.next_at() is not None:
        ended_s = end_of_step(model)
    assert model.report(ended_s).at_s == ended_s
    later = model.report(ended_s + 7.0)
    assert later.at_s == ended_s + 7.0
    assert later.running == later.used_tokens == 0
    assert later.generated_per_s == 0.0
    assert later.total_prefill_uncached_tokens == 1_000
    assert later.total_prefill_busy_s == model.loads(ended_s + 7.0).total_prefill_busy_s


def test_what_is_being_computed_shows_only_at_the_end_of_a_step() -> None:
    model = ReplicaModel(FACTS)
    prompt = 2 * CHUNK + 1_000
    model.submit(request("a", prompt), 5.0)
    model.submit(request("b", 700, session=2), 5.0)
    assert model.report(5.0 + 1e-6) == LoadReport(5.0)  # what it told last, idle, each second

    first_s = end_of_step(model)
    told = model.report(first_s)
    assert (told.at_s, told.running, told.used_tokens) == (first_s, 0, 2 * CHUNK)
    # The second chunk will not finish it either. The other one waits: nothing is known of hits yet.
    assert (told.waiting, told.waiting_tokens) == (1, 700)
    assert told.waiting_uncached_tokens == 700 + CHUNK + 1_000
    assert told.total_prefill_uncached_tokens == 0

    second_s = end_of_step(model)
    told = model.report(second_s)
    # Now both are in the third step: neither running nor waiting.
    assert (told.running, told.waiting, told.waiting_uncached_tokens) == (0, 0, 0)
    assert told.total_prefill_uncached_tokens == CHUNK
    assert told.total_prefill_busy_s == pytest.approx(first_s - 5.0)

    third_s = end_of_step(model)
    told = model.report(third_s)
    assert (told.running, told.total_prefill_uncached_tokens) == (2, 2 * CHUNK)


def test_a_generation_tells_every_fifteenth_step() -> None:
    model = ReplicaModel(FACTS)
    model.submit(request("a", 1_000, 100), 0.0)
    began_s = end_of_step(model)
    ends = step_ends(model, began_s, 1_000, 99)
    for step, end_s in enumerate(ends[:98], start=1):
        told = model.report(end_s + 1e-9)
        last = step // REPORT_STEPS * REPORT_STEPS
        expected_s = ends[last - 1] if last else began_s
        assert told.at_s == pytest.approx(expected_s)
        assert told.used_tokens == -(-(1_000 + 1 + last) // PAGE) * PAGE
        assert told.running == 1
        if last:
            assert told.decode_moments is not None
            steps, batches, us, squares, products, tokens = told.decode_moments
            assert steps == batches == squares == tokens == last
            assert us == products == pytest.approx((expected_s - began_s) * 1e6)
            assert told.generated_per_s == pytest.approx(last / (expected_s - began_s))


def test_a_reader_that_comes_late_sees_the_same() -> None:
    model = ReplicaModel(FACTS)
    model.submit(request("a", 1_000, 200), 0.0)
    began_s = end_of_step(model)
    ends = step_ends(model, began_s, 1_000, 199)
    late = model.report(ends[99] + 1e-9)
    assert late.at_s == pytest.approx(ends[89])
    assert late.used_tokens == -(-(1_000 + 91) // PAGE) * PAGE


def test_a_prefill_starts_the_count_again() -> None:
    model = ReplicaModel(FACTS)
    model.submit(request("a", 1_000, 200), 0.0)
    began_s = end_of_step(model)
    ends = step_ends(model, began_s, 1_000, 40)
    model.submit(request("b", 1_000, 200, session=2), ends[9] + 1e-9)
    assert model.report(ends[9] + 2e-9).waiting == 0  # not told yet
    cut_s = end_of_step(model)
    assert model.report(cut_s).at_s == began_s
    told_s = end_of_step(model)
    told = model.report(told_s)
    assert (told.at_s, told.running) == (told_s, 2)
    assert model.report(told_s + 14 * FACTS.step_s(2, 1_000)).at_s == told_s


def test_a_waiting_prompt_is_guessed_from_recent_hits() -> None:
    model = ReplicaModel(replace(FACTS, max_running_requests=1))
    at_s = 0.0
    for rid in ("a", "b"):
        model.submit(request(rid, 6_401, 1), at_s)
        at_s = end_of_step(model)
    # The second found 100 pages of 6,401 tokens: 6,400 of 12,802 in all.
    assert model.report(at_s).hit_ratio == pytest.approx(6_400 / 6_401)
    model.submit(request("c", 640, 2_000, session=3), at_s)
    model.submit(request("d", 1_000, 1, session=4), at_s)
    at_s = end_of_step(model)
    told = model.report(at_s)
    assert told.waiting_tokens == 1_000
    assert told.waiting_uncached_tokens == int(1_000 * (1 - 6_400 / (2 * 6_401 + 640)))


def test_old_hits_are_forgotten() -> None:
    model = ReplicaModel(replace(FACTS, max_running_requests=1))
    at_s = 0.0
    for rid in ("a", "b"):
        model.submit(request(rid, 6_401, 1), at_s)
        at_s = end_of_step(model)
    at_s += HIT_WINDOW_S + 1.0
    model.submit(request("c", 640, 2_000, session=3), at_s)
    model.submit(request("d", 1_000, 1, session=4), at_s)
    at_s = end_of_step(model)
    assert model.report(at_s).waiting_uncached_tokens == 1_000


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 2.0), st.integers(1, 30_000), st.integers(1, 300), st.integers(1, 4)
        ),
        min_size=1,
        max_size=8,
    ),
    st.floats(0.01, 0.7),
)
def test_how_often_it_is_read_changes_nothing(
    rows: list[tuple[float, int, int, int]], every_s: float
) -> None:
    read, unread = ReplicaModel(FACTS), ReplicaModel(FACTS)
    now_s = 0.0
    for number, (gap_s, prompt, output, session) in enumerate(rows):
        until_s = now_s + gap_s
        while now_s + every_s < until_s:
            now_s += every_s
            told = read.report(now_s)
            assert told.at_s <= now_s
            assert 0 <= told.used_tokens <= FACTS.capacity_tokens
            assert told.waiting_uncached_tokens >= 0
        now_s = until_s
        for model in (read, unread):
            model.submit(request(str(number), prompt, output, session=session), now_s)
    for after_s in (0.1, 1.0, 10.0, 200.0):
        assert read.report(now_s + after_s) == unread.report(now_s + after_s)


def test_reading_within_a_long_prompt_tells_of_every_chunk() -> None:
    facts = replace(FACTS, host_capacity_tokens=0)
    model, twin = ReplicaModel(facts), ReplicaModel(facts)
    for each in (model, twin):
        each.submit(request("a", 6 * CHUNK, 10), 0.0)
        each.submit(request("b", 700, 10, session=2), 0.0)
    at_s = 0.0
    for chunk in range(5):
        at_s += facts.times.prefill_s(CHUNK, chunk * CHUNK)
        twin.advance(at_s)  # one looks at all of it, the other at the report alone
        told = model.report(at_s)
        assert told == twin.report(at_s)
        assert told.at_s == pytest.approx(at_s)
        assert told.total_prefill_uncached_tokens == chunk * CHUNK
        assert told.used_tokens == min(6, chunk + 2) * CHUNK
        assert told.waiting_tokens == 700
    assert model.loads(at_s) == twin.loads(at_s)
