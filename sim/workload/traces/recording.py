"""Reader of our own recordings (``homeport serve --record``): traffic as the router saw it.

Prompts are named in the segments that the router hashes, of up to 4 KB each. What a segment is in
tokens follows from what engines reported over the whole recording. A session that has several
requests at once becomes one line for each that runs beside another: a request goes on with the free
line whose last prompt it shares most with. One that was refused and comes again with the same prompt, as the
router itself has it each second while it waits at the door, is one turn, which came when it came first.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from router.recording.codec import Recording
from router.recording.errors import RecordingError
from router.recording.player import ArrivalReader
from router.recording.records import Arrive, Began, Finish, Placed, Refusal
from sim.workload.traces.builder import Traits, WorkloadBuilder
from sim.workload.traces.errors import TraceError, clean
from sim.workload.traces.jsontext import TOKENS_MAX
from sim.workload.traces.model import Pace, RecordedTurn
from sim.workload.traces.tree import Path, Scope, common_run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.recording.player import Arrival
    from sim.workload.traces.files import Member
    from sim.workload.traces.model import RecordedWorkload

BYTES_PER_TOKEN: Final = 4.0
"""Where no engine reported anything."""
_PROMPT_BYTES_MAX: Final = TOKENS_MAX * 4
_AGAIN_S: Final = 5.0
"""Who waits at the door is tried again by then: each second."""
_TRAITS: Final = Traits("recording", Pace.CLOSED, None, has_clock=True, has_sessions=True)


@dataclass(slots=True)
class _Line:
    """Requests of one session, one after the other."""

    session: int
    chain: array[int]
    path: Path = field(default_factory=Path)
    n_turns: int = 0
    is_busy: bool = False
    answered_s: float = 0.0
    """When its last answered request ended, or else its beginning."""
    refused: _Open | None = None
    """Its last request, if that was refused."""
    kept_until_s: float = 0.0
    """It is free for that one alone until then."""


@dataclass(slots=True)
class _Open:
    """A request that is not over."""

    turn: int
    line: _Line
    arrived_s: float
    size_bytes: int
    ttft_s: float | None = None


def read(files: Iterable[Member]) -> RecordedWorkload:
    """The sessions of one recording, in the order of their first requests.

    A recording that was cut off is read as far as it goes.

    Raises:
        TraceError: it is no recording, or damaged, or there are several.
    """
    reader: _Reader | None = None
    for file in files:
        if reader is not None:
            raise TraceError(f"{file.name}: a second recording; name one file")
        reader = _Reader(file.name)
        try:
            reader.read(file)
        except RecordingError as failure:
            raise TraceError(f"{file.name}: {clean(str(failure))}") from failure
    if reader is None:
        return WorkloadBuilder(_TRAITS).workload()
    return reader.workload()


class _Reader:
    """Follows the requests of one recording from arrival to end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._builder = WorkloadBuilder(_TRAITS)
        self._scope = Scope(self._builder.tree)
        self._lines: dict[str, list[_Line]] = {}
        self._open: dict[int, _Open] = {}
        self._asked: _Open | None = None
        self._epoch_s: float | None = None
        self._newest_s = -math.inf
        self._reported_tokens = 0
        self._reported_bytes = 0

    def read(self, file: Member) -> None:
        """Take in a whole file."""
        recording = Recording(file.chunks())
        arrivals = ArrivalReader(recording.header)
        for record in recording:
            match record:
                case Arrive():
                    self._arrived(arrivals.read(record))
                case Placed(reason=reason, ticket=ticket) if reason != "retry":
                    if self._asked is not None:
                        self._open[ticket] = self._asked
                    self._asked = None
                case Refusal():
                    if self._asked is not None:
                        self._refused(self._asked)
                    self._asked = None
                case Began(ticket=ticket, now_s=now_s):
                    if (begun := self._open.get(ticket)) is not None:
                        begun.ttft_s = max(0.0, now_s - begun.arrived_s)
                case Finish():
                    self._finished(record)
                case _:
                    pass

    def workload(self) -> RecordedWorkload:
        """What was read."""
        ratio = 1.0 / BYTES_PER_TOKEN
        if self._reported_bytes:
            ratio = self._reported_tokens / self._reported_bytes
        return self._builder.scaled(ratio)

    def _arrived(self, arrival: Arrival) -> None:
        facts = arrival.facts
        now_s = self._time(arrival.now_s)
        if self._epoch_s is None:
            self._epoch_s = now_s
        if facts.prompt_bytes > _PROMPT_BYTES_MAX:
            raise self._wrong(f"arrival {arrival.number}: a prompt of {facts.prompt_bytes} bytes")
        line = self._line(arrival)
        refused, line.refused = line.refused, None
        if refused is not None and line.chain == facts.chain:
            line.is_busy = True
            self._asked = refused
            return
        common = common_run(line.chain, facts.chain)
        line.path = self._scope.place(
            line.path.cut(common), facts.chain[common:], [0, *facts.ends_bytes]
        )
        turn = RecordedTurn(
            at_s=now_s - self._epoch_s,
            gap_s=max(0.0, now_s - line.answered_s) if line.n_turns else 0.0,
            rest_s=None,
            prompt_tokens=0,
            branch=line.path.branch,
            named_tokens=facts.prompt_bytes,
            output_tokens=1,
            model=facts.model,
            latency_s=None,
            ttft_s=None,
        )
        try:
            number = self._builder.turn(line.session, turn)
        except TraceError as failure:
            raise self._wrong(f"arrival {arrival.number}: {failure}") from None
        line.chain, line.n_turns, line.is_busy = facts.chain, line.n_turns + 1, True
        self._asked = _Open(number, line, now_s, facts.prompt_bytes)

    def _line(self, arrival: Arrival) -> _Line:
        """The line that the request goes on with, or a new one."""
        facts, now_s = arrival.facts, arrival.now_s
        lines = self._lines.setdefault(facts.session_key, [])
        for line in lines:
            if line.refused is not None and line.chain == facts.chain:
                return line
        free = [line for line in lines if not line.is_busy and line.kept_until_s <= now_s]
        if free:
            return max(free, key=lambda line: common_run(line.chain, facts.chain))
        session_id = facts.session_key + (f"/{len(lines)}" if lines else "")
        beside = lines or self._lines.get(facts.parent_key or "")
        if beside:
            main = beside[0]
            session = self._builder.session(
                session_id,
                parent=main.session,
                after_turn=main.n_turns - 1 - main.is_busy,
                delay_s=max(0.0, now_s - main.answered_s),
            )
        else:
            session = self._builder.session(session_id)
        line = _Line(session, array("Q"), answered_s=now_s)
        lines.append(line)
        return line

    def _finished(self, record: Finish) -> None:
        ended = self._open.pop(record.ticket, None)
        if ended is None:
            return  # arrived before the recording began
        now_s = self._time(record.now_s)
        for name in ("prompt_tokens", "output_tokens"):
            tokens: int | None = getattr(record, name)
            if tokens is not None and not 0 <= tokens <= TOKENS_MAX:
                raise self._wrong(f"ticket {record.ticket}: {name} of {tokens}")
        if record.prompt_tokens and ended.size_bytes:
            self._reported_tokens += record.prompt_tokens
            self._reported_bytes += ended.size_bytes
        self._builder.ended(
            ended.turn,
            latency_s=max(0.0, now_s - ended.arrived_s),
            ttft_s=ended.ttft_s,
            prompt_tokens=record.prompt_tokens or None,
            output_tokens=record.output_tokens or None,
        )
        self._release(ended.line, now_s)

    def _refused(self, asked: _Open) -> None:
        line = asked.line
        self._release(line, asked.arrived_s)
        line.refused, line.kept_until_s = asked, self._newest_s + _AGAIN_S

    def _release(self, line: _Line, now_s: float) -> None:
        line.is_busy, line.answered_s = False, now_s

    def _time(self, now_s: float) -> float:
        if not math.isfinite(now_s):
            raise self._wrong(f"a time of {now_s}")
        if now_s < self._newest_s:
            raise self._wrong(f"time goes back from {self._newest_s} to {now_s}")
        self._newest_s = now_s
        return now_s

    def _wrong(self, what: str) -> TraceError:
        return TraceError(f"{self._name}: {what}")
