"""What answers of ``/v1/messages`` say: usage, errors, the end."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from router.dialect.base import StreamFault, Usage
from router.dialect.errors import status_of_type
from router.dialect.stream.tap import BodyTap, EventTap, Reading

_Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
_WORDS: Final = (b'"usage"', b'"message_stop"', b'"error"')


class _Usage(msgspec.Struct, gc=False):
    """``input_tokens`` leaves out what was read from or written to a cache."""

    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    cache_read_input_tokens: _Count | None = None
    cache_creation_input_tokens: _Count | None = None


class _Message(msgspec.Struct, gc=False):
    usage: _Usage | None = None


class _Event(msgspec.Struct, gc=False):
    """An event of a stream, or a whole answer."""

    type: str = ""
    message: _Message | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw()


_decode_event: Final = msgspec.json.Decoder(_Event).decode


def messages_tap(*, is_stream: bool) -> EventTap | BodyTap:
    """A tap for one answer of the messages API; it never takes an event out."""
    return EventTap(_EventReader(), _WORDS) if is_stream else BodyTap(_read_body)


class _EventReader:
    """Reads the events of one stream and adds up its usage.

    The counts come in pieces, ``message_start`` first and ``message_delta`` last. They are totals
    that only grow, so the largest of each is the last word. ``message_start`` begins no answer:
    SGLang sends one, with counts of zero, before the error of a request that it refuses.
    """

    __slots__ = ("_cached", "_created", "_input", "_output")

    def __init__(self) -> None:
        self._input = self._output = self._created = 0
        self._cached: int | None = None

    def __call__(self, data: bytes, reading: Reading) -> bool:
        try:
            event = _decode_event(data)
        except (msgspec.DecodeError, RecursionError):
            reading.has_begun = True  # not ours to judge: the client gets it as it is
            return False
        if event.type == "error":
            reading.note_fault(_fault(event.error))
        elif event.type != "ping":
            if event.type != "message_start" and reading.fault is None:
                reading.has_begun = True
            self._count(event, reading)
            if event.type == "message_stop":
                reading.is_complete = True
        return False

    def _count(self, event: _Event, reading: Reading) -> None:
        usage = event.usage if event.message is None else event.message.usage
        if usage is None:
            return
        self._input = max(self._input, usage.input_tokens or 0)
        self._output = max(self._output, usage.output_tokens or 0)
        self._created = max(self._created, usage.cache_creation_input_tokens or 0)
        if usage.cache_read_input_tokens is not None:
            self._cached = max(self._cached or 0, usage.cache_read_input_tokens)
        prompt_tokens = self._input + self._created + (self._cached or 0)
        if prompt_tokens:
            reading.usage = Usage(prompt_tokens, self._output, self._cached)


def _read_body(data: bytes, reading: Reading) -> bool:
    try:
        answer = _decode_event(data)
    except msgspec.ValidationError:
        return True
    except (msgspec.DecodeError, RecursionError):
        return False
    if answer.type == "error":
        reading.note_fault(_fault(answer.error))
    else:
        _EventReader()._count(answer, reading)  # noqa: SLF001  # one module
    return True


def _fault(raw: msgspec.Raw) -> StreamFault:
    try:
        error: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        error = None
    if not isinstance(error, dict):
        return StreamFault(500, "an error that cannot be read")
    return StreamFault(status_of_type(error.get("type")), str(error.get("message", "")))
