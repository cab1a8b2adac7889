"""Recorded traffic in memory: sessions of turns, held as read-only columns.

A turn says when it came, how long its prompt and its answer are, and how far the prompt is named:
the leading tokens whose identity the format tells, as a place in a tree of prefixes. What lies
behind them is new each time. Times are seconds, sizes tokens.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sim.workload.traces.tree import PrefixTree

_N = TypeVar("_N", int, float)

CONTEXT_TOKENS_MAX: Final = 262_144
GAP_S_MAX: Final = 300.0
NO_PARENT: Final = -1


class Pace(StrEnum):
    """What sets the time of a request.

    ``closed``: it follows the answer before it by a gap. ``calls``: the same, but only the starts
    are known, so a gap holds the time of the call before it. ``open``: it arrives at its time.
    """

    CLOSED = "closed"
    CALLS = "calls"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Limits:
    """How traces are cut: contexts at ``context_tokens_max``, pauses at ``gap_s_max``."""

    context_tokens_max: int = CONTEXT_TOKENS_MAX
    gap_s_max: float = GAP_S_MAX


class RecordedTurn(NamedTuple):
    """One request.

    ``at_s``: its recorded time, since the beginning of the workload, or of its family of sessions
    where families have no common clock. ``gap_s``: since the end of the answer before it in its
    session (see ``Pace``), 0 for the first. ``rest_s``: since the end of the last sub-agent that
    the session waited for before this turn, None if there was none. ``branch`` and
    ``named_tokens``: the named part of the prompt. ``model`` is "" and times are None where the
    format is silent.
    """

    at_s: float
    gap_s: float
    rest_s: float | None
    prompt_tokens: int
    branch: int
    named_tokens: int
    output_tokens: int
    model: str
    latency_s: float | None
    ttft_s: float | None


TYPE_CODES: Final = dict(zip(RecordedTurn._fields, "dddQiQQIdd", strict=True))
"""The array type of each field's column."""


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """A chain of turns, one after the other: those numbered ``first`` up to ``end``.

    A sub-agent, or a line that runs beside another of the same session, has the number of its
    parent's session in ``parent``; it begins ``delay_s`` after the answer to the parent's turn
    ``after_turn`` (counted from 0 in the parent; -1: after the parent's beginning). Where
    ``is_joined``, the parent's next turn waits for it. ``head_tokens``: tools and system prompt,
    0 where unknown. ``is_auxiliary``: a title or the like, which does not go on with its parent.
    """

    session_id: str
    first: int
    end: int
    parent: int = NO_PARENT
    after_turn: int = -1
    delay_s: float = 0.0
    is_joined: bool = False
    head_tokens: int = 0
    is_auxiliary: bool = False


@dataclass(frozen=True, slots=True)
class TurnColumns:
    """The fields of all turns, each an array; NaN stands for a time that is not known."""

    at_s: Sequence[float]
    gap_s: Sequence[float]
    rest_s: Sequence[float]
    prompt_tokens: Sequence[int]
    branch: Sequence[int]
    named_tokens: Sequence[int]
    output_tokens: Sequence[int]
    model: Sequence[int]
    latency_s: Sequence[float]
    ttft_s: Sequence[float]

    def __len__(self) -> int:
        return len(self.at_s)


@dataclass(frozen=True, slots=True)
class RecordedWorkload:
    """What a file of traffic holds; a session's parent stands before it.

    ``block_tokens``: how finely prompts are named, 0 where they are not, None where it varies.
    ``has_clock``: whether the sessions' times can be compared. ``has_sessions``: whether the format
    tells which requests belong together; if not, each is a session of its own. ``is_estimated``:
    whether prompt tokens were computed from text. ``n_cut`` and ``n_capped`` count what ``cut``
    changed.
    """

    format: str
    pace: Pace
    block_tokens: int | None
    has_clock: bool
    has_sessions: bool
    is_estimated: bool
    sessions: tuple[RecordedSession, ...]
    turns: TurnColumns
    models: tuple[str, ...]
    tree: PrefixTree
    n_cut: int = 0
    n_capped: int = 0

    def turn(self, index: int) -> RecordedTurn:
        """The turn of this number."""
        columns = self.turns
        return RecordedTurn(
            at_s=columns.at_s[index],
            gap_s=columns.gap_s[index],
            rest_s=_known(columns.rest_s[index]),
            prompt_tokens=columns.prompt_tokens[index],
            branch=columns.branch[index],
            named_tokens=columns.named_tokens[index],
            output_tokens=columns.output_tokens[index],
            model=self.models[columns.model[index]],
            latency_s=_known(columns.latency_s[index]),
            ttft_s=_known(columns.ttft_s[index]),
        )

    def turns_of(self, session: RecordedSession) -> Iterator[RecordedTurn]:
        """The turns of one session, in their order."""
        return map(self.turn, range(session.first, session.end))

    def selected(self, keep: Callable[[RecordedSession], bool]) -> RecordedWorkload:
        """The families whose first session ``keep`` accepts, sub-agents with them."""
        numbers: dict[int, int] = {}
        sessions: list[RecordedSession] = []
        turns: list[int] = []
        for number, session in enumerate(self.sessions):
            is_root = session.parent == NO_PARENT
            if keep(session) if is_root else session.parent in numbers:
                first = len(turns)
                turns.extend(range(session.first, session.end))
                parent = NO_PARENT if is_root else numbers[session.parent]
                numbers[number] = len(sessions)
                sessions.append(replace(session, first=first, end=len(turns), parent=parent))
        columns = TurnColumns(*(_picked(n, getattr(self.turns, n), turns) for n in TYPE_CODES))
        return replace(self, sessions=tuple(sessions), turns=columns)

    def cut(self, limits: Limits) -> RecordedWorkload:
        """The same traffic with contexts and pauses cut at ``limits``."""
        columns, most = self.turns, limits.context_tokens_max
        named = array("Q", [min(tokens, most) for tokens in columns.named_tokens])
        branch = array("i", map(self.tree.at, columns.branch, named))
        gap_s = array("d", [min(gap, limits.gap_s_max) for gap in columns.gap_s])
        rest_s = array("d", [min(rest, limits.gap_s_max) for rest in columns.rest_s])
        prompt = array("Q", [min(tokens, most) for tokens in columns.prompt_tokens])
        return replace(
            self,
            turns=replace(
                columns,
                prompt_tokens=read_only(prompt),
                branch=read_only(branch),
                named_tokens=read_only(named),
                gap_s=read_only(gap_s),
                rest_s=read_only(rest_s),
            ),
            n_cut=sum(tokens > most for tokens in columns.prompt_tokens),
            n_capped=sum(gap > limits.gap_s_max for gap in columns.gap_s),
        )


def read_only(column: array[_N]) -> Sequence[_N]:
    """The column, so that nobody changes it."""
    return cast("Sequence[_N]", memoryview(column).toreadonly())


def _picked(name: str, column: Sequence[_N], turns: Sequence[int]) -> Sequence[_N]:
    kept: array[_N] = array(TYPE_CODES[name])
    kept.extend(map(column.__getitem__, turns))
    return read_only(kept)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
