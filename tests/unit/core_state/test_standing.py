"""A replica's record: errors over a window, falls, the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from router.core import CoreParameters
from router.errors import ConnectFailed, UpstreamProtocol, UpstreamStatus
from router.state.health.standing import RAMP_START
from router.state.health.table import Event, State
from router.state.history import Outcome
from tests.doubles.core_rig import all_idle, make_core, serve
from tests.doubles.prompts import prompt

if TYPE_CHECKING:
    from router.core import RouterCore
    from router.state.fleet.replica import Replica


def replica_of(core: RouterCore, name: str) -> Replica:
    replica = core.fleet.get(name)
    assert replica is not None
    return replica


def fall(core: RouterCore, name: str, now_s: float) -> None:
    """A replica's connections break and it is seen ready again."""
    core.members.heard(name, Event.REQUEST_FAILED, now_s)
    core.members.heard(name, Event.PROBE_OK, now_s + 0.1)


def test_one_fall_is_free_and_falling_again_and_again_is_not() -> None:
    core = make_core(3)
    r0 = replica_of(core, "r0")
    fall(core, "r0", 0.0)
    assert r0.state is State.READY
    fall(core, "r0", 10.0)
    assert r0.state is State.SUSPECT
    # It answers its probes, and is taken back on trial after a few seconds.
    core.members.heard("r0", Event.PROBE_OK, 12.0)
    assert r0.state is State.SUSPECT
    core.members.heard("r0", Event.PROBE_OK, 15.0)
    assert r0.state is State.TRIAL


def test_the_time_away_doubles_and_is_bounded() -> None:
    core = make_core(3)
    r0 = replica_of(core, "r0")
    now_s, away_s = 0.0, []
    for _ in range(12):
        core.members.heard("r0", Event.REQUEST_FAILED, now_s)
        fell_s = now_s
        while r0.state is State.SUSPECT:
            now_s += 0.25
            core.members.heard("r0", Event.PROBE_OK, now_s)
        away_s.append(now_s - fell_s)
    assert away_s[0] < 0.5
    assert away_s[1] >= 2.0
    assert away_s[3] > 1.5 * away_s[2] > 2.0 * away_s[1]
    assert max(away_s) <= 60.5


def test_a_trial_is_one_request_at_a_time_until_one_succeeds_then_twice_as_many() -> None:
    core = make_core(2)
    r0 = replica_of(core, "r0")
    fall(core, "r0", 0.0)
    fall(core, "r0", 1.0)
    core.members.heard("r0", Event.PROBE_OK, 9.0)
    assert r0.state is State.TRIAL
    tickets = [core.arrive(prompt([n], key=f"s{n}"), 9.0) for n in range(1, 6)]
    there = [t for t in tickets if t.replica_id == "r0"]
    assert len(there) == 1
    core.began(there[0], 9.5)
    assert r0.state is State.READY
    assert r0.allowance == RAMP_START
    for n in range(6, 30):
        core.began(core.arrive(prompt([n], key=f"s{n}"), 10.0), 10.0)
    assert r0.allowance is None


def test_a_failed_trial_sends_it_away_again() -> None:
    core = make_core(2)
    r0 = replica_of(core, "r0")
    fall(core, "r0", 0.0)
    fall(core, "r0", 1.0)
    core.members.heard("r0", Event.PROBE_OK, 9.0)
    ticket = next(
        t
        for t in (core.arrive(prompt([n], key=f"s{n}"), 9.0) for n in range(1, 9))
        if t.replica_id == "r0"
    )
    assert core.retry(ticket, UpstreamProtocol("bad-upstream-response", "x"), 9.1)
    assert r0.state is State.SUSPECT
    core.members.heard("r0", Event.PROBE_OK, 10.0)
    assert r0.state is State.SUSPECT


def test_nobody_is_kept_away_where_nobody_else_is_left() -> None:
    core = make_core(1)
    r0 = replica_of(core, "r0")
    for now_s in (0.0, 1.0, 2.0, 3.0):
        fall(core, "r0", now_s)
    assert r0.state is State.TRIAL
    # And one on trial takes all there are, if it is the only one.
    assert [core.arrive(prompt([n], key=f"s{n}"), 4.0).replica_id for n in (1, 2, 3)] == ["r0"] * 3


def test_a_share_of_server_errors_makes_it_suspect_though_its_probes_are_well() -> None:
    core = make_core(2)
    r0 = replica_of(core, "r0")
    error = UpstreamStatus("upstream-status", "CUDA error", http_status=500)
    n = 0
    while r0.state is State.READY:
        n += 1
        ticket = core.arrive(prompt([n], key=f"s{n}"), n / 10)
        if ticket.replica_id == "r0":
            core.blame(ticket, error, n / 10)
        else:
            core.began(ticket, n / 10)
        core.finish(ticket, Outcome.FAILED, n / 10)
        assert n < 40
    assert n >= 5
    core.members.heard("r0", Event.PROBE_OK, n / 10 + 1)
    assert r0.state is State.TRIAL
    assert all_idle(core)


def test_a_few_errors_among_many_answers_are_none() -> None:
    core = make_core(1)
    r0 = replica_of(core, "r0")
    error = UpstreamStatus("upstream-status", "x", http_status=500)
    for n in range(1, 60):
        ticket = core.arrive(prompt([n], key=f"s{n}"), n / 2)
        if n % 5:
            core.began(ticket, n / 2)
        else:
            core.blame(ticket, error, n / 2)
        core.finish(ticket, Outcome.DONE, n / 2)
    assert r0.state is State.READY
    assert r0.standing.failed_ratio(30.0) == pytest.approx(0.2, abs=0.05)
    assert r0.standing.failed_ratio(100.0) == 0.0


def test_full_is_over_when_a_request_ends_there_or_after_a_second() -> None:
    core = make_core(2)
    ticket = core.arrive(prompt([1], key="s1"), 0.0)
    core.began(ticket, 0.1)
    r = replica_of(core, ticket.replica_id)
    core.members.heard(r.replica_id, Event.FULL, 1.0)
    assert r.state is State.FULL
    # Its own session goes there, others do not.
    assert core.arrive(prompt([1, 2], key="s1"), 1.1).replica_id == r.replica_id
    others = {core.arrive(prompt([n], key=f"s{n}"), 1.1).replica_id for n in range(2, 9)}
    assert r.replica_id not in others
    core.finish(ticket, Outcome.DONE, 1.2)
    assert r.state is State.READY
    core.members.heard(r.replica_id, Event.FULL, 2.0)
    core.tick(2.5)
    assert r.state is State.FULL
    core.tick(3.0)
    assert r.state is State.READY


def test_a_replica_that_was_down_begins_slowly_and_a_new_one_does_not() -> None:
    core = make_core(2, parameters=CoreParameters())
    assert replica_of(core, "r1").allowance is None
    ticket = core.arrive(prompt([1], key="s"), 0.0)
    name = ticket.replica_id
    core.retry(ticket, ConnectFailed("connect-failed", "x"), 0.1)
    core.members.heard(name, Event.PROBE_OK, 5.0)
    assert replica_of(core, name).state is State.READY
    assert replica_of(core, name).allowance == RAMP_START
    core.members.leave(name)
    assert not core.fleet.view().is_empty
    assert serve(core, prompt([9], key="t"), 6.0) != name
