"""Reader of Mooncake's request traces: a line a request, prompts named in blocks of 512 tokens.

Ids mean the same in the whole file, and the last block has one even where it is not full. There
is no session and no pause: requests arrive at their times.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from sim.workload.traces.builder import Traits, WorkloadBuilder
from sim.workload.traces.errors import TraceError
from sim.workload.traces.jsontext import ID_MAX, PromptTokens, Tokens, decoded
from sim.workload.traces.model import Pace, RecordedTurn
from sim.workload.traces.tree import Path, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.workload.traces.files import Member
    from sim.workload.traces.model import RecordedWorkload

BLOCK_TOKENS: Final = 512
_DEPTHS: Final = range(0, 1 << 62, BLOCK_TOKENS)
_TRAITS: Final = Traits("mooncake", Pace.OPEN, BLOCK_TOKENS, has_clock=True, has_sessions=False)
_MILLISECONDS_MAX: Final = 10**13

Id = Annotated[int, msgspec.Meta(ge=0, le=ID_MAX)]


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    timestamp: Annotated[float, msgspec.Meta(ge=0, le=_MILLISECONDS_MAX)]
    input_length: PromptTokens
    output_length: Tokens
    hash_ids: list[Id]


_decoder: Final = msgspec.json.Decoder(_Row)


def read(files: Iterable[Member]) -> RecordedWorkload:
    """The requests of one file, each a session of its own, in their order.

    Raises:
        TraceError: a line is no such request or goes back in time, or there are several files.
    """
    builder = WorkloadBuilder(_TRAITS)
    scope = Scope(builder.tree)
    first_ms: float | None = None
    newest_ms = 0.0
    for file in files:
        if builder.n_turns:
            raise TraceError(f"{file.name}: a second file; ids are a file's own, so name one file")
        for place, line in file.lines():
            row = decoded(_decoder, line, place)
            _check(row, newest_ms, place)
            newest_ms = row.timestamp
            first_ms = newest_ms if first_ms is None else first_ms
            path = scope.place(Path(), array("Q", row.hash_ids), _DEPTHS)
            turn = RecordedTurn(
                at_s=(newest_ms - first_ms) / 1e3,
                gap_s=0.0,
                rest_s=None,
                prompt_tokens=row.input_length,
                branch=path.branch,
                named_tokens=min(row.input_length, path.n_blocks * BLOCK_TOKENS),
                output_tokens=max(1, row.output_length),
                model="",
                latency_s=None,
                ttft_s=None,
            )
            builder.turn(builder.session(str(builder.n_turns + 1)), turn)
    return builder.workload()


def _check(row: _Row, newest_ms: float, place: str) -> None:
    expected = -(-row.input_length // BLOCK_TOKENS)
    if len(row.hash_ids) != expected:
        raise TraceError(
            f"{place}: {len(row.hash_ids)} hash_ids for {row.input_length} tokens, expected "
            f"{expected} (one for each block of {BLOCK_TOKENS} that has begun)"
        )
    if row.timestamp < newest_ms:
        raise TraceError(f"{place}: timestamp: {row.timestamp:g} is before {newest_ms:g} above it")
