"""Answers of ``/v1/chat/completions`` in SGLang 0.5.23's shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sim.live.serving.wire import BAD_REQUEST, Usage, data_event, encode, epoch_s

if TYPE_CHECKING:
    from sim.live.rendering.answer import Answer, CallSpan, Piece
    from sim.live.rendering.bodies import StreamOptions

DONE: Final = b"data: [DONE]\n\n"
UNREADABLE: Final = "Bad Request"
REFUSED: Final = "BadRequestError"
_STREAM_TYPES: Final = {400: "BAD_REQUEST", 503: "SERVICE_UNAVAILABLE"}
_IM_END_TOKEN: Final = 163_586  # Kimi's <|im_end|>


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

    def greeting(self) -> list[bytes]:
        """Nothing."""
        return []

    def opening(self, usage: Usage) -> list[bytes]:
        """The role chunk; it carries no usage."""
        del usage
        return [self._chunk({"reasoning_content": None, "role": "assistant", "content": ""})]

    def piece(self, piece: Piece, usage: Usage) -> list[bytes]:
        """At most a chunk of reasoning, of text, one that opens the call and one of its arguments."""
        chunks = []
        if piece.reasoning:
            chunks.append(self._chunk({"reasoning_content": piece.reasoning}, usage=usage))
        if piece.text:
            delta = {"reasoning_content": None, "content": piece.text}
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
        return error_events(status, message)

    def whole(self, answer: Answer, visible: Piece, finish: str, usage: Usage) -> bytes:
        """The ``chat.completion`` object."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": visible.text,
            "reasoning_content": visible.reasoning or None,
        }
        if answer.call is not None and finish == "tool_calls":
            function = {"name": answer.call.name, "arguments": visible.arguments}
            message["tool_calls"] = [
                {"id": answer.call.call_id, "index": 0, "type": "function", "function": function}
            ]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": finish,
            # A whole answer that ends in calls does not say so, a stream does.
            "matched_stop": _matched_stop(finish) if finish == "stop" else None,
        }
        version = {"version": "default", "start": 0, "end": usage.output_tokens}
        return encode(
            {
                **self._head,
                "object": "chat.completion",
                "choices": [choice],
                "usage": usage_of(usage),
                "metadata": {"weight_version": "default", "weight_versions": [version]},
            }
        )

    def _call_chunk(
        self, function: dict[str, str | None], *, call_id: str | None, usage: Usage
    ) -> bytes:
        call = {"id": call_id, "index": 0, "type": "function", "function": function}
        chunk = self._chunk_of(
            {"role": None, "content": None, "reasoning_content": None, "tool_calls": [call]}
        )
        # These chunks, unlike the others, name their usage where there is none.
        return data_event({**chunk, "usage": usage_of(usage) if self._continuous_usage else None})

    def _chunk(
        self, delta: dict[str, Any], *, finish: str | None = None, usage: Usage | None = None
    ) -> bytes:
        chunk = self._chunk_of(delta, finish=finish)
        if self._continuous_usage and usage is not None:
            chunk["usage"] = usage_of(usage)
        return data_event(chunk)

    def _chunk_of(self, delta: dict[str, Any], *, finish: str | None = None) -> dict[str, Any]:
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish,
            "matched_stop": _matched_stop(finish),
        }
        return {**self._head, "choices": [choice]}


def usage_of(usage: Usage) -> dict[str, Any]:
    """``usage`` with the cached tokens, as with ``--enable-cache-report``."""
    reasoning_tokens = usage.reasoning_tokens
    return {
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "completion_tokens": usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "reasoning_tokens": reasoning_tokens,
        "completion_tokens_details": {"reasoning_tokens": reasoning_tokens}
        if reasoning_tokens
        else None,
    }


def error_of(status: int, message: str, kind: str | None = None) -> dict[str, Any]:
    """The error object of the OpenAI routes; without a ``kind``, that of a body it cannot read."""
    if kind is None:
        kind = UNREADABLE if status == BAD_REQUEST else str(status)
    return {"object": "error", "message": message, "type": kind, "param": None, "code": status}


def error_events(status: int, message: str) -> list[bytes]:
    """An error in a stream, and the end mark."""
    kind = _STREAM_TYPES.get(status, "INTERNAL_SERVER_ERROR")
    return [data_event({"error": error_of(status, message, kind)}), DONE]


def _matched_stop(finish: str | None) -> int | None:
    return _IM_END_TOKEN if finish in ("stop", "tool_calls") else None
