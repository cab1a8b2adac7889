"""What goes into one step, and when a change takes effect."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from replica.hardware.profiles import profile_named
from sim.engine.prefill_step import PrefillStep
from sim.engine.requests import Began, EngineRequest
from sim.engine.rules import EngineRules
from sim.engine.scheduler import Scheduler
from sim.engine.stretch import Stretch

FACTS = replace(profile_named("b200-tp4-fp8"), chunk_tokens=1_024)


def request(rid: str, prompt_tokens: int, output_tokens: int = 100) -> EngineRequest:
    ids = [(ord(rid[0]) << 32) + i for i in range(prompt_tokens // 64)]
    return EngineRequest(rid, prompt_tokens, output_tokens, array("Q", ids))


def parts_of(scheduler: Scheduler) -> list[tuple[str, int]]:
    assert isinstance(scheduler.step, PrefillStep)
    return [(job.request.rid, n_tokens) for job, n_tokens in scheduler.step.parts]


def to_next_step(scheduler: Scheduler) -> float:
    assert scheduler.step is not None
    scheduler.run(scheduler.step.end_s)
    assert scheduler.now_s is not None
    return scheduler.now_s


def start(scheduler: Scheduler, *requests: EngineRequest) -> None:
    scheduler.run(0.0)
    for each in requests:
        scheduler.enqueue(each, 0.0)


def test_a_chunk_is_filled_up_and_cut_at_a_page() -> None:
    scheduler = Scheduler(FACTS, EngineRules())
    start(scheduler, request("a", 1_500), request("b", 100), request("c", 900), request("d", 50))
    seen = [parts_of(scheduler)]
    while isinstance(scheduler.step, PrefillStep):
        seen.append(parts_of(scheduler))
        to_next_step(scheduler)
    assert seen[1:] == [
        [("a", 1_024)],
        [("a", 476), ("b", 100), ("c", 384)],  # a prompt's last page is charged in full
        [("c", 516), ("d", 50)],
    ]


def test_less_than_a_page_of_budget_is_left_unused() -> None:
    scheduler = Scheduler(FACTS, EngineRules())
    start(scheduler, request("a", 1_024 + 1_000), request("b", 30))
    to_next_step(scheduler)
    assert parts_of(scheduler) == [("a", 1_000)]
    to_next_step(scheduler)
    assert parts_of(scheduler) == [("b", 30)]


def test_a_step_costs_what_its_parts_cost_together() -> None:
    scheduler = Scheduler(FACTS, EngineRules())
    start(scheduler, request("a", 1_500), request("b", 100))
    before_s = to_next_step(scheduler)
    duration_s = to_next_step(scheduler) - before_s
    assert duration_s == pytest.approx(FACTS.times.prefill_batch_s([(476, 1_024), (100, 0)]))


def test_an_arrival_is_taken_at_the_end_of_the_step_in_progress() -> None:
    scheduler = Scheduler(FACTS, EngineRules())
    start(scheduler, request("a", 500, 1_000))
    begun_s = to_next_step(scheduler)
    assert isinstance(scheduler.step, Stretch)
    third_s = scheduler.step.end_of(3)
    arrival_s = (scheduler.step.end_of(2) + third_s) / 2
    scheduler.run(arrival_s)
    scheduler.enqueue(request("b", 300), arrival_s)
    assert to_next_step(scheduler) == third_s > begun_s
    assert parts_of(scheduler) == [("b", 300)]
    assert scheduler.totals.verify_steps == 3


def test_an_arrival_behind_a_blocked_one_changes_nothing() -> None:
    scheduler = Scheduler(replace(FACTS, max_running_requests=1), EngineRules())
    start(scheduler, request("a", 500, 1_000), request("b", 300))
    to_next_step(scheduler)
    step = scheduler.step
    assert isinstance(step, Stretch)
    scheduler.run(step.end_of(2))
    scheduler.enqueue(request("c", 300), step.end_of(2))
    assert scheduler.step is step
    assert step.n_steps == 172


def test_an_aborted_job_leaves_at_the_end_of_the_step() -> None:
    scheduler = Scheduler(FACTS, EngineRules())
    start(scheduler, request("a", 500, 1_000))
    begun_s = to_next_step(scheduler)
    scheduler.enqueue(request("b", 5_000), begun_s)
    now_s = begun_s + 0.001
    scheduler.run(now_s)
    scheduler.abort(scheduler.jobs["a"], now_s)
    assert len(scheduler.admitted()) == 2
    to_next_step(scheduler)
    assert len(scheduler.admitted()) == 1
    assert scheduler.decoding == []


def test_a_host_load_is_paid_once_before_the_first_chunk() -> None:
    facts = replace(FACTS, capacity_tokens=64 * 64)
    scheduler = Scheduler(facts, EngineRules())
    start(scheduler, request("a", 3_000, 10), request("b", 3_000, 10))
    while scheduler.step is not None:
        to_next_step(scheduler)
    assert scheduler.now_s is not None
    start_s = scheduler.now_s
    scheduler.events.clear()
    scheduler.enqueue(request("a again", 3_900, 10), start_s)
    while not scheduler.events:
        to_next_step(scheduler)
    began = scheduler.events[0]
    assert isinstance(began, Began)
    assert began.cached_tokens == 46 * 64
    assert began.host_tokens == began.cached_tokens - 16 * 64  # b took 48 pages of 64
    compute_s = facts.times.prompt_s(3_900 - 46 * 64, 46 * 64, chunk_tokens=1_024)
    load_s = began.host_tokens * facts.host_load_s_per_token
    assert compute_s > load_s, "layer by layer beside it: only the first is waited for"
    assert began.at_s - start_s == pytest.approx(compute_s + load_s / facts.layers)


def test_whole_chunks_of_one_prompt_are_one_step_that_is_applied_when_it_is_looked_at() -> None:
    scheduler = Scheduler(FACTS, EngineRules())
    start(scheduler, request("a", 5 * 1_024))
    step = scheduler.step
    assert isinstance(step, PrefillStep)
    ends = [step.end_s, *reversed(step.later_s)]
    assert len(ends) == 4, "the last chunk is shared with whoever waits"
    times = FACTS.times
    durations = [times.prefill_s(1_024, chunk * 1_024) for chunk in range(4)]
    assert [end - start for start, end in zip([0.0, *ends], ends, strict=False)] == pytest.approx(
        durations
    )
    scheduler.enqueue(request("b", 100), 0.0)
    scheduler.run(ends[2])
    assert scheduler.step is step
    assert (step.start_s, step.end_s) == (ends[2], ends[3])
    (job, _), *_ = step.parts
    assert job.computed_tokens == 3 * 1_024
    assert job.holding is not None
    assert (job.holding.stored, job.holding.private) == (48, 16)
    scheduler.run(ends[3])
    assert parts_of(scheduler) == [("a", 1_024)]


def test_a_step_over_chunks_ends_with_the_chunk_in_which_its_request_or_another_leaves() -> None:
    for victim in "ab":
        scheduler = Scheduler(FACTS, EngineRules())
        start(scheduler, request("a", 200))
        first_s = to_next_step(scheduler)
        scheduler.enqueue(request("b", 6 * 1_024), first_s)
        while not isinstance(scheduler.step, PrefillStep):
            to_next_step(scheduler)
        step = scheduler.step
        assert len(step.later_s) == 4
        now_s = step.end_s + 1e-6
        scheduler.run(now_s)
        scheduler.abort(scheduler.jobs[victim], now_s)
        assert not step.later_s
        to_next_step(scheduler)
        assert scheduler.step is not step
        assert len(scheduler.decoding) == (victim == "b")


def test_a_step_over_chunks_becomes_slower_from_its_next_chunk_on() -> None:
    scheduler = Scheduler(FACTS, EngineRules())
    start(scheduler, request("a", 5 * 1_024))
    scheduler.slow(2.0, 0.0)
    first_s = to_next_step(scheduler)
    assert first_s == pytest.approx(FACTS.times.prefill_s(1_024, 0))
    assert to_next_step(scheduler) - first_s == pytest.approx(
        2.0 * FACTS.times.prefill_s(1_024, 1_024)
    )
