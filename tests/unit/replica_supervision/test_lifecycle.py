"""One supervised engine's life, row by row of the state table."""

from __future__ import annotations

import random

import pytest

from replica.lifecycle import Fault, Lifecycle, Order, Rules, State

RULES = Rules(
    start_s_max=100.0,
    warm_s_max=50.0,
    drain_s_max=60.0,
    stop_s_max=10.0,
    kill_s_max=5.0,
    restarts_max=3,
    restart_window_s=600.0,
    backoff_s_min=1.0,
    backoff_s_max=8.0,
)
CRASH = Fault("crashed", "it fell over")
WRONG = Fault("no-engine", "there is no such program", heals=False)


def new(rules: Rules = RULES) -> Lifecycle:
    return Lifecycle(rules, random.Random(7))


def ready(rules: Rules = RULES) -> Lifecycle:
    """At 3 s."""
    life = new(rules)
    assert life.begin(0.0) == [Order.PREPARE]
    assert life.prepared(1.0) == [Order.START]
    assert life.answered(2.0) == [Order.WARM]
    assert life.warmed(3.0) == [Order.JOIN]
    return life


def started_again(life: Lifecycle) -> float:
    """Its back-off is over, and it is ready again; answers when."""
    at_s = life.next_s
    assert at_s is not None
    assert life.tick(at_s) == [Order.PREPARE]
    life.prepared(at_s)
    life.answered(at_s)
    assert life.warmed(at_s) == [Order.JOIN]
    return at_s


def test_it_is_prepared_started_warmed_and_joined_in_this_order() -> None:
    life = new()
    seen = [life.state]
    life.begin(0.0)
    for step in (life.prepared, life.answered, life.warmed):
        step(1.0)
        seen.append(life.state)
    assert seen == [State.PREPARING, State.STARTING, State.WARMING, State.READY]
    assert life.next_s is None


def test_a_stop_tells_the_routers_first_and_the_engine_when_they_let_go() -> None:
    life = ready()
    assert life.stop(10.0) == [Order.LEAVE]
    assert life.state is State.DRAINING
    assert life.left(20.0) == [Order.TERM]
    assert life.ended(None, 25.0) == []
    assert life.state is State.STOPPED
    assert not life.is_cut


def test_routers_that_do_not_let_go_are_waited_for_until_the_deadline() -> None:
    life = ready()
    life.stop(10.0)
    assert life.tick(69.9) == []
    assert life.tick(70.0) == [Order.TERM]
    assert life.is_cut
    assert life.next_s == 80.0  # it has stop_s_max left at least
    assert life.tick(80.0) == [Order.KILL]
    life.ended(None, 80.1)
    assert life.state is State.STOPPED


def test_what_routers_leave_of_the_deadline_is_the_engines() -> None:
    life = ready()
    life.stop(10.0)
    life.left(15.0)
    assert life.next_s == 70.0
    assert life.tick(70.0) == [Order.KILL]
    assert life.is_cut


@pytest.mark.parametrize("n_steps", [0, 1, 2, 3])
def test_a_second_signal_ends_everything_at_once(n_steps: int) -> None:
    life = new()
    life.begin(0.0)
    for step in (life.prepared, life.answered, life.warmed)[:n_steps]:
        step(1.0)
    life.stop(2.0)
    orders = life.stop_now(2.1)
    assert orders == ([Order.KILL] if n_steps else [])
    life.ended(None, 2.2)
    assert life.state is State.STOPPED
    assert life.is_cut is (n_steps == 3)


def test_a_stop_before_it_is_ready_cuts_nobody_off() -> None:
    life = new()
    life.begin(0.0)
    life.prepared(1.0)
    assert life.stop(2.0) == [Order.TERM]
    assert life.next_s == 12.0  # not the whole drain
    assert life.tick(12.0) == [Order.KILL]
    life.ended(None, 12.1)
    assert (life.state, life.is_cut) == (State.STOPPED, False)


def test_a_crash_withdraws_it_and_starts_it_again_after_a_pause() -> None:
    life = ready()
    assert life.ended(CRASH, 10.0) == [Order.WITHDRAW]
    assert life.state is State.PREPARING
    assert life.is_backing_off
    assert life.next_s is not None
    assert 10.5 <= life.next_s <= 11.0
    assert life.restarts_total == 1


def test_an_end_without_a_fault_is_a_fault_unless_it_was_asked_for() -> None:
    life = ready()
    life.ended(None, 10.0)
    assert life.state is State.PREPARING
    assert life.fault is not None
    assert life.fault.code == "exited-early"


def test_pauses_grow_up_to_their_limit_and_the_last_restart_is_the_last() -> None:
    life = ready()
    at_s, pauses = 10.0, []
    for _ in range(RULES.restarts_max):
        life.ended(CRASH, at_s)
        assert life.next_s is not None
        pauses.append(life.next_s - at_s)
        at_s = started_again(life) + 1.0
    for pause, longest in zip(pauses, (1.0, 2.0, 4.0), strict=True):
        assert longest / 2 <= pause <= longest
    life.ended(CRASH, at_s)
    assert life.state is State.FAILED
    assert life.fault == CRASH


def test_faults_that_lie_far_apart_do_not_add_up() -> None:
    life = ready()
    at_s = 10.0
    for _ in range(4 * RULES.restarts_max):
        life.ended(CRASH, at_s)
        started_again(life)
        at_s += RULES.restart_window_s / 2
    assert life.state is State.READY


def test_no_restart_where_none_is_wanted() -> None:
    life = ready(Rules(restarts_max=0))
    life.ended(CRASH, 10.0)
    assert life.state is State.FAILED


def test_what_no_restart_heals_is_final_before_it_was_ever_ready() -> None:
    life = new()
    life.begin(0.0)
    assert life.failed(WRONG, 1.0) == []
    assert life.state is State.FAILED
    assert life.fault == WRONG


def test_what_was_right_once_may_be_right_again() -> None:
    life = ready()
    life.ended(CRASH, 10.0)
    assert life.next_s is not None
    life.tick(life.next_s)
    life.failed(WRONG, 12.0)
    assert life.state is State.PREPARING
    assert life.is_backing_off


def test_a_hang_withdraws_it_kills_it_and_waits_until_it_is_gone() -> None:
    life = ready()
    hung = Fault("hung", "it stands still")
    assert life.failed(hung, 10.0) == [Order.WITHDRAW, Order.KILL]
    assert not life.is_backing_off
    assert life.ended(CRASH, 10.2) == []
    assert life.is_backing_off
    assert life.fault == hung  # and not that it was killed


def test_processes_that_do_not_go_are_a_failure_of_their_own() -> None:
    life = ready()
    life.failed(Fault("hung", "it stands still"), 10.0)
    assert life.tick(15.0) == []
    assert life.state is State.FAILED
    assert life.fault is not None
    assert life.fault.code == "not-ended"


@pytest.mark.parametrize(
    ("n_steps", "deadline_s", "code"), [(1, 101.0, "start-timeout"), (2, 51.0, "warmup-failed")]
)
def test_a_start_has_deadlines(n_steps: int, deadline_s: float, code: str) -> None:
    life = new()
    life.begin(0.0)
    for step in (life.prepared, life.answered)[:n_steps]:
        step(1.0)
    assert life.next_s == deadline_s
    assert life.tick(deadline_s) == [Order.KILL]
    life.ended(None, deadline_s + 1)
    assert life.fault is not None
    assert life.fault.code == code


def test_a_crash_in_the_drain_is_an_end_that_cut_requests_off() -> None:
    life = ready()
    life.stop(10.0)
    life.ended(CRASH, 11.0)
    assert (life.state, life.is_cut) == (State.STOPPED, True)


def test_a_hang_in_the_drain_is_killed() -> None:
    life = ready()
    life.stop(10.0)
    assert life.failed(Fault("hung", "it stands still"), 12.0) == [Order.KILL]
    life.ended(None, 12.5)
    assert (life.state, life.is_cut) == (State.STOPPED, True)


def test_a_stop_while_it_waits_for_its_next_start_is_a_stop() -> None:
    life = ready()
    life.ended(CRASH, 10.0)
    assert life.stop(10.1) == []
    assert life.state is State.STOPPED


def test_a_stop_while_the_last_engine_is_being_killed_waits_for_that() -> None:
    life = ready()
    life.failed(Fault("hung", "it stands still"), 10.0)
    assert life.stop(10.1) == []
    assert life.stop_now(10.2) == []
    assert life.state is State.PREPARING
    life.ended(None, 10.3)
    assert life.state is State.STOPPED


def test_answers_that_come_too_late_change_nothing() -> None:
    life = ready()
    life.ended(CRASH, 10.0)
    for late in (life.prepared, life.answered, life.warmed, life.left):
        assert late(10.1) == []
    assert life.failed(CRASH, 10.2) == []
    assert life.ended(CRASH, 10.3) == []
    assert life.is_backing_off


def test_an_engine_that_ends_badly_before_anybody_used_it_cuts_nobody_off() -> None:
    life = new()
    life.begin(0.0)
    life.prepared(1.0)
    life.stop(2.0)
    life.ended(CRASH, 3.0)
    assert (life.state, life.is_cut) == (State.STOPPED, False)
