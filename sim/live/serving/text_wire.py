"""Answers of ``/v1/completions`` and ``/generate`` in SGLang 0.5.23's shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sim.live.rendering import pages, template
from sim.live.serving import chat_wire
from sim.live.serving.chat_wire import DONE, usage_of
from sim.live.serving.wire import Usage, data_event, encode, epoch_s

if TYPE_CHECKING:
    from sim.live.rendering.answer import Answer, Piece
    from sim.live.serving.dialects import Call
    from sim.live.serving.wire import Problem

_STOPPED: Final = 163_586  # Kimi's <|im_end|>


class CompletionWriter:
    """Writes one completion, or one of a batch: then what ends all of them is left out."""

    def __init__(self, rid: str, call: Call, echo: str) -> None:
        self._echo = echo
        self._index = call.index
        self._include_usage = bool(call.stream_options and call.stream_options.include_usage)
        self._head: dict[str, Any] = {
            "id": rid,
            "object": "text_completion",
            "created": int(epoch_s()),
            "model": call.model,
        }

    def greeting(self) -> list[bytes]:
        """Nothing."""
        return []

    def opening(self, usage: Usage) -> list[bytes]:
        """Nothing: what is echoed comes with the first text."""
        del usage
        return []

    def piece(self, piece: Piece, usage: Usage) -> list[bytes]:
        """A chunk of text."""
        del usage
        text, self._echo = self._echo + piece.text, ""
        return [self._chunk(text)] if text else []

    def closing(self, finish: str, usage: Usage) -> list[bytes]:
        """The finish chunk, usage if asked for, and the end mark."""
        last = self._chunk("", finish=finish)
        return [last] if self._index is not None else [last, *self.end([usage])]

    def end(self, usages: list[Usage]) -> list[bytes]:
        """What ends a stream of one or several completions."""
        if not self._include_usage:
            return [DONE]
        counts = {key: value for key, value in _sum(usages).items() if value is not None}
        return [data_event({**self._head, "choices": [], "usage": counts}), DONE]

    def fault(self, status: int, message: str) -> list[bytes]:
        """An error event and the end mark."""
        return chat_wire.error_events(status, message)

    def whole(self, answer: Answer, visible: Piece, finish: str, usage: Usage) -> bytes:
        """The ``text_completion`` object."""
        return encode(self.joined([self.part(answer, visible, finish, usage)], [usage]))

    def part(self, answer: Answer, visible: Piece, finish: str, usage: Usage) -> dict[str, Any]:
        """One choice."""
        del answer, usage
        return self._choice(self._echo + visible.text, finish)

    def joined(self, choices: list[dict[str, Any]], usages: list[Usage]) -> dict[str, Any]:
        """The object of all choices."""
        version = {"version": "default", "start": 0, "end": usages[0].output_tokens}
        return {
            **self._head,
            "choices": choices,
            "usage": _sum(usages),
            "metadata": {"weight_version": "default", "weight_versions": [version]},
        }

    def _chunk(self, text: str, *, finish: str | None = None) -> bytes:
        return data_event({**self._head, "choices": [self._choice(text, finish)], "usage": None})

    def _choice(self, text: str, finish: str | None) -> dict[str, Any]:
        return {
            "index": self._index or 0,
            "text": text,
            "logprobs": None,
            "finish_reason": finish,
            "matched_stop": _STOPPED if finish == "stop" else None,
        }


class GenerateWriter:
    """Writes one native generation: every chunk has all of the text so far, and all counts."""

    def __init__(self, rid: str, call: Call) -> None:
        self._rid = rid
        self._index = call.index
        self._text = ""

    def greeting(self) -> list[bytes]:
        """Nothing."""
        return []

    def opening(self, usage: Usage) -> list[bytes]:
        """Nothing: the first chunk has text."""
        del usage
        return []

    def piece(self, piece: Piece, usage: Usage) -> list[bytes]:
        """A chunk of everything so far."""
        self._text += piece.text
        return [self._event(None, usage)] if piece.text else []

    def closing(self, finish: str, usage: Usage) -> list[bytes]:
        """The last chunk, and the end mark."""
        last = self._event(finish, usage)
        return [last] if self._index is not None else [last, DONE]

    def end(self, usages: list[Usage]) -> list[bytes]:
        """What ends a stream of one or several."""
        del usages
        return [DONE]

    def fault(self, status: int, message: str) -> list[bytes]:
        """An error event and the end mark."""
        return native_error_events(status, message)

    def whole(self, answer: Answer, visible: Piece, finish: str, usage: Usage) -> bytes:
        """The one object."""
        return encode(self.part(answer, visible, finish, usage))

    def part(self, answer: Answer, visible: Piece, finish: str, usage: Usage) -> dict[str, Any]:
        """One answer's object."""
        del answer
        return self._object(visible.text, finish, usage)

    def joined(self, answers: list[dict[str, Any]], usages: list[Usage]) -> list[dict[str, Any]]:
        """A batch's objects."""
        del usages
        return answers

    def _event(self, finish: str | None, usage: Usage) -> bytes:
        value = self._object(self._text, finish, usage)
        return data_event(value if self._index is None else {**value, "index": self._index})

    def _object(self, text: str, finish: str | None, usage: Usage) -> dict[str, Any]:
        n_tokens = usage.output_tokens
        reason: dict[str, Any] | None = None
        if finish is not None:
            more = {"length": n_tokens} if finish == "length" else {"matched": _STOPPED}
            reason = {"type": finish, **({} if finish == "abort" else more)}
        meta: dict[str, Any] = {
            "id": self._rid,
            "finish_reason": reason,
            "prompt_tokens": usage.prompt_tokens,
            "weight_version": "default",
            "num_retractions": 0,
            "reasoning_tokens": 0,
            "completion_tokens": n_tokens,
            "cached_tokens": usage.cached_tokens,
            "cached_tokens_details": None,
            "dp_rank": None,
        }
        if finish is not None:
            meta["weight_versions"] = [{"version": "default", "start": 0, "end": n_tokens}]
        ids = pages.token_ids(text.encode() + template.END.encode())[:n_tokens]
        return {"text": text, "output_ids": ids, "meta_info": meta}


def native_error(message: str) -> dict[str, Any]:
    """The error object of the native API."""
    return {"error": {"message": message}}


def native_error_events(status: int, message: str) -> list[bytes]:
    """An error in a native stream, and the end mark."""
    error = {"message": message, "type": "invalid_request_error", "code": status}
    return [data_event({"error": {**error, "retryable": False}}), DONE]


def native_abort_events(problem: Problem) -> list[bytes]:
    """A stream that the scheduler refused: an answer without text, aborted with a status."""
    writer_meta = {
        "id": "",
        "finish_reason": {
            "type": "abort",
            "message": problem.message,
            "status_code": problem.status,
            "err_type": None,
        },
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "cached_tokens": 0,
    }
    return [data_event({"text": "", "output_ids": [], "meta_info": writer_meta}), DONE]


def _sum(usages: list[Usage]) -> dict[str, Any]:
    return usage_of(
        Usage(
            prompt_tokens=sum(usage.prompt_tokens for usage in usages),
            output_tokens=sum(usage.output_tokens for usage in usages),
            cached_tokens=sum(usage.cached_tokens for usage in usages),
        )
    )
