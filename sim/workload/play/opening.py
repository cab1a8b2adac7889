"""Open loop: each request comes at its recorded time, whatever was answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.workload.play.prompts import SessionPrompts
from sim.workload.play.turns import Due, PlayedTurn, TurnKind
from sim.workload.traces.model import NO_PARENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sim.workload.play.content import Content
    from sim.workload.play.prompts import Depths
    from sim.workload.play.turns import PlayedPrompt

_SCOPE = 1


@dataclass(slots=True, eq=False)
class _OpenTurn(PlayedTurn):
    session: int
    index: int
    prompts: SessionPrompts | None = None
    answer: Depths = ()


class OpenLoop:
    """A :class:`sim.workload.play.turns.Play` at recorded times, counted from the first request's.

    ``rate_factor``: times are divided by it, so above 1 more comes in the same time. Where a format
    tells no sessions, each request is one.
    """

    def __init__(self, content: Content, *, rate_factor: float) -> None:
        assert content.workload.has_clock
        assert rate_factor > 0, rate_factor
        self._content = content
        self._rate_factor = rate_factor
        self._seen: dict[int, int] = {}
        self._prompts: dict[int, SessionPrompts] = {}
        self._keys: list[str] = []
        self._kinds: list[TurnKind] = []
        for session in content.workload.sessions:
            key, kind = session.session_id, TurnKind.MAIN
            if session.parent != NO_PARENT:
                parent = content.workload.sessions[session.parent]
                if key.startswith(parent.session_id + "/"):
                    key = self._keys[session.parent]
                kind = TurnKind.AUXILIARY if session.is_auxiliary else TurnKind.SUB_AGENT
            self._keys.append(key)
            self._kinds.append(kind)

    def arrivals(self) -> Iterator[Due]:
        """All requests, in order of time."""
        workload = self._content.workload
        at_s = workload.turns.at_s
        session_of = [
            number
            for number, session in enumerate(workload.sessions)
            for _ in range(session.first, session.end)
        ]
        order = sorted(range(len(at_s)), key=at_s.__getitem__)
        begin_s = at_s[order[0]]
        for index in order:
            session = session_of[index]
            turn = _OpenTurn(
                session_key=self._keys[session],
                kind=self._kinds[session],
                prompt_tokens=workload.turns.prompt_tokens[index],
                output_tokens=workload.turns.output_tokens[index],
                session=session,
                index=index,
            )
            yield Due((at_s[index] - begin_s) / self._rate_factor, turn)

    def prompt(self, turn: PlayedTurn) -> PlayedPrompt:
        """The turn's prompt; asked for once, at the moment it is first sent."""
        assert isinstance(turn, _OpenTurn)
        prompts = self._prompts.get(turn.session)
        if prompts is None:
            prompts = self._prompts[turn.session] = SessionPrompts(
                self._content, turn.session, scope=_SCOPE, own=self._seen, common=self._seen
            )
        prompt, turn.answer = prompts.prompt(turn.index)
        turn.prompts = prompts
        if turn.index + 1 == self._content.workload.sessions[turn.session].end:
            del self._prompts[turn.session]
        return prompt

    def ended(self, turn: PlayedTurn, now_s: float) -> Sequence[Due]:  # noqa: ARG002 - the protocol's
        """Nothing falls due; what was answered is known from now on."""
        assert isinstance(turn, _OpenTurn)
        if turn.prompts is not None:
            turn.prompts.answered(turn.answer)
        return ()
