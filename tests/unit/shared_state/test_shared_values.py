"""What is stored and told of a session: it comes back as it was, and other versions of it do no harm."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashing.rendezvous import rank
from router.state.fleet.replica import ReplicaSpec
from router.state.rates.prefill import PrefillRate
from router.state.sessions.pins import Pin
from router.state.shared.feed import heard, said
from router.state.shared.orders import Wish, lease_of, order_after, order_in, spec_in
from router.state.shared.values import VALUE_BYTES_MAX, packed, pin_key, told, unpacked

WALL_S = 1_790_000_000.0


def pin(**changes: object) -> Pin:
    found = Pin("s", "r1", homed_s=0.0, used_s=90.0, source="header", version=3, turn=7)
    found.tokens, found.prompt_tokens, found.prompt_bytes, found.output_tokens = 900, 800, 3_200, 50
    found.tail, found.tail_segments, found.served = (1 << 64) - 1, 4, ("r2", 0)
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def test_a_session_comes_back_as_it_was() -> None:
    value = unpacked(packed(pin(), now_s=100.0, wall_s=WALL_S))
    assert value is not None
    back = told("s", value, wall_s=WALL_S + 5.0, home_id=None, told_by="x")
    assert (back.home_id, back.version, back.turn, back.tail) == ("r1", 3, 7, (1 << 64) - 1)
    assert (back.tokens, back.prompt_tokens, back.prompt_bytes, back.output_tokens) == (
        900, 800, 3_200, 50,
    )  # fmt: skip
    assert (back.served_id, back.tail_segments, back.source) == ("r2", 4, "header")
    assert back.age_s == 15.0


def test_what_an_operator_fixed_comes_with_the_time_that_is_left() -> None:
    fixed = pin(fixed_id="r9", fixed_until_s=160.0)
    value = unpacked(packed(fixed, now_s=100.0, wall_s=WALL_S))
    assert value is not None
    back = told("s", value, wall_s=WALL_S, home_id=None, told_by="x")
    assert (back.fixed_id, back.fixed_for_s) == ("r9", 61.0)
    late = told("s", value, wall_s=WALL_S + 90.0, home_id=None, told_by="x")
    assert (late.fixed_id, late.fixed_for_s) == ("", None)
    endless = unpacked(packed(pin(fixed_id="r9"), now_s=100.0, wall_s=WALL_S))
    assert endless is not None
    assert told("s", endless, wall_s=WALL_S, home_id=None, told_by="x").fixed_for_s is None


def test_a_clock_that_is_ahead_makes_nothing_younger_than_now() -> None:
    value = unpacked(packed(pin(), now_s=100.0, wall_s=WALL_S + 600.0))
    assert value is not None
    assert told("s", value, wall_s=WALL_S, home_id=None, told_by="x").age_s == 0.0


def test_an_older_and_a_newer_value_of_this_form_are_read() -> None:
    row = msgspec.msgpack.decode(packed(pin(), now_s=100.0, wall_s=WALL_S))
    older = unpacked(msgspec.msgpack.encode(row[:12]))
    assert older is not None
    assert (older.tail_segments, older.source, older.fixed_id) == (4, "", "")
    newer = unpacked(msgspec.msgpack.encode([*row, "what is to come", {"a": 1}]))
    assert newer is not None
    assert newer.home_id == "r1"


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"\x90", msgspec.msgpack.encode([2, 3, 7, "r1"]), b"x" * (VALUE_BYTES_MAX + 1)],
)
def test_another_form_and_nonsense_are_a_miss(data: bytes) -> None:
    assert unpacked(data) is None


@given(st.binary(max_size=200))
def test_no_bytes_are_too_odd(data: bytes) -> None:
    unpacked(data)
    heard(data)
    order_in(data)
    spec_in(data)


@given(st.text(max_size=40), st.text(max_size=40))
def test_names_in_the_store_tell_sessions_apart(one: str, other: str) -> None:
    assert len(pin_key(one)) == 32
    assert (pin_key(one) == pin_key(other)) == (one == other)


def test_of_two_homes_the_same_wins_at_both_routers() -> None:
    value = unpacked(packed(pin(), now_s=100.0, wall_s=WALL_S))
    other = unpacked(packed(pin(home_id="r5"), now_s=100.0, wall_s=WALL_S))
    assert value is not None
    assert other is not None
    here = told("s", value, wall_s=WALL_S, home_id="r5", told_by="x").wins
    there = told("s", other, wall_s=WALL_S, home_id="r1", told_by="x").wins
    assert here is not there
    assert here == (rank("s", ["r1", "r5"])[0] == "r1")


def test_a_word_is_heard_as_it_was_said() -> None:
    value = packed(pin(), now_s=100.0, wall_s=WALL_S)
    word = said(
        "a", 4, ttl_s=2.0, loads=[("r1", 1, 2, 3, 4, 5)], pins=[("s", value)], renewed=["r1"], has_orders=True
    )  # fmt: skip
    found = heard(word)
    assert found is not None
    assert (found.router, found.number, found.ttl_s) == ("a", 4, 2.0)
    assert (found.loads, found.renewed, found.has_orders) == ([("r1", 1, 2, 3, 4, 5)], ["r1"], True)
    assert [(key, row.home_id) for key, row in found.pins] == [("s", "r1")]
    older = heard(msgspec.msgpack.encode(msgspec.msgpack.decode(word)[:6]))
    assert older is not None
    assert (older.renewed, older.has_orders) == ([], False)


def test_a_lease_comes_back_without_its_key() -> None:
    spec = ReplicaSpec(
        "r1", "h", 3, source="registered", capacity_tokens=9, profile="p", inflight_max=2, lease_s=4.5,
        is_tls=True, rate=PrefillRate(1e-3, 2e-5, 3e-10, 4e-10), api_key="se-cr-et",
    )  # fmt: skip
    value = lease_of(spec)
    assert b"se-cr-et" not in value
    back = spec_in(value)
    assert back is not None
    assert back.api_key is None
    assert (back.url, back.lease_s, back.rate, back.profile) == (
        spec.url, 4.5, spec.rate, "p",
    )  # fmt: skip


def test_an_order_is_one_later_than_the_one_before() -> None:
    first = order_after(None, Wish.DRAIN, leaves=True, until_s=9.0)
    second = order_in(order_after(first, Wish.UNDRAIN))
    assert second is not None
    assert (second.number, second.wish) == (2, Wish.UNDRAIN)
    found = order_in(first)
    assert found is not None
    assert (found.number, found.leaves, found.until_s) == (1, True, 9.0)
