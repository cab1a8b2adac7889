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

    ``cuts`` are the indexes, none of them 0, at which its second and further runs begin. ``pins``
    counts the holders of this node and of all below it. ``used_at`` is the tree's own count of uses,
    not a time. ``version`` grows whenever ``ids`` change, a child comes or the node is evicted.
    """

    __slots__ = (
        "children",
        "cuts",
        "ids",
        "is_listed",
        "parent",
        "pins",
        "serial",
        "used_at",
        "version",
    )

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
        self.version = 0
        self.is_listed = False


class Match:
    """Where the held part of one prompt ends: ``at`` pages deep, ``inner`` pages into ``node``.

    It is current, which means that the tree would answer the same, as long as the node has its
    ``version``.
    """

    __slots__ = ("at", "inner", "node", "version")

    def __init__(self, node: Node, *, inner: int, at: int) -> None:
        self.node = node
        self.inner = inner
        self.at = at
        self.version = node.version


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

    def match(self, pages: array[int], limit: int) -> Match:
        """What is held of ``pages[:limit]`` from the start. Changes nothing."""
        node = self._root
        at = inner = 0
        while at < limit:
            child = node.children.get(pages[at])
            if child is None:
                break
            inner = _common(child.ids, pages, at, limit)
            at += inner
            node = child
            if inner < len(child.ids):
                break
        return Match(node, inner=inner, at=at)

    def lock(self, match: Match) -> Node:
        """Pin what a current match found, which counts as used now; answers the node it ends with."""
        self._tick += 1
        node = match.node
        if match.inner < len(node.ids):
            node = self._split(node, match.inner)
        at = node
        root = self._root
        while at is not root:
            assert at.parent is not None, "4: a match goes past an evicted page"
            if not at.pins:
                self.pinned_pages += len(at.ids)
            at.pins += 1
            at.used_at = self._tick
            at = at.parent
        return node

    def unlock(self, node: Node) -> None:
        """Undo one :meth:`lock` (or what it was extended to); its path counts as used now."""
        self._tick += 1
        at = node
        root = self._root
        while at is not root:
            at.used_at = self._tick
            at.pins -= 1
            assert at.pins >= 0, "3: a node was unlocked more often than it was locked"
            assert at.parent is not None, "3: a pinned node is outside the tree"
            if not at.pins:
                self.pinned_pages -= len(at.ids)
            at = at.parent
        self._list(node)

    def extend(self, node: Node, pages: array[int], start: int, stop: int) -> tuple[Node, int]:
        """Move the caller's pin, which ends at ``node``, on over ``pages[start:stop]`` behind it.

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
                node.version += 1
                self._list(node)
                continue
            parent = node.parent
            del parent.children[node.ids[0]]
            node.parent = None
            node.version += 1
            self._list(parent)
        self.n_pages -= dropped
        return dropped

    def clear(self) -> None:
        """Drop everything; nothing may be pinned."""
        assert not self.pinned_pages, f"cleared while {self.pinned_pages} pages are pinned"
        self._root.children.clear()
        self._root.version += 1
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
        lower.version += 1
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
            node.version += 1
            return node
        return self._new(ids, node, pins=1)

    def _new(self, ids: array[int], parent: Node | None, *, pins: int) -> Node:
        assert parent is not None, "a node outside the tree cannot get pages"
        self._serial += 1
        node = Node(ids, parent, pins=pins, used_at=self._tick, serial=self._serial)
        parent.children[ids[0]] = node
        parent.version += 1
        return node

    def _list(self, node: Node) -> None:
        """Let an unpinned leaf be found by eviction."""
        if node.is_listed or node.children or node.pins or node is self._root:
            return
        node.is_listed = True
        heapq.heappush(self._coldest, (node.used_at, node.serial, node))


def _common(ids: array[int], pages: array[int], at: int, limit: int) -> int:
    """How many of ``ids`` equal ``pages[at:limit]``; the first one is known to."""
    n = len(ids)
    n = min(n, limit - at)
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
