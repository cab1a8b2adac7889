"""Admission by what requests will probably generate, and what happens where that was too little."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from replica.hardware.profiles import EngineFacts, profile_named
from sim.engine.admission import OutputGuess
from sim.engine.checks import check_events, check_state
from sim.engine.prefill_step import PrefillStep
from sim.engine.replica_model import ReplicaModel
from sim.engine.requests import Began, Ended, EndReason, EngineRequest, Event, Progress
from sim.engine.rules import EngineRules
from sim.engine.stretch import Stretch

FACTS = replace(profile_named("b200-tp4-fp8"), accept_length=1.0, verify_tokens=1)
"""One token a step, so that steps can be counted in tokens."""

PAGE = FACTS.page_tokens
OPTIMIST = EngineRules(output_ratio=0.0)


def facts_of(pages: int) -> EngineFacts:
    return replace(FACTS, capacity_tokens=pages * PAGE, host_capacity_tokens=0)


def request(
    rid: str, prompt_tokens: int, output_tokens: int, *, asked: int | None = None
) -> EngineRequest:
    ids = [(ord(rid[-1]) << 32) + i for i in range((prompt_tokens + output_tokens) // PAGE)]
    first = prompt_tokens // PAGE
    return EngineRequest(
        rid,
        prompt_tokens,
        output_tokens,
        array("Q", ids[:first]),
        array("Q", ids[first:]),
        output_tokens_max=asked,
    )


def drain(model: ReplicaModel, *, with_progress: bool = True) -> list[Event]:
    events: list[Event] = []
    while (at_s := model.next_at()) is not None:
        events += model.advance(at_s, with_progress=with_progress)
        check_state(model)
    return events


def end_of_step(model: ReplicaModel) -> list[Event]:
    step = model.schedule.step
    assert step is not None
    return model.advance(step.end_s)


def began_at(events: list[Event]) -> dict[str, float]:
    return {event.rid: event.at_s for event in events if isinstance(event, Began)}


@pytest.mark.parametrize(
    ("asked", "is_second_let_in"), [(None, True), (600, True), (2_000, False), (100_000, False)]
)
def test_a_request_is_admitted_by_what_it_asked_for(
    asked: int | None,
    is_second_let_in: bool,  # noqa: FBT001
) -> None:
    model = ReplicaModel(facts_of(50))
    for rid in ("a", "b"):
        model.submit(request(rid, 1_000, 200, asked=asked), 0.0)
    end_of_step(model)
    loads = model.loads(model.schedule.now_s or 0.0)
    assert (loads.running, loads.waiting) == ((2, 0) if is_second_let_in else (1, 1))
    drain(model)


def test_what_running_requests_will_generate_is_guessed() -> None:
    """32 pages: two prompts of 640 tokens, which ask for 600; a third one needs 20 pages and one."""
    for ratio, fits in ((0.0, True), (0.35, True), (0.9, False)):
        model = ReplicaModel(facts_of(50), rules=EngineRules(output_ratio=ratio))
        for rid in ("a", "b"):
            model.submit(request(rid, 640, 300, asked=600), 0.0)
        events = end_of_step(model)
        model.submit(request("c", 640, 300, asked=600), 0.2)
        events += model.advance(0.4)
        assert ("c" in began_at(events)) is fits, ratio
        drain(model)


def test_the_guess_decays_evenly_and_starts_anew_when_idle() -> None:
    guess = OutputGuess(EngineRules())
    guess.decay(300)
    assert guess.ratio == pytest.approx(0.7 - (0.7 - 0.098) / 2)
    guess.decay(10_000)
    assert guess.ratio == pytest.approx(0.098)
    guess.reset()
    assert guess.ratio == 0.7
    model = ReplicaModel(FACTS)
    model.submit(request("a", 1_000, 201), 0.0)
    end_of_step(model)
    model.advance(1.0)
    model.cancel("a", 1.0)
    steps = model.loads(2.0).total_verify_steps
    assert 20 < steps < 200
    assert model.schedule.admission.guess.ratio == 0.7


def two_that_grow_too_large() -> tuple[ReplicaModel, list[EngineRequest]]:
    """Each fits the 40 pages alone, both together do not."""
    model = ReplicaModel(facts_of(40), rules=OPTIMIST)
    wanted = [request("a", 640, 1_200), request("b", 700, 1_200)]
    for each in wanted:
        model.submit(replace(each, output_tokens_max=None), 0.0)
    return model, wanted


def test_requests_are_retracted_where_memory_runs_out() -> None:
    model = ReplicaModel(facts_of(40), rules=OPTIMIST)
    wanted = [request("a", 640, 700), request("b", 700, 1_000)]
    model.submit(wanted[0], 0.0)
    events = end_of_step(model)
    model.submit(wanted[1], 0.2)
    while model.loads(model.schedule.now_s or 0.0).total_retracted == 0:
        events += end_of_step(model)
        check_state(model)
    # b has generated less: it waits again, all of it to be prefilled.
    assert [job.request.rid for job in model.schedule.decoding] == ["a"]
    (job,) = model.schedule.waiting.jobs
    assert job.request.rid == "b"
    assert job.fill_tokens == 700 + job.tokens > 701
    assert model.schedule.admission.guess.ratio > 0.0
    used = model.loads(model.schedule.now_s or 0.0).used_tokens
    assert used <= 40 * PAGE
    events += drain(model)
    check_events(wanted, events)
    ends = {event.rid: event for event in events if isinstance(event, Ended)}
    assert ends["a"].at_s < ends["b"].at_s
    assert {end.reason for end in ends.values()} == {EndReason.STOP}
    assert sum(isinstance(event, Began) for event in events) == 2
    loads = model.loads(1_000.0)
    assert loads.total_retracted == 1
    assert loads.total_generated_tokens == 1_700
    # The prompt stayed cached, what was generated did not: only that was computed twice.
    assert loads.total_prompt_tokens == 640 + 700 + job.fill_tokens
    assert loads.total_cached_tokens == 700 // PAGE * PAGE
    assert (loads.used_tokens, loads.running, loads.waiting) == (0, 0, 0)


def test_nothing_is_retracted_where_every_output_was_reserved() -> None:
    model = ReplicaModel(facts_of(40), rules=EngineRules(output_ratio=1.0, output_ratio_floor=1.0))
    wanted = [request("a", 640, 700), request("b", 700, 1_000)]
    model.submit(wanted[0], 0.0)
    events = end_of_step(model)
    model.submit(wanted[1], 0.2)
    events += drain(model)
    check_events(wanted, events)
    ended_s = next(e.at_s for e in events if isinstance(e, Ended) and e.rid == "a")
    assert began_at(events)["b"] > ended_s
    assert model.loads(1_000.0).total_retracted == 0


def test_a_retracted_request_can_be_cancelled_while_it_waits() -> None:
    model = ReplicaModel(facts_of(40), rules=OPTIMIST)
    wanted = [request("a", 640, 700), request("b", 700, 1_000)]
    model.submit(wanted[0], 0.0)
    events = end_of_step(model)
    model.submit(wanted[1], 0.2)
    while not model.schedule.totals.retracted:
        events += end_of_step(model)
    now_s = model.schedule.now_s or 0.0
    (job,) = model.schedule.waiting.jobs
    assert model.cancel("b", now_s)
    events += drain(model)
    check_events(wanted, events)
    end = next(event for event in events if isinstance(event, Ended) and event.rid == "b")
    assert (end.reason, end.output_tokens) == (EndReason.ABORT, job.tokens)


def test_a_retracted_request_pauses_but_tells_no_token_twice() -> None:
    model, wanted = two_that_grow_too_large()
    events = drain(model, with_progress=False)
    check_events(wanted, events)
    assert not any(isinstance(event, Progress) for event in events)
    assert [event.output_tokens for event in events if isinstance(event, Ended)] == [1_200, 1_200]


def test_mixed_chunks_let_running_requests_go_on() -> None:
    rules = EngineRules(is_chunk_mixed=True)
    for mixed in (rules, EngineRules()):
        model = ReplicaModel(replace(FACTS, chunk_tokens=1_024), rules=mixed)
        model.submit(request("a", 640, 500), 0.0)
        end_of_step(model)
        now_s = model.schedule.now_s or 0.0
        model.submit(request("b", 10_000, 10), now_s)
        step = model.schedule.step
        assert isinstance(
            step, Stretch if step is not None and step.start_s < now_s else PrefillStep
        )
        before = model.loads(now_s).total_generated_tokens
        n_steps = 0
        while isinstance(model.schedule.step, PrefillStep):
            end_of_step(model)
            n_steps += 1
        made = model.loads(model.schedule.now_s or 0.0).total_generated_tokens - before
        # The prompt takes ten chunks, or one more where a rider takes a page of each.
        assert (n_steps, made) == ((11, 11 + 1) if mixed is rules else (10, 1))
        drain(model)


def test_a_rider_makes_the_step_longer() -> None:
    facts = replace(FACTS, chunk_tokens=1_024)
    model = ReplicaModel(facts, rules=EngineRules(is_chunk_mixed=True))
    model.submit(request("a", 640, 500), 0.0)
    end_of_step(model)
    model.submit(request("b", 10_000, 10), model.schedule.now_s or 0.0)
    step = model.schedule.step
    assert isinstance(step, PrefillStep)
    assert [(job.request.rid, n) for job, n in step.parts] == [("b", 960)]
    expected_s = facts.times.prefill_batch_s([(960, 0), (1, 641)])
    assert step.end_s - step.start_s == pytest.approx(expected_s)


def test_a_rider_may_end_in_a_prefill_step() -> None:
    model = ReplicaModel(replace(FACTS, chunk_tokens=1_024), rules=EngineRules(is_chunk_mixed=True))
    wanted = [request("a", 640, 4), request("b", 10_000, 10)]
    model.submit(wanted[0], 0.0)
    events = end_of_step(model)
    model.submit(wanted[1], model.schedule.now_s or 0.0)
    events += drain(model)
    check_events(wanted, events)
    ended_s = next(e.at_s for e in events if isinstance(e, Ended) and e.rid == "a")
    assert ended_s < began_at(events)["b"]


def test_a_prompt_in_progress_gets_its_memory_back_from_shorter_ones() -> None:
    """They were let in while its rest was not reserved: they wait again until it is done."""
    model = ReplicaModel(
        replace(facts_of(40), chunk_tokens=4 * PAGE),
        rules=EngineRules(order="shortest-prefill-first"),
    )
    wanted = [request("z", 36 * PAGE, 10)]
    wanted += [request(rid, 3 * PAGE - 10, 40) for rid in "abcd"]
    for each in wanted:
        model.submit(each, 0.0)
    events: list[Event] = []
    while not model.schedule.totals.retracted:
        events += end_of_step(model)
        check_state(model)
    assert model.schedule.admission.partial is not None
    assert isinstance(model.schedule.step, PrefillStep)
    events += drain(model)
    check_events(wanted, events)
    assert {event.reason for event in events if isinstance(event, Ended)} == {EndReason.STOP}
    assert model.loads(1_000.0).used_tokens == 0
