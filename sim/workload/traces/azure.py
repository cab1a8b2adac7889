"""Reader of the Azure LLM inference traces: times and lengths of requests, and nothing else."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final

from sim.workload.traces.builder import Traits, WorkloadBuilder
from sim.workload.traces.errors import TraceError, shown
from sim.workload.traces.jsontext import TOKENS_MAX
from sim.workload.traces.model import Pace, RecordedTurn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.workload.traces.files import Member
    from sim.workload.traces.model import RecordedWorkload

HEADER: Final = b"TIMESTAMP,ContextTokens,GeneratedTokens"
_TRAITS: Final = Traits("azure", Pace.OPEN, 0, has_clock=True, has_sessions=False)
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:\+00:00)?", re.ASCII)
_COUNT: Final = re.compile(r"\d{1,9}", re.ASCII)
_COLUMNS: Final = 3


def read(files: Iterable[Member]) -> RecordedWorkload:
    """The requests of one file, each a session of its own, in their order.

    Raises:
        TraceError: a line is no such request or goes back in time, or there are several files.
    """
    builder = WorkloadBuilder(_TRAITS)
    epoch: datetime | None = None
    first_s = newest_s = 0.0
    for file in files:
        if builder.n_turns:
            raise TraceError(f"{file.name}: a second file; name one file")
        has_header = False
        for place, line in file.lines():
            if not has_header:
                _check_header(line, place)
                has_header = True
                continue
            when, fraction_s, prompt_tokens, output_tokens = _row(line, place)
            if epoch is None:
                epoch, first_s = when, fraction_s
            at_s = (when - epoch).total_seconds() + fraction_s
            if at_s < newest_s:
                raise TraceError(f"{place}: TIMESTAMP: {when} is before the line above it")
            newest_s = at_s
            turn = RecordedTurn(
                at_s - first_s, 0.0, None, prompt_tokens, 0, 0, output_tokens, "", None, None
            )
            builder.turn(builder.session(str(builder.n_turns + 1)), turn)
    return builder.workload()


def _check_header(line: bytes, place: str) -> None:
    if line.removeprefix(b"\xef\xbb\xbf") != HEADER:
        raise TraceError(f"{place}: expected {HEADER.decode()}, got {shown(line[:80])}")


def _row(line: bytes, place: str) -> tuple[datetime, float, int, int]:
    cells = line.decode("ascii", "replace").split(",")
    if len(cells) != _COLUMNS:
        raise TraceError(f"{place}: {len(cells)} columns, expected {_COLUMNS}: {shown(line[:80])}")
    found = _TIME.fullmatch(cells[0])
    try:
        when = datetime.fromisoformat(found.group(1)) if found is not None else None
    except ValueError:
        when = None
    if found is None or when is None:
        raise TraceError(f"{place}: TIMESTAMP: expected a date and time, got {shown(cells[0])}")
    fraction_s = float(f"0.{found.group(2) or 0}")
    prompt_tokens = _tokens(cells[1], f"{place}: ContextTokens")
    return (
        when,
        fraction_s,
        max(1, prompt_tokens),
        max(1, _tokens(cells[2], f"{place}: GeneratedTokens")),
    )


def _tokens(cell: str, place: str) -> int:
    if _COUNT.fullmatch(cell) is None or int(cell) > TOKENS_MAX:
        raise TraceError(f"{place}: expected 0 to {TOKENS_MAX}, got {shown(cell)}")
    return int(cell)
