"""What both directions of the framing share: collected headers, bounds and the one fault.

llhttp decides what a message is. The callbacks here only append: an exception in one would end the
parser in the middle of a read. llhttp has no limits of its own, so bytes and lines are counted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import httptools

from router.framing.events import HEAD_END, FramingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.framing.alike import Alike
    from router.framing.events import HeaderList

Event = TypeVar("Event")

HEADER_BYTES_MAX: Final = 64 * 1024
HEADERS_MAX: Final = 256
_LINE_EXTRA_BYTES: Final = 4  # colon, blank, CR and LF of a header line


class Quiet:
    """What llhttp calls where a message's headers are known: it says where head, body and message end."""

    __slots__ = ("on_body", "on_headers_complete", "on_message_complete")

    def __init__(self, append: Callable[[Any], None], message_end: object) -> None:
        self.on_body = append
        self.on_headers_complete = partial(append, HEAD_END)
        self.on_message_complete = partial(append, message_end)


class Collector(Generic[Event]):
    """Feeds llhttp and hands on what its callbacks collected.

    ``_alike`` is the head that came last, None if it is not kept; the body of a message with such a head lacks
    ``_left_bytes``. ``_is_start``: the next byte begins a message.
    """

    __slots__ = (
        "_alike",
        "_events",
        "_failed_at",
        "_header_bytes_max",
        "_headers",
        "_headers_max",
        "_in_head",
        "_is_start",
        "_left_bytes",
        "_quiet_bytes",
        "on_body",
    )

    def __init__(self, *, header_bytes_max: int, headers_max: int) -> None:
        self._header_bytes_max = header_bytes_max
        self._headers_max = headers_max
        self._events: list[Event | bytes | FramingError] = []
        self._failed_at = -1
        self._headers: HeaderList = []
        self._quiet_bytes = 0
        self._in_head = False
        self._alike: Alike | None = None
        self._is_start = True
        self._left_bytes = 0
        self.on_body = self._events.append  # llhttp's callback: one list, kept for the whole life

    def on_message_begin(self) -> None:
        """llhttp: the first byte of a message."""
        self._headers = []
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """llhttp: a header line, or a trailer once the body has begun; trailers are dropped."""
        if self._in_head:
            self._headers.append((name.lower(), value.rstrip(b" \t")))

    def _fail(self, code: str, message: str, status: int) -> None:
        """Remember the first fault, behind the events that came before it."""
        if self._failed_at < 0:
            self._failed_at = len(self._events)
            self._events.append(FramingError(code, message, status))

    def _run(
        self, parser: httptools.HttpRequestParser | httptools.HttpResponseParser, data: bytes
    ) -> str:
        """Let llhttp read ``data``; answer what it refused, "" if nothing."""
        self._quiet_bytes += len(data)
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return "the connection was asked to change its protocol"
        except httptools.HttpParserError as fault:
            return str(fault)
        return ""

    def _is_head_over(self, target: bytes = b"") -> bool:
        """The head is larger than allowed. It is counted only where more than that was read."""
        headers = self._headers
        if len(headers) > self._headers_max:
            return True
        if self._quiet_bytes <= self._header_bytes_max:
            return False
        n_bytes = len(target) + sum([len(name) + len(value) for name, value in headers])
        return n_bytes + _LINE_EXTRA_BYTES * len(headers) > self._header_bytes_max

    @property
    def _is_quiet(self) -> bool:
        """Too much was read without completing anything: a head, trailers, or what is neither."""
        return not self._events and self._quiet_bytes > self._header_bytes_max

    def _drain(self) -> list[Event | bytes | FramingError]:
        """The events of this read, up to and with the fault."""
        events = self._events
        if self._failed_at >= 0:
            del events[self._failed_at + 1 :]
        if events:
            self._quiet_bytes = 0
        out = events.copy()
        events.clear()
        return out
