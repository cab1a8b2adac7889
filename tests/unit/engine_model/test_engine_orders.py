"""In which order waiting requests are served, and what a prompt in progress leaves for others."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from replica.hardware.profiles import profile_named
from sim.engine.checks import check_events, check_state
from sim.engine.job import Job
from sim.engine.orders import MATCHED_MAX, QUEUES
from sim.engine.pool import HostTier, KvPool
from sim.engine.prefill_step import PrefillStep
from sim.engine.replica_model import ReplicaModel
from sim.engine.requests import Began, Ended, EngineRequest, Event
from sim.engine.rules import ORDERS, EngineRules

FACTS = replace(profile_named("b200-tp4-fp8"), chunk_tokens=2_048)
PAGE = FACTS.page_tokens


def request(
    rid: str, prompt_tokens: int, output_tokens: int = 50, *, session: int, priority: int = 0
) -> EngineRequest:
    ids = array("Q", [(session << 32) + page for page in range(prompt_tokens // PAGE)])
    return EngineRequest(rid, prompt_tokens, output_tokens, ids, priority=priority)


def drain(model: ReplicaModel) -> list[Event]:
    events: list[Event] = []
    while (at_s := model.next_at()) is not None:
        events += model.advance(at_s, with_progress=False)
        check_state(model)
    return events


def began_in(events: list[Event]) -> list[str]:
    return [event.rid for event in events if isinstance(event, Began)]


def with_warm_sessions(order: str, **sizes: int) -> tuple[ReplicaModel, float]:
    """A model one request wide with these sessions cached, and the first moment it is idle."""
    model = ReplicaModel(replace(FACTS, max_running_requests=1), rules=EngineRules(order=order))
    now_s = 0.0
    for number, size in enumerate(sizes.values()):
        model.submit(request(f"warm{number}", size, 1, session=number), now_s)
        now_s = next(event.at_s for event in drain(model) if isinstance(event, Ended))
    return model, now_s


def served(order: str, *waiting: EngineRequest, **sizes: int) -> list[str]:
    """Who begins in which order after one that occupied the engine while they came."""
    model, now_s = with_warm_sessions(order, **sizes)
    first = request("first", 5_000, session=99)
    for each in (first, *waiting):
        model.submit(each, now_s)
    events = drain(model)
    check_events((first, *waiting), events)
    assert began_in(events)[0] == "first"
    return began_in(events)[1:]


WAITING = (
    request("cold", 3_000, session=50),
    request("small", 6_500, session=0),
    request("large", 30_100, session=1),
    request("large too", 31_500, session=1),
)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("fcfs", ["cold", "small", "large", "large too"]),
        ("lpm", ["large", "large too", "small", "cold"]),
        ("shortest-prefill-first", ["small", "large", "large too", "cold"]),
        ("priority", ["cold", "small", "large", "large too"]),
    ],
)
def test_each_order_serves_in_its_own_way(order: str, expected: list[str]) -> None:
    assert served(order, *WAITING, a=6_400, b=30_000) == expected


def test_priority_goes_first_and_equals_in_order_of_arrival() -> None:
    waiting = [
        request(rid, 1_000, session=50 + number, priority=priority)
        for number, (rid, priority) in enumerate([("a", 0), ("b", 5), ("c", -2), ("d", 5)])
    ]
    assert served("priority", *waiting) == ["b", "d", "a", "c"]
    assert served("fcfs", *waiting) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("order", ["lpm", "shortest-prefill-first"])
def test_one_computes_a_new_prefix_for_all_that_share_it(order: str) -> None:
    pool = KvPool(capacity_pages=1_000, host=HostTier(0))
    queue = QUEUES[order](pool, PAGE)
    for rid, size, session in (("one", 3_000, 50), ("same", 2_900, 50), ("other", 9_000, 51)):
        wanted = request(rid, size, session=session)
        lookup = pool.find(wanted.pages, len(wanted.pages))
        queue.add(Job(wanted, lookup, total_pages=200, accept=1.0))
    queue.arrange()
    assert [job.request.rid for job in queue.jobs] == ["one", "other", "same"]
    assert (queue.waiting_tokens, queue.uncached_tokens) == (14_900, 14_900)


def test_longest_prefix_is_fcfs_while_very_many_wait() -> None:
    many = [request(f"r{i}", 1_000, 1, session=150 + i) for i in range(MATCHED_MAX)]
    order = served("lpm", *many, request("warm", 6_500, session=0), a=6_400)
    assert order[:3] == ["r0", "warm", "r1"]
    assert served("lpm", *many[:-1], request("warm", 6_500, session=0), a=6_400)[0] == "warm"


def test_a_match_is_looked_up_anew_in_each_pass() -> None:
    """What the first computes makes the last the shortest."""
    model, now_s = with_warm_sessions("shortest-prefill-first")
    for rid, size, session in (("first", 6_400, 1), ("short", 2_000, 2), ("last", 6_500, 1)):
        model.submit(request(rid, size, session=session), now_s)
    assert began_in(drain(model)) == ["first", "last", "short"]


def parts_of(model: ReplicaModel) -> list[tuple[str, int]]:
    step = model.schedule.step
    assert isinstance(step, PrefillStep)
    return [(job.request.rid, n_tokens) for job, n_tokens in step.parts]


def to_next_step(model: ReplicaModel) -> float:
    step = model.schedule.step
    assert step is not None
    model.advance(step.end_s)
    return step.end_s


def test_a_long_prompt_leaves_room_in_its_chunk_for_shorter_ones() -> None:
    model = ReplicaModel(FACTS, rules=EngineRules(order="shortest-prefill-first"))
    model.submit(request("long", 20_000, session=1), 0.0)
    for rid, size, session in (("b", 1_000, 2), ("a", 300, 3), ("c", 1_900, 4)):
        model.submit(request(rid, size, session=session), 0.0)
    assert parts_of(model) == [("long", 2_048)]
    to_next_step(model)
    # 300 and 1,000 tokens are 5 and 16 pages of the 32; 1,900 would leave no page for the long one.
    assert parts_of(model) == [("long", 11 * PAGE), ("a", 300), ("b", 1_000)]
    to_next_step(model)
    assert parts_of(model) == [("long", 2 * PAGE), ("c", 1_900)]
    to_next_step(model)
    assert parts_of(model) == [("long", 2_048)]


def test_a_second_long_prompt_waits_for_the_first_one() -> None:
    model = ReplicaModel(FACTS, rules=EngineRules(order="shortest-prefill-first"))
    model.submit(request("long", 6_000, session=1), 0.0)
    model.submit(request("longer", 9_000, session=2), 0.0)
    model.submit(request("short", 100, session=3), 0.0)
    to_next_step(model)
    assert parts_of(model) == [("long", 30 * PAGE), ("short", 100)]
    to_next_step(model)
    assert parts_of(model) == [("long", 6_000 - 62 * PAGE)]
    events = drain(model)
    assert began_in(events) == ["long", "longer"]


def test_with_fcfs_short_prompts_wait_behind_a_long_one() -> None:
    model = ReplicaModel(FACTS)
    model.submit(request("long", 6_000, session=1), 0.0)
    model.submit(request("short", 100, session=2), 0.0)
    for _ in range(2):
        assert parts_of(model) == [("long", 2_048)]
        to_next_step(model)
    assert parts_of(model) == [("long", 6_000 - 4_096), ("short", 100)]


@pytest.mark.parametrize(("gap", "is_preempted"), [(10, False), (11, True)])
def test_a_far_higher_priority_takes_a_slot(gap: int, is_preempted: bool) -> None:  # noqa: FBT001
    model = ReplicaModel(
        replace(FACTS, max_running_requests=2), rules=EngineRules(order="priority")
    )
    wanted = [request(f"r{i}", 1_000, 400, session=i) for i in range(2)]
    for each in wanted:
        model.submit(each, 0.0)
    events = model.advance(0.5)
    assert began_in(events) == ["r0", "r1"]
    wanted.append(request("urgent", 1_000, 10, session=7, priority=gap))
    model.submit(wanted[-1], 0.5)
    events += drain(model)
    check_events(wanted, events)
    assert model.loads(60.0).total_retracted == int(is_preempted)
    ends = [event.rid for event in events if isinstance(event, Ended)]
    assert ends.index("urgent") == (0 if is_preempted else 2)
    if is_preempted:
        assert ends == ["urgent", "r0", "r1"]  # of equals the one that came last makes room


def test_orders_and_queues_are_the_same_list() -> None:
    assert tuple(QUEUES) == ORDERS


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"order": "lifo"},
            "unknown order 'lifo': known are fcfs, lpm, priority, shortest-prefill",
        ),
        ({"output_ratio": 1.5}, "output_ratio 1.5"),
        ({"output_ratio_floor": -0.1}, "output_ratio_floor -0.1"),
        ({"decay_steps": 0}, "decay_steps 0"),
        ({"min_free_slots": 0}, "min_free_slots 0"),
    ],
)
def test_rules_out_of_range_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EngineRules(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rules", "n_running_max"),
    [
        (EngineRules(), 9),
        (EngineRules(min_free_slots=None), 8),
        (EngineRules(min_free_slots=4), 6),
    ],
)
def test_prompts_wait_for_several_free_slots(rules: EngineRules, n_running_max: int) -> None:
    """Of 10 slots, one request after the other takes some: with a drafter two have to be free."""
    model = ReplicaModel(replace(FACTS, max_running_requests=10), rules=rules)
    now_s = 0.0
    for number in range(12):
        model.submit(request(str(number), 100, 2_000, session=number), now_s)
        now_s += 0.1
        model.advance(now_s)
    assert model.loads(now_s).running == n_running_max + 1
    check_state(model)


def test_free_slots_are_those_of_sglang() -> None:
    rules = EngineRules(min_free_slots=None)
    with_draft = [rules.free_slots_for(limit, has_draft=True) for limit in (7, 8, 16, 48)]
    assert with_draft == [1, 2, 3, 4]
    assert rules.free_slots_for(16, has_draft=False) == 1
