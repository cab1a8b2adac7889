"""Closed loop: lanes play recorded sessions, one after another each, and send when they were answered.

Which session a lane plays next, and every prompt of it, depend on seed, lane and number alone, never
on how fast anything was answered. Only where each session is played once does the next free lane
take the next one.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sim.rng import stream
from sim.workload.play.moments import Moments
from sim.workload.play.prompts import SessionPrompts
from sim.workload.play.turns import Due, PlayedTurn, TurnKind
from sim.workload.traces.model import NO_PARENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sim.workload.play.content import Content
    from sim.workload.play.prompts import Depths
    from sim.workload.play.turns import PlayedPrompt
    from sim.workload.traces.model import RecordedSession

START_SHARES: Final = (0.25, 0.75)
"""A lane's first session begins between these shares of it (AgentX)."""
_SPREAD_S_MIN: Final = 1.0


@dataclass(frozen=True, slots=True)
class LaneOptions:
    """How many lanes play, and from where.

    ``is_from_middle``: each lane's first session begins from 25 to 75 % of its turns. ``is_warm``: as if
    the lanes had been playing for long. Each begins at a moment of all sessions' time, which long sessions and long
    pauses have more of, and the turn before was answered by the replica that it comes to first.
    ``is_once``: each session is played once, from its beginning, and a lane ends when none is left.
    ``rate_factor``: pauses are divided by it, so above 1 agents are so many times as quick.
    """

    n_lanes: int
    seed: int
    is_from_middle: bool = True
    is_warm: bool = False
    is_once: bool = False
    rate_factor: float = 1.0


@dataclass(slots=True, eq=False)
class _Playing:
    """A family of sessions being played: the one that the lane took, and its sub-agents."""

    lane: int
    serial: int
    scope: int
    seen: dict[int, int] = field(default_factory=dict)
    n_open: int = 0


@dataclass(slots=True, eq=False)
class _Line:
    """One session of a playing; ``turn`` is its next, by number in the workload.

    ``n_awaited`` sub-agents must be over before that one is sent.
    """

    playing: _Playing
    number: int
    session: RecordedSession
    key: str
    kind: TurnKind
    prompts: SessionPrompts
    turn: int
    parent: _Line | None = None
    is_awaited: bool = False
    n_awaited: int = 0
    answered_s: float = 0.0
    is_warm: bool = False


@dataclass(slots=True, eq=False)
class _LaneTurn(PlayedTurn):
    line: _Line
    index: int
    answer: Depths = ()


class Lanes:
    """A :class:`sim.workload.play.turns.Play` in closed loop.

    A gap begins when the answer ends; where sub-agents are waited for, the rest begins when the
    last is over. The lanes begin evenly spread, by seed, over the mean gap of the workload (at least
    1 s), so that as many begin at a moment as would send there anyway.

    A sub-agent sends its parent's session key, as Claude Code does, unless its recorded id says that
    it had one of its own (it does not begin with the parent's and ``/``).
    """

    def __init__(self, content: Content, options: LaneOptions) -> None:
        assert options.n_lanes > 0, options.n_lanes
        assert options.rate_factor > 0.0, options.rate_factor
        workload = content.workload
        self._content = content
        self._options = options
        self._roots = [
            number
            for number, session in enumerate(workload.sessions)
            if session.parent == NO_PARENT and session.first < session.end
        ]
        assert self._roots, "no session to play"
        self._first_children: defaultdict[int, list[int]] = defaultdict(list)
        self._children: defaultdict[int, list[int]] = defaultdict(list)
        for number, session in enumerate(workload.sessions):
            if session.parent != NO_PARENT and session.first < session.end:
                if session.after_turn < 0:
                    self._first_children[session.parent].append(number)
                else:
                    parent = workload.sessions[session.parent]
                    if (turn := parent.first + session.after_turn) < parent.end:
                        self._children[turn].append(number)
        factor = options.rate_factor
        self._gaps_s = array("d", [gap_s / factor for gap_s in workload.turns.gap_s])
        self._decks: list[list[int]] = []
        self._played = [0] * options.n_lanes
        self._n_taken = 0
        self._common: dict[int, int] = {}

    def arrivals(self) -> Iterator[Due]:
        """The beginnings of all lanes, in order of time."""
        options, dues = self._options, list[Due]()
        if options.is_warm and not options.is_once:
            moments = Moments(self._content.workload.sessions, self._roots, self._gaps_s)
            for lane in range(options.n_lanes):
                dues.extend(self._begin_warm(lane, moments))
        else:
            spread_s = self._spread_s()
            for lane in range(options.n_lanes):
                begin_s = stream(options.seed, f"lane/{lane}").uniform(0.0, spread_s)
                dues.extend(self._begin(lane, begin_s))
        dues.sort(key=_at_s)
        return iter(dues)

    def prompt(self, turn: PlayedTurn) -> PlayedPrompt:
        """The turn's prompt; asked for once, at the moment it is first sent."""
        assert isinstance(turn, _LaneTurn)
        line = turn.line
        is_warm, line.is_warm = line.is_warm, False
        if is_warm:
            _, answer = line.prompts.prompt(turn.index - 1)
            line.prompts.answered(answer)
        prompt, turn.answer = line.prompts.prompt(turn.index)
        if is_warm:
            prompt.warm_tokens = prompt.ceiling_tokens
        return prompt

    def ended(self, turn: PlayedTurn, now_s: float) -> Sequence[Due]:
        """The session's next turn and what begins beside it; or the lane's next session."""
        assert isinstance(turn, _LaneTurn)
        line = turn.line
        assert line.turn == turn.index, "a turn ends once"
        line.prompts.answered(turn.answer)
        line.turn = after = turn.index + 1
        children, is_last = self._children.get(turn.index), after == line.session.end
        if children is None and not is_last and not line.n_awaited:
            line.answered_s = now_s
            return (self._due(line, now_s + self._gaps_s[after]),)
        dues = self._after(line, children, now_s)
        if is_last:
            dues.extend(self._over(line, now_s))
        if len(dues) > 1:
            dues.sort(key=_at_s)
        return dues

    def _begin(self, lane: int, now_s: float) -> list[Due]:
        serial = self._played[lane]
        number = self._next_root(lane, serial)
        if number is None:
            return []
        line = self._first_line(lane, serial, number)
        session = line.session
        if serial == 0 and self._options.is_from_middle and not self._options.is_once:
            share = stream(self._options.seed, f"start/{lane}").uniform(*START_SHARES)
            if skipped := int(share * (session.end - session.first)):
                line.turn += skipped
                return [self._due(line, now_s)]
        return self._after(line, self._first_children.get(number), now_s)

    def _begin_warm(self, lane: int, moments: Moments) -> list[Due]:
        number, turn, left_s = moments.draw(stream(self._options.seed, f"start/{lane}"))
        line = self._first_line(lane, 0, number)
        if turn == line.session.first:
            return self._after(line, self._first_children.get(number), left_s)
        line.turn, line.is_warm = turn, True
        return [self._due(line, left_s)]

    def _first_line(self, lane: int, serial: int, number: int) -> _Line:
        """The line of the session that a lane plays now."""
        self._played[lane] = serial + 1
        playing = _Playing(lane, serial, 1 + serial * self._options.n_lanes + lane)
        session = self._content.workload.sessions[number]
        return self._line(playing, number, f"{session.session_id}-{lane}-{serial}", TurnKind.MAIN)

    def _next_root(self, lane: int, serial: int) -> int | None:
        """The session that a lane plays next, dealt from decks that are shuffled anew each time."""
        n = len(self._roots)
        place = serial * self._options.n_lanes + lane
        if self._options.is_once:
            if self._n_taken == n:
                return None
            place = self._n_taken
            self._n_taken += 1
        deck, index = divmod(place, n)
        while len(self._decks) <= deck:
            shuffled = list(self._roots)
            stream(self._options.seed, f"deck/{len(self._decks)}").shuffle(shuffled)
            self._decks.append(shuffled)
        return self._decks[deck][index]

    def _line(self, playing: _Playing, number: int, key: str, kind: TurnKind) -> _Line:
        playing.n_open += 1
        session = self._content.workload.sessions[number]
        prompts = SessionPrompts(
            self._content, number, scope=playing.scope, own=playing.seen, common=self._common
        )
        return _Line(playing, number, session, key, kind, prompts, session.first)

    def _after(self, line: _Line, children: Sequence[int] | None, now_s: float) -> list[Due]:
        """What follows a line's turn, or its beginning: its sub-agents, and its next turn."""
        dues: list[Due] = []
        if children is not None:
            for number in children:
                dues.extend(self._begin_child(line, number, now_s))
        line.answered_s = now_s
        if line.turn < line.session.end and not line.n_awaited:
            dues.append(self._due(line, now_s + self._gap_s(line)))
        return dues

    def _begin_child(self, parent: _Line, number: int, now_s: float) -> list[Due]:
        session = self._content.workload.sessions[number]
        playing, key = parent.playing, parent.key
        if not session.session_id.startswith(parent.session.session_id + "/"):
            key = f"{session.session_id}-{playing.lane}-{playing.serial}"
        kind = TurnKind.AUXILIARY if session.is_auxiliary else TurnKind.SUB_AGENT
        line = self._line(playing, number, key, kind)
        line.parent, line.is_awaited = parent, session.is_joined
        parent.n_awaited += session.is_joined
        delay_s = session.delay_s / self._options.rate_factor
        return self._after(line, self._first_children.get(number), now_s + delay_s)

    def _over(self, line: _Line, now_s: float) -> list[Due]:
        """A line has no turn left: what waited for it goes on."""
        dues: list[Due] = []
        parent, playing = line.parent, line.playing
        if line.is_awaited and parent is not None:
            parent.n_awaited -= 1
            if not parent.n_awaited and parent.turn < parent.session.end:
                rest_s = self._content.workload.turns.rest_s[parent.turn]
                at_s = now_s + rest_s / self._options.rate_factor
                if math.isnan(rest_s):
                    at_s = max(now_s, parent.answered_s + self._gap_s(parent))
                dues.append(self._due(parent, at_s))
        playing.n_open -= 1
        if not playing.n_open:
            dues.extend(self._begin(playing.lane, now_s))
        return dues

    def _gap_s(self, line: _Line) -> float:
        """Since the answer before; a session's first request follows none."""
        if line.turn == line.session.first:
            return 0.0
        return self._gaps_s[line.turn]

    def _due(self, line: _Line, at_s: float) -> Due:
        content, index = self._content, line.turn
        tokens, output_tokens = content.prompt_tokens[index], content.output_tokens[index]
        return Due(at_s, _LaneTurn(line.key, line.kind, tokens, output_tokens, line, index))

    def _spread_s(self) -> float:
        gaps: list[float] = []
        for session in self._content.workload.sessions:
            gaps.extend(self._gaps_s[session.first + 1 : session.end])
        return max(_SPREAD_S_MIN, math.fsum(gaps) / len(gaps) if gaps else 0.0)


def _at_s(due: Due) -> float:
    return due.at_s
