"""Replicas kept in order of one number, so that the least of many are read without looking at all.

What changed is only marked; the order is mended when it is read. A read costs by what changed since
the last one, not by how many replicas there are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from router.policy.ring import spot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

_SORT_ANEW_SHARE: Final = 4
"""From a quarter of the rows on, sorting all of them is cheaper than moving each."""

_SPOT_BITS: Final = 64
_SPOTS: Final = 1 << _SPOT_BITS


class LeastFirst(Generic[T]):
    """Items by id, the least of ``value`` first; among equal ones, by the spots of their ids.

    A row is one whole number, the value above the bits of the spot: those compare fastest.
    """

    __slots__ = ("_at_spot", "_dirty", "_items", "_places", "_rows", "_total", "_value")

    def __init__(self, items: Mapping[str, T], value: Callable[[T], int]) -> None:
        self._items = items
        self._value = value
        self._at_spot: dict[int, T] = {}
        self._places: dict[str, int] = {}
        self._total = 0
        for name in sorted(items):
            item, spot = items[name], spot_of(name)
            while spot in self._at_spot:
                spot = (spot + 1) % _SPOTS
            self._at_spot[spot] = item
            self._places[name] = (value(item) << _SPOT_BITS) + spot
            self._total += value(item)
        self._rows = sorted(self._places.values())
        self._dirty: dict[str, None] = {}

    def changed(self, names: dict[str, None]) -> None:
        """The values of these items may have changed; unknown names are left out."""
        self._dirty.update(names)

    def first(self, k: int, spot: int, is_refused: Callable[[T], bool] | None = None) -> list[T]:
        """At most ``k`` items, the least first; equal ones from ``spot`` on around the circle.

        Different spots thus meet equal items in different orders, whatever order they came in.
        """
        if self._dirty:
            self._mend()
        rows, at_spot, at = self._rows, self._at_spot, 0
        found: list[T] = []
        n = len(rows)
        while at < n and len(found) < k:
            value, end = rows[at] >> _SPOT_BITS, at + 1
            if end < n and rows[end] >> _SPOT_BITS == value:
                end = bisect_left(rows, (value + 1) << _SPOT_BITS, end)
                middle = bisect_left(rows, (value << _SPOT_BITS) + spot, at, end)
                reach = n if is_refused else k
                tied = rows[middle : min(end, middle + reach)] + rows[at : min(middle, at + reach)]
            else:
                tied = rows[at:end]
            for row in tied:
                item = at_spot[row % _SPOTS]
                if is_refused is None or not is_refused(item):
                    found.append(item)
                    if len(found) == k:
                        break
            at = end
        return found

    @property
    def fewest(self) -> int:
        """The smallest value; 0 without items."""
        if self._dirty:
            self._mend()
        return self._rows[0] >> _SPOT_BITS if self._rows else 0

    @property
    def most(self) -> int:
        """The largest value; 0 without items."""
        self._mend()
        return self._rows[-1] >> _SPOT_BITS if self._rows else 0

    @property
    def total(self) -> int:
        """The sum of all values."""
        self._mend()
        return self._total

    def value_of(self, item: T) -> int:
        """What the items are ordered by."""
        return self._value(item)

    def _mend(self) -> None:
        """Bring the order up to date."""
        dirty, rows, places, items, value = (
            self._dirty, self._rows, self._places, self._items, self._value,
        )  # fmt: skip
        is_sorted_anew = len(dirty) * _SORT_ANEW_SHARE > len(rows)
        for name in dirty:
            row = places.get(name)
            if row is None:
                continue
            grown = value(items[name]) - (row >> _SPOT_BITS)
            if not grown:
                continue
            self._total += grown
            moved = places[name] = row + (grown << _SPOT_BITS)
            if not is_sorted_anew:
                del rows[bisect_left(rows, row)]
                insort(rows, moved)
        if is_sorted_anew:
            self._rows = sorted(places.values())
        dirty.clear()
