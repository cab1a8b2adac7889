"""Replicas kept in order of one number, so that the least of many are read without looking at all; sums of others.

What changed is only marked; the order is mended when it is read. A read costs by what changed since
the last one, not by how many replicas there are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from router.policy.ring import spot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")

_SORT_ANEW_SHARE: Final = 4
"""From a quarter of the rows on, sorting all of them is cheaper than moving each."""

_SPOT_BITS: Final = 64
_SPOTS: Final = 1 << _SPOT_BITS
_SPOT_MASK: Final = _SPOTS - 1


class LeastFirst(Generic[T]):
    """Items by id, the least of ``value`` first; among equal ones, by the spots of their ids.

    A row is one whole number, the value above the bits of the spot: those compare fastest.
    ``changed`` is told whose values may have changed; unknown names are left out.
    """

    __slots__ = ("_at_spot", "_dirty", "_items", "_places", "_rows", "_total", "_value", "changed")

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
        self.changed: Callable[[dict[str, None]], None] = self._dirty.update

    def first(self, k: int, spot: int, is_refused: Callable[[T], bool] | None = None) -> list[T]:
        """At most ``k`` items, the least first; equal ones from ``spot`` on around the circle.

        Different spots thus meet equal items in different orders, whatever order they came in.
        """
        if k <= 0:
            return []
        if self._dirty:
            self._mend()
        rows, at_spot, at = self._rows, self._at_spot, 0
        found: list[T] = []
        n = len(rows)
        while at < n:
            row, end = rows[at], at + 1
            least = row - (row & _SPOT_MASK)
            if end < n and rows[end] < least + _SPOTS:
                end = bisect_left(rows, least + _SPOTS, end)
                middle = bisect_left(rows, least + spot, at, end)
                reach = n if is_refused else k
                tied = rows[middle : min(end, middle + reach)] + rows[at : min(middle, at + reach)]
            else:
                tied = [row]
            left = k - len(found)
            if is_refused is None:
                found += [at_spot[row & _SPOT_MASK] for row in tied[:left]]
            else:
                items = (at_spot[row & _SPOT_MASK] for row in tied)
                found += islice((item for item in items if not is_refused(item)), left)
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
        dirty, rows, places = self._dirty, self._rows, self._places
        items, value = self._items, self._value
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


class Total(Generic[T]):
    """The sum of a number over items by id; a change costs by what changed."""

    __slots__ = ("_items", "_value", "_values", "now")

    def __init__(self, items: Mapping[str, T], value: Callable[[T], int]) -> None:
        self._items = items
        self._value = value
        self._values = {name: value(item) for name, item in items.items()}
        self.now = sum(self._values.values())

    def changed(self, names: Iterable[str]) -> None:
        """Of these the number may have changed; unknown ones are left out."""
        for name in names:
            item = self._items.get(name)
            if item is not None:
                value = self._value(item)
                self.now += value - self._values[name]
                self._values[name] = value
