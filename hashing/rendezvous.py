"""Key x ids -> a ranking that every router computes alike (highest random weight hashing).

Each id's weight for a key depends on that id and the key alone, so adding or removing an id never
changes the order of the others, and only the keys it ranked first for move.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def weight(key: str, member_id: str) -> int:
    """The weight of ``member_id`` for ``key``, in 0..2**64-1; the heaviest id ranks first."""
    seed = xxhash.xxh3_64_intdigest(key.encode("utf-8", "surrogatepass"))
    return xxhash.xxh3_64_intdigest(member_id.encode("utf-8", "surrogatepass"), seed)


def first(key: str, ids: Iterable[str], k: int) -> list[str]:
    """The ``k`` most preferred of ``rank(key, ids)``, without ranking all."""
    intdigest = xxhash.xxh3_64_intdigest
    seed = intdigest(key.encode("utf-8", "surrogatepass"))
    weights = [(-intdigest(name.encode("utf-8", "surrogatepass"), seed), name) for name in ids]
    return [name for _, name in nsmallest(k, weights)]


def rank(key: str, ids: Sequence[str]) -> list[str]:
    """``ids`` from most to least preferred for ``key``; equal weights rank by id."""
    intdigest = xxhash.xxh3_64_intdigest
    seed = intdigest(key.encode("utf-8", "surrogatepass"))
    return sorted(
        ids, key=lambda name: (-intdigest(name.encode("utf-8", "surrogatepass"), seed), name)
    )
