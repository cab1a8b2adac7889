"""Prefix cache of one tier: a path-compressed tree whose edges are runs of page ids.

An id stands for its page and everything before it, so equality at one index of a run implies
equality before it, and a mismatch is found by bisection. The pages held form a prefix-closed set:
eviction takes from the end of the coldest leaf, never from the middle. It takes whole *runs*, as
SGLang's does: what was added by one call, or a part of it where another prompt went on from its
middle. A node that grew in place holds several. A pinned node and all above it are never evicted.

Ids are not copied where that can be avoided: a node reads its own in the array of the prompt that
added them last, and in that of the output behind it. What is in these therefore must not change; they
may grow. Where most of a prompt is not the node's, it has a copy of its part, so that memory stays
within twice what is held, and what prompts that still grow have in common.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NO_IDS: Final = array("Q")


class Node:
    """Consecutive pages that follow ``parent``'s: those from ``start`` up to ``stop`` pages deep.

    The id of the page at a depth is ``source[depth - shift]``, but from ``tail_start`` on it is
    ``tail[depth - tail_start]``. ``cuts`` are the depths, none of them ``start``, at which its second
    and further runs begin. ``pins`` counts the holders of this node and of all below it. ``used_at`` is
    the tree's own count of uses, not a time. ``version`` grows whenever its pages change, a child comes
    or the node is evicted.
    """

    __slots__ = (
        "children",
        "cuts",
        "is_listed",
        "parent",
        "pins",
        "serial",
        "shift",
        "source",
        "start",
        "stop",
        "tail",
        "tail_start",
        "used_at",
        "version",
    )

    def __init__(
        self,
        source: array[int],
        shift: int,
        parent: Node | None,
        *,
        start: int,
        stop: int,
        used_at: int,
        serial: int,
    ) -> None:
        self.source = source
        self.shift = shift
        self.start = start
        self.stop = stop
        self.tail = _NO_IDS
        self.tail_start = sys.maxsize
        self.cuts: list[int] = []
        self.parent = parent
        self.children: dict[int, Node] = {}
        self.pins = 0
        self.used_at = used_at
        self.serial = serial
        self.version = 0
        self.is_listed = False

    def id_at(self, depth: int) -> int:
        """The id of one of its pages."""
        if depth < self.tail_start:
            return self.source[depth - self.shift]
        return self.tail[depth - self.tail_start]

    def grow(self, ids: array[int], shift: int, stop: int) -> None:
        """Go on to ``stop`` with ``ids``, which begin ``shift`` deep; with 0 they are the whole path."""
        start, end = self.start, self.stop
        self.cuts.append(end)
        self.stop = stop
        self.version += 1
        if ids is self.source:
            if end > self.tail_start:
                self._read(ids, self.shift)
        elif shift:
            behind = ids[end - shift :] if end > shift else ids
            if end > self.tail_start:
                behind = self.tail[: end - self.tail_start] + behind
            else:
                self.tail_start = end
            self.tail = behind
        else:
            last = stop - 1 - self.shift
            if 2 * start <= len(ids):
                self.source, self.shift = ids, 0
            elif last >= len(self.source) or self.source[last] != ids[stop - 1]:
                self.source, self.shift = ids[start:], start
            self.tail, self.tail_start = _NO_IDS, sys.maxsize

    def cut_at(self, depth: int) -> None:
        """Lose the pages from a depth on."""
        self.stop = depth
        self.version += 1
        self.shrink()

    def split_off(self, upper: Node) -> None:
        """Leave what is above ``upper``'s end to that node."""
        at = self.start = upper.stop
        upper.tail, upper.tail_start = self.tail, self.tail_start
        if self.cuts:
            upper.cuts = [cut for cut in self.cuts if cut < at]
            self.cuts = [cut for cut in self.cuts if cut > at]
        if self.tail_start <= at:
            self._read(self.tail, self.tail_start)
        self.version += 1
        self.shrink()
        upper.shrink()

    def shrink(self) -> None:
        """Let go of an array of which less than half is this node's."""
        start, shift = self.start, self.shift
        stop = self.stop
        if stop <= self.tail_start:
            self._read(self.source, shift)
        else:
            stop = self.tail_start
        if 2 * (stop - start) < len(self.source):
            self.source = self.source[start - shift : stop - shift]
            self.shift = start

    def _read(self, source: array[int], shift: int) -> None:
        """Read all ids in one array."""
        self.source = source
        self.shift = shift
        self.tail = _NO_IDS
        self.tail_start = sys.maxsize


class PrefixTree:
    """The pages one tier holds. It counts them; who may add how many is the caller's business."""

    def __init__(self) -> None:
        self.n_pages = 0
        self.pinned_pages = 0
        self._serial = 0
        self._tick = 0
        self._root = Node(array("Q"), 0, None, start=0, stop=0, used_at=0, serial=0)
        # Leaves that may be evicted, coldest first. Entries are checked when they are popped, so a
        # use costs nothing here; each node has at most one entry.
        self._coldest: list[tuple[int, int, Node]] = []

    def match(self, pages: array[int], limit: int) -> tuple[Node, int]:
        """How deep ``pages[:limit]`` are held from the start, and in which node that ends.

        Changes nothing. The tree would answer the same as long as the node has its ``version``.
        """
        node = self._root
        at = 0
        while at < limit:
            child = node.children.get(pages[at])
            if child is None:
                break
            node = child
            stop = node.stop if node.stop < limit else limit
            last, split = stop - 1, node.tail_start
            held = node.source[last - node.shift] if last < split else node.tail[last - split]
            if held != pages[last]:
                at = _common(node, pages, 0, stop)
                break
            at = stop
        return node, at

    def lock(self, node: Node, depth: int) -> Node:
        """Pin what a current match found, which counts as used now; answers the node it ends with."""
        self._tick = tick = self._tick + 1
        if depth < node.stop:
            node = self._split(node, depth)
        at = node
        while (parent := at.parent) is not None:
            pins = at.pins
            if not pins:
                self.pinned_pages += at.stop - at.start
            at.pins = pins + 1
            at.used_at = tick
            at = parent
        assert at is self._root, "4: a match goes past an evicted page"
        return node

    def touch(self, node: Node, depth: int) -> None:
        """Let what a current match found count as used now: :meth:`lock` and :meth:`unlock` at once."""
        self._tick = tick = self._tick + 2
        if depth < node.stop:
            node = self._split(node, depth)
        at: Node | None = node
        while at is not None:
            at.used_at = tick
            at = at.parent
        self._list(node)

    def unlock(self, node: Node) -> None:
        """Undo one :meth:`lock` (or what it was extended to); its path counts as used now."""
        self._tick = tick = self._tick + 1
        at = node
        while (parent := at.parent) is not None:
            at.used_at = tick
            pins = at.pins = at.pins - 1
            assert pins >= 0, "3: a node was unlocked more often than it was locked"
            if not pins:
                self.pinned_pages -= at.stop - at.start
            at = parent
        assert at is self._root, "3: a pinned node is outside the tree"
        if not (node.is_listed or node.pins or node.children) and node is not at:
            node.is_listed = True  # as _list, without another call
            heapq.heappush(self._coldest, (node.used_at, node.serial, node))

    def extend(
        self,
        node: Node,
        pages: array[int],
        stop: int,
        shift: int = 0,
        ends: Sequence[int] = (),
    ) -> Node:
        """Move the caller's pin, which ends with ``node``, on to ``stop`` over ``pages``.

        These begin ``shift`` deep: with 0 they are all of its path. What is added is one run, or several
        where ``ends``, in order, lie inside. Answers the node that ends there.
        """
        while (start := node.stop) < stop:
            children = node.children
            child = children.get(pages[start - shift]) if children else None
            if child is None:
                count = stop - start
                self.n_pages += count
                self.pinned_pages += count
                if node.pins != 1 or children:  # somebody else holds it
                    node = self._branch(node, pages, shift, stop)
                elif pages is node.source and start <= node.tail_start:
                    node.cuts.append(start)  # as grow, without another call
                    node.stop = stop
                    node.version += 1
                else:
                    node.grow(pages, shift, stop)
                if ends:
                    node.cuts.extend([end for end in ends if start < end < stop])
                return node
            node = self._enter(child, pages, shift, stop)
        return node

    def evict(self, n_pages: int) -> int:
        """Drop unpinned runs, coldest leaf first, until ``n_pages`` pages are dropped.

        Answers how many were: more where the last run was longer than needed, fewer only where all
        that is left is pinned.
        """
        dropped = 0
        coldest = self._coldest
        while dropped < n_pages and coldest:
            used_at, _, node = coldest[0]
            parent = node.parent
            is_leaf = parent is not None and not node.children and not node.pins
            if is_leaf and node.used_at != used_at:
                heapq.heapreplace(coldest, (node.used_at, node.serial, node))
            elif is_leaf and node.cuts:
                cuts, stop = node.cuts, node.stop
                start = cuts.pop()
                while cuts and dropped + stop - start < n_pages:
                    start = cuts.pop()
                dropped += stop - start
                self._cut(node, start)
            else:
                heapq.heappop(coldest)
                node.is_listed = False
                if is_leaf:
                    dropped += node.stop - node.start
                    self._drop(node)
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

    def _drop(self, leaf: Node) -> None:
        """Take a leaf out of the tree."""
        parent = leaf.parent
        assert parent is not None, "4: a leaf was evicted twice"
        leaf.version += 1
        del parent.children[leaf.id_at(leaf.start)]
        leaf.parent = None
        if not parent.children:
            self._list(parent)

    def _cut(self, node: Node, depth: int) -> None:
        """Give up a leaf's pages from a depth on."""
        node.cut_at(depth)

    def _enter(self, child: Node, pages: array[int], shift: int, limit: int) -> Node:
        """Pin the part of ``child`` that equals ``pages`` up to ``limit``, split off where needed."""
        self._tick += 1
        stop = child.stop
        stop = _common(child, pages, shift, stop if stop < limit else limit)
        if stop < child.stop:
            child = self._split(child, stop)
        if not child.pins:
            self.pinned_pages += stop - child.start
        child.pins += 1
        child.used_at = self._tick
        return child

    def _split(self, lower: Node, at: int) -> Node:
        """Cut a node at a depth. Holders of ``lower`` keep it; answers the new upper."""
        upper = self._new(lower.source, lower.shift, lower.parent, start=lower.start, stop=at)
        upper.pins = lower.pins
        upper.used_at = lower.used_at
        lower.split_off(upper)
        lower.parent = upper
        upper.children[lower.id_at(at)] = lower
        return upper

    def _branch(self, node: Node, pages: array[int], shift: int, stop: int) -> Node:
        """Add pages up to ``stop`` behind ``node`` in a node of their own, held by one."""
        self._tick += 1
        start = node.stop
        if 2 * (start - shift) > len(pages):
            pages, shift = pages[start - shift :], start
        child = self._new(pages, shift, node, start=start, stop=stop)
        child.pins = 1
        return child

    def _new(
        self, source: array[int], shift: int, parent: Node | None, *, start: int, stop: int
    ) -> Node:
        assert parent is not None, "a node outside the tree cannot get pages"
        self._serial = serial = self._serial + 1
        node = Node(
            source, shift, parent, start=start, stop=stop, used_at=self._tick, serial=serial
        )
        parent.children[source[start - shift]] = node
        parent.version += 1
        return node

    def _list(self, node: Node) -> None:
        """Let an unpinned leaf be found by eviction."""
        if node.is_listed or node.children or node.pins or node is self._root:
            return
        node.is_listed = True
        heapq.heappush(self._coldest, (node.used_at, node.serial, node))


def _common(node: Node, pages: array[int], shift: int, stop: int) -> int:
    """Up to which depth ``pages``, which begin ``shift`` deep, equal the path down to ``node``.

    That is at most ``stop``, which is within the node; its first page is known to be equal.
    """
    high = stop - 1
    split = node.tail_start
    held = node.source[high - node.shift] if high < split else node.tail[high - split]
    if held == pages[high - shift]:
        return stop
    low = node.start + 1
    while low < high:
        middle = (low + high) // 2
        if node.id_at(middle) == pages[middle - shift]:
            low = middle + 1
        else:
            high = middle
    return low
