"""What may happen to a replica, and what a clairvoyant reference asks of it."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace
from statistics import fmean

import pytest

from replica.hardware.profiles import profile_named
from sim.engine.checks import check_events, check_state
from sim.engine.pool import SharedPrefixes
from sim.engine.prefill_step import PrefillStep
from sim.engine.replica_model import ReplicaModel
from sim.engine.requests import Began, Ended, EndReason, EngineRequest, Event
from sim.engine.rules import EngineRules

FACTS = profile_named("b200-tp4-fp8")
PAGE = FACTS.page_tokens


def request(
    rid: str, prompt_tokens: int, output_tokens: int = 500, *, session: int = 1
) -> EngineRequest:
    first = prompt_tokens // PAGE
    ids = [(session << 32) + i for i in range((prompt_tokens + output_tokens) // PAGE)]
    return EngineRequest(
        rid, prompt_tokens, output_tokens, array("Q", ids[:first]), array("Q", ids[first:])
    )


def drain(model: ReplicaModel) -> list[Event]:
    events: list[Event] = []
    while (at_s := model.next_at()) is not None:
        events += model.advance(at_s, with_progress=False)
        check_state(model)
    return events


def serve(model: ReplicaModel, wanted: EngineRequest, now_s: float) -> tuple[Began, Ended]:
    model.submit(wanted, now_s)
    began, ended = drain(model)
    assert isinstance(began, Began)
    assert isinstance(ended, Ended)
    return began, ended


def test_a_slow_replica_takes_a_multiple_for_everything() -> None:
    fast, slow = ReplicaModel(FACTS), ReplicaModel(FACTS)
    slow.slow(3.0, 0.0)
    began, ended = serve(fast, request("a", 30_000), 0.0)
    slow_began, slow_ended = serve(slow, request("a", 30_000), 0.0)
    assert slow_began.at_s == pytest.approx(3 * began.at_s)
    assert slow_ended.at_s == pytest.approx(3 * ended.at_s)


def test_it_becomes_slow_and_fast_again_with_the_next_step() -> None:
    fast, changed = ReplicaModel(FACTS), ReplicaModel(FACTS)
    for model in (fast, changed):
        model.submit(request("a", 1_000, 2_000), 0.0)
        model.advance(1.0)
    changed.slow(4.0, 1.0)
    changed.advance(3.0)
    changed.slow(1.0, 3.0)
    (ended,) = drain(fast)
    (later,) = drain(changed)
    assert later.at_s - ended.at_s == pytest.approx(2.0 * 3 / 4, abs=0.05)


def test_a_long_prompt_is_announced_anew_when_speed_changes() -> None:
    model = ReplicaModel(FACTS)
    model.submit(request("a", 100_000, 1), 0.0)
    first_s = model.next_at()
    assert first_s is not None
    assert first_s == pytest.approx(FACTS.prefill_s(100_000, 0))
    model.slow(2.0, 0.1)
    assert model.next_at() == pytest.approx(2 * first_s, rel=0.05)
    assert [type(event) for event in model.advance(model.next_at() or 0.0)] == [Began, Ended]


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan")])
def test_no_time_at_all_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="a step takes some time"):
        ReplicaModel(FACTS).slow(factor, 0.0)


def test_a_crash_ends_everything_and_forgets_it() -> None:
    model = ReplicaModel(replace(FACTS, max_running_requests=2))
    wanted = [request(f"r{i}", 9_000, session=i) for i in range(4)]
    for each in wanted[:2]:
        model.submit(each, 0.0)
    events = model.advance(0.5)
    for each in wanted[2:]:
        model.submit(each, 0.5)
    events += model.crash(0.6)
    check_events(wanted, events)
    ends = [event for event in events if isinstance(event, Ended)]
    assert {(end.reason, end.at_s) for end in ends} == {(EndReason.CRASH, 0.6)}
    assert [end.output_tokens > 1 for end in ends] == [True, True, False, False]
    assert model.next_at() is None
    check_state(model)
    loads = model.loads(0.6)
    assert (loads.running, loads.waiting, loads.used_tokens, loads.cached_tokens) == (0,) * 4
    began, _ = serve(model, request("again", 9_000, session=0), 10.0)
    assert began.cached_tokens == 0


def test_a_crash_in_a_prefill_leaves_nothing_pinned() -> None:
    shared = SharedPrefixes()
    model = ReplicaModel(FACTS, shared=shared)
    model.submit(request("a", 100_000), 0.0)
    model.submit(request("b", 100_000, session=2), 0.0)
    model.advance(2.0)
    assert len(model.crash(2.0)) == 2
    assert shared.tree.pinned_pages == 0
    assert model.pool.used_pages == 0


def test_shared_prefixes_make_every_replica_warm() -> None:
    shared = SharedPrefixes()
    first, second, alone = (
        ReplicaModel(FACTS, shared=each) for each in (shared, shared, SharedPrefixes())
    )
    _, ended = serve(first, request("a", 100_000), 0.0)
    began, _ = serve(second, request("b", 101_524), ended.at_s)
    assert (began.cached_tokens, began.host_tokens) == (1_570 * PAGE, 0)
    assert began.at_s - ended.at_s == pytest.approx(
        FACTS.prefill_s(101_524 - 1_570 * PAGE, 1_570 * PAGE)
    )
    cold, _ = serve(alone, request("b", 101_524), ended.at_s)
    assert cold.cached_tokens == 0
    loads = second.loads(100.0)
    assert (loads.host_tokens, loads.host_capacity_tokens, loads.total_host_tokens) == (0, 0, 0)


def test_shared_prefixes_are_never_evicted_and_kept_once() -> None:
    """Twice as many sessions as a pool holds: only what runs counts against it."""
    shared = SharedPrefixes()
    small = replace(FACTS, capacity_tokens=200 * PAGE)
    models = [ReplicaModel(small, shared=shared) for _ in range(2)]
    now_s = 0.0
    for turn in range(3):
        for session in range(8):
            model = models[(turn + session) % 2]
            size = 5_000 + turn * 1_000
            began, ended = serve(model, request(f"{session}.{turn}", size, session=session), now_s)
            now_s = ended.at_s
            if turn:
                # The last token of the answer was never fed back.
                assert began.cached_tokens == (size - 1_000 + 499) // PAGE * PAGE
    assert shared.tree.n_pages == 8 * ((7_000 + 499) // PAGE)
    assert shared.tree.pinned_pages == 0


def test_prefill_left_is_what_it_takes() -> None:
    model = ReplicaModel(replace(FACTS, max_running_requests=1))
    assert model.prefill_left_s(0.0) == 0.0
    model.submit(request("a", 100_000, 1), 0.0)
    whole_s = FACTS.prefill_s(100_000, 0)
    assert model.prefill_left_s(0.0) == pytest.approx(whole_s)
    assert model.prefill_left_s(2.0) == pytest.approx(whole_s - 2.0)
    model.submit(request("b", 30_000, 1, session=2), 2.0)
    both_s = whole_s + FACTS.prefill_s(30_000, 0)
    assert model.prefill_left_s(2.5) == pytest.approx(both_s - 2.5)
    events = drain(model)
    assert events[-1].at_s == pytest.approx(both_s)
    assert model.prefill_left_s(events[-1].at_s) == 0.0


def test_prefill_left_follows_the_cache_and_the_speed() -> None:
    model = ReplicaModel(replace(FACTS, max_running_requests=1))
    model.submit(request("a", 50_000, 2_000), 0.0)
    model.submit(request("b", 50_064, 1), 0.0)
    cold_s = FACTS.prefill_s(50_000, 0) + FACTS.prefill_s(50_064, 0)
    assert model.prefill_left_s(0.0) == pytest.approx(cold_s)
    began_s = FACTS.prefill_s(50_000, 0) + 0.01
    warm_s = FACTS.prefill_s(50_064 - 50_000 // PAGE * PAGE, 50_000 // PAGE * PAGE)
    assert model.prefill_left_s(began_s) == pytest.approx(warm_s)
    assert isinstance(model.schedule.step, PrefillStep) is False
    model.slow(2.0, began_s)
    assert model.prefill_left_s(began_s) == pytest.approx(2 * warm_s)


def test_prefill_left_counts_the_load_from_the_host() -> None:
    model = ReplicaModel(replace(FACTS, capacity_tokens=110_016, max_running_requests=1))
    _, ended = serve(model, request("a", 100_000, session=1), 0.0)
    _, ended = serve(model, request("b", 100_000, session=2), ended.at_s)
    model.submit(request("c", 9_000, 2_000, session=3), ended.at_s)
    now_s = ended.at_s + 1.0
    model.submit(request("d", 100_064, session=1), now_s)
    left_s = model.prefill_left_s(now_s)
    events = drain(model)
    began = next(event for event in events if isinstance(event, Began) and event.rid == "d")
    free_s = next(event.at_s for event in events if isinstance(event, Ended) and event.rid == "c")
    assert began.host_tokens > 50_000
    assert began.at_s - free_s == pytest.approx(left_s, rel=0.1)


def test_accept_lengths_spread_around_the_mean_without_bias() -> None:
    def lengths(ratio: float) -> list[float]:
        facts = replace(FACTS, accept_spread_ratio=ratio)
        model = ReplicaModel(facts, dice=random.Random(3))
        found = []
        for number in range(2_000):
            model.submit(EngineRequest(str(number), 100, 1), float(number))
            found.append(model.schedule.jobs[str(number)].accept)
            model.advance(number + 0.9)
        return found

    narrow, wide = lengths(0.25), lengths(1.0)
    room = FACTS.verify_tokens - FACTS.accept_length
    for found, ratio in ((narrow, 0.25), (wide, 1.0)):
        assert fmean(found) == pytest.approx(FACTS.accept_length, rel=0.01)
        assert FACTS.accept_length - ratio * room <= min(found)
        assert max(found) <= FACTS.accept_length + ratio * room
        assert max(found) - min(found) > 1.9 * ratio * room
    assert lengths(0.0) == [FACTS.accept_length] * 2_000
    assert lengths(0.25) == narrow


def test_an_unknown_order_is_refused_before_a_model_exists() -> None:
    with pytest.raises(ValueError, match="unknown order 'best': known are"):
        ReplicaModel(FACTS, rules=EngineRules(order="best"))


def test_less_than_it_generates_cannot_have_been_asked_for() -> None:
    wanted = replace(request("a", 100, 50), output_tokens_max=49)
    with pytest.raises(ValueError, match="output of 50 tokens, but at most 49 were asked for"):
        ReplicaModel(FACTS).submit(wanted, 0.0)
