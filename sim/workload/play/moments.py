"""Where sessions stand that have been played for long: at a moment of their time, not at one of their turns.

Whoever begins with a turn of each session begins with a burst: most pauses are short, and most of the time is
in the long ones.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from sim.workload.traces.model import RecordedSession

TURN_S: Final = 4.0
"""What an answer takes where nothing was answered yet: about 500 output tokens."""


class Moment(NamedTuple):
    """A session, the turn of it that is sent next, both by number in the workload, and in how many seconds."""

    session: int
    turn: int
    left_s: float


class Moments:
    """The time of some sessions laid end to end: each turn's is the pause before it and its answer.

    Sub-agents have none: they come with the turns that begin them.
    """

    def __init__(
        self, sessions: Sequence[RecordedSession], numbers: Sequence[int], gaps_s: Sequence[float]
    ) -> None:
        self._sessions: list[int] = []
        self._turns: list[int] = []
        self._ends_s: list[float] = []
        at_s = 0.0
        for number in numbers:
            first = sessions[number].first
            for turn in range(first, sessions[number].end):
                at_s += TURN_S + (gaps_s[turn] if turn > first else 0.0)
                self._sessions.append(number)
                self._turns.append(turn)
                self._ends_s.append(at_s)

    def draw(self, dice: random.Random) -> Moment:
        """One of them, all equally likely: in a pause, its rest is left; a turn being answered is sent soon."""
        ends_s = self._ends_s
        at_s = dice.uniform(0.0, ends_s[-1])
        place = min(bisect_right(ends_s, at_s), len(ends_s) - 1)
        pause_s = ends_s[place] - TURN_S - at_s
        left_s = pause_s if pause_s > 0.0 else dice.uniform(0.0, TURN_S)
        return Moment(self._sessions[place], self._turns[place], left_s)
