"""Replicas kept in order of one number, so that the least of many are read without looking at all.

What changed is only marked; the order is mended when it is read. A read costs by what changed since
the last one, not by how many replicas there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from router.policy.ring import spot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

_SORT_ANEW_SHARE: Final = 4
"""From a quarter of the rows on, sorting all of them is cheaper than moving each."""

_SPOT_END: Final = 1 << 64


class LeastFirst(Generic[T]):
    """Items by id, the least of ``value`` first; among equal ones, by the spots of their ids."""

    __slots__ = ("_dirty", "_items", "_places", "_rows", "_total", "_value")

    def __init__(self, items: Mapping[str, T], value: Callable[[T], int]) -> None:
        self._items = items
        self._value = value
        self._places = {name: (value(item), spot_of(name), name) for name, item in items.items()}
        self._rows = sorted(self._places.values())
        self._dirty: dict[str, None] = {}
        self._total = sum([row[0] for row in self._rows])

    def changed(self, names: dict[str, None]) -> None:
        """The values of these items may have changed; unknown names are left out."""
        self._dirty.update(names)

    def first(self, k: int, spot: int, is_refused: Callable[[T], bool] | None = None) -> list[T]:
        """At most ``k`` items, the least first; equal ones from ``spot`` on around the circle.

        Different spots thus meet equal items in different orders, whatever order they came in.
        """
        if self._dirty:
            self._mend()
        rows, items, at = self._rows, self._items, 0
        found: list[T] = []
        n = len(rows)
        while at < n and len(found) < k:
            least, end = rows[at][0], at + 1
            if end < n and rows[end][0] == least:
                end = bisect_right(rows, (least, _SPOT_END, ""), end)
                middle = bisect_left(rows, (least, spot, ""), at, end)
                reach = n if is_refused else k
                tied = rows[middle : min(end, middle + reach)] + rows[at : min(middle, at + reach)]
            else:
                tied = rows[at:end]
            if is_refused:
                fit = (items[row[2]] for row in tied if not is_refused(items[row[2]]))
                found += islice(fit, k - len(found))
            else:
                found += [items[row[2]] for row in tied[: k - len(found)]]
            at = end
        return found

    @property
    def most(self) -> int:
        """The largest value; 0 without items."""
        self._mend()
        return self._rows[-1][0] if self._rows else 0

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
            now = value(items[name])
            before, spot, _ = row
            if now == before:
                continue
            self._total += now - before
            moved = places[name] = (now, spot, name)
            if not is_sorted_anew:
                del rows[bisect_left(rows, row)]
                insort(rows, moved)
        if is_sorted_anew:
            self._rows = sorted(places.values())
        dirty.clear()
