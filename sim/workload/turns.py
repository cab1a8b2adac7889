"""What a workload and the load generator exchange: requests to send, answers that came back.

A *source* hands out sessions, a session hands out turns one after another. Times are engine
seconds. Nothing here knows a dialect or a socket.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

CHAT_PATH = "/v1/chat/completions"
MESSAGES_PATH = "/v1/messages"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of an answer; ``arguments`` is the JSON text as received."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine answered: its text and its tool calls."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One request as it goes over the wire.

    ``shared_ratio`` (0-1) is the leading share of the prompt that an infinite cache would hold:
    what this session sent or received before, and heads that any session sent before.
    """

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    shared_ratio: float


@dataclass(frozen=True, slots=True)
class Turn:
    """The next step of a session.

    After ``gap_s`` engine seconds the ``children`` are played to their ends, all at once, and then
    ``request`` is sent.
    """

    gap_s: float
    request: AgentRequest
    children: Sequence[Session] = field(default=())


class Session(Protocol):
    """One conversation, played turn by turn."""

    @property
    def key(self) -> str:
        """What identifies the session, for reports."""
        ...

    def next_turn(self) -> Turn | None:
        """The next turn, or None at the session's end. Call :meth:`answered` before the next."""
        ...

    def answered(self, answer: Answer) -> None:
        """Take the answer to the request of the last turn."""
        ...


class Source(Protocol):
    """Hands out sessions to the lanes of a load generator."""

    def next_session(self, lane: int) -> Session | None:
        """The next session of ``lane`` (from 0), or None when the source is exhausted."""
        ...
