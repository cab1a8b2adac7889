"""Takes drawn sessions in, turn by turn, as the columns of a recorded workload."""

from __future__ import annotations

import math
from array import array
from typing import Final

from sim.workload.traces.model import (
    TYPE_CODES,
    Pace,
    RecordedSession,
    RecordedWorkload,
    TurnColumns,
    read_only,
)
from sim.workload.traces.tree import ROOT, TreeBuilder

BLOCK_TOKENS: Final = 64
"""Prompts are named in whole blocks, as in the Claude Code traces."""


class Stem:
    """The path of a session's newest prompt: where it can be cut, and what it grows on."""

    __slots__ = ("_branches", "_tree")

    def __init__(self, tree: TreeBuilder, branches: list[tuple[int, int]]) -> None:
        """``branches``: from the root on, each with the depth where it begins."""
        self._tree = tree
        self._branches = branches

    @property
    def branch(self) -> int:
        """The last branch."""
        return self._branches[-1][0]

    def forked(self, depth: int) -> Stem:
        """Another stem, which has the first ``depth`` tokens of this one and then goes its own way."""
        kept = [(branch, fork) for branch, fork in self._branches if fork < depth]
        parent = kept[-1][0] if kept else ROOT
        return Stem(self._tree, [*kept, (self._tree.add(parent, depth), depth)])

    def reach(self, depth: int) -> None:
        """The newest prompt is ``depth`` deep."""
        self._tree.reach(self.branch, depth)


class Columns:
    """The sessions and turns so far."""

    def __init__(self) -> None:
        self.tree = TreeBuilder()
        self.sessions: list[RecordedSession] = []
        self.at_s, self.gap_s, self.rest_s, self.latency_s = (array("d") for _ in range(4))
        self.prompt_tokens, self.named_tokens, self.output_tokens = (array("Q") for _ in range(3))
        self.branch = array("i")

    @property
    def n_turns(self) -> int:
        """Turns so far."""
        return len(self.at_s)

    def workload(self) -> RecordedWorkload:
        """All of it."""
        n = self.n_turns
        return RecordedWorkload(
            format="fitted",
            pace=Pace.CLOSED,
            block_tokens=BLOCK_TOKENS,
            has_clock=False,
            has_sessions=True,
            is_estimated=False,
            sessions=tuple(self.sessions),
            turns=TurnColumns(
                at_s=read_only(self.at_s),
                gap_s=read_only(self.gap_s),
                rest_s=read_only(self.rest_s),
                prompt_tokens=read_only(self.prompt_tokens),
                branch=read_only(self.branch),
                named_tokens=read_only(self.named_tokens),
                output_tokens=read_only(self.output_tokens),
                model=read_only(array(TYPE_CODES["model"], bytes(4 * n))),
                latency_s=read_only(self.latency_s),
                ttft_s=read_only(array("d", [math.nan]) * n),
            ),
            models=("",),
            tree=self.tree.tree(),
        )
