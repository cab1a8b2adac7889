"""One replica at its boundary: times, hits, tiers, limits, cancelling."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace

import pytest

from replica.hardware.profiles import EngineFacts, profile_named
from sim.engine.checks import check_events, check_state
from sim.engine.replica_model import ReplicaModel
from sim.engine.requests import (
    Began,
    Ended,
    EndReason,
    EngineRequest,
    Event,
    Progress,
    PromptTooLong,
    QueueFull,
)

FACTS = profile_named("b200-tp4-fp8")
PAGE = FACTS.page_tokens


def request(
    rid: str, prompt_tokens: int, output_tokens: int = 500, *, session: int = 1
) -> EngineRequest:
    """A prompt of this session: a longer one continues a shorter one."""
    first = prompt_tokens // PAGE
    last = (prompt_tokens + output_tokens) // PAGE
    ids = [(session << 32) + i for i in range(last)]
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
    """Serve one request alone."""
    model.submit(wanted, now_s)
    began, ended = drain(model)
    assert isinstance(began, Began)
    assert isinstance(ended, Ended)
    return began, ended


@pytest.mark.parametrize(
    ("prompt_tokens", "ttft_s"), [(8_192, 0.171), (32_768, 0.97), (100_000, 5.4)]
)
def test_cold_prompts_take_the_published_times(prompt_tokens: int, ttft_s: float) -> None:
    began, ended = serve(ReplicaModel(FACTS), request("a", prompt_tokens), 50.0)
    assert began.at_s - 50.0 == pytest.approx(ttft_s, rel=0.02)
    assert (began.cached_tokens, began.host_tokens) == (0, 0)
    assert (ended.n_tokens, ended.output_tokens, ended.reason) == (499, 500, EndReason.STOP)
    tpot_s = (ended.at_s - began.at_s) / 499
    assert tpot_s == pytest.approx(FACTS.step_s(1, prompt_tokens + 250) / 5.84, rel=0.01)


def test_a_warm_turn_computes_only_what_is_new() -> None:
    model = ReplicaModel(FACTS)
    _, ended = serve(model, request("a", 100_000), 0.0)
    began, _ = serve(model, request("b", 101_524), ended.at_s)
    # The last output token has no KV, so at most 100,499 tokens are there: 1,570 pages.
    assert began.cached_tokens == 1_570 * PAGE
    assert began.host_tokens == 0
    assert began.at_s - ended.at_s == pytest.approx(0.115, rel=0.1)


@pytest.mark.parametrize("prompt_tokens", [1, 63, 64, 65, 128, 6_400, 6_401])
def test_at_least_one_token_is_computed(prompt_tokens: int) -> None:
    model = ReplicaModel(FACTS)
    _, ended = serve(model, request("a", prompt_tokens), 0.0)
    began, _ = serve(model, request("b", prompt_tokens), ended.at_s)
    assert began.cached_tokens == (prompt_tokens - 1) // PAGE * PAGE


def test_sessions_share_a_common_head() -> None:
    model = ReplicaModel(FACTS)
    head = array("Q", range(200))
    cached = []
    for i in (1, 2):
        ids = head + array("Q", [(i << 32) + k for k in range(100)])
        began, _ = serve(model, EngineRequest(f"r{i}", 300 * PAGE, 10, ids), 100.0 * i)
        cached.append(began.cached_tokens)
    assert cached == [0, 200 * PAGE]


def test_one_output_token_ends_with_the_prefill() -> None:
    began, ended = serve(ReplicaModel(FACTS), request("a", 5_000, 1), 0.0)
    assert ended.at_s == began.at_s
    assert (ended.n_tokens, ended.output_tokens) == (0, 1)


def test_a_prefix_is_loaded_back_from_the_host() -> None:
    facts = replace(FACTS, capacity_tokens=110_016)
    model = ReplicaModel(facts)
    now_s = 0.0
    for name, session in (("a", 1), ("b", 2)):
        _, ended = serve(model, request(name, 100_000, session=session), now_s)
        now_s = ended.at_s
    began, _ = serve(model, request("c", 100_100), now_s)
    assert began.cached_tokens == 1_564 * PAGE
    assert began.host_tokens > 80_000
    # 70 ms for 100k tokens, and meanwhile one small chunk, layer by layer behind the load.
    load_s = began.host_tokens * facts.host_load_s_per_token
    chunk_s = facts.times.prefill_s(100_100 - began.cached_tokens, began.cached_tokens)
    assert load_s > chunk_s
    assert began.at_s - now_s == pytest.approx(load_s + chunk_s / 61)


def test_without_host_memory_it_is_computed_again() -> None:
    model = ReplicaModel(replace(FACTS, capacity_tokens=110_016, host_capacity_tokens=0))
    now_s = 0.0
    for name, session in (("a", 1), ("b", 2)):
        _, ended = serve(model, request(name, 100_000, session=session), now_s)
        now_s = ended.at_s
    began, _ = serve(model, request("c", 100_100), now_s)
    assert began.host_tokens == 0
    assert began.cached_tokens < 10_000


@pytest.mark.parametrize(("sessions", "low", "high"), [(4, 0.75, 0.80), (7, 0.0, 0.0)])
def test_hits_collapse_when_live_sessions_outgrow_the_pool(
    sessions: int, low: float, high: float
) -> None:
    model = ReplicaModel(replace(FACTS, host_capacity_tokens=0))
    now_s = 0.0
    for turn in range(5):
        for session in range(sessions):
            size = 95_000 + 1_000 * turn
            _, ended = serve(model, request(f"{session}.{turn}", size, session=session), now_s)
            now_s = ended.at_s
    assert low <= model.loads(now_s).hit_ratio <= high


def test_decode_waits_while_others_prefill() -> None:
    model = ReplicaModel(FACTS)
    model.submit(request("a", 1_000, 2_000), 0.0)
    model.advance(1.0)
    model.submit(request("b", 60_000, 10, session=2), 1.0)
    events = model.advance(3.0)
    assert [type(event) for event in events] == [Progress]
    assert isinstance(events[0], Progress)
    assert events[0].n_tokens <= 7
    began = [event for event in drain(model) if isinstance(event, Began)]
    assert [event.rid for event in began] == ["b"]
    expected_s = FACTS.prefill_s(60_000, 0)
    assert 1.0 + expected_s < began[0].at_s < 1.0 + expected_s + 0.02


def test_small_prompts_share_a_step_and_large_ones_follow_in_order() -> None:
    model = ReplicaModel(FACTS)
    model.submit(request("first", 9_000, 10, session=9), 0.0)
    for i in range(4):
        model.submit(request(f"s{i}", 1_500, 10, session=i), 0.0)
    began = [event for event in drain(model) if isinstance(event, Began)]
    assert [event.rid for event in began] == ["first", "s0", "s1", "s2", "s3"]
    assert len({event.at_s for event in began}) == 1


def test_admission_is_in_order_of_arrival_and_bounded_by_the_pool() -> None:
    model = ReplicaModel(replace(FACTS, capacity_tokens=100_032))
    model.submit(request("a", 60_000, 100, session=1), 0.0)
    model.submit(request("b", 60_000, 100, session=2), 0.0)
    model.submit(request("c", 1_000, 100, session=3), 0.0)
    model.advance(2.0)
    loads = model.loads(2.0)
    assert (loads.running, loads.waiting) == (1, 2)
    assert loads.waiting_uncached_tokens == 61_000
    events = drain(model)
    order = [event.rid for event in events if isinstance(event, Began)]
    assert order == ["a", "b", "c"]
    ended_a = next(e.at_s for e in events if isinstance(e, Ended) and e.rid == "a")
    began_b = next(e.at_s for e in events if isinstance(e, Began) and e.rid == "b")
    assert began_b > ended_a


def test_no_more_run_than_may() -> None:
    model = ReplicaModel(replace(FACTS, max_running_requests=3))
    for i in range(5):
        model.submit(request(f"r{i}", 2_000, 50, session=i), 0.0)
    most = 0
    while (at_s := model.next_at()) is not None:
        model.advance(at_s)
        most = max(most, model.loads(at_s).running)
        check_state(model)
    assert most == 3


def test_a_full_queue_refuses_and_keeps_nothing() -> None:
    model = ReplicaModel(replace(FACTS, max_running_requests=1), max_queued_requests=2)
    for i in range(3):
        model.submit(request(f"r{i}", 50_000, 10, session=i), 0.0)
    with pytest.raises(QueueFull, match="2 requests wait already"):
        model.submit(request("r3", 50_000, 10), 0.0)
    assert model.loads(0.0).waiting == 2
    assert {event.rid for event in drain(model)} == {"r0", "r1", "r2"}


def test_what_can_never_fit_is_refused() -> None:
    with pytest.raises(PromptTooLong, match="exceed the context window of 262144"):
        ReplicaModel(FACTS).submit(request("a", 262_000, 145), 0.0)
    with pytest.raises(PromptTooLong, match="exceed the KV pool of 64000"):
        ReplicaModel(replace(FACTS, capacity_tokens=64_000)).submit(request("a", 63_990, 11), 0.0)
    ReplicaModel(replace(FACTS, capacity_tokens=64_000)).submit(request("a", 63_990, 10), 0.0)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (EngineRequest("a", 0, 1), "each is at least 1"),
        (EngineRequest("a", 1, 0), "each is at least 1"),
        (EngineRequest("busy", 100, 1), "'busy' is active"),
    ],
)
def test_malformed_requests_are_refused(wanted: EngineRequest, message: str) -> None:
    model = ReplicaModel(FACTS)
    model.submit(request("busy", 10_000), 0.0)
    with pytest.raises(ValueError, match=message):
        model.submit(wanted, 0.0)
    check_events([request("busy", 10_000)], drain(model))


def test_cancel_while_waiting() -> None:
    model = ReplicaModel(replace(FACTS, max_running_requests=1))
    wanted = [request(f"r{i}", 20_000, 10, session=i) for i in range(3)]
    for each in wanted:
        model.submit(each, 0.0)
    assert model.cancel("r1", 0.1)
    assert not model.cancel("r1", 0.1)
    events = model.advance(0.1)
    assert events == [Ended("r1", 0.1, 0, 0, EndReason.ABORT)]
    loads = model.loads(0.1)
    assert (loads.waiting, loads.waiting_uncached_tokens) == (1, 20_000)
    events += drain(model)
    check_events(wanted, events)


def test_cancel_during_prefill_keeps_the_chunks_before_the_one_in_progress() -> None:
    model = ReplicaModel(FACTS)
    model.submit(request("a", 100_000), 0.0)
    assert model.cancel("a", 1.0)
    assert not model.flush(1.0)
    events = drain(model)
    assert events == [Ended("a", 1.0, 0, 0, EndReason.ABORT)]
    idle = model.loads(2.0)
    assert (idle.running, idle.used_tokens) == (0, 0)
    assert idle.total_prefill_uncached_tokens == 5 * 8_192
    assert idle.cached_tokens == 4 * 8_192
    began, _ = serve(model, request("b", 100_000), 2.0)
    assert began.cached_tokens == 4 * 8_192


def test_cancel_during_decode_keeps_what_was_generated() -> None:
    model = ReplicaModel(FACTS)
    wanted = request("a", 10_000, 5_000)
    model.submit(wanted, 0.0)
    events = model.advance(4.0)
    assert model.cancel("a", 5.0)
    events += model.advance(5.0)
    ended = events[-1]
    assert isinstance(ended, Ended)
    assert 1_000 < ended.output_tokens < 4_000
    check_events([wanted], events)
    assert drain(model) == []
    loads = model.loads(6.0)
    assert loads.cached_tokens == (10_000 + ended.output_tokens - 1) // PAGE * PAGE
    assert (loads.total_ended, loads.total_aborted) == (1, 1)
    assert loads.total_generated_tokens == ended.output_tokens


def test_a_rid_may_come_again_after_its_end() -> None:
    model = ReplicaModel(FACTS)
    model.submit(request("a", 100_000), 0.0)
    model.cancel("a", 0.5)
    model.submit(request("a", 100_000), 0.5)
    ends = [event for event in drain(model) if isinstance(event, Ended)]
    assert [event.reason for event in ends] == [EndReason.ABORT, EndReason.STOP]


def test_events_of_another_call_are_announced() -> None:
    model = ReplicaModel(FACTS)
    assert model.next_at() is None
    model.submit(request("a", 1_000, 1), 0.0)
    model.loads(5.0)
    assert model.next_at() == 5.0
    assert [type(event) for event in model.advance(5.0)] == [Began, Ended]
    assert model.next_at() is None


def test_flush_only_while_idle() -> None:
    model = ReplicaModel(FACTS)
    assert model.flush(0.0)
    model.submit(request("a", 1_000), 0.0)
    assert not model.flush(0.001)
    (*_, ended) = drain(model)
    assert model.flush(ended.at_s)
    began, _ = serve(model, request("b", 1_000), ended.at_s)
    assert began.cached_tokens == 0


def test_loads_count_up_to_the_moment() -> None:
    model = ReplicaModel(FACTS)
    model.submit(request("a", 10_000, 1_000), 0.0)
    early = model.loads(0.0)
    assert (early.running, early.used_tokens) == (1, 8_192)
    assert early.total_prefill_uncached_tokens == 0
    later = model.loads(1.5)
    assert later.total_prefill_uncached_tokens == 10_000
    assert later.total_prefill_busy_s == pytest.approx(FACTS.prefill_s(10_000, 0))
    assert 1 < later.total_generated_tokens < 1_000
    # Two verify windows are allocated ahead.
    assert later.used_tokens == -(-(10_000 + later.total_generated_tokens - 1 + 16) // PAGE) * PAGE
    assert later.usage_ratio == later.used_tokens / FACTS.capacity_tokens
    drain(model)
    last = model.loads(60.0)
    assert (last.total_generated_tokens, last.total_ended, last.used_tokens) == (1_000, 1, 0)
    assert last.total_verify_steps == 172  # 999 tokens at 5.84 a step
    assert last.host_tokens == last.cached_tokens


def test_prefill_rate_matches_the_counters() -> None:
    """Uncached tokens over busy time, as a router reads it, is the closed form's rate."""
    model = ReplicaModel(FACTS)
    serve(model, request("a", 8_192, 1), 0.0)
    loads = model.loads(10.0)
    rate = loads.total_prefill_uncached_tokens / loads.total_prefill_busy_s
    assert rate == pytest.approx(4 * 11_800, rel=0.05)  # published per GPU


def test_time_does_not_go_back() -> None:
    model = ReplicaModel(FACTS)
    model.advance(-5.0)
    model.advance(-5.0)
    with pytest.raises(AssertionError, match=r"time went back from -5\.0 to -6\.0"):
        model.advance(-6.0)
    with pytest.raises(AssertionError, match="time went back"):
        model.advance(float("nan"))


def test_dice_spread_the_accept_length_around_its_mean() -> None:
    def durations(dice: random.Random | None) -> list[float]:
        model = ReplicaModel(FACTS, dice=dice)
        found = []
        for i in range(200):
            began, ended = serve(model, request(f"r{i}", 1_000, 1_000), 100.0 * i)
            found.append(ended.at_s - began.at_s)
        return found

    steady, first, second = (durations(dice) for dice in (None, random.Random(7), random.Random(7)))
    assert first == second
    assert max(steady) == pytest.approx(min(steady))
    assert max(first) > 1.2 * min(first)
    assert sum(first) == pytest.approx(sum(steady), rel=0.04)


@pytest.mark.parametrize(
    "broken",
    [
        replace(FACTS, chunk_tokens=100),
        replace(FACTS, max_running_requests=0),
        replace(FACTS, accept_length=9.0),
    ],
)
def test_facts_that_contradict_themselves_are_noticed(broken: EngineFacts) -> None:
    with pytest.raises(AssertionError):
        ReplicaModel(broken)
