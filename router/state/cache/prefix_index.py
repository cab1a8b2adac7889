"""Which replica probably holds which prefix.

A path-compressed tree over chains: since ``chain[i]`` names everything up to segment ``i``, a node
is a run of chain values and two runs that differ at one place differ from there on. Each node
knows how many of its segments each replica holds. What a replica holds is bounded by its own
capacity and given up in the engine's order: the least recently used end first.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from router.rows import Row
from router.state.cache.keeping import Ages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from router.state.cache.ties import Tied


class Node(Row, eq=False):
    """A run of chain values from segment ``start`` on; ``ends`` are canonical bytes from the prompt's start.

    Who holds a part of a node holds all of the nodes above it, which it also used no earlier. Only the root
    and nodes that were dropped have no parent, and no run.
    """

    parent: Node | None
    start: int
    run: array[int]
    ends: array[int]
    start_bytes: int
    children: dict[int, Node] = {}  # noqa: RUF012  (each gets its own)
    held: dict[str, int] = {}  # noqa: RUF012


class Mark(NamedTuple):
    """From segment ``start`` on, a prompt's cache was last used at ``used`` (the index's count)."""

    start: int
    used: int


class Match:
    """What every replica holds of one chain, found when it is asked for.

    ``node`` is the deepest that agrees with the chain, in its first ``n`` segments. Holds nothing of its own:
    it is to be asked before the index changes. ``tied`` are the chain's pages, where they are known.
    """

    __slots__ = ("n", "node", "tied")

    def __init__(self, node: Node, n: int) -> None:
        self.node = node
        self.n = n
        self.tied: Tied | None = None

    def segments(self, replica_id: str) -> int:
        """How many leading segments a replica holds: the deepest node that it holds a part of tells."""
        node: Node | None = self.node
        while node is not None:
            held = node.held.get(replica_id)
            if held is not None:
                # Beyond ``n`` the deepest node is of another prompt.
                return node.start + (self.n if node is self.node and held > self.n else held)
            node = node.parent
        return 0

    def marks(self, replica_id: str, holdings: Holdings | None) -> tuple[Mark, ...]:
        """When a replica last used what it holds of the chain, the deepest first."""
        if holdings is None:
            return ()
        uses, found = holdings.nodes, []
        node: Node | None = self.node
        while node is not None and node.run:
            if replica_id in node.held:
                found.append(Mark(node.start, uses[node]))
            node = node.parent
        return tuple(found)

    @property
    def most(self) -> int:
        """The most leading segments that any replica may hold."""
        node, end = self.node, self.node.start + self.n
        while not node.held:
            if node.parent is None:
                return 0
            end, node = node.start, node.parent
        return end

    def levels(self) -> Iterator[tuple[int, Collection[str]]]:
        """The deepest first: who holds a part of it, and the most segments that any of them may hold.

        Who holds a level also holds all shallower ones, and is named there, too.
        """
        node, end = self.node, self.node.start + self.n
        while True:
            if node.held:
                yield end, node.held.keys()
            if node.parent is None:
                return
            end, node = node.start, node.parent

    def everyone(self) -> dict[str, int]:
        """The segments of all replicas that hold any."""
        path = [self.node]
        while (parent := path[-1].parent) is not None:
            path.append(parent)
        found: dict[str, int] = {}
        for node in reversed(path):
            start = node.start
            if node is self.node:
                n = self.n
                found.update({key: start + min(held, n) for key, held in node.held.items()})
            elif start:
                found.update({key: start + held for key, held in node.held.items()})
            else:
                found.update(node.held)
        return found


@dataclass(slots=True)
class Holdings:
    """One replica's nodes, the least recently used first, each with its last use; and their bytes.

    Uses are counted over the index. A node was used no earlier than those below it. ``epoch`` counts how
    often all was lost at once.
    """

    capacity_bytes: int
    held_bytes: int = 0
    epoch: int = 0
    nodes: OrderedDict[Node, int] = field(default_factory=OrderedDict)


def _common(run: array[int], chain: array[int], at: int, n: int) -> int:
    """How many values of ``run`` stand in ``chain`` from ``at`` on, where the ``n``-th does not.

    A value stands for all before it: who agrees at one place agrees up to there.
    """
    low, high = 0, n - 1
    while low < high:
        middle = (low + high) // 2
        if run[middle] == chain[at + middle]:
            low = middle + 1
        else:
            high = middle
    return low


class PrefixIndex:
    """The prefixes every replica is believed to hold.

    ``bytes_per_token`` is the ratio by which capacities in tokens were last turned into bytes.
    ``ages`` tells uses by their time, as far as the time is told.
    """

    def __init__(self) -> None:
        self.bytes_per_token = 4.0
        self._root = Node(None, 0, array("Q"), array("I"), 0)
        self._holdings: dict[str, Holdings] = {}
        self._n_uses = 0
        self.ages = Ages()

    @property
    def n_uses(self) -> int:
        """Uses of all replicas so far."""
        return self._n_uses

    def held_bytes(self, replica_id: str) -> int:
        """Canonical bytes a replica is believed to hold; never above its capacity."""
        holdings = self._holdings.get(replica_id)
        return 0 if holdings is None else holdings.held_bytes

    def set_capacity(self, replica_id: str, capacity_bytes: int) -> Holdings:
        """State how much a replica can hold, in canonical bytes; what is over it is given up.

        Answers what it holds, which goes on changing.
        """
        holdings = self._holdings.get(replica_id)
        if holdings is None:
            holdings = self._holdings[replica_id] = Holdings(capacity_bytes)
        else:
            holdings.capacity_bytes = capacity_bytes
            self._shrink(replica_id, holdings)
        return holdings

    def match(self, chain: array[int], near: Node | None = None) -> Match:
        """What every replica holds of ``chain``; costs by its nodes, not by who holds them.

        ``near`` is where the chain was matched or held before, or one that it continues: the look begins
        there if that is still a part of it.
        """
        return Match(*self._find(chain, near))

    def hold(
        self, replica_id: str, chain: array[int], ends: array[int], near: Node | None = None
    ) -> Node | None:
        """A replica now holds all of ``chain``, most recently used; its oldest ends make room.

        Answers where it ends. A replica without a stated capacity is not known and holds nothing.
        """
        holdings = self._holdings.get(replica_id)
        if holdings is None or not chain:
            return None
        node = last = self._insert(replica_id, chain, ends, near)
        nodes = holdings.nodes
        self._n_uses = used = self._n_uses + 1
        before: int | None = None
        while before is None and (parent := node.parent) is not None:
            before, n = node.held.get(replica_id), len(node.run)
            if before != n:
                node.held[replica_id] = n
                before_bytes = node.ends[before - 1] if before else node.start_bytes
                holdings.held_bytes += node.ends[n - 1] - before_bytes
            nodes[node] = used
            nodes.move_to_end(node)
            node = parent
        # Who held a part of a node holds all above it: these are only used again.
        while (parent := node.parent) is not None:
            nodes[node] = used
            nodes.move_to_end(node)
            node = parent
        if holdings.held_bytes > holdings.capacity_bytes:
            self._shrink(replica_id, holdings)
        return last

    def clear(self, replica_id: str) -> None:
        """A replica lost its cache (restart, flush); it keeps its capacity."""
        holdings = self._holdings.get(replica_id)
        if holdings is not None:
            holdings.epoch += 1
        self.lost(replica_id, self._n_uses)

    def lost(self, replica_id: str, used: int) -> int:
        """A replica holds nothing any more that was last used at ``used`` or before; answers the bytes."""
        holdings = self._holdings.get(replica_id)
        if holdings is None:
            return 0
        gone = [node for node, at in holdings.nodes.items() if at <= used]
        before_bytes = holdings.held_bytes
        for node in gone:
            holdings.held_bytes -= self._bytes(node, node.held.pop(replica_id))
            del holdings.nodes[node]
        for node in gone:
            self._prune(node)
        return before_bytes - holdings.held_bytes

    def trim(self, replica_id: str, chain: array[int], n: int) -> None:
        """A replica holds no more than the first ``n`` segments of a chain, nor what goes on from there."""
        holdings = self._holdings.get(replica_id)
        if holdings is None or n >= len(chain):
            return
        top, m = self._find(chain[: n + 1], None)
        if top.start + m <= n:
            return
        keep, held = n - top.start, top.held.get(replica_id, 0)
        if held <= keep:
            return
        gone, stack = [], [child for child in top.children.values() if replica_id in child.held]
        while stack:
            node = stack.pop()
            gone.append(node)
            stack.extend(child for child in node.children.values() if replica_id in child.held)
        for node in gone:
            holdings.held_bytes -= self._bytes(node, node.held.pop(replica_id))
            del holdings.nodes[node]
        holdings.held_bytes -= self._bytes(top, held) - self._bytes(top, keep)
        if keep:
            top.held[replica_id] = keep
        else:
            del top.held[replica_id]
            del holdings.nodes[top]
        for node in (*reversed(gone), top):
            self._prune(node)

    def forget(self, replica_id: str) -> None:
        """A replica left the fleet."""
        self.clear(replica_id)
        self._holdings.pop(replica_id, None)

    def _find(self, chain: array[int], near: Node | None) -> tuple[Node, int]:
        """The deepest node that agrees with ``chain``, and in how many of its segments."""
        node, n, at, end = self._root, 0, 0, len(chain)
        # A value stands for all before it: who has it in its place needs no look at what leads there.
        if near is not None and near.run and near.start < end and chain[near.start] == near.run[0]:
            child: Node | None = near
            at = near.start
        else:
            child = node.children.get(chain[0]) if end else None
        while child is not None:
            node, run = child, child.run
            n = len(run)
            if at + n > end:
                n = end - at
            if run[n - 1] != chain[at + n - 1]:
                n = _common(run, chain, at, n)
                break
            at += n
            if at == end:
                break
            child = node.children.get(chain[at])
        return node, n

    def _insert(
        self, replica_id: str, chain: array[int], ends: array[int], near: Node | None
    ) -> Node:
        """Make ``chain`` end at a node's end; answer that node."""
        node, n = self._find(chain, near)
        at = node.start + n
        if n < len(node.run):
            node = self._split(node, n)
        if at < len(chain):
            if node.run and not node.children and node.held.get(replica_id) == len(node.run):
                node.run.extend(chain[at:])
                node.ends.extend(ends[at:])
            else:
                start_bytes = ends[at - 1] if at else 0
                leaf = Node(node, at, chain[at:], ends[at:], start_bytes)
                node.children[chain[at]] = leaf
                node = leaf
        return node

    def _split(self, lower: Node, n: int) -> Node:
        """Cut a node's run after ``n`` segments; answer the new upper node."""
        parent = lower.parent
        assert parent is not None, "the root is never split"
        upper = Node(parent, lower.start, lower.run[:n], lower.ends[:n], lower.start_bytes)
        parent.children[upper.run[0]] = upper
        lower.parent = upper
        lower.start += n
        lower.start_bytes = upper.ends[-1]
        lower.run = lower.run[n:]
        lower.ends = lower.ends[n:]
        upper.children[lower.run[0]] = lower
        for replica_id, held in list(lower.held.items()):
            upper.held[replica_id] = min(held, n)
            nodes = self._holdings[replica_id].nodes
            nodes[upper] = nodes[lower]
            if held > n:
                lower.held[replica_id] = held - n
            else:
                # The upper part takes the lower one's place: nothing of the rest was held.
                del lower.held[replica_id]
                del nodes[lower]
            # Who is new in the order came last: what leads to it must not be given up before it.
            above = upper.parent
            while above is not None and above is not self._root:
                nodes.move_to_end(above)
                above = above.parent
        return upper

    def _shrink(self, replica_id: str, holdings: Holdings) -> None:
        """Give up the least recently used ends until the replica is within its capacity."""
        while holdings.held_bytes > holdings.capacity_bytes:
            node = next(iter(holdings.nodes))
            held = node.held[replica_id]
            over = holdings.held_bytes - holdings.capacity_bytes
            before = self._bytes(node, held)
            keep = bisect_right(node.ends, node.start_bytes + before - over, 0, held - 1)
            holdings.held_bytes -= before - self._bytes(node, keep)
            if keep:
                node.held[replica_id] = keep
            else:
                del node.held[replica_id]
                del holdings.nodes[node]
            self._prune(node)

    def _prune(self, node: Node) -> None:
        """Drop what nobody holds any more: the end of a leaf's run, and empty leaves upward."""
        current: Node | None = node
        while current is not None and current.parent is not None and not current.children:
            longest, parent = max(current.held.values(), default=0), current.parent
            if not longest:
                del parent.children[current.run[0]]
                current.parent = None
            del current.run[longest:]
            del current.ends[longest:]
            if longest:
                return
            current = parent

    @staticmethod
    def _bytes(node: Node, n: int) -> int:
        """Canonical bytes of a node's first ``n`` segments."""
        return node.ends[n - 1] - node.start_bytes if n else 0
