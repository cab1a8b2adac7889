"""A chain value stands for everything before it."""

from __future__ import annotations

import xxhash

from hashing.chain import ends, link, root

A, B, C = b"aaaaaaaa", b"bbbbbbbb", b"cccccccc"


def test_each_value_is_seeded_by_the_one_before() -> None:
    first = xxhash.xxh3_64_intdigest(A, 7)
    assert list(link([A, B], seed=7)) == [first, xxhash.xxh3_64_intdigest(B, first)]


def test_order_and_seed_count() -> None:
    assert link([A, B], seed=0) != link([B, A], seed=0)
    assert link([A], seed=0) != link([A], seed=1)
    assert link([A, B, C], seed=0)[:2] == link([A, B], seed=0)
    assert list(link([], seed=0)) == []


def test_root() -> None:
    assert root() == root(b"")
    assert root(b"salt") != root()


def test_ends() -> None:
    assert list(ends([3, 4, 5])) == [3, 7, 12]
    assert ends([]).typecode == "I"
