"""What answers of ``/v1/chat/completions`` say: usage, errors, the end."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

import msgspec

from router.dialect.base import StreamFault, Usage
from router.dialect.stream.tap import BodyTap, EventTap, Reading, status_of

_Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
_DONE: Final = b"[DONE]"
_WORDS: Final = (b'"prompt_tokens"', b'"error"', _DONE)


class _Details(msgspec.Struct, gc=False):
    cached_tokens: _Count | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: _Count
    completion_tokens: _Count = 0
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct, gc=False):
    """A chunk of a stream, or a whole answer."""

    choices: list[msgspec.Raw] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw()


_decode_chunk: Final = msgspec.json.Decoder(_Chunk).decode


def chat_tap(*, is_stream: bool, strip_usage: bool) -> EventTap | BodyTap:
    """A tap for one chat completion."""
    if not is_stream:
        return BodyTap(_read_body)
    return EventTap(
        partial(_read_event, is_stripping=strip_usage), _WORDS, is_stripping=strip_usage
    )


def _read_event(data: bytes, reading: Reading, *, is_stripping: bool) -> bool:
    if data.strip() == _DONE:
        reading.is_complete = True
        return False
    try:
        chunk = _decode_chunk(data)
    except (msgspec.DecodeError, RecursionError):
        reading.has_begun = True  # not ours to judge: the client gets it as it is
        return False
    fault = chat_fault(chunk.error)
    if fault is not None:
        reading.note_fault(fault)
        return False
    reading.has_begun = True
    if chunk.usage is None:
        return False
    reading.usage = _usage(chunk.usage)
    return is_stripping and chunk.choices == []


def _read_body(data: bytes, reading: Reading) -> bool:
    try:
        answer = _decode_chunk(data)
    except (msgspec.DecodeError, RecursionError):
        return _is_json(data)
    fault = chat_fault(answer.error) if answer.error else None
    if fault is not None:
        reading.note_fault(fault)
    if answer.usage is not None:
        reading.usage = _usage(answer.usage)
    return True


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _usage(usage: _Usage) -> Usage:
    details = usage.prompt_tokens_details
    cached_tokens = None if details is None else details.cached_tokens
    return Usage(usage.prompt_tokens, usage.completion_tokens, cached_tokens)


def chat_fault(raw: msgspec.Raw) -> StreamFault | None:
    """The error of an event, None if its ``error`` member is absent or null."""
    if not raw:
        return None
    try:
        error: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return StreamFault(500, "an error that cannot be read")
    if isinstance(error, dict):
        return StreamFault(status_of(error.get("code")), str(error.get("message", "")))
    return StreamFault(500, str(error)) if error else None
