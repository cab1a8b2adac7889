"""Which replica probably holds which prefix.

A path-compressed tree over chains: since ``chain[i]`` names everything up to segment ``i``, a node
is a run of chain values and two runs that differ at one place differ from there on. Each node
knows how many of its segments each replica holds. What a replica holds is bounded by its own
capacity and given up in the engine's order: the least recently used end first.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


@dataclass(slots=True, eq=False)
class _Node:
    """A run of chain values; ``ends`` are canonical bytes from the prompt's start.

    Who holds a part of a node holds all of the nodes above it, which it also used no earlier.
    """

    parent: _Node | None
    run: array[int]
    ends: array[int]
    start_bytes: int
    children: dict[int, _Node] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)


class Match:
    """What every replica holds of one chain, found when it is asked for.

    Holds nothing of its own: it is to be asked before the index changes.
    """

    __slots__ = ("_path",)

    def __init__(self, path: list[tuple[_Node, int, int]]) -> None:
        self._path = path
        path.reverse()

    def segments(self, replica_id: str) -> int:
        """How many leading segments a replica holds: the deepest node that it holds a part of tells."""
        for node, start, n in self._path:
            held = node.held.get(replica_id)
            if held is not None:
                return start + min(held, n)
        return 0

    @property
    def most(self) -> int:
        """The most leading segments that any replica may hold."""
        for node, start, n in self._path:
            if node.held:
                return start + n
        return 0

    def levels(self) -> Iterator[tuple[int, Collection[str]]]:
        """The deepest first: who holds a part of it, and the most segments that any of them may hold.

        Who holds a level also holds all shallower ones, and is named there, too.
        """
        for node, start, n in self._path:
            if node.held:
                yield start + n, node.held.keys()

    def everyone(self) -> dict[str, int]:
        """The segments of all replicas that hold any."""
        found: dict[str, int] = {}
        for node, start, n in reversed(self._path):
            for replica_id, held in node.held.items():
                found[replica_id] = start + min(held, n)
        return found


@dataclass(slots=True)
class Holdings:
    """One replica's nodes, the least recently used first, and their bytes."""

    capacity_bytes: int
    held_bytes: int = 0
    nodes: OrderedDict[_Node, None] = field(default_factory=OrderedDict)


def _common(run: array[int], chain: array[int], at: int) -> int:
    """How many leading values of ``run`` stand in ``chain`` from ``at`` on."""
    n = min(len(run), len(chain) - at)
    if run[:n] == chain[at : at + n]:
        return n
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
    """

    def __init__(self) -> None:
        self.bytes_per_token = 4.0
        self._root = _Node(None, array("Q"), array("I"), 0)
        self._holdings: dict[str, Holdings] = {}

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

    def match(self, chain: array[int]) -> Match:
        """What every replica holds of ``chain``; costs by its nodes, not by who holds them."""
        return Match(self._walk(chain))

    def hold(self, replica_id: str, chain: array[int], ends: array[int]) -> None:
        """A replica now holds all of ``chain``, most recently used; its oldest ends make room.

        A replica without a stated capacity is not known and holds nothing.
        """
        holdings = self._holdings.get(replica_id)
        if holdings is None or not chain:
            return
        path, nodes = self._insert(replica_id, chain, ends), holdings.nodes
        for node in reversed(path):
            before, n = node.held.get(replica_id, 0), len(node.run)
            if before != n:
                node.held[replica_id] = n
                holdings.held_bytes += self._bytes(node, n) - self._bytes(node, before)
                nodes[node] = None
            nodes.move_to_end(node)
        self._shrink(replica_id, holdings)

    def clear(self, replica_id: str) -> None:
        """A replica lost its cache (restart, flush); it keeps its capacity."""
        holdings = self._holdings.get(replica_id)
        if holdings is None:
            return
        for node in holdings.nodes:
            del node.held[replica_id]
        for node in holdings.nodes:
            self._prune(node)
        holdings.nodes.clear()
        holdings.held_bytes = 0

    def forget(self, replica_id: str) -> None:
        """A replica left the fleet."""
        self.clear(replica_id)
        self._holdings.pop(replica_id, None)

    def _walk(self, chain: array[int]) -> list[tuple[_Node, int, int]]:
        """The nodes along ``chain``: node, its start in the chain, how far it agrees."""
        path: list[tuple[_Node, int, int]] = []
        node, at, end = self._root, 0, len(chain)
        while at < end:
            child = node.children.get(chain[at])
            if child is None:
                break
            n = _common(child.run, chain, at)
            path.append((child, at, n))
            if n < len(child.run):
                break
            node, at = child, at + n
        return path

    def _insert(self, replica_id: str, chain: array[int], ends: array[int]) -> list[_Node]:
        """Make ``chain`` end at a node's end; answer the path to there."""
        path: list[_Node] = []
        node, at = self._root, 0
        for child, start, n in self._walk(chain):
            at = start + n
            node = child if n == len(child.run) else self._split(child, n)
            path.append(node)
        if at < len(chain):
            can_extend = path and not node.children and node.held.get(replica_id) == len(node.run)
            if can_extend:
                node.run.extend(chain[at:])
                node.ends.extend(ends[at:])
            else:
                start_bytes = ends[at - 1] if at else 0
                leaf = _Node(node, chain[at:], ends[at:], start_bytes)
                node.children[chain[at]] = leaf
                path.append(leaf)
        return path

    def _split(self, lower: _Node, n: int) -> _Node:
        """Cut a node's run after ``n`` segments; answer the new upper node."""
        parent = lower.parent
        assert parent is not None, "the root is never split"
        upper = _Node(parent, lower.run[:n], lower.ends[:n], lower.start_bytes)
        parent.children[upper.run[0]] = upper
        lower.parent = upper
        lower.start_bytes = upper.ends[-1]
        lower.run = lower.run[n:]
        lower.ends = lower.ends[n:]
        upper.children[lower.run[0]] = lower
        for replica_id, held in list(lower.held.items()):
            upper.held[replica_id] = min(held, n)
            nodes = self._holdings[replica_id].nodes
            if held > n:
                lower.held[replica_id] = held - n
                nodes[upper] = None
            else:
                # The upper part takes the lower one's place: nothing of the rest was held.
                del lower.held[replica_id]
                del nodes[lower]
                nodes[upper] = None
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
            keep = held - 1
            before = self._bytes(node, held)
            while keep > 0 and before - self._bytes(node, keep) < over:
                keep -= 1
            holdings.held_bytes -= before - self._bytes(node, keep)
            if keep:
                node.held[replica_id] = keep
            else:
                del node.held[replica_id]
                del holdings.nodes[node]
            self._prune(node)

    def _prune(self, node: _Node) -> None:
        """Drop what nobody holds any more: the end of a leaf's run, and empty leaves upward."""
        current: _Node | None = node
        while current is not None and current.parent is not None and not current.children:
            longest = max(current.held.values(), default=0)
            if longest:
                del current.run[longest:]
                del current.ends[longest:]
                return
            current.parent.children.pop(current.run[0], None)
            current = current.parent

    @staticmethod
    def _bytes(node: _Node, n: int) -> int:
        """Canonical bytes of a node's first ``n`` segments."""
        return node.ends[n - 1] - node.start_bytes if n else 0
