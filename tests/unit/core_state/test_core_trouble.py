"""The core when replicas fail, fill, drain, come and go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.core import CoreParameters
from router.dialect.base import Usage
from router.errors import ConnectFailed, Refused, UpstreamProtocol, UpstreamStatus
from router.state.fleet.replica import Observation, ReplicaSpec
from router.state.health.table import Event, State
from router.state.history import Outcome
from tests.doubles.core_rig import all_idle, make_core, serve
from tests.doubles.prompts import prompt


def test_a_refused_connection_rehomes_a_session_once() -> None:
    core = make_core()
    home = serve(core, prompt([1, 2], key="s"), 0.0)
    ticket = core.arrive(prompt([1, 2, 3], key="s"), 10.0)
    assert ticket.replica_id == home
    assert core.retry(ticket, ConnectFailed("connect-failed", "refused"), 10.1)
    second = ticket.replica_id
    assert second != home
    core.finish(ticket, Outcome.DONE, 11.0, usage=Usage(3_000, 10, 0))
    dead = core.fleet.get(home)
    assert dead is not None
    assert dead.state is State.DOWN
    assert serve(core, prompt([1, 2, 3, 4], key="s"), 20.0) == second
    # Its cache is gone; it comes back empty and the session stays where it went.
    core.members.heard(home, Event.PROBE_OK, 30.0)
    assert core.index.held_bytes(home) == 0
    assert serve(core, prompt([1, 2, 3, 4, 5], key="s"), 40.0) == second
    assert core.history.totals.rehomes == 1
    assert all_idle(core)


def test_each_replica_is_tried_once_and_then_nobody_is_left() -> None:
    core = make_core(3)
    ticket = core.arrive(prompt([1], key="s"), 0.0)
    error = UpstreamStatus("upstream-status", "The request queue is full.", http_status=503)
    seen = [ticket.replica_id]
    while core.retry(ticket, error, 0.1):
        seen.append(ticket.replica_id)
    assert sorted(seen) == ["r0", "r1", "r2"]
    core.finish(ticket, Outcome.FAILED, 0.2, error=error)
    # Being full is capacity, not a failure of health: they are asked again soon, and need no trial.
    assert all(r.state is State.FULL for r in core.fleet.replicas())
    assert not any(r.standing.falls(0.2) for r in core.fleet.replicas())
    core.tick(1.2)
    assert all(r.state is State.READY for r in core.fleet.replicas())
    assert all_idle(core)
    assert core.history.totals.errors == 1


def test_garbage_makes_a_replica_suspect_until_it_is_probed() -> None:
    core = make_core(2)
    ticket = core.arrive(prompt([1], key="s"), 0.0)
    first = ticket.replica_id
    assert core.retry(ticket, UpstreamProtocol("bad-upstream-response", "not HTTP"), 0.1)
    core.finish(ticket, Outcome.DONE, 1.0)
    assert serve(core, prompt([9], key="t"), 1.0) != first
    core.members.heard(first, Event.PROBE_OK, 2.0)
    replica = core.fleet.get(first)
    assert replica is not None
    assert replica.state is State.READY


def test_draining_takes_nothing_new_and_all_draining_is_a_refusal() -> None:
    core = make_core(2)
    core.members.heard("r0", Event.DRAIN, 0.0)
    assert {serve(core, prompt([n], key=f"s{n}"), float(n)) for n in range(1, 6)} == {"r1"}
    core.members.heard("r1", Event.DRAIN, 9.0)
    with pytest.raises(Refused) as refused:
        core.arrive(prompt([1], key="s1"), 10.0)
    assert refused.value.code == "no-replica-ready"
    assert refused.value.retry_after_s


def test_limits_refuse_with_the_time_to_come_back() -> None:
    core = make_core(2, parameters=CoreParameters(inflight_max=2))
    tickets = [core.arrive(prompt([n], key=f"s{n}"), 0.0) for n in range(1, 5)]
    with pytest.raises(Refused) as refused:
        core.arrive(prompt([9], key="s9"), 0.0)
    assert refused.value.code == "saturated"
    assert refused.value.http_status == 503
    core.finish(tickets[0], Outcome.CLIENT_GONE, 1.0)
    assert core.arrive(prompt([9], key="s9"), 1.0).replica_id == tickets[0].replica_id


def test_no_replica_at_all_says_what_to_do() -> None:
    core = make_core(0)
    with pytest.raises(Refused, match="--replica"):
        core.arrive(prompt([1]), 0.0)
    assert not core.is_ready


def test_leases_end_and_heartbeats_renew_them() -> None:
    core = make_core(0)
    core.members.join(ReplicaSpec("r", "10.0.0.1", 1, lease_s=10.0), 0.0)
    assert core.members.renew("r", 8.0) is not None
    assert core.tick(17.9) == []
    assert core.tick(18.1) == ["r"]
    assert core.members.renew("r", 19.0) is None


def test_only_foreign_load_is_added_to_our_own() -> None:
    core = make_core(1)
    ticket = core.arrive(prompt(list(range(1, 51)), key="s"), 0.0)
    ours_s = core.ledger.load("r0").backlog_s
    replica = core.fleet.get("r0")
    assert replica is not None
    seen = Observation(1, 0, 0, 0.5, ours=1, ours_backlog_s=ours_s)
    core.members.observed("r0", seen)
    assert replica.inflight == 1
    assert replica.backlog_s == ours_s
    core.members.observed("r0", Observation(2, 3, 100_000, 1.0, ours=1, ours_backlog_s=0.0))
    assert replica.inflight == 5
    assert replica.backlog_s > ours_s + 1.0
    core.finish(ticket, Outcome.DONE, 2.0)
    assert replica.inflight == 4


def test_an_equal_report_again_changes_nothing_but_its_time() -> None:
    core = make_core(2)
    replica = core.fleet.get("r0")
    assert replica is not None
    before = Observation(2, 3, 100_000, 1.0, used_ratio=0.4)
    core.members.observed("r0", before)
    state = replica.inflight, replica.backlog_s, replica.waiting, replica.used_ratio
    assert state[2:] == (3, 0.4)
    core.ledger.changed.clear()
    core.members.observed("r0", replace(before, seen_s=2.0))
    assert state == (replica.inflight, replica.backlog_s, replica.waiting, replica.used_ratio)
    assert not core.ledger.changed
    assert replica.observed == replace(before, seen_s=2.0)


def test_an_old_report_says_nothing_any_more() -> None:
    core = make_core(2)
    for replica_id, seen_s in (("r0", 1.0), ("r1", 8.0)):
        core.members.observed(replica_id, Observation(2, 3, 100_000, seen_s, used_ratio=0.4))
    core.tick(11.5)
    old, fresh = core.fleet.replicas()
    assert (old.inflight, old.backlog_s, old.waiting, old.used_ratio) == (0, 0.0, 0, 0.0)
    assert old.observed is not None
    assert (fresh.inflight, fresh.waiting, fresh.used_ratio) == (5, 3, 0.4)
    core.members.observed("r0", Observation(2, 3, 100_000, 12.0, used_ratio=0.4))
    assert (old.inflight, old.used_ratio) == (5, 0.4)


def test_capacities_follow_the_learned_ratio_of_bytes_to_tokens() -> None:
    core = make_core(1)
    long = prompt(list(range(1, 400)), key="s")
    serve(core, long, 0.0)
    assert core.index.held_bytes("r0") == long.prompt_bytes
    spec = ReplicaSpec("r0", "127.0.0.1", 31_000, capacity_tokens=300_000)
    core.members.join(spec, 1.0)
    assert (
        core.index.held_bytes("r0") == 1_500_000
    )  # four bytes a token, and a quarter more than is stated
    for _ in range(30):  # two bytes a token: half as many fit
        core.ratio.learn("kimi", "chat", prompt_bytes=2_000_000, prompt_tokens=1_000_000)
    core.tick(2.0)
    assert 740_000 < core.index.held_bytes("r0") <= 775_000


def test_a_suspect_home_keeps_its_sessions_and_gets_no_new_ones() -> None:
    core = make_core(2)
    home = serve(core, prompt([1, 2], key="s"), 0.0)
    core.members.heard(home, Event.PROBE_FAILED, 1.0)
    assert core.fleet.get(home).state is State.SUSPECT  # type: ignore[union-attr]
    others = {serve(core, prompt([50 + n], key=f"n{n}"), 2.0 + n) for n in range(4)}
    assert home not in others
    core.members.heard(home, Event.PROBE_FAILED, 7.0)
    core.members.heard(home, Event.PROBE_OK, 8.0)
    core.members.heard(home, Event.PROBE_FAILED, 9.0)
    assert serve(core, prompt([1, 2, 3], key="s"), 10.0) == home
    assert core.history.totals.rehomes == 0


def test_a_home_that_says_it_is_not_ready_takes_nothing_while_it_answers_the_rest() -> None:
    core = make_core(2)
    home = serve(core, prompt([1, 2], key="s"), 0.0)
    queued = core.arrive(prompt([1, 2, 3], key="s"), 1.0)
    assert queued.replica_id == home
    core.members.heard(home, Event.PROBE_NOT_READY, 2.0)
    core.began(queued, 3.0)
    core.finish(queued, Outcome.DONE, 4.0)
    assert serve(core, prompt([1, 2, 3, 4], key="s"), 5.0) != home
    assert serve(core, prompt([9], key="n"), 6.0) != home
    assert core.history.totals.rehomes == 1


def test_a_full_home_is_spilled_past_and_stays_the_home() -> None:
    core = make_core(2, parameters=CoreParameters(inflight_max=1))
    home = serve(core, prompt([1, 2], key="s"), 0.0)
    busy = core.arrive(prompt([1, 2, 3], key="s"), 1.0)
    assert busy.replica_id == home
    spilled = core.arrive(prompt([1, 2, 4], key="s"), 1.0)
    assert (spilled.reason, spilled.replica_id != home) == ("spill", True)
    core.finish(busy, Outcome.DONE, 2.0)
    core.finish(spilled, Outcome.DONE, 2.0)
    assert serve(core, prompt([1, 2, 3, 5], key="s"), 3.0) == home
    assert (core.history.totals.moves, core.history.totals.rehomes) == (0, 0)


def test_a_home_whose_queue_is_full_is_retried_elsewhere_and_stays_the_home() -> None:
    core = make_core(2)
    home = serve(core, prompt([1, 2], key="s"), 0.0)
    ticket = core.arrive(prompt([1, 2, 3], key="s"), 1.0)
    full = UpstreamStatus("upstream-status", "The request queue is full.", http_status=503)
    assert core.retry(ticket, full, 1.1)
    core.finish(ticket, Outcome.DONE, 2.0)
    assert serve(core, prompt([1, 2, 3, 4], key="s"), 3.0) == home
    pin = core.pins.get("s")
    assert pin is not None
    assert pin.n_requests == 3


def test_full_replicas_without_a_ready_one_are_a_refusal_too() -> None:
    core = make_core(1, parameters=CoreParameters(inflight_max=1))
    core.arrive(prompt([1], key="s"), 0.0)
    core.members.heard("r0", Event.PROBE_FAILED, 1.0)
    with pytest.raises(Refused) as refused:
        core.arrive(prompt([2], key="t"), 2.0)
    assert refused.value.code == "saturated"


def test_another_process_under_a_known_name_starts_empty() -> None:
    core = make_core(1)
    serve(core, prompt([1, 2], key="s"), 0.0)
    assert core.index.held_bytes("r0") > 0
    replica = core.members.join(ReplicaSpec("r0", "127.0.0.1", 32_000), 1.0)
    assert replica.state is State.STARTING
    assert core.index.held_bytes("r0") == 0


def test_the_index_follows_the_learned_ratio() -> None:
    core = make_core(0)
    core.members.join(ReplicaSpec("r0", "h", 1, capacity_tokens=10_000), 0.0)
    core.members.heard("r0", Event.PROBE_OK, 0.0)
    ticket = core.arrive(prompt(list(range(1, 21)), key="s"), 0.0)
    core.began(ticket, 0.1)
    assert core.index.held_bytes("r0") == 48_000
    # Eight bytes a token: the same bytes are half the tokens, and twice as many fit.
    core.finish(ticket, Outcome.DONE, 1.0, usage=Usage(10_000, 10, 0))
    core.tick(2.0)
    again = core.arrive(prompt(list(range(1, 21)), key="s"), 3.0)
    core.began(again, 3.1)
    assert core.index.held_bytes("r0") == 80_000


def test_old_load_reports_are_forgotten() -> None:
    core = make_core(1)
    core.members.observed("r0", Observation(3, 2, 50_000, 0.0))
    replica = core.fleet.get("r0")
    assert replica is not None
    assert replica.inflight == 5
    core.tick(9.0)
    assert replica.inflight == 5
    core.tick(11.0)
    assert (replica.inflight, replica.backlog_s) == (0, 0.0)


def test_nothing_is_kept_of_replicas_that_came_and_went() -> None:
    core = make_core(1)
    for n in range(50):
        core.members.join(ReplicaSpec(f"x{n}", "h", n + 1), 0.0)
        core.members.heard("r0", Event.PROBE_FAILED, 0.0)
        core.members.heard(f"x{n}", Event.PROBE_OK, 0.0)
        ticket = core.arrive(prompt([n + 1], key=f"s{n}"), 0.0)
        assert ticket.replica_id == f"x{n}"
        core.members.leave(f"x{n}")
        core.finish(ticket, Outcome.DONE, 1.0)
    core.tick(1e6)
    assert set(core.ledger._loads) == {"r0"}
    assert set(core.pins._totals) == {"r0"}


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(["arrive", "begin", "end", "report"]), max_size=60),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_load_is_the_report_and_what_we_did_since(
    steps: list[str], running: int, waiting: int
) -> None:
    """In flight = what the replica reported + dispatched since - ended since, never twice."""
    core = make_core(1)
    replica = core.fleet.get("r0")
    assert replica is not None
    tickets = []
    reported, since = 0, 0
    for n, step in enumerate(steps):
        if step == "arrive":
            tickets.append(core.arrive(prompt([n + 1], key=f"s{n}"), float(n)))
            since += 1
        elif step == "begin" and tickets:
            core.began(tickets[-1], float(n))
        elif step == "end" and tickets:
            core.finish(tickets.pop(0), Outcome.DONE, float(n))
            since -= 1
        elif step == "report":
            ours = core.ledger.load("r0").inflight
            seen = Observation(
                ours + running,
                waiting,
                0,
                float(n),
                ours=ours,
                ours_backlog_s=core.ledger.load("r0").backlog_s,
            )
            core.members.observed("r0", seen)
            reported, since = ours + running + waiting, 0
        assert replica.inflight == reported + since
        assert replica.inflight >= replica.load.inflight
