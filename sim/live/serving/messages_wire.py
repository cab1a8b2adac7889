"""Answers of ``/v1/messages`` in SGLang 0.5.23's shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from sim.live.serving.wire import Usage, encode, named_event

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


class MessagesWriter:
    """Writes one message."""

    def __init__(self, rid: str, model: str, *, call: CallSpan | None) -> None:
        self._call = call
        self._block_index = -1
        self._open_kind = ""
        self._message: dict[str, Any] = {
            "id": f"msg_{rid}",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": model,
            "stop_reason": None,
            "stop_sequence": None,
        }

    def opening(self, usage: Usage) -> list[bytes]:
        """``message_start``; its output tokens are 0."""
        started = {**self._message, "usage": {**usage_of(usage), "output_tokens": 0}}
        return [named_event({"type": "message_start", "message": started})]

    def piece(self, piece: Piece, usage: Usage) -> list[bytes]:
        """Deltas, with the starts and stops of the blocks they belong to."""
        del usage
        events: list[bytes] = []
        if piece.text:
            if self._open_kind != "text":
                self._open("text", {"type": "text", "text": ""}, events)
            events.append(self._delta({"type": "text_delta", "text": piece.text}))
        if piece.opens_call and self._call is not None:
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
        """The last block's stop, ``message_delta`` with the usage, ``message_stop``."""
        events: list[bytes] = []
        if not self._open_kind:
            self._open("text", {"type": "text", "text": ""}, events)
        self._close(events)
        delta = {"stop_reason": _STOP_REASONS[finish], "stop_sequence": None}
        events.append(
            named_event({"type": "message_delta", "delta": delta, "usage": usage_of(usage)})
        )
        events.append(named_event({"type": "message_stop"}))
        return events

    def fault(self, status: int, message: str) -> list[bytes]:
        """An error event; this API has no end mark after it."""
        return [named_event(error_of(status, message))]

    def whole(self, answer: Answer, visible: Piece, finish: str, usage: Usage) -> bytes:
        """The ``message`` object."""
        content: list[dict[str, Any]] = []
        has_call = answer.call is not None and finish == "tool_calls"
        if visible.text or not has_call:
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

    def _open(self, kind: str, block: dict[str, Any], events: list[bytes]) -> None:
        self._close(events)
        self._block_index += 1
        self._open_kind = kind
        events.append(
            named_event(
                {"type": "content_block_start", "index": self._block_index, "content_block": block}
            )
        )

    def _close(self, events: list[bytes]) -> None:
        if self._open_kind:
            events.append(named_event({"type": "content_block_stop", "index": self._block_index}))

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return named_event(
            {"type": "content_block_delta", "index": self._block_index, "delta": delta}
        )


def usage_of(usage: Usage) -> dict[str, int]:
    """``usage``; the input tokens leave out what was read from the cache."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
    }


def error_of(status: int, message: str) -> dict[str, Any]:
    """The error object of this API."""
    error = {"type": _TYPES.get(status, "api_error"), "message": message}
    return {"type": "error", "error": error}
