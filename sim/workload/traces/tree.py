"""Which prompts begin alike: a tree of prefixes, one branch for each way prompts parted.

A branch begins at ``fork_tokens`` on its parent and ends where the longest prompt on it ends. A
prompt is a branch and a depth on it, so two prompts are equal exactly as far as their paths to the
root run together, and a session that only ever appends is one branch, however long. Branch 0 is
the empty beginning of everything.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = 0


class Run(NamedTuple):
    """The part of a prompt that lies on one branch: tokens ``start`` up to ``end``."""

    branch: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """The branches' parents, forks and ends, by number; a parent's number is the lower one."""

    parents: Sequence[int]
    fork_tokens: Sequence[int]
    end_tokens: Sequence[int]

    def __len__(self) -> int:
        return len(self.parents)

    def runs(self, branch: int, tokens: int) -> Iterator[Run]:
        """The path of the prompt that ends ``tokens`` deep on ``branch``, deepest run first."""
        while branch != ROOT:
            fork = self.fork_tokens[branch]
            if tokens > fork:
                yield Run(branch, fork, tokens)
                tokens = fork
            branch = self.parents[branch]

    def at(self, branch: int, tokens: int) -> int:
        """The branch that the token before depth ``tokens`` lies on, going up from ``branch``."""
        while branch != ROOT and tokens <= self.fork_tokens[branch]:
            branch = self.parents[branch]
        return branch


@dataclass(slots=True)
class _Branch:
    """A branch as it grows: its number in the tree and the ids behind its fork."""

    number: int
    start: int
    ids: array[int]
    is_open: bool

    @property
    def end(self) -> int:
        """How many blocks deep it reaches."""
        return self.start + len(self.ids)


@dataclass(frozen=True, slots=True)
class Path:
    """Where a prompt runs: the branches from the root on, each with the depth where it leaves."""

    branches: tuple[_Branch, ...] = ()
    ends: tuple[int, ...] = ()

    @property
    def branch(self) -> int:
        """The number of the last branch."""
        return self.branches[-1].number if self.branches else ROOT

    @property
    def n_blocks(self) -> int:
        """How many blocks the prompt has."""
        return self.ends[-1] if self.ends else 0

    def cut(self, n_blocks: int) -> Path:
        """The first ``n_blocks`` of it."""
        if n_blocks >= self.n_blocks:
            return self
        last = bisect_left(self.ends, n_blocks)
        if n_blocks == 0:
            return Path()
        return Path(self.branches[: last + 1], (*self.ends[:last], n_blocks))


class TreeBuilder:
    """Grows a tree in blocks; what a block is in tokens is said when the tree is taken."""

    def __init__(self) -> None:
        self._parents = array("i", [ROOT])
        self._forks = array("Q", [0])
        self._ends = array("Q", [0])

    def add(self, parent: int, fork: int) -> int:
        """A new branch; both units are the caller's."""
        self._parents.append(parent)
        self._forks.append(fork)
        self._ends.append(fork)
        return len(self._parents) - 1

    def reach(self, branch: int, depth: int) -> None:
        """A prompt is ``depth`` deep on ``branch``."""
        self._ends[branch] = max(self._ends[branch], depth)

    def tree(self, tokens_per_unit: float = 1.0) -> PrefixTree:
        """The tree, every depth multiplied and rounded down."""
        scaled = [
            memoryview(array("Q", (int(depth * tokens_per_unit) for depth in column))).toreadonly()
            for column in (self._forks, self._ends)
        ]
        return PrefixTree(memoryview(self._parents).toreadonly(), *scaled)


class Scope:
    """Places prompts whose ids mean the same thing: a trace, or a whole file.

    An id only has to be equal where prompts that are equal so far go on alike, so ids of prefixes
    and plain hashes of blocks both do.
    """

    def __init__(self, tree: TreeBuilder) -> None:
        self._tree = tree
        self._children: dict[tuple[int, int, int], _Branch] = {}

    def place(self, before: Path, new: array[int], depths: Sequence[int]) -> Path:
        """The path of a prompt that has all blocks of ``before`` and then ``new``.

        ``depths[i]`` is the depth behind ``i`` blocks, in the tree's unit.
        """
        branches, ends = list(before.branches), list(before.ends)
        at, taken = before.n_blocks, 0
        while taken < len(new):
            here = branches[-1] if branches else None
            if here is not None:
                common = _common(here.ids, at - here.start, new, taken)
                at, taken = at + common, taken + common
                ends[-1] = at
                if taken == len(new):
                    break
                if at == here.end and here.is_open:
                    here.ids.extend(new[taken:])
                    break
            child = self._children.get((_number(here), at, new[taken]))
            if child is None:
                child = self._grown(here, at, new[taken:], depths[at])
                branches.append(child)
                ends.append(at)
                break
            branches.append(child)
            ends.append(at)
        if taken < len(new):
            ends[-1] = at + len(new) - taken
        path = Path(tuple(branches), tuple(ends))
        for branch, end in zip(branches, ends, strict=True):
            self._tree.reach(branch.number, depths[end])
        return path

    def knows(self, first: int) -> bool:
        """Whether some prompt began with this id."""
        return (ROOT, 0, first) in self._children

    def graft(self, head: int, new: array[int]) -> Path:
        """Let prompts that begin with ``new`` run on branch ``head``, which others share."""
        branch = _Branch(head, 0, new, is_open=False)
        self._children[ROOT, 0, new[0]] = branch
        return Path((branch,), (len(new),))

    def _grown(self, parent: _Branch | None, at: int, new: array[int], depth: int) -> _Branch:
        number = self._tree.add(_number(parent), depth)
        branch = _Branch(number, at, new, is_open=True)
        self._children[_number(parent), at, new[0]] = branch
        return branch


def common_run(one: array[int], other: array[int]) -> int:
    """How many leading ids are equal."""
    return _common(one, 0, other, 0)


def _number(branch: _Branch | None) -> int:
    return ROOT if branch is None else branch.number


def _common(ids: array[int], start: int, new: array[int], taken: int) -> int:
    """How many ids are equal from ``start`` of the one and ``taken`` of the other on."""
    n = min(len(ids) - start, len(new) - taken)
    if n <= 0 or ids[start : start + n] == new[taken : taken + n]:
        return max(0, n)
    low, high = 0, n - 1
    while low < high:
        middle = (low + high + 1) // 2
        if ids[start : start + middle] == new[taken : taken + middle]:
            low = middle
        else:
            high = middle - 1
    return low
