"""What prompts of a recorded workload are made of: places in its tree, and numbers for them.

A place is a branch and a depth on it, in tokens. Its number is that of its page or of its segment's
end, and two numbers are equal exactly where everything up to there is equal.

Each playing of a session has a scope of its own, so that playing it again finds nothing of the
first time. What several sessions have in common (tools and system prompt; whatever a format names
over a whole file) belongs to scope 0, which all share.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sim.workload.figures.order import roots
from sim.workload.traces.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sim.workload.traces.model import RecordedWorkload

SEGMENT_TOKENS: Final = 1_024
"""The router's segments of 4 KB, at four canonical bytes a token."""
BYTES_PER_TOKEN: Final = 4


@dataclass(frozen=True, slots=True)
class Sharing:
    """What playings have in common.

    ``has_heads``: the leading tokens that several sessions have, and tools and system prompt of
    each. ``is_whole``: everything; for traffic that is played once.
    """

    has_heads: bool = True
    is_whole: bool = False


class Content:
    """The places of all prompts of a workload; fixed once built.

    Columns of its turns are here as arrays, which are read in half the time that views of them are.
    ``covered_tokens`` by turn: how much of the prompt has a place. That is its named part, and what
    is behind it as far as the session's next turn goes on from there (``goes_on``) and names it.
    ``cuts`` by branch: where segments of the router end, in tokens and in order. Prompts that have a branch in common have
    these in common: where some prompt ends, where tools and system prompt end, and a segment's size
    apart in between.
    """

    def __init__(self, workload: RecordedWorkload, page_tokens: int, sharing: Sharing) -> None:
        assert page_tokens > 0, page_tokens
        turns = workload.turns
        self.workload = workload
        self.page_tokens = page_tokens
        self.n_branches = len(workload.tree)
        self.width = self.n_branches + len(turns)
        self.span_tokens = max(turns.prompt_tokens, default=0) + page_tokens
        self.span_pages = self.span_tokens // page_tokens + 1
        self.branch, self.named_tokens = array("i", turns.branch), array("Q", turns.named_tokens)
        self.prompt_tokens = array("Q", turns.prompt_tokens)
        self.output_tokens = array("Q", turns.output_tokens)
        self.covered_tokens = array("Q", turns.named_tokens)
        self.goes_on = bytearray(len(turns))
        self._marks: defaultdict[int, list[int]] = defaultdict(list)
        for session in workload.sessions:
            self._place_ends(session.first, session.end)
        self._place_heads()
        self.cuts: list[array[int]] = []
        for branch in range(self.n_branches):
            self.cuts.append(self._cut(branch))
        self.shared_tokens = self._shared(sharing)

    def head_tokens(self, session: int) -> int:
        """Where tools and system prompt of a session end, 0 where unknown."""
        tokens = self.workload.sessions[session].head_tokens
        return tokens - tokens % (self.workload.block_tokens or 1)

    def _cut(self, branch: int) -> array[int]:
        """A branch's; those of the branches above it are there."""
        tree = self.workload.tree
        fork, end = tree.fork_tokens[branch], tree.end_tokens[branch]
        before = self._last_cut(tree.parents[branch], fork)
        cuts: array[int] = array("Q")
        for mark in sorted({*self._marks.pop(branch, ()), end}):
            if mark <= fork:
                continue
            cuts.extend(range(before + SEGMENT_TOKENS, mark, SEGMENT_TOKENS))
            cuts.append(mark)
            before = mark
        return cuts

    def _last_cut(self, branch: int, tokens: int) -> int:
        """The deepest end of a segment that is at most ``tokens`` deep, going up from ``branch``."""
        tree = self.workload.tree
        while branch != ROOT:
            cuts = self.cuts[branch]
            if (n := bisect_right(cuts, tokens)) > 0:
                return cuts[n - 1]
            branch, tokens = tree.parents[branch], tree.fork_tokens[branch]
        return 0

    def _place_ends(self, first: int, end: int) -> None:
        """Say of the turns of one session how much of each has a place, and mark where they end."""
        tree, covered, goes_on, marks = (
            self.workload.tree,
            self.covered_tokens,
            self.goes_on,
            self._marks,
        )
        forks, prompts, branches, named = (
            tree.fork_tokens,
            self.prompt_tokens,
            self.branch,
            self.named_tokens,
        )
        for turn in range(first, end):
            branch, prompt, depth = branches[turn], prompts[turn], named[turn]
            after = turn + 1
            if after < end and (next_depth := named[after]) >= depth:
                next_branch = branches[after]
                if branch == next_branch or tree.at(next_branch, depth) == branch:
                    # The next prompt begins with all that is named of this one.
                    goes_on[turn] = 1
                    branch = next_branch
                    covered[turn] = depth = min(prompt, next_depth)
            if depth == prompt:
                if prompt <= forks[branch]:
                    branch = tree.at(branch, prompt)
                marks[branch].append(prompt)

    def _place_heads(self) -> None:
        turns = self.workload.turns
        for number, session in enumerate(self.workload.sessions):
            if session.first < session.end and session.head_tokens:
                depth = min(self.head_tokens(number), turns.named_tokens[session.first])
                self._marks[self.workload.tree.at(turns.branch[session.first], depth)].append(depth)

    def _shared(self, sharing: Sharing) -> Sequence[int]:
        """By branch, how deep it belongs to scope 0."""
        if sharing.is_whole:
            return self.workload.tree.end_tokens
        shared = array("Q", bytes(8 * self.n_branches))
        if not sharing.has_heads:
            return shared
        for branch, depth in self._twice_reached():
            shared[branch] = max(shared[branch], depth)
        turns = self.workload.turns
        for number, session in enumerate(self.workload.sessions):
            if session.first < session.end and session.head_tokens:
                depth = min(self.head_tokens(number), turns.named_tokens[session.first])
                for run in self.workload.tree.runs(turns.branch[session.first], depth):
                    shared[run.branch] = max(shared[run.branch], run.end)
        return shared

    def _twice_reached(self) -> Iterator[tuple[int, int]]:
        """Branches that more than one family of sessions lies on, and how deep the second goes."""
        tree = self.workload.tree
        reached: dict[tuple[int, int], int] = {}
        for session, family in zip(self.workload.sessions, roots(self.workload), strict=True):
            part = slice(session.first, session.end)
            deepest = _deepest(zip(self.branch[part], self.named_tokens[part], strict=True))
            for branch, depth in deepest.items():
                for run in tree.runs(branch, depth):
                    key = (run.branch, family)
                    reached[key] = max(reached.get(key, 0), run.end)
        depths: defaultdict[int, list[int]] = defaultdict(list)
        for (branch, _), depth in reached.items():
            depths[branch].append(depth)
        for branch, of_families in depths.items():
            if len(of_families) > 1:
                yield branch, sorted(of_families)[-2]


def _deepest(places: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The greatest depth on each branch."""
    deepest: dict[int, int] = {}
    for branch, depth in places:
        if deepest.get(branch, -1) < depth:
            deepest[branch] = depth
    return deepest
