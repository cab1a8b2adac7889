"""Prefix cache of one tier: a path-compressed tree whose edges are runs of page ids.

An id stands for its page and everything before it, so equality at one index of a run implies
equality before it, and a mismatch is found by bisection. The pages held form a prefix-closed set:
eviction takes from the end of the coldest leaf, never from the middle. It takes whole *runs*, as
SGLang's does: what was added by one call, or a part of it where another prompt went on from its
middle. A node that grew in place holds several. A pinned node, and with it every node above, is
never evicted.
"""

from __future__ import annotations

import heapq
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Node:
    """Consecutive pages that follow ``parent``'s.

    ``cuts`` are the indexes, none of them 0, at which its second and further runs begin. ``pins`` counts the holders of this node and of all below it. ``used_at`` is the tree's own
    count of uses, not a time.
    """

    __slots__ = ("children", "cuts", "ids", "is_listed", "parent", "pins", "serial", "used_at")

    def __init__(
        self, ids: array[int], parent: Node | None, *, pins: int, used_at: int, serial: int
    ) -> None:
        self.ids = ids
        self.cuts: list[int] = []
        self.parent = parent
        self.children: dict[int, Node] = {}
        self.pins = pins
        self.used_at = used_at
        self.serial = serial
        self.is_listed = False


class PrefixTree:
    """The pages one tier holds. It counts them; who may add how many is the caller's business."""

    def __init__(self) -> None:
        self.n_pages = 0
        self.pinned_pages = 0
        self._serial = 0
        self._tick = 0
        self._root = Node(array("Q"), None, pins=0, used_at=0, serial=0)
        # Leaves that may be evicted, coldest first. Entries are checked when they are popped, so a
        # use costs nothing here; each node has at most one entry.
        self._coldest: list[tuple[int, int, Node]] = []

    def match(self, pages: array[int], limit: int) -> tuple[int, int]:
        """Pages held of ``pages[:limit]`` from the start, and how many of those are not pinned.

        Changes nothing.
        """
        node = self._root
        at = unpinned = 0
        while at < limit:
            child = node.children.get(pages[at])
            if child is None:
                break
            n = _common(child.ids, pages, at, limit)
            at += n
            if not child.pins:
                unpinned += n
            if n < len(child.ids):
                break
            node = child
        return at, unpinned

    def lock(self, pages: array[int], count: int) -> Node:
        """Pin ``pages[:count]``, all of which must be held; answers the node that ends there."""
        self._tick += 1
        node = self._root
        at = 0
        while at < count:
            node = self._enter(node.children[pages[at]], pages, at, count)
            at += len(node.ids)
        return node

    def unlock(self, node: Node) -> None:
        """Undo one :meth:`lock` (or what it was extended to); its path counts as used now."""
        self._tick += 1
        at: Node | None = node
        while at is not None and at is not self._root:
            at.used_at = self._tick
            at.pins -= 1
            assert at.pins >= 0, "a node was unlocked more often than it was locked"
            if not at.pins:
                self.pinned_pages -= len(at.ids)
            at = at.parent
        self._list(node)

    def extend(self, node: Node, pages: array[int], start: int, stop: int) -> tuple[Node, int]:
        """Move the caller's pin on ``pages[:start]``, which ends at ``node``, on to ``stop``.

        Answers the node that ends there, and how many pages were added; the others were held.
        """
        self._tick += 1
        while start < stop:
            child = node.children.get(pages[start])
            if child is None:
                return self._append(node, pages[start:stop]), stop - start
            node = self._enter(child, pages, start, stop)
            start += len(node.ids)
        return node, 0

    def touch(self, pages: array[int], count: int) -> None:
        """Count ``pages[:count]`` as used now, as far as they are held."""
        self._tick += 1
        node = self._root
        at = 0
        while at < count:
            child = node.children.get(pages[at])
            if child is None:
                break
            child.used_at = self._tick
            at += len(child.ids)
            node = child

    def evict(self, n_pages: int) -> int:
        """Drop unpinned runs, coldest leaf first, until ``n_pages`` pages are dropped.

        Answers how many were: more where the last run was longer than needed, fewer only where all
        that is left is pinned.
        """
        dropped = 0
        while dropped < n_pages and self._coldest:
            used_at, _, node = heapq.heappop(self._coldest)
            node.is_listed = False
            if node.parent is None or node.children or node.pins:
                continue
            if node.used_at != used_at:
                self._list(node)
                continue
            start = node.cuts.pop() if node.cuts else 0
            dropped += len(node.ids) - start
            if start:
                del node.ids[start:]
                self._list(node)
                continue
            parent = node.parent
            del parent.children[node.ids[0]]
            node.parent = None
            self._list(parent)
        self.n_pages -= dropped
        return dropped

    def clear(self) -> None:
        """Drop everything; nothing may be pinned."""
        assert not self.pinned_pages, f"cleared while {self.pinned_pages} pages are pinned"
        self._root.children.clear()
        self._coldest.clear()
        self.n_pages = 0

    def nodes(self) -> Iterator[Node]:
        """Every node but the root, parents before children."""
        stack = list(self._root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def _enter(self, child: Node, pages: array[int], at: int, limit: int) -> Node:
        """Pin the part of ``child`` that equals ``pages[at:limit]``, split off where needed."""
        n = _common(child.ids, pages, at, limit)
        if n < len(child.ids):
            child = self._split(child, n)
        if not child.pins:
            self.pinned_pages += n
        child.pins += 1
        child.used_at = self._tick
        return child

    def _split(self, lower: Node, count: int) -> Node:
        """Cut a node after ``count`` pages. Holders of ``lower`` keep it; answers the new upper."""
        upper = self._new(lower.ids[:count], lower.parent, pins=lower.pins)
        upper.used_at = lower.used_at
        upper.cuts = [cut for cut in lower.cuts if cut < count]
        lower.cuts = [cut - count for cut in lower.cuts if cut > count]
        lower.ids = lower.ids[count:]
        lower.parent = upper
        upper.children[lower.ids[0]] = lower
        return upper

    def _append(self, node: Node, ids: array[int]) -> Node:
        """Add pages behind ``node`` for its holder, in place if nobody else holds it."""
        self.n_pages += len(ids)
        self.pinned_pages += len(ids)
        if node is not self._root and not node.children and node.pins == 1:
            node.cuts.append(len(node.ids))
            node.ids.extend(ids)
            return node
        return self._new(ids, node, pins=1)

    def _new(self, ids: array[int], parent: Node | None, *, pins: int) -> Node:
        assert parent is not None, "a node outside the tree cannot get pages"
        self._serial += 1
        node = Node(ids, parent, pins=pins, used_at=self._tick, serial=self._serial)
        parent.children[ids[0]] = node
        return node

    def _list(self, node: Node) -> None:
        """Let an unpinned leaf be found by eviction."""
        if node.is_listed or node.children or node.pins or node is self._root:
            return
        node.is_listed = True
        heapq.heappush(self._coldest, (node.used_at, node.serial, node))


def _common(ids: array[int], pages: array[int], at: int, limit: int) -> int:
    """How many of ``ids`` equal ``pages[at:limit]``; the first one is known to."""
    n = min(len(ids), limit - at)
    if ids[n - 1] == pages[at + n - 1]:
        return n
    low = 1
    high = n - 1
    while low < high:
        middle = (low + high) // 2
        if ids[middle] == pages[at + middle]:
            low = middle + 1
        else:
            high = middle
    return low
