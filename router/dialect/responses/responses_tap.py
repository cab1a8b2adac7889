"""What answers of ``/v1/responses`` say: usage, errors, the end, and under which id they are kept."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from router.dialect.base import StreamFault, Usage
from router.dialect.stream.tap import BodyTap, EventTap, Reading

_Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]

_BEFORE: Final = frozenset({"response.created", "response.in_progress", "response.queued"})
"""SGLang sends these before its engine has seen the request."""

_LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_WORDS: Final = (b'"error"', *[b'"%b"' % name.encode() for name in sorted(_LAST)])
_EVENT_BYTES_MAX: Final = 4 << 20
"""The last event holds the whole answer, and the tools and instructions of the request."""

_OVERLOADED: Final = (
    "queue is full",
    "waiting timeout",
    "aborted by a higher priority",
)
_TOO_LONG: Final = ("context length", "longer than the model")
"""SGLang's words: every failed response has the same code, ``server_error``."""


class _Details(msgspec.Struct, gc=False):
    cached_tokens: _Count | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: _Count
    output_tokens: _Count = 0
    input_tokens_details: _Details | None = None


class _Response(msgspec.Struct, gc=False):
    id: str = ""
    status: str | None = None
    store: bool | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw()


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    response: _Response | None = None
    error: msgspec.Raw = msgspec.Raw()
    message: msgspec.Raw = msgspec.Raw()


_decode_event: Final = msgspec.json.Decoder(_Event).decode
_decode_response: Final = msgspec.json.Decoder(_Response).decode


def responses_tap(*, is_stream: bool) -> EventTap | BodyTap:
    """A tap for one response; it never takes an event out."""
    if is_stream:
        return EventTap(_read_event, _WORDS, event_bytes_max=_EVENT_BYTES_MAX)
    return BodyTap(_read_body)


def kept_tap(*, is_stream: bool) -> EventTap | BodyTap:
    """A tap for an answer about a response that is kept: nothing in it is news."""
    return EventTap(_pass_event, ()) if is_stream else BodyTap(_pass_body)


def fault_of(raw: msgspec.Raw) -> StreamFault:
    """An engine's error, with the status that its words stand for."""
    error = _decoded(raw)
    message = str(error.get("message", "")) if isinstance(error, dict) else str(error or "")
    return StreamFault(_status_of(message), message or "an error without words")


def _read_event(data: bytes, reading: Reading) -> bool:
    try:
        event = _decode_event(data)
    except (msgspec.DecodeError, RecursionError):
        reading.has_begun = True  # not ours to judge: the client gets it as it is
        return False
    response = event.response
    if response is not None:
        _note(response, reading)
    if event.type in _LAST:
        reading.is_complete = True
        if event.type == "response.failed":
            reading.note_fault(fault_of(msgspec.Raw() if response is None else response.error))
        else:
            reading.has_begun = True
    elif event.type == "error" or (not event.type and event.error):
        reading.is_complete = True
        reading.note_fault(fault_of(event.error or msgspec.Raw(data)))
    elif event.type not in _BEFORE and reading.fault is None:
        reading.has_begun = True
    return False


def _read_body(data: bytes, reading: Reading) -> bool:
    try:
        response = _decode_response(data)
    except msgspec.ValidationError:
        return True
    except (msgspec.DecodeError, RecursionError):
        return False
    _note(response, reading)
    if response.status == "failed" or not response.status:
        error = _decoded(response.error)
        if error is not None or response.status:
            reading.note_fault(fault_of(response.error))
    return True


def _note(response: _Response, reading: Reading) -> None:
    if response.store is not False:
        reading.kept_id = response.id
    usage = response.usage
    if usage is not None and usage.input_tokens:
        details = usage.input_tokens_details
        cached_tokens = None if details is None else details.cached_tokens
        reading.usage = Usage(usage.input_tokens, usage.output_tokens, cached_tokens)


def _status_of(message: str) -> int:
    if any(words in message for words in _OVERLOADED):
        return 503
    return 400 if any(words in message for words in _TOO_LONG) else 500


def _decoded(raw: msgspec.Raw) -> Any:  # noqa: ANN401  # any JSON value
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def _pass_event(data: bytes, reading: Reading) -> bool:  # noqa: ARG001  # nothing is read
    reading.has_begun = reading.is_complete = True
    return False


def _pass_body(data: bytes, reading: Reading) -> bool:  # noqa: ARG001  # nothing is read
    return True
