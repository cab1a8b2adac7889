"""Placement that all routers compute alike."""

from __future__ import annotations

from hashing.rendezvous import first, rank, weight

IDS = [f"replica-{n}" for n in range(8)]


def test_the_ranking_does_not_depend_on_the_order_of_the_ids() -> None:
    assert rank("s1", IDS) == rank("s1", IDS[::-1])
    assert sorted(rank("s1", IDS)) == IDS
    assert rank("s1", []) == []


def test_the_heaviest_comes_first() -> None:
    weights = [weight("s1", name) for name in rank("s1", IDS)]
    assert weights == sorted(weights, reverse=True)


def test_keys_spread_evenly() -> None:
    firsts = [rank(f"session-{n}", IDS)[0] for n in range(4000)]
    counts = [firsts.count(name) for name in IDS]
    assert min(counts) > 400
    assert max(counts) < 600


def test_values_are_stable_across_versions() -> None:
    assert rank("session", ["a", "b", "c", "d"]) == ["d", "a", "c", "b"]


def test_the_first_ones_are_those_of_the_ranking() -> None:
    for n in range(len(IDS) + 1):
        for k in (0, 1, 3, len(IDS) + 1):
            assert first("s1", IDS[:n], k) == rank("s1", IDS[:n])[:k]
