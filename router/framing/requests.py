"""The server's side of HTTP/1.1: bytes of a client to events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import httptools
from typing_extensions import override

from router.framing.collector import HEADER_BYTES_MAX, HEADERS_MAX, Collector
from router.framing.events import MESSAGE_END, RequestHead, RequestMark

if TYPE_CHECKING:
    from router.framing.events import RequestEvent

_READ: Final = frozenset((b"host", b"content-length", b"transfer-encoding", b"expect"))


class RequestParser(Collector[RequestMark]):
    """Reads the requests of one connection, one after the other.

    A fault is answered as the last event; afterwards nothing is read. After a request that ends the
    connection (``Connection: close``) further bytes are ignored.
    """

    __slots__ = ("_is_last_read", "_keep_alive", "_parser", "_url")

    def __init__(
        self, *, header_bytes_max: int = HEADER_BYTES_MAX, headers_max: int = HEADERS_MAX
    ) -> None:
        super().__init__(header_bytes_max=header_bytes_max, headers_max=headers_max)
        self._url = b""
        self._keep_alive = True
        self._is_last_read = False
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> list[RequestEvent]:
        """Read the next bytes; answer the events they complete, in order. Never raises."""
        parser = self._parser
        if parser is None or self._failed_at >= 0 or self._is_last_read:
            return []
        refused = self._run(parser, data)
        if self._is_quiet:
            self._fail_size()
        elif refused and not self._is_last_read:
            self._fail("bad-request", f"This is not HTTP/1.1 as served here: {refused}.", 400)
        return self._drain()

    @property
    def is_between(self) -> bool:
        """No request is half read (bytes before a request line do not count)."""
        return not self._in_head and self._quiet_bytes == 0

    def close(self) -> None:
        """Let go of llhttp, whose callbacks hold this object in a cycle."""
        self._parser = None

    def _fail_size(self) -> None:
        self._fail(
            "headers-too-large",
            f"The head is larger than {self._header_bytes_max} bytes or {self._headers_max} lines;"
            " send fewer or shorter headers.",
            431,
        )

    @override
    def on_message_begin(self) -> None:
        """llhttp: a request begins."""
        super().on_message_begin()
        self._url = b""

    def on_url(self, url: bytes) -> None:
        """llhttp: a piece of the target."""
        self._url += url

    def on_headers_complete(self) -> None:
        """llhttp: the head is whole."""
        parser = self._parser
        assert parser is not None
        self._in_head = False
        if self._is_head_over(self._url):
            self._fail_size()
            return
        method = parser.get_method()
        if parser.should_upgrade():
            self._refuse_upgrade(method)
            return
        version = parser.get_http_version()
        n_hosts = 0
        length: int | None = None
        coding = b""
        expects = False
        for name, value in self._headers:
            if name not in _READ:
                continue
            if name == b"host":
                n_hosts += 1
            elif name == b"content-length":
                length = int(value)
            elif name == b"transfer-encoding":
                coding = value.lower() if not coding else coding + b"," + value.lower()
            else:
                expects = value.lower() == b"100-continue"
        self._keep_alive = parser.should_keep_alive()
        if fault := _fault(version, n_hosts, coding):
            self._fail("bad-request", fault, 400)
            return
        self._events.append(
            RequestHead(
                method=method,
                target=_origin_form(self._url),
                headers=self._headers,
                content_length=length,
                is_chunked=bool(coding),
                keep_alive=self._keep_alive,
                expects_continue=expects and version == "1.1",
                http_version=version,
            )
        )

    def on_message_complete(self) -> None:
        """llhttp: the request is whole."""
        self._events.append(MESSAGE_END)
        if not self._keep_alive:
            self._is_last_read = True

    def _refuse_upgrade(self, method: bytes) -> None:
        if method == b"CONNECT":
            self._fail("bad-request", "CONNECT is not served; send the request itself.", 400)
            return
        self._fail(
            "upgrade-refused",
            "This server speaks HTTP/1.1 only; send the request without an Upgrade header"
            " (curl: --http1.1; Java: HttpClient.Version.HTTP_1_1).",
            400,
        )


def _fault(version: str, n_hosts: int, coding: bytes) -> str:
    """What RFC 9112 refuses and llhttp does not (sections 2.3, 3.2 and 6.1); "" if nothing."""
    if version not in ("1.1", "1.0"):
        return f"HTTP/{version} is not served; use HTTP/1.1."
    if n_hosts > 1 or (n_hosts == 0 and version == "1.1"):
        return f"An HTTP/1.1 request needs exactly one Host header, this one has {n_hosts}."
    if coding and (coding != b"chunked" or version == "1.0"):
        return "The only transfer coding served is chunked, in HTTP/1.1."
    return ""


def _origin_form(url: bytes) -> bytes:
    """Path and query of a target; the absolute form (RFC 9112, 3.2.2) loses its authority."""
    if url.startswith(b"/"):
        return url
    _, mark, rest = url.partition(b"://")
    if not mark:
        return url
    ends = [at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0]
    path = rest[min(ends) :] if ends else b""
    return path if path.startswith(b"/") else b"/" + path
