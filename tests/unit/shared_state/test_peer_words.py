"""What other routers tell: loads that count once, homes that all agree on, prompts that were computed elsewhere."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core import RouterCore
from router.dialect.base import PromptFacts, SessionSource, Usage
from router.policy import registry
from router.state.fleet.replica import Description, Observation, PeerLoad, ReplicaSpec
from router.state.health.table import Event
from router.state.history import Outcome
from router.state.shared.desk import Desk
from router.state.shared.peers import ToldPin

WALL_S = 1_790_000_000.0
NAMES = ("a", "b", "c")


def a_core(n_replicas: int = 3) -> RouterCore:
    core = RouterCore(registry.make("home"), random.Random(1))
    for n in range(n_replicas):
        core.members.join(ReplicaSpec(f"r{n}", "h", 1 + n, capacity_tokens=1_000_000), 0.0)
        core.members.described(f"r{n}", Description(capacity_tokens=1_000_000, reports_cached=True))
        core.members.heard(f"r{n}", Event.PROBE_OK, 0.0)
    return core


def prompt(key: str, n: int, first: int = 1) -> PromptFacts:
    return PromptFacts(
        dialect="openai-chat",
        model="m",
        session_key=key,
        session_source=SessionSource.HEADER,
        chain=array("Q", [first * 1_000 + at for at in range(n)]),
        ends_bytes=array("I", accumulate([4_096] * n)),
        head_segments=1,
    )


def served(core: RouterCore, facts: PromptFacts, now_s: float) -> str:
    """One turn, to its end; answers where it went."""
    ticket = core.arrive(facts, now_s)
    core.began(ticket, now_s)
    tokens = facts.prompt_bytes // 4
    core.finish(ticket, Outcome.DONE, now_s, usage=Usage(tokens, 20, ticket.cached_tokens))
    return ticket.replica_id


def desks(n: int) -> list[Desk]:
    found = [Desk(a_core(), name, random.Random(7)) for name in NAMES[:n]]
    for desk in found:
        desk.listen(0.0)
    return found


def exchange(all_of_them: list[Desk], now_s: float) -> None:
    """Everybody says what there is, and all hear it."""
    for desk in all_of_them:
        word = desk.word(now_s, WALL_S)
        if word.message is not None:
            for other in all_of_them:
                other.hear(word.message, now_s, WALL_S)


def seen(inflight: int, *, at_s: float = 1.0, ours: int = 0) -> Observation:
    return Observation(inflight, 0, 0, at_s, ours=ours, stamp=(at_s,))


# Loads


def test_a_report_and_other_routers_count_a_request_once() -> None:
    core = a_core()
    replica = core.fleet.get("r0")
    assert replica is not None
    core.peers.loaded("b", {"r0": PeerLoad(inflight=3, decoding=2)}, 1.0, ttl_s=2.0)
    assert (replica.inflight, replica.decoding) == (3, 2)
    core.members.observed("r0", seen(3))
    assert replica.inflight == 3
    core.members.observed("r0", seen(5, at_s=2.0))
    assert replica.inflight == 5  # two are nobody's that is known
    core.peers.loaded("b", {"r0": PeerLoad(inflight=1)}, 2.2, ttl_s=2.0)
    assert replica.inflight == 3
    core.peers.loaded("b", {}, 2.4, ttl_s=2.0)
    assert replica.inflight == 2


def test_what_a_report_shows_before_it_is_told_is_not_counted_twice() -> None:
    core = a_core()
    replica = core.fleet.get("r0")
    assert replica is not None
    core.members.observed("r0", seen(4))
    assert replica.inflight == 4
    core.peers.loaded("b", {"r0": PeerLoad(inflight=3)}, 1.2, ttl_s=2.0)
    core.peers.loaded("c", {"r0": PeerLoad(inflight=1)}, 1.2, ttl_s=2.0)
    assert (replica.inflight, replica.others_inflight) == (4, 0)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6)), max_size=12), st.integers(0, 4))
def test_with_vectors_that_are_fresh_a_replica_has_what_it_has(
    steps: list[tuple[int, int]], foreign: int
) -> None:
    """Of three routers' requests and of some of nobody's, each counts once, whenever the report comes."""
    core = a_core(1)
    replica = core.fleet.get("r0")
    assert replica is not None
    theirs = {"b": 0, "c": 0}
    for number, (who, inflight) in enumerate(steps):
        now_s = 1.0 + 0.1 * number
        if who < 2:
            name = ("b", "c")[who]
            theirs[name] = inflight
            core.peers.loaded(name, {"r0": PeerLoad(inflight=inflight)}, now_s, ttl_s=9.0)
        else:
            core.members.observed("r0", seen(sum(theirs.values()) + foreign, at_s=now_s))
            assert replica.inflight == sum(theirs.values()) + foreign
        assert sum(theirs.values()) <= replica.inflight <= sum(theirs.values()) + foreign


def test_a_router_that_is_not_heard_any_more_has_nothing_in_flight() -> None:
    core = a_core()
    replica = core.fleet.get("r0")
    assert replica is not None
    core.members.observed("r0", seen(4, at_s=1.0))
    core.peers.loaded("b", {"r0": PeerLoad(inflight=4, inflight_tokens=9)}, 1.0, ttl_s=2.0)
    assert (core.peers.n, replica.inflight_tokens) == (1, 9)
    core.tick(3.5)
    assert core.peers.n == 0
    assert (replica.inflight, replica.inflight_tokens) == (4, 0)  # the report still says so


def test_a_replica_that_joins_late_has_what_was_told_of_it() -> None:
    core = a_core(1)
    loads = {"r5": PeerLoad(inflight=2)}
    core.peers.loaded("b", loads, 1.0, ttl_s=2.0)
    core.members.join(ReplicaSpec("r5", "h", 9), 1.1)
    core.peers.loaded("b", loads, 1.2, ttl_s=2.0)
    replica = core.fleet.get("r5")
    assert replica is not None
    assert replica.inflight == 2


# Sessions


def test_a_session_goes_on_at_another_router_as_if_it_had_been_there() -> None:
    one, two = desks(2)
    home = served(one.core, prompt("s", 30), 1.0)  # type: ignore[arg-type]
    exchange([one, two], 1.1)
    ticket = two.core.arrive(prompt("s", 34), 2.0)  # type: ignore[attr-defined]
    assert (ticket.replica_id, ticket.reason) == (home, "home")
    assert ticket.continues
    assert ticket.cached_tokens >= 30 * 1_024 - 1


def test_a_session_that_is_not_known_is_wanted_and_found_in_what_was_stored() -> None:
    one, two = desks(2)
    home = served(one.core, prompt("s", 30), 1.0)  # type: ignore[arg-type]
    [row] = one.word(1.1, WALL_S).rows
    assert two.wanted(prompt("s", 34)) == row.key
    assert two.found("s", row.value, 1.2, WALL_S)
    two.is_deaf = False
    assert two.wanted(prompt("s", 34)) is None
    assert two.core.arrive(prompt("s", 34), 2.0).replica_id == home  # type: ignore[attr-defined]


def test_who_missed_a_word_asks_for_what_it_has_not_seen_since() -> None:
    one, two = desks(2)
    served(one.core, prompt("s", 30), 1.0)  # type: ignore[arg-type]
    exchange([one, two], 1.1)
    assert two.wanted(prompt("s", 34)) is None
    one.word(2.0, WALL_S)  # is lost on its way
    served(one.core, prompt("other", 3, first=5), 2.1)  # type: ignore[arg-type]
    exchange([one, two], 2.2)
    assert two.counts.gaps == 1
    assert two.wanted(prompt("s", 34)) is not None
    assert two.wanted(prompt("other", 3, first=5)) is None
    served(two.core, prompt("s", 34), 2.4)  # type: ignore[arg-type]
    assert two.wanted(prompt("s", 36)) is None


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), min_size=1, max_size=14
    )
)
def test_routers_agree_on_a_home_whoever_moved_the_session(
    steps: list[tuple[int, int, bool]],
) -> None:
    """Each moves it as it likes; words are lost; once all were heard, it is at home in one place."""
    three = desks(3)
    now_s = 1.0
    for desk in three:
        served(desk.core, prompt("s", 5), now_s)  # type: ignore[arg-type]
    for who, where, is_heard in steps:
        now_s += 1.0
        three[who].core.operating.move("s", f"r{where}", now_s)  # type: ignore[attr-defined]
        if is_heard:
            exchange(three, now_s)
    for _ in range(2):  # what was lost is read from the store, or told again with the next turn
        for desk in three:
            served(desk.core, prompt("s", 5), now_s)  # type: ignore[arg-type]
        exchange(three, now_s + 0.1)
        now_s += 1.0
    homes = {desk.core.pins.get("s").home_id for desk in three}  # type: ignore[union-attr]
    assert len(homes) == 1


def test_what_the_store_has_newer_counts_here_and_what_is_newer_here_is_stored_again() -> None:
    one, two = desks(2)
    for desk in (one, two):
        served(desk.core, prompt("s", 5), 1.0)  # type: ignore[arg-type]
    one.core.operating.move("s", "r2", 1.5)  # type: ignore[attr-defined]
    [newer] = one.word(1.6, WALL_S).rows
    for n in range(6, 9):
        served(two.core, prompt("s", n), 2.0 + n)  # type: ignore[arg-type]
    [older] = two.word(12.0, WALL_S).rows
    assert older.version < newer.version
    two.refused(older, newer.value, 12.1, WALL_S)
    pin = two.core.pins.get("s")
    assert pin is not None
    assert pin.home_id == "r2"
    [again] = two.word(12.2, WALL_S).rows
    assert (again.version, again.turn) == (newer.version, older.turn)


def test_a_home_that_nobody_here_has_heard_of_leaves_no_row_behind() -> None:
    core = a_core(1)
    told = ToldPin(
        key="s", home_id="gone", version=0, turn=1, tokens=9, prompt_tokens=9, prompt_bytes=36, output_tokens=1,
        tail=4, tail_segments=1, served_id="gone", age_s=0.0, source="header", wins=False, told_by="b",
    )  # fmt: skip
    core.peers.pinned(told, 1.0)
    assert core.pins.totals("gone").live_sessions == 1
    assert core.arrive(prompt("s", 3), 2.0).reason == "rehome"
    core.peers.pinned(replace(told, version=9), 3.0)
    core.pins.expire(10_000.0)
    assert "gone" not in core.pins._totals


def test_what_is_kept_for_too_short_a_time_is_not_believed_to_be_there() -> None:
    one, two = desks(2)
    home = served(one.core, prompt("s", 30), 1.0)  # type: ignore[arg-type]
    [row] = one.word(1.1, WALL_S).rows
    replica = two.core.fleet.get(home)  # type: ignore[attr-defined]
    for _ in range(4):
        replica.keeping.returned(40.0, is_kept=False)
    two.found("s", row.value, 1.2, WALL_S + 3_600.0)
    ticket = two.core.arrive(prompt("s", 34), 2.0)  # type: ignore[attr-defined]
    assert (ticket.replica_id, ticket.cached_tokens) == (home, 0)


# Away, and back


def test_routers_that_are_apart_choose_alike_whatever_they_have_seen() -> None:
    one, two = desks(2)
    for n in range(9):
        served(one.core, prompt(f"x{n}", 20, first=50 + n), 1.0)  # type: ignore[arg-type]
    for desk in (one, two):
        desk.drop()
        assert desk.core.peers.is_apart
    for n in range(20):
        facts = prompt(f"new{n}", 5, first=200 + n)
        first = served(one.core, facts, 2.0)  # type: ignore[arg-type]
        assert served(two.core, facts, 2.0) == first  # type: ignore[arg-type]
    one.reach()
    assert not one.core.peers.is_apart


def test_a_session_that_is_not_stored_again_yet_has_no_second_home_by_price() -> None:
    one, two = desks(2)
    for desk in (one, two):
        desk.drop()
    home = served(one.core, prompt("s", 30), 1.0)  # type: ignore[arg-type]
    for _ in range(4):  # by price it would go elsewhere now
        two.core.arrive(prompt("busy", 900, first=99), 1.5)  # type: ignore[attr-defined]
    two.settle(2.0)
    assert two.core.peers.is_apart
    assert served(two.core, prompt("s", 34), 2.1) == home  # type: ignore[arg-type]
    two.settle(8.4)
    assert two.core.peers.is_apart
    two.settle(8.6)
    assert not two.core.peers.is_apart


def test_a_router_that_begins_is_apart_until_the_store_is_heard() -> None:
    [desk] = desks(1)
    desk.part(is_lost=False)
    assert desk.core.peers.is_apart
    desk.settle(0.1)
    assert not desk.core.peers.is_apart


def test_a_router_that_has_heard_nobody_is_not_apart() -> None:
    [alone] = desks(1)
    alone.word(60.0, WALL_S)
    alone.drop()
    assert not alone.core.peers.is_apart


def test_a_store_that_is_back_is_given_the_sessions_of_this_router_over_a_while() -> None:
    one, two = desks(2)
    for n in range(60):
        served(one.core, prompt(f"s{n}", 3, first=9 + n), 1.0)  # type: ignore[arg-type]
    exchange([one, two], 1.1)
    assert len(two.core.pins) == 60
    for desk in (one, two):
        desk.drop()
        desk.heal(10.0)
    rows: list[str] = []
    sizes = []
    for tick in range(60):
        assert two.word(10.0 + 0.2 * tick, WALL_S).rows == []  # they are the other one's to give
        given_now = one.word(10.0 + 0.2 * tick, WALL_S).rows
        sizes.append(len(given_now))
        rows += [row.key for row in given_now]
    assert len(set(rows)) == 60
    assert max(sizes) < 20
    assert sum(sizes[30:]) == 0


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x91\x09"])
def test_what_cannot_be_read_changes_nothing(data: bytes) -> None:
    [desk] = desks(1)
    assert not desk.hear(data, 1.0, WALL_S)
    assert not desk.found("s", data, 1.0, WALL_S)
    assert desk.counts.unread == 2
    assert len(desk.core.pins) == 0


def test_a_word_of_the_turn_before_leaves_the_session_with_who_serves_it_now() -> None:
    """It comes while the next turn is under way here, which is told of and healed from here all the same."""
    one, two = desks(2)
    served(one.core, prompt("s", 10), 1.0)
    said = one.word(1.1, WALL_S).message
    ticket = two.core.arrive(prompt("s", 14), 1.2)
    assert said is not None
    two.hear(said, 1.3, WALL_S)
    two.core.finish(ticket, Outcome.DONE, 1.4, usage=Usage(14_000, 20, 0))
    pin = two.core.pins.get("s")
    assert pin is not None
    assert (pin.told_by, pin.prompt_tokens) == ("", 14_000)
    exchange([one, two], 1.5)
    heard = one.core.pins.get("s")
    assert heard is not None
    assert (heard.told_by, heard.prompt_tokens) == ("b", 14_000)
    two.heal(2.0)
    assert [row.session_key for row in two.word(9.0, WALL_S).rows] == ["s"]
