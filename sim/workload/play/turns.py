"""What a workload and the simulator exchange: turns that fall due, prompts as engine and router see them.

A driver takes :meth:`Play.arrivals` in order of time, asks for each turn's prompt when it is sent, and
tells when it has ended; what follows from that falls due later. Times are virtual seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Sequence


Run = tuple[int, int, int]
"""Part of a prompt: on which branch of which playing (one number), and from which token up to which."""


class TurnKind(StrEnum):
    """What a request is to its session."""

    MAIN = "main"
    SUB_AGENT = "sub-agent"
    AUXILIARY = "auxiliary"


@dataclass(slots=True, eq=False)
class PlayedTurn:
    """One request of a session. A driver reads it and hands it back; plays extend it.

    ``session_key`` is what the client sends to say whose request it is; sub-agents may share it.
    """

    session_key: str
    kind: TurnKind
    prompt_tokens: int
    output_tokens: int


class Due(NamedTuple):
    """A turn and when it is sent."""

    at_s: float
    turn: PlayedTurn


@dataclass(slots=True, eq=False)
class PlayedPrompt:
    """One prompt as both sides of the wire see it.

    ``pages`` and ``output_pages`` are the engine's (:class:`sim.engine.requests.EngineRequest`): the
    session's later prompts may be in the same array, behind this one's pages;
    ``chain``, ``ends_bytes`` and ``head_segments`` the router's
    (:class:`router.dialect.base.PromptFacts`). ``ceiling_tokens`` is what a cache that never
    forgets would hold of the prompt now: whole pages of what was sent or answered before, by
    anybody, and never all of it. ``path`` is where the prompt and its answer lie, and what may follow
    them: two are equal as far as their paths run together. It is empty where nobody else has any of it.
    ``warm_tokens`` of it are at the replica that it comes to first, whole pages from a time before the run.
    """

    pages: array[int]
    output_pages: array[int]
    chain: array[int]
    ends_bytes: array[int]
    head_segments: int
    ceiling_tokens: int
    path: tuple[Run, ...] = ()
    warm_tokens: int = 0


class Play(Protocol):
    """A workload being played once. It is driven in order of time and has no clock of its own."""

    def arrivals(self) -> Iterator[Due]:
        """What comes whatever happens (the lanes' beginnings, an open loop), in order of time."""

    def prompt(self, turn: PlayedTurn) -> PlayedPrompt:
        """The turn's prompt; asked for once, at the moment it is first sent."""

    def ended(self, turn: PlayedTurn, now_s: float) -> Sequence[Due]:
        """The turn was answered, or given up; answers what falls due from ``now_s`` on."""
