"""Answers of ``/v1/messages`` in SGLang 0.5.23's shapes."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sim.live.serving.chat_wire import REFUSED
from sim.live.serving.wire import BAD_REQUEST, Problem, Usage, encode, named_event

if TYPE_CHECKING:
    from sim.live.rendering.answer import Answer, CallSpan, Piece

_STOP_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "abort": "end_turn",
}
_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


_STOP: Final = named_event({"type": "message_stop"})
_HIDDEN_TEXT: Final = "Internal server error"
_HIDDEN_STATUS_MIN: Final = 500
_NO_USAGE: Final = Usage(0, 0, 0)


class MessagesWriter:
    """Writes one message. Its id is its own, and no part of it tells the request's."""

    def __init__(self, model: str, *, call: CallSpan | None) -> None:
        self._call = call
        self._has_started = False
        self._block_index = -1
        self._open_kind = ""
        self._message: dict[str, Any] = {
            "id": f"msg_{secrets.token_hex(16)}",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": model,
        }

    def greeting(self) -> list[bytes]:
        """Nothing."""
        return []

    def opening(self, usage: Usage) -> list[bytes]:
        """Nothing: the message starts with the first of what it holds."""
        del usage
        return []

    def piece(self, piece: Piece, usage: Usage) -> list[bytes]:
        """Deltas, with the starts and stops of the blocks they belong to."""
        events: list[bytes] = []
        if piece.reasoning:
            self._start(usage, events)
            if self._open_kind != "thinking":
                self._open("thinking", {"type": "thinking", "thinking": ""}, events)
            events.append(self._delta({"type": "thinking_delta", "thinking": piece.reasoning}))
        if piece.text:
            self._start(usage, events)
            if self._open_kind != "text":
                self._open("text", {"type": "text", "text": ""}, events)
            events.append(self._delta({"type": "text_delta", "text": piece.text}))
        if piece.opens_call and self._call is not None:
            self._start(usage, events)
            block = {
                "type": "tool_use",
                "id": self._call.call_id,
                "name": self._call.name,
                "input": {},
            }
            self._open("tool_use", block, events)
        if piece.arguments:
            delta = {"type": "input_json_delta", "partial_json": piece.arguments}
            events.append(self._delta(delta))
        return events

    def closing(self, finish: str, usage: Usage) -> list[bytes]:
        """The last block's stop, ``message_delta`` with the output tokens, ``message_stop``.

        A message that held nothing starts here, and knows nothing of its prompt.
        """
        events: list[bytes] = []
        self._start(_NO_USAGE, events)
        self._close(events)
        event = {
            "type": "message_delta",
            "delta": {"stop_reason": _STOP_REASONS[finish]},
            "usage": {"output_tokens": usage.output_tokens},
        }
        return [*events, named_event(event), _STOP]

    def fault(self, status: int, message: str) -> list[bytes]:
        """A start where there was none, the open block's stop, the error, ``message_stop``."""
        events: list[bytes] = []
        self._start(_NO_USAGE, events)
        self._close(events)
        return [*events, named_event(error_of(status, message)), _STOP]

    def whole(self, answer: Answer, visible: Piece, finish: str, usage: Usage) -> bytes:
        """The ``message`` object."""
        content: list[dict[str, Any]] = []
        has_call = answer.call is not None and finish == "tool_calls"
        if visible.reasoning:
            content.append({"type": "thinking", "thinking": visible.reasoning})
        if visible.text or not (has_call or visible.reasoning):
            content.append({"type": "text", "text": visible.text})
        if answer.call is not None and has_call:
            content.append(
                {
                    "type": "tool_use",
                    "id": answer.call.call_id,
                    "name": answer.call.name,
                    "input": msgspec.Raw(answer.call.arguments),
                }
            )
        return encode(
            {
                **self._message,
                "content": content,
                "stop_reason": _STOP_REASONS[finish],
                "usage": usage_of(usage),
            }
        )

    def _start(self, usage: Usage, events: list[bytes]) -> None:
        """``message_start``, once; its output tokens are 0."""
        if self._has_started:
            return
        self._has_started = True
        started = {**self._message, "usage": {**usage_of(usage), "output_tokens": 0}}
        events.append(named_event({"type": "message_start", "message": started}))

    def _open(self, kind: str, block: dict[str, Any], events: list[bytes]) -> None:
        self._close(events)
        self._open_kind = kind
        self._block_index += 1
        events.append(
            named_event(
                {"type": "content_block_start", "index": self._block_index, "content_block": block}
            )
        )

    def _close(self, events: list[bytes]) -> None:
        if self._open_kind:
            events.append(named_event({"type": "content_block_stop", "index": self._block_index}))
            self._open_kind = ""

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return named_event(
            {"type": "content_block_delta", "index": self._block_index, "delta": delta}
        )


def usage_of(usage: Usage) -> dict[str, int]:
    """``usage``; the input tokens leave out what was read from the cache, named only if any was."""
    counts = {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.cached_tokens:
        counts["cache_read_input_tokens"] = usage.cached_tokens
    return counts


def error_of(status: int, message: str) -> dict[str, Any]:
    """The error object of this API."""
    error = {"type": _TYPES.get(status, "api_error"), "message": message}
    return {"type": "error", "error": error}


def refusal_of(problem: Problem) -> dict[str, Any]:
    """The error object of a whole answer: the chat API's type, or nothing said of a server's error."""
    if problem.status >= _HIDDEN_STATUS_MIN:
        return error_of(problem.status, _HIDDEN_TEXT)
    kind = REFUSED if problem.status == BAD_REQUEST else _TYPES.get(problem.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": problem.message}}
