"""Reader of LMCache's agent traces: whole prompts and answers as text, one file a session.

No tokens are counted there: four characters stand for one. Prompts are named in blocks of 64 such
tokens by hashes of their text, the same in all sessions, and nothing of the text is kept. Rows are
not in the order of time and are sorted by it.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from xxhash import xxh3_64_intdigest

from sim.workload.traces.builder import TURNS_MAX, Traits, WorkloadBuilder
from sim.workload.traces.errors import TraceError
from sim.workload.traces.jsontext import TOKENS_MAX, Name, decoded
from sim.workload.traces.model import Pace, RecordedTurn
from sim.workload.traces.tree import Path, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.workload.traces.files import Member
    from sim.workload.traces.model import RecordedWorkload

BLOCK_TOKENS: Final = 64
CHARS_PER_TOKEN: Final = 4
_BLOCK_CHARS: Final = BLOCK_TOKENS * CHARS_PER_TOKEN
_DEPTHS: Final = range(0, 1 << 62, BLOCK_TOKENS)
_TRAITS: Final = Traits(
    "lmcache",
    Pace.CALLS,
    BLOCK_TOKENS,
    has_clock=True,
    has_sessions=True,
    is_estimated=True,
)
_MICROSECONDS_MAX: Final = 10**16

Text = Annotated[str, msgspec.Meta(max_length=TOKENS_MAX * CHARS_PER_TOKEN)]


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    timestamp: Annotated[int, msgspec.Meta(ge=0, le=_MICROSECONDS_MAX)]
    input: Text
    output: Text
    session_id: Name


@dataclass(slots=True)
class _Call:
    """A row without its text."""

    at_us: int
    prompt_tokens: int
    output_tokens: int
    ids: array[int]


@dataclass(slots=True)
class _Session:
    """The calls of a session."""

    calls: list[_Call] = field(default_factory=list)

    @property
    def begin_us(self) -> int:
        """When its first call was made."""
        return self.calls[0].at_us


_decoder: Final = msgspec.json.Decoder(_Row)


def read(files: Iterable[Member]) -> RecordedWorkload:
    """All sessions, in the order of their first calls; a file may be empty.

    Raises:
        TraceError: a line is no such call.
    """
    sessions: dict[str, _Session] = {}
    n_calls = 0
    for file in files:
        for place, line in file.lines():
            row = decoded(_decoder, line, place)
            n_calls += 1
            if n_calls > TURNS_MAX:
                raise TraceError(f"{place}: over {TURNS_MAX} calls; split the data")
            sessions.setdefault(row.session_id, _Session()).calls.append(_call(row))
    for session in sessions.values():
        session.calls.sort(key=lambda call: call.at_us)
    builder = WorkloadBuilder(_TRAITS)
    scope = Scope(builder.tree)
    ordered = sorted(sessions.items(), key=lambda item: (item[1].begin_us, item[0]))
    for session_id, session in ordered:
        _add(builder, scope, session_id, session, ordered[0][1].begin_us)
    return builder.workload()


def _call(row: _Row) -> _Call:
    text = row.input
    full = len(text) - len(text) % _BLOCK_CHARS
    blocks = (text[at : at + _BLOCK_CHARS] for at in range(0, full, _BLOCK_CHARS))
    ids = array("Q", (xxh3_64_intdigest(block.encode("utf-8", "replace")) for block in blocks))
    return _Call(row.timestamp, _tokens(text), _tokens(row.output), ids)


def _tokens(text: str) -> int:
    return max(1, -(-len(text) // CHARS_PER_TOKEN))


def _add(
    builder: WorkloadBuilder, scope: Scope, session_id: str, session: _Session, epoch_us: int
) -> None:
    number = builder.session(session_id)
    newest_us = session.begin_us
    for call in session.calls:
        path = scope.place(Path(), call.ids, _DEPTHS)
        turn = RecordedTurn(
            at_s=(call.at_us - epoch_us) / 1e6,
            gap_s=(call.at_us - newest_us) / 1e6,
            rest_s=None,
            prompt_tokens=call.prompt_tokens,
            branch=path.branch,
            named_tokens=path.n_blocks * BLOCK_TOKENS,
            output_tokens=call.output_tokens,
            model="",
            latency_s=None,
            ttft_s=None,
        )
        builder.turn(number, turn)
        newest_us = call.at_us
