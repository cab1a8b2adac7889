"""Who counts of those that name a replica, and what an operator's word is worth against a source's."""

from __future__ import annotations

import random

from router.core import RouterCore
from router.policy import registry
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event, State
from router.state.history import Outcome
from router.state.members.roster import Offer, Roster, Source
from tests.doubles.core_rig import make_core
from tests.doubles.prompts import prompt


def make(n: int = 0) -> tuple[RouterCore, Roster]:
    core = RouterCore(registry.make("home"), random.Random(0))
    roster = Roster(core.members, core.fleet, leave_drain_s=60.0)
    roster.offers(Source.FILE, [named(f"r{i}") for i in range(n)], 0.0)
    for replica in core.fleet.replicas():
        core.members.heard(replica.replica_id, Event.PROBE_OK, 0.0)
    return core, roster


def spec(
    name: str,
    source: Source = Source.FILE,
    *,
    port: int = 1,
    lease_s: float | None = None,
    inflight_max: int | None = None,
) -> ReplicaSpec:
    return ReplicaSpec(
        name, "h", port, source=source.value, lease_s=lease_s, inflight_max=inflight_max
    )


def named(name: str, source: Source = Source.FILE) -> Offer:
    return Offer(spec(name, source))


def state(core: RouterCore, name: str) -> State | None:
    replica = core.fleet.get(name)
    return None if replica is None else replica.state


def tick(core: RouterCore, roster: Roster, now_s: float) -> list[str]:
    gone, ended = roster.expire(now_s), core.tick(now_s)
    roster.left(ended)
    return [*gone, *ended]


def test_what_the_first_source_in_order_says_counts() -> None:
    core, roster = make()
    for limit, source in enumerate(reversed(Source), start=1):
        offer = Offer(spec("a", source, inflight_max=limit))
        roster.offers(source, [offer], 0.0)
        replica = core.fleet.get("a")
        assert replica is not None
        assert (replica.spec, replica.inflight_max) == (offer.spec, limit)
    assert roster.sources("a") == tuple(source.value for source in Source)
    roster.offers(Source.STATIC, [], 1.0)
    roster.withdraw(Source.OPERATOR, "a", 1.0)
    assert core.fleet.replicas()[0].spec.source == "registered"


def test_a_lease_that_ends_leaves_a_replica_to_the_others_that_name_it() -> None:
    core, roster = make(1)
    roster.offer(Source.REGISTERED, spec("r0", Source.REGISTERED, lease_s=10.0), 0.0)
    roster.offer(Source.REGISTERED, spec("x", Source.REGISTERED, lease_s=10.0), 0.0)
    roster.renew("x", 5.0)
    assert tick(core, roster, 10.5) == []
    replica = core.fleet.get("r0")
    assert replica is not None
    assert (replica.spec.source, replica.lease_until_s) == ("file", None)
    assert replica.state is State.READY  # the same process as before
    assert tick(core, roster, 15.5) == ["x"]
    assert roster.renew("x", 16.0) is None


def test_who_is_named_no_more_ends_what_it_has_and_who_is_named_again_stays() -> None:
    core, roster = make(2)
    ticket = core.arrive(prompt([1], key="s"), 1.0)
    home = ticket.replica_id
    [other] = {"r0", "r1"} - {home}
    roster.offers(Source.FILE, [], 2.0)
    assert {state(core, "r0"), state(core, "r1")} == {State.DRAINING}
    assert tick(core, roster, 3.0) == [other]
    roster.offers(Source.FILE, [named(home)], 4.0)
    assert state(core, home) is State.STARTING
    core.members.heard(home, Event.PROBE_OK, 5.0)
    core.finish(ticket, Outcome.DONE, 6.0)
    assert tick(core, roster, 100.0) == []
    pin = core.pins.get("s")
    assert pin is not None
    assert pin.home_id == home


def test_a_drain_for_leaving_is_over_in_time_whatever_runs() -> None:
    core, roster = make(1)
    ticket = core.arrive(prompt([1], key="s"), 1.0)
    roster.offers(Source.FILE, [], 2.0)
    assert tick(core, roster, 61.0) == []
    assert tick(core, roster, 62.0) == ["r0"]
    core.finish(ticket, Outcome.DONE, 63.0)


def test_an_operators_drain_stands_whatever_a_source_says_again() -> None:
    core, roster = make(1)
    roster.drain("r0", 1.0)
    roster.offers(Source.FILE, [Offer(spec("r0", inflight_max=4))], 2.0)
    roster.offers(Source.FILE, [Offer(spec("r0", port=2))], 3.0)
    assert state(core, "r0") is State.DRAINING
    assert tick(core, roster, 1_000.0) == []
    roster.undrain("r0", 1_001.0)
    assert state(core, "r0") is State.STARTING


def test_a_registration_ends_an_operators_drain() -> None:
    core, roster = make(1)
    roster.drain("r0", 1.0)
    roster.offer(Source.REGISTERED, spec("r0", Source.REGISTERED), 2.0)
    assert state(core, "r0") is State.STARTING


def test_a_removed_replica_stays_out_until_its_source_has_stopped_naming_it() -> None:
    core, roster = make(2)
    assert roster.remove("r0")
    assert not roster.remove("r0")
    again = [Offer(spec("r0", inflight_max=3)), named("r1")]
    assert not roster.offers(Source.FILE, again, 1.0)
    assert state(core, "r0") is None
    assert roster.sources("r0") == ()
    roster.offers(Source.FILE, again[1:], 2.0)
    assert roster.offers(Source.FILE, again, 3.0)
    assert state(core, "r0") is State.STARTING


def test_a_removed_replica_is_back_when_another_names_it_or_it_registers() -> None:
    core, roster = make(1)
    roster.remove("r0")
    roster.offers(Source.DNS, [named("r0", Source.DNS)], 1.0)
    assert roster.sources("r0") == ("dns",)
    roster.remove("r0")
    roster.offers(Source.DNS, [named("r0", Source.DNS)], 2.0)
    assert state(core, "r0") is None
    roster.offer(Source.REGISTERED, spec("r0", Source.REGISTERED), 3.0)
    assert roster.sources("r0") == ("registered", "file", "dns")
    roster.remove("r0")
    assert roster.counts()["registered"] == 0
    assert state(core, "r0") is None


def test_an_operators_drain_with_an_end_is_a_removal() -> None:
    core, roster = make(1)
    roster.drain("r0", 1.0, leaves=True)
    assert tick(core, roster, 2.0) == ["r0"]
    roster.offers(Source.FILE, [Offer(spec("r0", inflight_max=2))], 3.0)
    assert state(core, "r0") is None


def test_a_source_may_want_a_drain_and_take_it_back() -> None:
    core, roster = make(1)
    roster.offers(Source.FILE, [Offer(spec("r0"), drains=True)], 1.0)
    assert state(core, "r0") is State.DRAINING
    assert tick(core, roster, 1_000.0) == []
    roster.undrain("r0", 1_001.0)  # an operator's there is none
    assert state(core, "r0") is State.DRAINING
    roster.offers(Source.FILE, [Offer(spec("r0"))], 1_002.0)
    assert state(core, "r0") is State.STARTING


def test_another_address_is_another_process() -> None:
    core, roster = make(1)
    core.members.heard("r0", Event.CONNECT_FAILED, 1.0)
    assert not roster.offers(Source.FILE, [Offer(spec("r0", port=2))], 2.0)
    assert state(core, "r0") is State.STARTING


def test_what_nobody_knows_is_none() -> None:
    core, roster = make()
    assert roster.drain("x", 0.0) is roster.undrain("x", 0.0) is roster.renew("x", 0.0) is None
    assert not roster.withdraw(Source.REGISTERED, "x", 0.0)
    assert roster.sources("x") == ()
    core = make_core(1)  # whose members were told directly
    roster = Roster(core.members, core.fleet)
    assert roster.drain("r0", 0.0) is roster.undrain("r0", 0.0) is core.fleet.get("r0")
