"""Collects sessions and turns in the order a reader meets them; answers the workload."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sim.workload.traces.errors import TraceError
from sim.workload.traces.model import (
    NO_PARENT,
    TYPE_CODES,
    Pace,
    RecordedSession,
    RecordedTurn,
    RecordedWorkload,
    TurnColumns,
    read_only,
)
from sim.workload.traces.tree import TreeBuilder

if TYPE_CHECKING:
    from typing import Any

TURNS_MAX: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Traits:
    """What holds for all of a format; the fields are those of ``RecordedWorkload``."""

    format: str
    pace: Pace
    block_tokens: int | None
    has_clock: bool
    has_sessions: bool
    is_estimated: bool = False


class WorkloadBuilder:
    """Takes sessions, then turns of any of them, in the order of each session."""

    def __init__(self, traits: Traits) -> None:
        self.tree = TreeBuilder()
        self._traits = traits
        self._sessions: list[RecordedSession] = []
        self._columns: dict[str, array[Any]] = {
            name: array(code) for name, code in TYPE_CODES.items()
        }
        self._session_of = array("I")
        self._models: dict[str, int] = {"": 0}

    @property
    def n_turns(self) -> int:
        """Turns so far."""
        return len(self._session_of)

    def session(
        self,
        session_id: str,
        *,
        parent: int = NO_PARENT,
        after_turn: int = -1,
        delay_s: float = 0.0,
        is_joined: bool = False,
        head_tokens: int = 0,
    ) -> int:
        """A new session; answers its number. ``parent`` is such a number, too."""
        assert parent < len(self._sessions), parent
        self._sessions.append(
            RecordedSession(
                session_id,
                0,
                0,
                parent=parent,
                after_turn=after_turn,
                delay_s=delay_s,
                is_joined=is_joined,
                head_tokens=head_tokens,
            )
        )
        return len(self._sessions) - 1

    def turn(self, session: int, turn: RecordedTurn) -> int:
        """The next turn of a session; answers its number for ``ended``.

        Raises:
            TraceError: there are too many.
        """
        if self.n_turns >= TURNS_MAX:
            raise TraceError(f"over {TURNS_MAX} requests; split the data")
        model = self._models.setdefault(turn.model, len(self._models))
        for (name, column), value in zip(self._columns.items(), turn, strict=True):
            known = model if name == "model" else value
            column.append(math.nan if known is None else known)
        self._session_of.append(session)
        return self.n_turns - 1

    def ended(
        self,
        turn: int,
        *,
        latency_s: float,
        ttft_s: float | None,
        prompt_tokens: int | None,
        output_tokens: int | None,
    ) -> None:
        """Say of a turn what is known only once it is over; None leaves a field as it is."""
        for name, value in (
            ("latency_s", latency_s),
            ("ttft_s", ttft_s),
            ("prompt_tokens", prompt_tokens),
            ("output_tokens", output_tokens),
        ):
            if value is not None:
                self._columns[name][turn] = value

    def workload(self) -> RecordedWorkload:
        """Everything collected, turns in the order of their sessions."""
        return self._taken(self._columns)

    def scaled(self, tokens_per_unit: float) -> RecordedWorkload:
        """As ``workload``, for a reader that named prompts in another unit than tokens.

        Turns without prompt tokens (0) get as many as are named in them, at least 1.
        """
        columns = self._columns
        named = array("Q", (int(n * tokens_per_unit) for n in columns["named_tokens"]))
        prompt = array("Q", columns["prompt_tokens"])
        for i, tokens in enumerate(named):
            prompt[i] = prompt[i] or max(1, tokens)
            named[i] = min(tokens, prompt[i])
        scaled = columns | {"named_tokens": named, "prompt_tokens": prompt}
        return self._taken(scaled, tokens_per_unit)

    def _taken(
        self, columns: dict[str, array[Any]], tokens_per_unit: float = 1.0
    ) -> RecordedWorkload:
        order = sorted(range(self.n_turns), key=self._session_of.__getitem__)  # stable
        ordered = {
            name: read_only(array(column.typecode, map(column.__getitem__, order)))
            for name, column in columns.items()
        }
        counts = array("I", bytes(4 * len(self._sessions)))
        for number in self._session_of:
            counts[number] += 1
        sessions: list[RecordedSession] = []
        first = 0
        for session, n_turns in zip(self._sessions, counts, strict=True):
            sessions.append(replace(session, first=first, end=first + n_turns))
            first += n_turns
        traits = self._traits
        return RecordedWorkload(
            format=traits.format,
            pace=traits.pace,
            block_tokens=traits.block_tokens,
            has_clock=traits.has_clock,
            has_sessions=traits.has_sessions,
            is_estimated=traits.is_estimated,
            sessions=tuple(sessions),
            turns=TurnColumns(**ordered),
            models=tuple(self._models),
            tree=self.tree.tree(tokens_per_unit),
        )
