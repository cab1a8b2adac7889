"""Drains with an end: a replica leaves when it is empty, or when its time is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.state.health.table import Event, State
from router.state.history import Outcome
from tests.doubles.core_rig import all_idle, make_core, serve
from tests.doubles.prompts import prompt

if TYPE_CHECKING:
    from router.core import RouterCore


def state_of(name: str, core: RouterCore) -> State | None:
    replica = core.fleet.get(name)
    return None if replica is None else replica.state


def test_a_replica_that_leaves_drained_goes_when_its_last_request_ends() -> None:
    core = make_core(2)
    ticket = core.arrive(prompt([1], key="s"), 0.0)
    leaving = ticket.replica_id
    assert core.members.drain(leaving, 1.0, leaves=True)
    assert core.tick(2.0) == []
    assert state_of(leaving, core) is State.DRAINING
    core.finish(ticket, Outcome.DONE, 3.0)
    assert core.tick(4.0) == [leaving]
    assert core.fleet.get(leaving) is None
    assert all_idle(core)


def test_a_drain_is_over_at_its_deadline_whatever_runs() -> None:
    core = make_core(2)
    ticket = core.arrive(prompt([1], key="s"), 0.0)
    leaving = ticket.replica_id
    core.members.drain(leaving, 1.0, deadline_s=10.0)
    assert core.tick(10.9) == []
    assert core.tick(11.0) == [leaving]
    core.began(ticket, 12.0)
    core.finish(ticket, Outcome.DONE, 13.0)
    assert all_idle(core)


def test_without_either_it_stays_and_an_undrained_one_is_probed_first() -> None:
    core = make_core(2)
    core.members.drain("r0", 0.0, leaves=True, deadline_s=5.0)
    core.members.drain("r0", 1.0)
    assert core.tick(100.0) == []
    core.members.undrain("r0", 101.0)
    assert state_of("r0", core) is State.STARTING
    core.members.heard("r0", Event.PROBE_OK, 102.0)
    assert {serve(core, prompt([n], key=f"s{n}"), 103.0) for n in range(1, 9)} == {"r0", "r1"}


def test_nobody_is_drained_who_is_not_there() -> None:
    core = make_core(1)
    assert core.members.drain("r9", 0.0) is None
    assert core.members.undrain("r9", 0.0) is None
    core.members.undrain("r0", 0.0)
    assert state_of("r0", core) is State.READY
