"""The client's side of HTTP/1.1: bytes of a replica to events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import httptools
from msgspec.structs import replace
from typing_extensions import override

from router.framing.alike import Alike
from router.framing.collector import HEADER_BYTES_MAX, HEADERS_MAX, Collector, Quiet
from router.framing.events import HEAD_END, MESSAGE_END, ResponseHead, ResponseMark

if TYPE_CHECKING:
    from router.framing.events import ResponseEvent

_CODE: Final = "bad-upstream-response"
_STATUS: Final = 502
_FINAL: Final = 200  # statuses below are interim
_SWITCHING: Final = 101
_STATUSES: Final = range(100, 600)
_VERSIONS: Final = ("1.1", "1.0")
_BODILESS: Final = (204, 304)


class ResponseParser(Collector[ResponseMark]):
    """Reads the answers of one connection; :meth:`start` announces each.

    Interim answers (1xx) are skipped. llhttp cannot be told that an answer to HEAD has no body, nor
    that a connection has ended: both rules are here.
    """

    __slots__ = (
        "_end_at",
        "_is_complete",
        "_is_eof_framed",
        "_is_head",
        "_is_interim",
        "_is_overrun",
        "_keep_alive",
        "_parser",
        "_quiet",
        "_template",
        "has_bytes",
    )

    def __init__(
        self, *, header_bytes_max: int = HEADER_BYTES_MAX, headers_max: int = HEADERS_MAX
    ) -> None:
        super().__init__(header_bytes_max=header_bytes_max, headers_max=headers_max)
        self._keep_alive = False
        self._is_interim = False
        self._is_overrun = False
        self._is_head = False
        self._is_complete = True
        self._is_eof_framed = False
        self._end_at = -1
        self.has_bytes = False
        self._template: ResponseHead | None = None
        self._quiet: httptools.HttpResponseParser | None = None
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def start(self, *, is_head: bool = False) -> None:
        """An answer is expected now; ``is_head``: to a HEAD request."""
        assert self._is_complete, "the answer before is not whole"
        self._is_complete = False
        self._is_head = is_head
        self._is_eof_framed = False
        self._is_start = not is_head
        self.has_bytes = False

    @property
    def can_reuse(self) -> bool:
        """The answer is whole and the connection can carry another request."""
        if self._is_head:  # llhttp still waits for the body that was announced
            return False
        return (
            self._is_complete and self._keep_alive and not self._is_overrun and self._failed_at < 0
        )

    def feed(self, data: bytes) -> list[ResponseEvent]:
        """Read the next bytes; answer the events they complete, in order. Never raises."""
        parser = self._parser
        if parser is None or self._failed_at >= 0:
            return []
        self.has_bytes = True
        if self._is_complete:
            self._is_overrun = True
            return []
        if self._left_bytes:
            return self._feed_left(data)
        is_start, self._is_start = self._is_start, False
        if is_start and self._alike is not None:
            found = self._alike.read(data)
            if found is not None and (recalled := self._recall(self._alike, data, *found)):
                return recalled
        events = self._feed(parser, data)
        if is_start and events:
            self._keep(data, events[0])
        return events

    def _feed(self, parser: httptools.HttpResponseParser, data: bytes) -> list[ResponseEvent]:
        refused = self._run(parser, data)
        events = self._events
        if events and self._end_at < 0 and self._failed_at < 0 and not refused:
            self._quiet_bytes = 0  # nearly every read: the next part of a body
            out = events.copy()
            events.clear()
            return out
        if self._end_at >= 0:  # what follows the end was not asked for
            self._is_overrun = self._is_overrun or bool(refused) or len(self._events) > self._end_at
            del self._events[self._end_at :]
            self._end_at = -1
        elif refused:
            self._fail(_CODE, f"The replica's answer is not HTTP: {refused}.", _STATUS)
        elif self._is_quiet:
            self._fail(_CODE, "The head of the replica's answer is too large.", _STATUS)
        return self._drain()

    def feed_eof(self) -> list[ResponseEvent]:
        """The connection has ended: the end of an answer framed so, else a fault."""
        self._keep_alive = False
        if self._is_complete or self._failed_at >= 0:
            return []
        if self._is_eof_framed:
            self._is_complete = True
            return [MESSAGE_END]
        self._fail(_CODE, "The replica closed the connection before its answer was whole.", _STATUS)
        return self._drain()

    def close(self) -> None:
        """Let go of llhttp, whose callbacks hold this object in a cycle."""
        self._parser = self._quiet = None

    # Heads that come again

    def _keep(self, data: bytes, head: ResponseEvent) -> None:
        """Remember a head that was read from the beginning of ``data``."""
        self._alike = self._template = None
        if not isinstance(head, ResponseHead) or head.status in _BODILESS:
            return
        if self._keep_alive and head.content_length is not None:
            self._alike = head.alike = Alike.of(data, head.headers)
            self._template = replace(head)

    def _recall(
        self, alike: Alike, data: bytes, head_bytes: int, digits: bytes
    ) -> list[ResponseEvent] | None:
        """Read an answer, or its beginning, whose head is known; None if more than that is here."""
        length, before = int(digits), self._template
        left = head_bytes + length - len(data)
        if before is None or left < 0 or head_bytes > self._header_bytes_max:
            return None
        if self._quiet is None:
            self._quiet = httptools.HttpResponseParser(Quiet(self._events.append, MESSAGE_END))
        self._keep_alive = True
        self._left_bytes = left
        events = self._feed_known(self._quiet, data)
        if events[0] is HEAD_END:
            events[0] = ResponseHead(
                before.status,
                alike.headers(digits),
                length,
                before.is_chunked,
                before.is_eof_framed,
                before.content_type,
                before.content_coding,
                alike,
            )
        return events

    def _feed_left(self, data: bytes) -> list[ResponseEvent]:
        """Read on in the body of an answer whose head was known."""
        quiet, left = self._quiet, self._left_bytes
        assert quiet is not None
        if len(data) > left:
            # llhttp skips empty lines between messages, and so does this.
            self._is_overrun = bool(data[left:].strip(b"\r\n"))
            data = data[:left]
        self._left_bytes = left - len(data)
        return self._feed_known(quiet, data)

    def _feed_known(self, quiet: httptools.HttpResponseParser, data: bytes) -> list[ResponseEvent]:
        try:
            quiet.feed_data(data)
        except httptools.HttpParserError as fault:
            self._fail(_CODE, f"The replica's answer is not HTTP: {fault}.", _STATUS)
        self._is_complete = not self._left_bytes
        return self._drain()

    @override
    def on_message_begin(self) -> None:
        """llhttp: an answer begins."""
        if self._is_complete:
            self._is_overrun = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """llhttp: the head is whole."""
        parser = self._parser
        assert parser is not None
        self._in_head = False
        if self._is_complete:
            return
        status, version = parser.get_status_code(), parser.get_http_version()
        if status not in _STATUSES or version not in _VERSIONS:
            what = f"HTTP/{version} with status {status:03d}"
            self._fail(_CODE, f"The replica's answer is not HTTP/1.1: {what}.", _STATUS)
            return
        self._is_interim = status < _FINAL
        if self._is_interim:
            if status == _SWITCHING:
                self._fail(_CODE, "The replica changed the protocol unasked.", _STATUS)
            return
        if self._is_head_over():
            self._fail(_CODE, "The head of the replica's answer is too large.", _STATUS)
            return
        length, coding, kind, content_coding = self._lines()
        if coding not in (b"", b"chunked") or (coding and version == "1.0"):
            self._fail(_CODE, f"The replica's transfer coding is not chunked: {coding!r}.", _STATUS)
            return
        if length.startswith(b"0") and length != b"0":
            self._fail(_CODE, f"The replica's Content-Length is {length!r}.", _STATUS)
            return
        self._keep_alive = parser.should_keep_alive()
        has_body = not self._is_head and status not in _BODILESS
        self._is_eof_framed = has_body and not length and not coding
        n_bytes = int(length) if length else None
        self._events.append(
            ResponseHead(
                status,
                self._headers,
                n_bytes,
                bool(coding),
                self._is_eof_framed,
                kind,
                content_coding,
            )
        )
        if self._is_head:
            self._complete()

    def _lines(self) -> tuple[bytes, bytes, bytes, bytes]:
        """Content-Length, transfer coding, content type and content coding; empty where there is none.

        All but the first in lower case.
        """
        length = coding = kind = content_coding = b""
        for name, value in self._headers:
            if name == b"content-length":
                length = value
            elif name == b"transfer-encoding":
                coding = value.lower() if not coding else coding + b"," + value.lower()
            elif name == b"content-type":
                kind = value.lower()
            elif name == b"content-encoding":
                content_coding = value.lower()
        return length, coding, kind, content_coding

    def on_message_complete(self) -> None:
        """llhttp: the answer is whole."""
        if self._is_interim:
            self._is_interim = False
        elif not self._is_complete:
            self._complete()

    def _complete(self) -> None:
        self._is_complete = True
        self._events.append(MESSAGE_END)
        self._end_at = len(self._events)
