"""What an operator does to a running fleet: weights, limits, pins, moves, a cache forgotten."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec import structs

from router.core import CoreParameters
from router.errors import ConnectFailed, Refused
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event
from router.state.history import Outcome
from router.state.wishes import Wish, Wishes
from tests.doubles.core_rig import all_idle, make_core, serve
from tests.doubles.prompts import prompt


def homes(core: object, n: int, *, first: int = 0) -> Counter[str]:
    """Where so many new sessions, one after the other, are placed."""
    return Counter(
        serve(core, prompt([900, key, key + 1], key=f"s{key}"), 1.0)  # type: ignore[arg-type]
        for key in range(first, first + n)
    )


# Weight


def test_new_sessions_are_shared_out_by_weight() -> None:
    core = make_core(3)
    assert core.operating.weigh("r0", 4.0)
    assert core.operating.weigh("r2", 0.5)
    found = homes(core, 110)
    assert found["r0"] == pytest.approx(80, abs=8)
    assert found["r1"] == pytest.approx(20, abs=6)
    assert found["r2"] == pytest.approx(10, abs=5)


def test_a_weight_counts_in_what_policies_read_and_not_in_what_is_so() -> None:
    core = make_core(1)
    for key in range(8):
        core.arrive(prompt([key], key=f"s{key}"), 0.0)
    replica = core.fleet.get("r0")
    assert replica is not None
    true_s, prefill_s = replica.prefill_ahead_s, replica.prefill_s(5_000, 100)
    assert true_s > 0
    core.operating.weigh("r0", 0.25)
    assert replica.prefill_ahead_s == true_s
    assert replica.backlog_s == pytest.approx(4 * true_s)
    assert replica.prefill_s(5_000, 100) == pytest.approx(4 * prefill_s)
    assert replica.rate.prefill_s(5_000, 100) == prefill_s
    added = core.arrive(prompt([77], key="s77"), 0.0)
    assert added.entry.prefill_us == round(added.price.prefill_s / 4 * 1e6) > 0
    core.finish(added, Outcome.DONE, 1.0)
    core.operating.weigh("r0", 1.0)
    assert (replica.backlog_s, replica.prefill_s(5_000, 100)) == (true_s, prefill_s)


def test_the_ledger_is_empty_in_the_end_whatever_weights_did_meanwhile() -> None:
    core = make_core(2)
    tickets = [core.arrive(prompt([n], key=f"s{n}"), 0.0) for n in range(9)]
    core.operating.weigh("r0", 0.01)
    tickets += [core.arrive(prompt([n], key=f"s{n}"), 0.0) for n in range(9, 15)]
    core.operating.weigh("r0", 7.0)
    for ticket in tickets:
        core.began(ticket, 1.0)
        core.finish(ticket, Outcome.DONE, 2.0)
    assert all_idle(core)


def test_weight_and_limit_outlive_the_replica() -> None:
    core = make_core(2)
    core.operating.weigh("r0", 2.0)
    core.operating.limit("r0", 3)
    core.members.leave("r0")
    replica = core.members.join(ReplicaSpec("r0", "h", 1, inflight_max=9), 1.0)
    assert (replica.weight, replica.inflight_max) == (2.0, 3)
    core.operating.limit("r0", None)
    assert (replica.weight, replica.inflight_max) == (2.0, 9)


def test_wishes_are_bounded_and_those_taken_back_cost_nothing() -> None:
    wishes = Wishes(wishes_max=2)
    wishes.weigh("a", 2.0)
    wishes.limit("b", 5)
    wishes.weigh("a", 1.0)
    wishes.weigh("c", 3.0)
    assert [wishes.of(name) for name in "abc"] == [Wish(), Wish(1.0, 5), Wish(3.0)]
    wishes.weigh("d", 3.0)
    assert [wishes.of(name) for name in "bcd"] == [Wish(), Wish(3.0), Wish(3.0)]


# Limit


def test_a_limit_holds_from_when_it_is_set_until_it_is_taken_back() -> None:
    core = make_core(1)
    tickets = [core.arrive(prompt([n], key=f"s{n}"), 0.0) for n in range(3)]
    assert core.operating.limit("r0", 2)
    with pytest.raises(Refused, match="limit of requests in flight"):
        core.arrive(prompt([7], key="s7"), 0.0)
    for ticket in tickets[:2]:  # those beyond the limit end as they would
        core.finish(ticket, Outcome.DONE, 1.0)
    core.arrive(prompt([8], key="s8"), 1.0)
    with pytest.raises(Refused):
        core.arrive(prompt([9], key="s9"), 1.0)
    core.operating.limit("r0", None)
    core.arrive(prompt([9], key="s9"), 1.0)


def test_a_limit_taken_back_leaves_the_routers_own() -> None:
    core = make_core(1, parameters=CoreParameters(inflight_max=1))
    core.operating.limit("r0", 2)
    for n in range(2):
        core.arrive(prompt([n], key=f"s{n}"), 0.0)
    core.operating.limit("r0", None)
    replica = core.fleet.get("r0")
    assert replica is not None
    assert replica.inflight_max == 1


# Sessions


def test_a_pinned_session_stays_where_another_would_be_cheaper() -> None:
    core = make_core(2)
    serve(core, prompt([1, 2], key="s"), 0.0)
    pin = core.pins.get("s")
    assert pin is not None
    other = "r1" if pin.home_id == "r0" else "r0"
    core.operating.fix("s", other, 1.0)
    assert pin.home_id == other
    for n in range(30):  # a backlog that any policy would flee from
        core.ledger.open(other, f"x{n}", tokens=100_000, prefill_s=5.0)
    for turn in range(3):
        ticket = core.arrive(prompt([1, 2, *range(3, 4 + turn)], key="s"), 100.0 + turn)
        assert (ticket.replica_id, ticket.reason) == (other, "pinned")
    core.operating.release("s")
    ticket = core.arrive(prompt([1, 2, 3], key="s"), 200.0)
    assert (ticket.replica_id == other, ticket.reason) == (False, "move")


def test_a_pin_gives_way_while_its_replica_cannot_and_comes_back() -> None:
    core = make_core(2)
    serve(core, prompt([1], key="s"), 0.0)
    core.operating.fix("s", "r0", 1.0)
    core.members.heard("r0", Event.CONNECT_FAILED, 2.0)
    assert serve(core, prompt([1, 2], key="s"), 3.0) == "r1"
    core.members.heard("r0", Event.PROBE_OK, 4.0)
    assert serve(core, prompt([1, 2, 3], key="s"), 5.0) == "r0"
    core.operating.limit("r0", 1)
    core.arrive(prompt([1, 2, 3, 4], key="s"), 6.0)
    away = core.arrive(prompt([1, 2, 3, 4, 5], key="s"), 7.0)
    assert (away.replica_id, away.reason) == ("r1", "spill")
    core.members.leave("r0")
    assert serve(core, prompt([1, 2, 3, 4, 5, 6], key="s"), 9.0) == "r1"


def test_a_failed_request_of_a_pinned_session_goes_elsewhere() -> None:
    core = make_core(2)
    serve(core, prompt([1], key="s"), 0.0)
    core.operating.fix("s", "r0", 1.0)
    ticket = core.arrive(prompt([1, 2], key="s"), 2.0)
    assert core.retry(ticket, ConnectFailed("connect-timeout", "x"), 3.0)
    assert (ticket.replica_id, ticket.reason) == ("r1", "retry")


def test_a_pin_ends_when_its_time_is_over() -> None:
    core = make_core(2)
    serve(core, prompt([1], key="s"), 0.0)
    core.operating.fix("s", "r1", 1.0, for_s=10.0)
    assert core.arrive(prompt([1, 2], key="s"), 10.9).reason == "pinned"
    assert core.arrive(prompt([1, 2], key="s"), 11.0).reason != "pinned"


def test_requests_that_are_no_turns_or_bound_elsewhere_do_not_follow_a_pin() -> None:
    core = make_core(2)
    serve(core, prompt([1], key="s"), 0.0)
    core.operating.fix("s", "r0", 1.0)
    bound = core.arrive(structs.replace(prompt([1, 2], key="s"), bound_to="r1"), 2.0)
    assert (bound.replica_id, bound.reason) == ("r1", "holder")


def test_a_moved_session_has_its_home_there_and_no_pin_any_more() -> None:
    core = make_core(2)
    serve(core, prompt([1, 2], key="s"), 0.0)
    core.operating.fix("s", "r0", 1.0)
    pin = core.operating.move("s", "r1", 2.0)
    assert pin is not None
    assert (pin.home_id, pin.homed_s, pin.fixed_to(2.0)) == ("r1", 2.0, "")
    ticket = core.arrive(prompt([1, 2, 3], key="s"), 3.0)
    assert (ticket.replica_id, ticket.reason) == ("r1", "home")


def test_the_working_sets_follow_a_session_that_is_moved() -> None:
    core = make_core(2)
    serve(core, prompt([1, 2], key="s"), 0.0)
    r0, r1 = core.fleet.replicas()
    tokens = r0.live_tokens + r1.live_tokens
    for target, other in ((r0, r1), (r1, r0)):
        core.operating.move("s", target.replica_id, 1.0)
        assert (target.live_sessions, target.live_tokens) == (1, tokens)
        assert (other.live_sessions, other.live_tokens) == (0, 0)
    core.pins.expire(5_000.0)  # it is idle now
    core.operating.move("s", "r0", 5_001.0)
    assert (r0.live_sessions, r1.live_sessions) == (0, 0)
    serve(core, prompt([1, 2], key="s"), 5_002.0)
    assert (r0.live_sessions, r1.live_sessions) == (1, 0)


# A cache


def test_a_forgotten_cache_is_believed_to_be_empty() -> None:
    core = make_core(2)
    home = serve(core, prompt([1, 2, 3], key="s"), 0.0)
    held = core.index.held_bytes(home)
    assert held > 0
    assert core.operating.forget(home) == held
    assert core.index.held_bytes(home) == 0
    assert core.operating.forget(home) == 0
    assert core.arrive(prompt([1, 2, 3, 4], key="s"), 1.0).cached_tokens == 0


def test_nothing_is_done_to_who_is_not_known() -> None:
    core = make_core(1)
    operating = core.operating
    assert operating.weigh("r9", 2.0) is None
    assert operating.limit("r9", 2) is None
    assert operating.forget("r9") is None
    assert operating.release("nobody") is None
    assert operating.fix("nobody", "r0", 0.0) is None
    serve(core, prompt([1], key="s"), 0.0)
    assert operating.fix("s", "r9", 0.0) is None
    assert operating.move("s", "r9", 0.0) is None
    pin = core.pins.get("s")
    assert pin is not None
    assert (pin.home_id, pin.fixed_to(0.0)) == ("r0", "")
