"""A consistent-hash ring (Karger et al. 1997): each replica stands at many points of a circle.

A key belongs to the first point at or behind its own. When a replica joins or leaves, only the keys
between its points and the ones before them change their place.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def spot_of(name: str) -> int:
    """Where a name stands on a ring, or among equal ones; in 0..2**64-1."""
    return xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass"))


class Ring:
    """An unchanging ring of ids, each at ``points`` places."""

    __slots__ = ("_ids", "_n", "_spots")

    def __init__(self, ids: Iterable[str], points: int) -> None:
        digest = xxhash.xxh3_64_intdigest
        names = list(ids)
        places = sorted(
            (digest(raw, seed), name)
            for name in names
            for raw in (name.encode("utf-8", "surrogatepass"),)
            for seed in range(points)
        )
        self._n = len(names)
        self._spots = [spot for spot, _ in places]
        self._ids = [name for _, name in places]

    def from_spot(self, spot: int) -> Iterator[str]:
        """All ids, each once, in the order in which a walk from ``spot`` (0..2**64-1) meets them."""
        seen: set[str] = set()
        n = len(self._ids)
        at = bisect_left(self._spots, spot)
        for step in range(n):
            name = self._ids[(at + step) % n]
            if name not in seen:
                seen.add(name)
                yield name
                if len(seen) == self._n:
                    return


class Rings:
    """The rings over one set of ids, made when first asked for."""

    __slots__ = ("_ids", "_made")

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._ids = tuple(ids)
        self._made: dict[int, Ring] = {}

    def get(self, points: int) -> Ring:
        """The ring on which each id stands at ``points`` places."""
        ring = self._made.get(points)
        if ring is None:
            ring = self._made[points] = Ring(self._ids, points)
        return ring
