"""Rings: who owns a key, when its owner is walked past, and what changes when replicas come and go."""

from __future__ import annotations

import pytest

from router.policy.hashed import PrefixHash, RingBounded
from router.policy.ring import Ring, spot_of
from router.state.fleet.candidates import View
from tests.doubles.small_fleet import busy, choices, ranked, request

KEYS = [f"s{n}" for n in range(300)]


def test_a_ring_moves_only_the_keys_of_who_left() -> None:
    four, three = Ring("abcd", 160), Ring("abc", 160)
    owners = [next(four.from_spot(spot_of(key))) for key in KEYS]
    for key, owner in zip(KEYS, owners, strict=True):
        walk = list(four.from_spot(spot_of(key)))
        assert sorted(walk) == list("abcd")
        assert list(three.from_spot(spot_of(key))) == [name for name in walk if name != "d"]
        assert walk[0] == owner
    assert all(45 < owners.count(name) < 115 for name in "abcd")
    assert list(Ring((), 160).from_spot(5)) == []


def test_a_session_is_at_its_place_on_the_ring_while_that_is_below_the_bound() -> None:
    even = choices(RingBounded(), busy(4, 4, 4, 4), KEYS)
    assert {reason for _, reason in even} == {"ring"}
    # 16 in flight: the bound is ceil(1.25 * 17 / 4) = 6 for the one that comes included.
    near = choices(RingBounded(), busy(5, 4, 4, 3), KEYS)
    assert near == even
    over = choices(RingBounded(), busy(6, 4, 3, 3), KEYS)
    for key, before, after in zip(KEYS, even, over, strict=True):
        if before[0] != "r0":
            assert after == before
        else:
            walk = list(busy(0, 0, 0, 0).ring(160).from_spot(spot_of(key)))
            assert after == (walk[1], "ring-next")


def test_the_ring_keeps_all_replicas_and_skips_those_that_may_not() -> None:
    view = busy(0, 0, 0, 0)
    without = View(view._eligible, tried=("r1",))
    for before, after in zip(
        choices(RingBounded(), view, KEYS), choices(RingBounded(), without, KEYS), strict=True
    ):
        assert after[0] != "r1"
        if before[0] != "r1":
            assert after == before


@pytest.mark.parametrize(
    ("inflight", "reason", "is_owner"),
    [
        ((5, 5, 5, 5), "prefix", True),
        ((0, 0, 0, 0), "prefix", True),
        # 20 in flight: 1.25 * 21 / 4 = 6.6, and six are no overload.
        ((6, 5, 5, 4), "prefix", True),
        ((7, 5, 5, 3), "prefix-overload", False),
    ],
)
def test_an_overloaded_owner_of_a_prefix_is_left_for_the_least_loaded(
    inflight: tuple[int, ...], reason: str, *, is_owner: bool
) -> None:
    owned = _head_of_r0()
    ranking = ranked(PrefixHash(), busy(*inflight), request(head_key=owned))
    assert ranking.reason == reason
    assert ranking.ranked[0] == ("r0" if is_owner else "r3")


def test_prompts_of_one_head_go_to_one_place_and_one_without_a_head_to_the_fewest() -> None:
    view = busy(3, 3, 3, 2)
    assert len(set(choices(PrefixHash(), view, KEYS))) == 1
    ranking = ranked(PrefixHash(), view, request(head_key=0))
    assert (ranking.ranked[0], ranking.reason) == ("r3", "no-prefix")


def _head_of_r0() -> int:
    ring = busy(0, 0, 0, 0).ring(160)
    return next(spot for key in KEYS if next(ring.from_spot(spot := spot_of(key))) == "r0")
