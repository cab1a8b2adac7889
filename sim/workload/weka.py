"""Claude Code traces as block ids, for a replay over the wire.

Only main requests are kept: sub-agents are left out, and a pause that held sub-agents keeps their
time. Ids are prefix ids of 64 tokens, local to their trace.
"""

from __future__ import annotations

import heapq
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.rng import stream
from sim.workload.traces.errors import TraceError
from sim.workload.traces.files import members
from sim.workload.traces.model import Limits
from sim.workload.traces.weka_file import BLOCK_TOKENS, BlockIds, SubAgent, parse_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One main request; ``gap_s`` runs from the end of the answer before it."""

    input_tokens: int
    output_tokens: int
    block_ids: array[int]
    gap_s: float


@dataclass(frozen=True, slots=True)
class Trace:
    """One recorded session. The head is its tools and its system prompt, in tokens."""

    trace_id: str
    head_tokens: int
    rows: tuple[TraceRow, ...]


def read_traces(path: Path, *, limits: Limits | None = None) -> Iterator[Trace]:
    """Every trace under ``path``, in the order of the archive or of the file names.

    Raises:
        TraceError: ``path`` is missing, is no trace, or a trace in it is malformed.
    """
    for file in members(path):
        yield parse_trace(file.whole(), file.name, limits=limits)


def sample_traces(
    path: Path, *, count: int, seed: int, limits: Limits | None = None
) -> tuple[Trace, ...]:
    """``count`` traces drawn by ``seed`` (fewer where there are fewer), in the drawn order.

    Only the drawn ones are decoded. The draw depends on the seed and the files' names alone.

    Raises:
        TraceError: as :func:`read_traces`, or there is no trace at all.
    """
    ranked: list[tuple[float, str, bytes]] = []
    for file in members(path):
        rank = -stream(seed, f"trace/{file.file_name}").random()
        if len(ranked) < count:
            heapq.heappush(ranked, (rank, file.name, file.whole()))
        else:
            heapq.heappushpop(ranked, (rank, file.name, file.whole()))
    if not ranked:
        raise TraceError(f"{path}: no trace in it; expected files named *.json")
    ranked.sort(reverse=True)
    return tuple(parse_trace(raw, name, limits=limits) for _, name, raw in ranked)


def parse_trace(raw: bytes, name: str, *, limits: Limits | None = None) -> Trace:
    """The trace in one file's bytes; ``name`` is used in errors.

    Raises:
        TraceError: the bytes are no trace.
    """
    limits = limits or Limits()
    decoded = parse_file(raw, name)
    rows: list[TraceRow] = []
    ids, before, end_s = BlockIds(), array("Q"), 0.0
    for index, row in enumerate(decoded.requests):
        if isinstance(row, SubAgent):
            continue
        n_common, new = ids.read(row, f"{name}: requests[{index}]")
        before = before[:n_common] + new
        input_tokens = min(row.input_tokens, limits.context_tokens_max)
        rows.append(
            TraceRow(
                input_tokens=input_tokens,
                output_tokens=max(1, row.output_tokens),
                block_ids=before[: input_tokens // BLOCK_TOKENS],
                gap_s=min(limits.gap_s_max, max(0.0, row.t - end_s)) if rows else 0.0,
            )
        )
        end_s = row.end_s
    return Trace(decoded.id, decoded.tool_tokens + decoded.system_tokens, tuple(rows))
