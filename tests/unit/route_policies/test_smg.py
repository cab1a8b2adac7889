"""SMG's rules as published: match ratio, spill gate, overload veto, expected wait; and the older rule."""

from __future__ import annotations

import pytest

from router.policy.smg import SmgCacheAware, SmgCacheAwareOld
from tests.doubles.small_fleet import Row, busy, fleet, ranked, request

NEW, OLD = SmgCacheAware(), SmgCacheAwareOld()


def _loaded(*inflight: int, waiting: int = 0, used_ratio: float = 0.0) -> list[Row]:
    """Replicas as busy as that; the first one reports what is told besides."""
    rows = [Row(inflight=n, ours=n) for n in inflight]
    first = Row(inflight=inflight[0], ours=inflight[0], waiting=waiting, used_ratio=used_ratio)
    return [first, *rows[1:]]


@pytest.mark.parametrize(
    ("cached", "reason"), [(3_000, "miss"), (3_001, "match"), (0, "miss"), (9_984, "match")]
)
def test_over_three_tenths_of_the_prompt_is_a_match(cached: int, reason: str) -> None:
    for policy in (NEW, OLD):
        ranking = ranked(policy, busy(1, 1), request({"r1": cached} if cached else {}))
        assert ranking.reason == reason
        if reason == "match":
            assert ranking.ranked[0] == "r1"


def test_only_the_deepest_holders_compete() -> None:
    rows = [Row(inflight=2, ours=0), Row(inflight=1, ours=0), Row()]
    cached = {"r0": 9_000, "r1": 9_000, "r2": 8_000}
    assert ranked(NEW, fleet(*rows), request(cached)).ranked[0] == "r1"


@pytest.mark.parametrize(
    ("inflight", "reason"),
    [
        # mean 4: margin max(4, 2 * 2) = 4, so eight are allowed though it is twice the mean
        ((8, 3, 1), "match"),
        ((9, 2, 1), "spill"),
        # mean 100: the margin is 2 * 10 = 20, and 1.5 times the mean is what counts
        ((150, 75, 75), "match"),
        ((154, 73, 73), "spill"),
        # alone with all: nobody is over a gate that it makes itself
        ((0, 0, 0), "match"),
    ],
)
def test_a_holder_over_the_gate_against_the_mean_is_spilled_past(
    inflight: tuple[int, ...], reason: str
) -> None:
    ranking = ranked(NEW, busy(*inflight), request({"r0": 9_000}))
    assert ranking.reason == reason
    assert (ranking.ranked[0] == "r0") == (reason == "match")


@pytest.mark.parametrize(
    ("waiting", "used_ratio", "is_vetoed"),
    [(7, 0.79, False), (8, 0.0, True), (0, 0.8, True), (0, 0.0, False)],
)
def test_an_overloaded_holder_is_vetoed(
    waiting: int, used_ratio: float, *, is_vetoed: bool
) -> None:
    rows = _loaded(1, 1, waiting=waiting, used_ratio=used_ratio)
    ranking = ranked(NEW, fleet(*rows), request({"r0": 9_000}))
    assert (ranking.ranked[0] == "r1") == is_vetoed


def test_if_all_are_overloaded_nobody_is_vetoed() -> None:
    rows = [Row(waiting=9, waiting_tokens=90_000), Row(waiting=9, waiting_tokens=80_000)]
    assert ranked(NEW, fleet(*rows), request()).ranked[0] == "r1"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Row(waiting_tokens=2_000), Row(waiting_tokens=4_000)),
        # a request since the last report counts 1,024 tokens, one that it contains nothing more
        (Row(inflight=9, ours=9), Row(inflight=1, ours=0)),
        (Row(inflight=1, reports=False), Row(inflight=2, reports=False)),
        # 0.15 * .75 / .25 = 0.45 s against 1,024 / 2,000 = 0.51 s
        (Row(used_ratio=0.75), Row(inflight=1, ours=0)),
        (Row(inflight=1, ours=0), Row(used_ratio=0.79)),
    ],
)
def test_the_expected_wait_is_tokens_over_throughput_and_the_kv_barrier(
    one: Row, other: Row
) -> None:
    assert ranked(NEW, fleet(one, other), request()).ranked[0] == "r0"
    assert ranked(NEW, fleet(other, one), request()).ranked[0] == "r1"


@pytest.mark.parametrize(
    ("inflight", "reason"),
    [
        ((64, 0, 0), "match"),
        ((65, 0, 0), "imbalance"),
        ((195, 130, 140), "match"),
        ((196, 130, 140), "imbalance"),
    ],
)
def test_the_older_rule_drops_every_holder_while_the_fleet_is_out_of_balance(
    inflight: tuple[int, ...], reason: str
) -> None:
    ranking = ranked(OLD, busy(*inflight), request({"r2": 9_000}))
    assert ranking.reason == reason
    if reason == "match":
        assert ranking.ranked[0] == "r2"
    else:
        assert inflight[int(ranking.ranked[0][1:])] == min(inflight)


def test_the_older_rule_sends_what_nobody_holds_to_the_smallest_tree() -> None:
    rows = [Row(held_bytes=500), Row(held_bytes=100, inflight=9), Row(held_bytes=300)]
    ranking = ranked(OLD, fleet(*rows), request({"r0": 2_000}))
    assert (ranking.ranked[0], ranking.reason) == ("r1", "miss")


def test_a_holder_is_still_preferred_where_all_are_overloaded() -> None:
    rows = [Row(inflight=9, ours=9, waiting=9, used_ratio=0.9)] * 3
    ranking = ranked(NEW, fleet(*rows), request({"r2": 9_000}))
    assert (ranking.ranked[0], ranking.reason) == ("r2", "match")
