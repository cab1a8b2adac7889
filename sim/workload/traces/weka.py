"""Reader of Claude Code traces (kv-cache-tester): each file a session with its sub-agents.

Sessions begin at 0 each: nothing says when one ran beside another. Ids mean something inside their
trace alone; real sessions share tools and system prompt, which ``share_heads`` puts back: traces
whose tools and system prompt have equal sizes begin with equal blocks, as many as these fill.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from sim.workload.traces.builder import Traits, WorkloadBuilder
from sim.workload.traces.errors import TraceError
from sim.workload.traces.model import Pace, RecordedTurn
from sim.workload.traces.tree import Path, Scope
from sim.workload.traces.weka_file import (
    BLOCK_TOKENS,
    BlockIds,
    Request,
    SubAgent,
    parse_file,
)

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable

    from sim.workload.traces.files import Member
    from sim.workload.traces.model import RecordedWorkload
    from sim.workload.traces.weka_file import WekaFile

_DEPTHS: Final = range(0, 1 << 62, BLOCK_TOKENS)
_TRAITS: Final = Traits("weka", Pace.CLOSED, BLOCK_TOKENS, has_clock=False, has_sessions=True)


def read(files: Iterable[Member], *, share_heads: bool = False) -> RecordedWorkload:
    """All traces, each a session; a sub-agent is a session of its own, behind its parent.

    Raises:
        TraceError: a file is no such trace, with the place in it.
    """
    builder = WorkloadBuilder(_TRAITS)
    heads = _Heads(builder) if share_heads else None
    for file in files:
        _Reader(builder, heads, file.name).read(parse_file(file.whole(), file.name))
    return builder.workload()


class _Heads:
    """The branches that sessions with equal sizes of tools and system prompt have in common."""

    def __init__(self, builder: WorkloadBuilder) -> None:
        self._tree = builder.tree
        self._branches: dict[tuple[int, int], int] = {}

    def opening(self, scope: Scope, ids: array[int], sizes: tuple[int, int]) -> Path:
        """The path of the head of a session whose first prompt has these ids."""
        n_blocks = min(sum(sizes) // BLOCK_TOKENS, len(ids))
        if not n_blocks or scope.knows(ids[0]):
            return Path()
        branch = self._branches.get(sizes)
        if branch is None:
            branch = self._branches[sizes] = self._tree.add(0, 0)
        self._tree.reach(branch, n_blocks * BLOCK_TOKENS)
        return scope.graft(branch, ids[:n_blocks])


class _Reader:
    """Reads one trace."""

    def __init__(self, builder: WorkloadBuilder, heads: _Heads | None, place: str) -> None:
        self._builder = builder
        self._heads = heads
        self._place = place
        self._scope = Scope(builder.tree)

    def read(self, trace: WekaFile) -> None:
        """Add the main requests and the sub-agents between them."""
        sizes = (trace.tool_tokens, trace.system_tokens)
        session = self._builder.session(trace.id, head_tokens=sum(sizes))
        line = _Line(self, session, sizes)
        n_main = 0
        end_s: float | None = None
        joined_s = -math.inf
        for i, row in enumerate(trace.requests):
            place = f"{self._place}: requests[{i}]"
            if isinstance(row, SubAgent):
                began_s = row.begin_s
                child = self._builder.session(
                    f"{trace.id}/{row.agent_id}",
                    parent=session,
                    after_turn=n_main - 1,
                    delay_s=max(0.0, began_s - (0.0 if end_s is None else end_s)),
                    is_joined=row.is_joined,
                    head_tokens=row.tool_tokens + row.system_tokens,
                )
                self._agent(row, child, began_s, place)
                if row.is_joined:
                    joined_s = max(joined_s, row.t)
                continue
            rest_s = None if joined_s == -math.inf else max(0.0, row.t - joined_s)
            line.add(row, row.t, rest_s, place)
            n_main, end_s, joined_s = n_main + 1, row.end_s, -math.inf

    def _agent(self, agent: SubAgent, session: int, began_s: float, place: str) -> None:
        line = _Line(self, session, (agent.tool_tokens, agent.system_tokens))
        for i, row in enumerate(agent.requests):
            at_s = began_s + row.t - agent.requests[0].t
            line.add(row, at_s, None, f"{place}.requests[{i}]")

    def place(self, before: Path, ids: array[int], sizes: tuple[int, int] | None) -> Path:
        """The path of a prompt that has ``ids`` behind ``before``; ``sizes``: of a line's first."""
        if self._heads is not None and sizes is not None and ids:
            head = self._heads.opening(self._scope, ids, sizes)
            before, ids = head, ids[head.n_blocks :]
        return self._scope.place(before, ids, _DEPTHS)

    def turn(self, session: int, turn: RecordedTurn, place: str) -> None:
        """Add a turn."""
        try:
            self._builder.turn(session, turn)
        except TraceError as failure:
            raise TraceError(f"{place}: {failure}") from None


class _Line:
    """One line of requests, each prompt going on from the one before."""

    def __init__(self, reader: _Reader, session: int, sizes: tuple[int, int]) -> None:
        self._reader = reader
        self._session = session
        self._sizes = sizes
        self._ids = BlockIds()
        self._path = Path()
        self._before: Request | None = None

    def add(self, row: Request, at_s: float, rest_s: float | None, place: str) -> None:
        """The next request of the line."""
        n_common, new = self._ids.read(row, place)
        before = self._before
        sizes = self._sizes if before is None else None
        self._path = self._reader.place(self._path.cut(n_common), new, sizes)
        gap_s = 0.0 if before is None else max(0.0, row.t - before.end_s)
        turn = RecordedTurn(
            at_s=at_s,
            gap_s=gap_s,
            rest_s=rest_s,
            prompt_tokens=row.input_tokens,
            branch=self._path.branch,
            named_tokens=self._path.n_blocks * BLOCK_TOKENS,
            output_tokens=max(1, row.output_tokens),
            model=row.model,
            latency_s=row.api_time,
            ttft_s=row.ttft,
        )
        self._reader.turn(self._session, turn, place)
        self._before = row
