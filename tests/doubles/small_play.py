"""Sessions in a closed loop that grow by a fixed amount a turn: every figure of them can be worked out."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.rng import stream
from sim.workload.play.turns import Due, PlayedPrompt, PlayedTurn, TurnKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAGE_TOKENS = 64
SEGMENT_TOKENS = 1_024
_SPAN = 1 << 32


@dataclass(slots=True, eq=False)
class SmallTurn(PlayedTurn):
    """One turn of one session."""

    session: int = 0
    number: int = 0


class SmallPlay:
    """``sessions`` agents, each with ``turns`` turns; the first prompt has ``first_tokens``.

    Each turn appends ``new_tokens`` and the answer before it; answers have ``output_tokens``. Gaps are
    drawn around ``gap_s``. After its last turn a session is followed by another, unless ``is_once``.
    """

    def __init__(
        self,
        sessions: int,
        *,
        seed: int = 1,
        turns: int = 20,
        first_tokens: int = 20_000,
        new_tokens: int = 1_200,
        output_tokens: int = 200,
        gap_s: float = 10.0,
        is_once: bool = False,
        name: str = "session",
    ) -> None:
        self._name = name
        self._n = sessions
        self._turns = turns
        self._first_tokens = first_tokens
        self._new_tokens = new_tokens
        self._output_tokens = output_tokens
        self._gap_s = gap_s
        self._is_once = is_once
        self._dice = stream(seed, "small-play")
        self._next_session = sessions
        self.n_prompts = self.n_ended = 0

    def arrivals(self) -> Iterator[Due]:
        begins = sorted(self._dice.uniform(0.0, self._gap_s) for _ in range(self._n))
        for session, at_s in enumerate(begins):
            yield Due(at_s, self._turn(session, 0))

    def prompt(self, turn: PlayedTurn) -> PlayedPrompt:
        assert isinstance(turn, SmallTurn)
        self.n_prompts += 1
        tokens, base = turn.prompt_tokens, (turn.session + 1) * _SPAN
        n_pages = tokens // PAGE_TOKENS
        end_pages = (tokens + turn.output_tokens) // PAGE_TOKENS
        known = 0
        if turn.number:
            known = tokens - self._new_tokens  # the last prompt and its answer
        pages = array("Q", range(base, base + n_pages))
        output_pages = array("Q", range(base + n_pages, base + end_pages))
        chain, ends = array("Q"), array("I")
        for at in self._segment_ends(turn.number):
            chain.append(base + at)
            ends.append(4 * at)
        return PlayedPrompt(
            pages=pages,
            output_pages=output_pages,
            chain=chain,
            ends_bytes=ends,
            head_segments=0,
            ceiling_tokens=min(known, tokens - 1) // PAGE_TOKENS * PAGE_TOKENS,
        )

    def ended(self, turn: PlayedTurn, now_s: float) -> Sequence[Due]:
        assert isinstance(turn, SmallTurn)
        self.n_ended += 1
        at_s = now_s + self._dice.uniform(0.5, 1.5) * self._gap_s
        if turn.number + 1 < self._turns:
            return [Due(at_s, self._turn(turn.session, turn.number + 1))]
        if self._is_once:
            return []
        self._next_session += 1
        return [Due(at_s, self._turn(self._next_session, 0))]

    def _segment_ends(self, number: int) -> Iterator[int]:
        """Where the segments of a turn's prompt end, in tokens: each earlier prompt's end is one of them."""
        before = 0
        for earlier in range(number + 1):
            mark = self._prompt_tokens(earlier)
            yield from range(before + SEGMENT_TOKENS, mark, SEGMENT_TOKENS)
            yield mark
            before = mark

    def _prompt_tokens(self, number: int) -> int:
        return self._first_tokens + number * (self._new_tokens + self._output_tokens)

    def _turn(self, session: int, number: int) -> SmallTurn:
        return SmallTurn(
            session_key=f"{self._name}-{session}",
            kind=TurnKind.MAIN,
            prompt_tokens=self._prompt_tokens(number),
            output_tokens=self._output_tokens,
            session=session,
            number=number,
        )
