"""What answers of ``/generate`` say: usage, errors, the end.

Every chunk carries the usage so far; the one with a finish reason is an answer's last. A request
that the scheduler refuses is such a chunk, too, whose reason is an abort with a status.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from router.dialect.base import StreamFault, Usage
from router.dialect.chat.chat_tap import chat_fault
from router.dialect.stream.tap import BodyTap, EventTap, Reading

_Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
_DONE: Final = b"[DONE]"
_WORDS: Final = (b'"finish_reason":{', b'"finish_reason": {', b'"error"', _DONE)


class _Finish(msgspec.Struct, gc=False):
    type: str = ""
    status_code: _Count | None = None
    message: str | None = None


class _Meta(msgspec.Struct, gc=False):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count = 0
    cached_tokens: _Count | None = None
    finish_reason: _Finish | None = None


class _Chunk(msgspec.Struct, gc=False):
    """A chunk of a stream, or a whole answer; ``index`` is that of a batch's answers."""

    meta_info: _Meta | None = None
    index: _Count = 0
    error: msgspec.Raw = msgspec.Raw()


_decode_chunk: Final = msgspec.json.Decoder(_Chunk).decode
_decode_answers: Final = msgspec.json.Decoder(_Chunk | list[_Chunk]).decode


def generate_tap(*, is_stream: bool) -> EventTap | BodyTap:
    """A tap for one answer; it never takes an event out."""
    return EventTap(_EventReader(), _WORDS) if is_stream else BodyTap(_read_body)


class _EventReader:
    """Reads the events of one stream. A batch's answers tell no usage: each has a prompt of its own."""

    __slots__ = ("_is_batch",)

    def __init__(self) -> None:
        self._is_batch = False

    def __call__(self, data: bytes, reading: Reading) -> bool:
        if data.strip() == _DONE:
            reading.is_complete = True
            return False
        try:
            chunk = _decode_chunk(data)
        except (msgspec.DecodeError, RecursionError):
            reading.has_begun = True  # not ours to judge: the client gets it as it is
            return False
        fault = chat_fault(chunk.error) or _refusal(chunk)
        if fault is not None:
            reading.note_fault(fault)
            return False
        reading.has_begun = True
        self._is_batch = self._is_batch or chunk.index > 0
        reading.usage = None if self._is_batch else _usage(chunk) or reading.usage
        return False


def _read_body(data: bytes, reading: Reading) -> bool:
    try:
        answers = _decode_answers(data)
    except msgspec.ValidationError:
        return True
    except (msgspec.DecodeError, RecursionError):
        return False
    chunks = answers if isinstance(answers, list) else [answers]
    if len(chunks) == 1:
        fault = chat_fault(chunks[0].error)
        if fault is not None:
            reading.note_fault(fault)
        reading.usage = _usage(chunks[0])
    return True


def _usage(chunk: _Chunk) -> Usage | None:
    meta = chunk.meta_info
    if meta is None or meta.prompt_tokens is None:
        return None
    return Usage(meta.prompt_tokens, meta.completion_tokens, meta.cached_tokens)


def _refusal(chunk: _Chunk) -> StreamFault | None:
    """The abort of a request by the engine itself, not one that somebody asked for."""
    finish = None if chunk.meta_info is None else chunk.meta_info.finish_reason
    if finish is None or finish.type != "abort" or finish.status_code is None:
        return None
    return StreamFault(finish.status_code, finish.message or "the request was aborted")
