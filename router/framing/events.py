"""What the parsers answer: the parts of a message, and the fault that ends a connection.

A part of a body is plain ``bytes``: the most frequent event needs no object of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from router.rows import Row

if TYPE_CHECKING:
    from router.framing.alike import Alike

HeaderList = list[tuple[bytes, bytes]]
"""Header lines in order, names in lower case, values stripped of outer blanks."""


class RequestHead(Row):
    """The head of a request.

    ``target`` is in origin form (path and query), also where the client sent the absolute form, or
    ``*``. ``content_length`` is None where none was declared. ``http_version`` is "1.0" or "1.1".
    ``host``, ``content_coding`` and ``connection`` are in lower case, empty where there are none;
    ``is_watched``: it speaks of its origin or trace. ``trace_id`` is empty until a trace is known.
    ``alike`` is the same object for heads that differ in their content length only, None where that is not
    known.
    """

    method: bytes
    target: bytes
    headers: HeaderList
    content_length: int | None
    is_chunked: bool
    keep_alive: bool
    expects_continue: bool
    http_version: str
    host: bytes = b""
    content_coding: bytes = b""
    connection: bytes = b""
    is_watched: bool = False
    trace_id: str = ""
    alike: Alike | None = None

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]

    @property
    def has_body(self) -> bool:
        """Body bytes follow this head."""
        return self.is_chunked or bool(self.content_length)


class ResponseHead(Row):
    """The head of a final answer (status 200 and above).

    ``is_eof_framed``: nothing but the end of the connection ends the body. ``content_type`` and
    ``content_coding`` are in lower case, empty where there are none. ``alike`` as in a request's.
    """

    status: int
    headers: HeaderList
    content_length: int | None
    is_chunked: bool
    is_eof_framed: bool
    content_type: bytes = b""
    content_coding: bytes = b""
    alike: Alike | None = None


class MessageEnd:
    """The message is whole."""

    __slots__ = ()


@dataclass(slots=True, frozen=True)
class FramingError:
    """The bytes are not a message that is served here; nothing after them is read.

    ``code`` and ``status`` are those of ``router.errors``; ``message`` is for the person who sent
    the bytes.
    """

    code: str
    message: str
    status: int


MESSAGE_END: Final = MessageEnd()
HEAD_END: Final[object] = object()
"""Stands for a head that is known, until the parser puts the head itself in its place."""

RequestMark = RequestHead | MessageEnd
ResponseMark = ResponseHead | MessageEnd
RequestEvent = RequestMark | bytes | FramingError
ResponseEvent = ResponseMark | bytes | FramingError
