"""What the answer formats of all dialects share."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.live.rendering.answer import Answer, Piece

QUEUE_FULL_TEXT: Final = "The request queue is full."
BAD_REQUEST: Final = 400
UNAVAILABLE: Final = 503


@dataclass(slots=True)
class Usage:
    """Token counts of one request so far."""

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int = 0


@dataclass(slots=True, frozen=True)
class Problem:
    """Why a request that could be read is not served.

    An ``is_late`` one is found by the scheduler, when a stream has its status already.
    """

    status: int
    message: str
    is_late: bool = False


@dataclass(slots=True, frozen=True)
class Refusal:
    """An answer without a generation: a status and a JSON body."""

    status: int
    body: bytes


class Writer(Protocol):
    """Writes one answer of one dialect. Each list item is one event of the stream."""

    def greeting(self) -> list[bytes]:
        """The events that are sent before the engine has seen the request."""

    def opening(self, usage: Usage) -> list[bytes]:
        """The events before any text."""

    def piece(self, piece: Piece, usage: Usage) -> list[bytes]:
        """The events for what became visible."""

    def closing(self, finish: str, usage: Usage) -> list[bytes]:
        """The events that end the stream; ``finish`` in the chat API's words, or abort."""

    def fault(self, status: int, message: str) -> list[bytes]:
        """The events that break a stream off with an error."""

    def whole(self, answer: Answer, visible: Piece, finish: str, usage: Usage) -> bytes:
        """The answer without streaming."""


def epoch_s() -> float:
    """Calendar time as the wire formats carry it; nothing is measured with it."""
    return time.time()  # noqa: TID251 -- the loop's clock has no calendar


def encode(value: object) -> bytes:
    """JSON bytes."""
    return msgspec.json.encode(value)


def data_event(value: object) -> bytes:
    """One unnamed server-sent event."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def named_event(value: Mapping[str, object]) -> bytes:
    """One server-sent event named by its own ``type``."""
    return b"event: %b\ndata: %b\n\n" % (str(value["type"]).encode(), msgspec.json.encode(value))
