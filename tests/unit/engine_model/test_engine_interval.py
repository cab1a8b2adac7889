"""Generation steps between two prefill steps: what they let go on, and what they cost a prompt."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from replica.hardware.profiles import EngineFacts, profile_named
from sim.engine.checks import check_events, check_state
from sim.engine.prefill_step import PrefillStep
from sim.engine.replica_model import ReplicaModel
from sim.engine.requests import Began, Ended, EndReason, EngineRequest, Event
from sim.engine.rules import EngineRules
from sim.engine.stretch import Stretch

FACTS = replace(
    profile_named("b200-tp4-fp8"), chunk_tokens=1_024, accept_length=1.0, verify_tokens=1
)
"""One token a step, so that steps can be counted in tokens."""

PAGE = FACTS.page_tokens


def request(rid: str, prompt_tokens: int, output_tokens: int) -> EngineRequest:
    ids = [(ord(rid) << 32) + i for i in range((prompt_tokens + output_tokens) // PAGE)]
    first = prompt_tokens // PAGE
    return EngineRequest(
        rid, prompt_tokens, output_tokens, array("Q", ids[:first]), array("Q", ids[first:])
    )


def with_interval(n: int, facts: EngineFacts = FACTS, *, order: str = "fcfs") -> ReplicaModel:
    return ReplicaModel(facts, rules=EngineRules(order=order, prefill_decode_interval=n))


def end_of_step(model: ReplicaModel) -> list[Event]:
    step = model.schedule.step
    assert step is not None
    events = model.advance(step.end_s, with_progress=False)
    check_state(model)
    return events


def drain(model: ReplicaModel) -> list[Event]:
    events: list[Event] = []
    while (at_s := model.next_at()) is not None:
        found = model.advance(at_s, with_progress=False)
        assert {event.at_s for event in found} <= {at_s}, "nobody begins or ends before"
        events += found
        check_state(model)
    return events


def beside_a_long_prompt(n: int) -> tuple[ReplicaModel, list[EngineRequest], list[Event]]:
    """One that generates 100 tokens when a prompt of ten chunks comes, with so many steps between two."""
    model = with_interval(n)
    wanted = [request("a", 640, 100), request("b", 10 * 1_024 - 10, 10)]
    model.submit(wanted[0], 0.0)
    events = end_of_step(model)
    model.submit(wanted[1], model.schedule.now_s or 0.0)
    return model, wanted, events


def steps_of(model: ReplicaModel, events: list[Event]) -> list[int]:
    """Chunks as 0, stretches as their generation steps, to the end."""
    found: list[int] = []
    while (step := model.schedule.step) is not None:
        found.append(step.n_steps if isinstance(step, Stretch) else 0)
        events += end_of_step(model)
    return found


def test_so_many_generation_steps_come_between_two_chunks() -> None:
    model, wanted, events = beside_a_long_prompt(3)
    # The short prompt was a prefill step too.
    assert steps_of(model, events)[:8] == [3, 0, 3, 0, 3, 0, 3, 0]
    check_events(wanted, events)
    assert {event.reason for event in events if isinstance(event, Ended)} == {EndReason.STOP}


@pytest.mark.parametrize("order", ["fcfs", "shortest-prefill-first"])
def test_who_is_answered_does_not_wait_for_another_ones_whole_prompt(order: str) -> None:
    ends_s, begins_s = {}, {}
    for n in (0, 12):
        model = with_interval(n, order=order)
        model.submit(request("a", 640, 100), 0.0)
        events = end_of_step(model)
        model.submit(request("b", 10 * 1_024, 10), model.schedule.now_s or 0.0)
        events += drain(model)
        ends_s[n] = next(e.at_s for e in events if isinstance(e, Ended) and e.rid == "a")
        begins_s[n] = next(e.at_s for e in events if isinstance(e, Began) and e.rid == "b")
    assert ends_s[12] < begins_s[12]
    assert ends_s[0] > begins_s[0]
    assert ends_s[12] < ends_s[0]
    assert begins_s[12] > begins_s[0]


def test_where_nobody_generates_a_prompt_goes_on_at_once() -> None:
    found = []
    for n in (0, 12):
        model = with_interval(n)
        model.submit(request("b", 10 * 1_024, 10), 0.0)
        found.append(drain(model))
    assert found[0] == found[1]


def test_what_comes_between_two_chunks_is_let_in_with_the_next() -> None:
    model, _, _ = beside_a_long_prompt(3)
    end_of_step(model)
    end_of_step(model)
    step = model.schedule.step
    assert isinstance(step, Stretch)
    now_s = step.end_of(1)
    model.submit(request("c", 100, 5), now_s)
    assert model.schedule.step is step, "those that generate have their steps"
    assert step.n_steps == 3
    end_of_step(model)
    assert isinstance(model.schedule.step, PrefillStep)
    assert [job.request.rid for job, _ in model.schedule.step.parts] == ["b"]


def test_a_prompt_that_is_left_between_two_of_its_chunks_frees_its_memory() -> None:
    model, wanted, events = beside_a_long_prompt(3)
    while model.schedule.admission.partial is None or not isinstance(model.schedule.step, Stretch):
        events += end_of_step(model)
    assert model.prefill_left_s(model.schedule.now_s or 0.0) > 0.0
    assert model.loads(model.schedule.now_s or 0.0).running == 2
    model.cancel("b", model.schedule.now_s or 0.0)
    assert model.prefill_left_s(model.schedule.now_s or 0.0) == 0.0
    events += drain(model)
    check_events(wanted, events)
    assert model.loads(1_000.0).used_tokens == 0


def test_a_process_that_dies_between_two_chunks_holds_nothing() -> None:
    model, wanted, events = beside_a_long_prompt(3)
    while model.schedule.admission.partial is None or not isinstance(model.schedule.step, Stretch):
        events += end_of_step(model)
    events += model.crash(model.schedule.now_s or 0.0)
    check_state(model)
    check_events(wanted, events)
    assert model.loads(1_000.0).used_tokens == 0


def test_where_a_prompt_has_taken_all_memory_the_last_one_beside_it_is_given_up() -> None:
    """As SGLang's ``retract_decode`` does with the last of a batch."""
    facts = replace(FACTS, capacity_tokens=40 * PAGE, host_capacity_tokens=0, chunk_tokens=4 * PAGE)
    rules = EngineRules(output_ratio=0.0, prefill_decode_interval=32)
    model = ReplicaModel(facts, rules=rules)
    wanted = [request("a", 2 * PAGE + 2, 10 * PAGE), request("b", 35 * PAGE, 10)]
    for each in wanted:
        model.submit(each, 0.0)
    events = drain(model)
    check_events(wanted, events)
    ends = {event.rid: event.reason for event in events if isinstance(event, Ended)}
    assert ends == {"a": EndReason.ABORT, "b": EndReason.STOP}
    assert model.loads(1_000.0).total_aborted == 1
    assert model.loads(1_000.0).used_tokens == 0


def test_a_prompt_is_not_passed_over_while_others_generate_between_its_chunks() -> None:
    model, wanted, events = beside_a_long_prompt(12)
    events += drain(model)
    check_events(wanted, events)


def test_an_interval_below_none_is_refused() -> None:
    with pytest.raises(ValueError, match="prefill_decode_interval -1"):
        EngineRules(prefill_decode_interval=-1)
