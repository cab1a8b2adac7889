"""The pages that one KV cache holds, as its engine publishes them.

A page is named by a number that stands for it and for everything before it. A page counts as held
while any medium holds it, and who holds a page holds all before it: engines store from the front and
give up from the end. What an engine says is taken in its order; saying a thing twice changes nothing.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from enum import IntEnum
from typing import Final, NamedTuple

PAGES_MAX: Final = 2_000_000
"""Of one cache: 128 million tokens in pages of 64, or 2 million in pages of one."""
_GONE_MAX: Final = 65_536


class Kind(IntEnum):
    """What happened to pages."""

    STORED = 0
    REMOVED = 1
    CLEARED = 2


class Medium(IntEnum):
    """Where a page lies; an engine may hold it in several places: each is a bit."""

    GPU = 1
    CPU = 2
    DISK = 4


class Change(NamedTuple):
    """One thing that an engine said: pages that follow each other, behind ``parent`` (None: the first)."""

    kind: Kind
    medium: Medium = Medium.GPU
    parent: int | None = None
    pages: array[int] = array("q")


class PageCache:
    """What one cache holds.

    ``is_whole``: all that it ever stored was told, so that what is not known is not there. ``epoch`` grows
    each time that the cache begins anew.
    """

    __slots__ = ("_gone", "_media", "_next", "_pages_max", "epoch", "is_whole")

    def __init__(self, pages_max: int = PAGES_MAX) -> None:
        self._pages_max = pages_max
        # Every page held -> the newest page behind it, 0 for none.
        self._next: dict[int, int] = {}
        # Only of pages that lie elsewhere than on the GPU alone.
        self._media: dict[int, int] = {}
        self._gone: OrderedDict[int, None] = OrderedDict()
        self.is_whole = False
        self.epoch = 0

    def __len__(self) -> int:
        return len(self._next)

    def __contains__(self, page: int) -> bool:
        return page in self._next

    def begin(self, epoch: int) -> None:
        """Nothing is known of it any more."""
        self.clear()
        self._gone.clear()
        self.is_whole = False
        self.epoch = epoch

    def clear(self) -> None:
        """It holds nothing."""
        self._next.clear()
        self._media.clear()

    def apply(self, change: Change) -> bool:
        """Take one change; False if more pages were told than are kept: it is to begin anew."""
        if change.kind is Kind.STORED:
            self._store(change)
            return len(self._next) <= self._pages_max
        if change.kind is Kind.REMOVED:
            self._remove(change)
        else:
            self.clear()
        return True

    def know(self, pages: array[int]) -> None:
        """It is known to have held these pages on its GPU just now, whoever told that.

        Those that were removed lately are not taken back: that may have been later.
        """
        held, before = self._next, None
        for page in pages:
            if page not in held:
                if page in self._gone or len(held) >= self._pages_max:
                    return
                held[page] = 0
            if before is not None and not held[before]:
                held[before] = page
            before = page

    def leading(self, pages: array[int], n: int) -> int:
        """How many of the first ``n`` of consecutive pages it holds."""
        held = self._next
        if not n or pages[n - 1] in held:
            return n
        low, high = 0, n - 1
        while low < high:
            middle = (low + high) // 2
            if pages[middle] in held:
                low = middle + 1
            else:
                high = middle
        return low

    def following(self, page: int, limit: int) -> int:
        """How many pages it holds behind one, at most ``limit``; where several follow, the newest."""
        held, n = self._next, 0
        while n < limit:
            page = held.get(page, 0)
            if page not in held:
                return n
            n += 1
        return n

    def _store(self, change: Change) -> None:
        held, media, bit = self._next, self._media, int(change.medium)
        is_gpu = bit == Medium.GPU
        gone = self._gone
        before = change.parent
        for page in change.pages:
            if page not in held:
                held[page] = 0
                if gone:
                    gone.pop(page, None)
                if not is_gpu:
                    media[page] = bit
            else:
                had = media.get(page, 1)
                if had | bit != had:
                    media[page] = had | bit
            # A copy that is made elsewhere later says nothing of what came last.
            if before is not None and before in held and (is_gpu or not held[before]):
                held[before] = page
            before = page

    def _remove(self, change: Change) -> None:
        held, media, bit = self._next, self._media, int(change.medium)
        gone = None if self.is_whole else self._gone
        for page in change.pages:
            if gone is not None:
                gone[page] = None
                if len(gone) > _GONE_MAX:
                    gone.popitem(last=False)
            if page not in held:
                continue
            left = media.get(page, 1) & ~bit
            if not left:
                del held[page]
                media.pop(page, None)
            elif left == Medium.GPU:
                media.pop(page, None)
            else:
                media[page] = left
