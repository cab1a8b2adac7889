"""Answers of ``/v1/chat/completions`` in SGLang 0.5.23's shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sim.live.serving.wire import QUEUE_FULL_TEXT, Usage, data_event, encode, epoch_s

if TYPE_CHECKING:
    from sim.live.rendering.answer import Answer, CallSpan, Piece
    from sim.live.rendering.bodies import StreamOptions

DONE: Final = b"data: [DONE]\n\n"
_TYPES: Final = {400: "Bad Request", 503: "SERVICE_UNAVAILABLE"}


class ChatWriter:
    """Writes one chat completion."""

    def __init__(
        self,
        rid: str,
        model: str,
        *,
        call: CallSpan | None,
        stream_options: StreamOptions | None,
    ) -> None:
        self._call = call
        self._include_usage = bool(stream_options and stream_options.include_usage)
        self._continuous_usage = bool(stream_options and stream_options.continuous_usage_stats)
        self._head: dict[str, Any] = {
            "id": rid,
            "object": "chat.completion.chunk",
            "created": int(epoch_s()),
            "model": model,
        }

    def opening(self, usage: Usage) -> list[bytes]:
        """The role chunk."""
        delta = {"role": "assistant", "content": "", "reasoning_content": None}
        return [self._chunk(delta, usage=usage)]

    def piece(self, piece: Piece, usage: Usage) -> list[bytes]:
        """At most one chunk of text, one that opens the tool call and one of its arguments."""
        chunks = []
        if piece.text:
            delta = {"content": piece.text, "reasoning_content": None}
            chunks.append(self._chunk(delta, usage=usage))
        if piece.opens_call and self._call is not None:
            chunks.append(
                self._call_chunk(
                    {"name": self._call.name, "arguments": ""},
                    call_id=self._call.call_id,
                    usage=usage,
                )
            )
        if piece.arguments:
            function = {"name": None, "arguments": piece.arguments}
            chunks.append(self._call_chunk(function, call_id=None, usage=usage))
        return chunks

    def closing(self, finish: str, usage: Usage) -> list[bytes]:
        """The finish chunk, usage if asked for, and the end mark."""
        events = [self._chunk({"reasoning_content": None}, finish=finish)]
        if self._include_usage:
            events.append(data_event({**self._head, "choices": [], "usage": usage_of(usage)}))
        events.append(DONE)
        return events

    def fault(self, status: int, message: str) -> list[bytes]:
        """An error event and the end mark."""
        return [data_event({"error": error_of(status, message)}), DONE]

    def whole(self, answer: Answer, visible: Piece, finish: str, usage: Usage) -> bytes:
        """The ``chat.completion`` object."""
        calls = None
        if answer.call is not None and finish == "tool_calls":
            function = {"name": answer.call.name, "arguments": visible.arguments}
            calls = [
                {"id": answer.call.call_id, "index": 0, "type": "function", "function": function}
            ]
        message = {
            "role": "assistant",
            "content": visible.text or (None if calls else ""),
            "reasoning_content": None,
            "tool_calls": calls,
        }
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": finish,
            "matched_stop": None,
        }
        return encode(
            {
                **self._head,
                "object": "chat.completion",
                "choices": [choice],
                "usage": usage_of(usage),
                "metadata": {"weight_version": "default", "weight_versions": None},
            }
        )

    def _call_chunk(
        self, function: dict[str, str | None], *, call_id: str | None, usage: Usage
    ) -> bytes:
        call = {"id": call_id, "index": 0, "type": "function", "function": function}
        delta = {"content": None, "reasoning_content": None, "tool_calls": [call]}
        return self._chunk(delta, usage=usage)

    def _chunk(
        self, delta: dict[str, Any], *, finish: str | None = None, usage: Usage | None = None
    ) -> bytes:
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish,
            "matched_stop": None,
        }
        chunk = {**self._head, "choices": [choice]}
        if self._continuous_usage and usage is not None:
            chunk["usage"] = usage_of(usage)
        return data_event(chunk)


def usage_of(usage: Usage) -> dict[str, Any]:
    """``usage`` with the cached tokens, as with ``--enable-cache-report``."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "completion_tokens": usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "reasoning_tokens": 0,
        "completion_tokens_details": None,
    }


def error_of(status: int, message: str) -> dict[str, Any]:
    """The error object of the OpenAI routes."""
    return {
        "object": "error",
        "message": message,
        "type": _TYPES.get(status, "InternalServerError"),
        "param": None,
        "code": status,
    }


def queue_full_body() -> bytes:
    """What a request without streaming gets when the queue is full (its own shape there)."""
    return encode({"message": QUEUE_FULL_TEXT, "type": "503", "code": 503})
