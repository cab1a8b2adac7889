"""The server's side of HTTP/1.1: bytes of a client to events."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import httptools
from msgspec.structs import replace
from typing_extensions import override

from router.framing.alike import Alike
from router.framing.collector import HEADER_BYTES_MAX, HEADERS_MAX, Collector, Quiet
from router.framing.events import HEAD_END, MESSAGE_END, RequestHead, RequestMark
from router.framing.forwarding import WATCHED

if TYPE_CHECKING:
    from router.framing.events import RequestEvent

_READ: Final = frozenset(
    (
        *(b"host", b"content-length", b"transfer-encoding", b"expect", b"content-encoding"),
        b"connection",
    )
)
_SEEN: Final = _READ | WATCHED
_HOST: Final = re.compile(
    rb"(?:\[[0-9A-Fa-f:.]{2,64}\]|[A-Za-z0-9._~%!$&'()*+,;=-]*)(?::[0-9]{0,5})?"
)
"""RFC 3986, 3.2: a name, an IPv4 or IPv6 address, and a port; empty is a Host too."""
_SCHEMES: Final = (b"http", b"https")
_SLASH: Final = 0x2F
_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP2_PREFACE: Final = b"PRI "


class RequestParser(Collector[RequestMark]):
    """Reads the requests of one connection, one after the other.

    A fault is answered as the last event; afterwards nothing is read. After a request that ends the
    connection (``Connection: close``) further bytes are ignored.
    """

    __slots__ = (
        "_host",
        "_is_last_read",
        "_keep_alive",
        "_parser",
        "_quiet",
        "_template",
        "_url",
    )

    def __init__(
        self, *, header_bytes_max: int = HEADER_BYTES_MAX, headers_max: int = HEADERS_MAX
    ) -> None:
        super().__init__(header_bytes_max=header_bytes_max, headers_max=headers_max)
        self._url = b""
        self._host = b""  # the last one found sound: it is the same for a connection's life
        self._keep_alive = True
        self._is_last_read = False
        self._template: RequestHead | None = None
        self._quiet: httptools.HttpRequestParser | None = None
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> list[RequestEvent]:
        """Read the next bytes; answer the events they complete, in order. Never raises."""
        parser = self._parser
        if parser is None or self._failed_at >= 0 or self._is_last_read:
            return []
        if self._left_bytes:
            return self._feed_left(data)
        is_start = self._is_start
        if is_start and self._alike is not None:
            found = self._alike.read(data)
            if found is not None and (recalled := self._recall(self._alike, data, *found)):
                return recalled
        refused = self._run(parser, data)
        if self._is_quiet:
            self._fail_size()
        elif refused and not self._is_last_read:
            self._fail("bad-request", _refusal(refused, data), 400)
        events = self._drain()
        self._is_start = bool(events) and events[-1] is MESSAGE_END and not self._in_head
        if is_start and events:
            self._keep(data, events[0])
        return events

    @property
    def is_between(self) -> bool:
        """No request is half read (bytes before a request line do not count)."""
        return not self._in_head and self._quiet_bytes == 0

    def close(self) -> None:
        """Let go of llhttp, whose callbacks hold this object in a cycle."""
        self._parser = self._quiet = None

    # Heads that come again

    def _keep(self, data: bytes, head: RequestEvent) -> None:
        """Remember a head that was read from the beginning of ``data``."""
        self._alike = self._template = None
        if isinstance(head, RequestHead) and head.keep_alive and head.content_length is not None:
            self._alike = head.alike = Alike.of(data, head.headers)
            self._template = replace(head)

    def _recall(
        self, alike: Alike, data: bytes, head_bytes: int, digits: bytes
    ) -> list[RequestEvent] | None:
        """Read a message, or its beginning, whose head is known; None if more than that is here."""
        length, before = int(digits), self._template
        left = head_bytes + length - len(data)
        if before is None or left < 0 or head_bytes > self._header_bytes_max:
            return None
        if self._quiet is None:
            self._quiet = httptools.HttpRequestParser(Quiet(self._events.append, MESSAGE_END))
        self._left_bytes = left
        events = self._feed_known(self._quiet, data)
        if events[0] is HEAD_END:
            events[0] = RequestHead(
                before.method,
                before.target,
                alike.headers(digits),
                length,
                before.is_chunked,
                before.keep_alive,
                before.expects_continue,
                before.http_version,
                before.host,
                before.content_coding,
                before.connection,
                before.is_watched,
                alike=alike,
            )
        return events

    def _feed_left(self, data: bytes) -> list[RequestEvent]:
        """Read on in the body of a message whose head was known, and what follows it."""
        quiet, left = self._quiet, self._left_bytes
        assert quiet is not None
        self._left_bytes = max(0, left - len(data))
        if len(data) <= left:
            return self._feed_known(quiet, data)
        return self._feed_known(quiet, data[:left]) + self.feed(data[left:])

    def _feed_known(self, quiet: httptools.HttpRequestParser, data: bytes) -> list[RequestEvent]:
        try:
            quiet.feed_data(data)
        except httptools.HttpParserError as fault:
            self._fail("bad-request", _refusal(str(fault), data), 400)
        return self._drain()

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
        self._keep_alive = parser.should_keep_alive()
        self._complete_head(method, parser.get_http_version())

    def _complete_head(self, method: bytes, version: str) -> None:
        seen: dict[bytes, bytes] = {}
        n_hosts = 0
        for name, value in self._headers:
            if name in _SEEN:
                n_hosts += name == b"host"
                value = value.lower()  # noqa: PLW2901 - all of them are the same in any case
                seen[name] = seen[name] + b"," + value if name in seen else value
        host, length = seen.get(b"host", b""), seen.get(b"content-length", b"")
        coding, expects = seen.get(b"transfer-encoding", b""), seen.get(b"expect", b"")
        encoding, target = seen.get(b"content-encoding", b""), self._url
        fault = _fault(version, n_hosts, coding, length) or self._host_fault(host)
        if not fault and (target[0] != _SLASH or b"#" in target):
            target, fault = _rare_target(target, method, host if n_hosts else None)
        if version == "1.0":  # RFC 9110, 10.1.1: what is expected is ignored
            expects = b""
        if fault:
            self._fail("bad-request", fault, 400)
        elif expects and expects != b"100-continue":
            what = "Only 100-continue can be expected of this server."
            self._fail("expectation-failed", what, 417)
        else:
            self._events.append(
                RequestHead(
                    method,
                    target,
                    self._headers,
                    int(length) if length else None,
                    bool(coding),
                    self._keep_alive,
                    bool(expects),
                    version,
                    host,
                    b"" if encoding == b"identity" else encoding,
                    seen.get(b"connection", b""),
                    not WATCHED.isdisjoint(seen),
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
            "This server speaks HTTP/1.1 only, no h2c and no WebSocket; send the request without an"
            " Upgrade header (curl: --http1.1; Java: HttpClient.Version.HTTP_1_1).",
            400,
        )

    def _host_fault(self, host: bytes) -> str:
        """What is wrong with a Host; "" if nothing (RFC 9112, 3.2)."""
        if host == self._host:
            return ""
        if _HOST.fullmatch(host) is None:
            return "The Host header is not a name or an address with an optional port."
        self._host = host
        return ""


def _rare_target(url: bytes, method: bytes, host: bytes | None) -> tuple[bytes, str]:
    """A target that is no plain path: in origin form, and what is wrong with it, "" if nothing."""
    if b"#" in url:
        return url, "A request target has no fragment (#)."
    if url == b"*":
        return url, "" if method == b"OPTIONS" else "Only OPTIONS has the target *."
    scheme, _, rest = url.partition(b"://")
    ends = [at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0]
    end = min(ends, default=len(rest))
    if scheme.lower() not in _SCHEMES:
        return url, "The target is neither a path nor an http URL."
    authority = rest[:end].lower()
    if not end or host not in (None, authority):
        # Whoever routed this by one of the two names did not mean the other.
        return url, "The target's host is not that of the Host header."
    path = rest[end:]
    return (path if path.startswith(b"/") else b"/" + path), ""


def _refusal(refused: str, data: bytes) -> str:
    """What a person is told of bytes that llhttp refused; other protocols are named."""
    if data.startswith(_TLS_HANDSHAKE):
        return "This port speaks plain HTTP, and this is TLS; use http:// in the base URL."
    if data.startswith(_HTTP2_PREFACE):
        return "This server speaks HTTP/1.1 only, and this is HTTP/2 (curl: --http1.1)."
    return f"This is not HTTP/1.1 as served here: {refused}."


def _fault(version: str, n_hosts: int, coding: bytes, length: bytes) -> str:
    """What RFC 9112 refuses and llhttp does not (sections 2.3, 3.2 and 6.1); "" if nothing."""
    if version not in ("1.1", "1.0"):
        return f"HTTP/{version} is not served; use HTTP/1.1."
    if n_hosts > 1 or (n_hosts == 0 and version == "1.1"):
        return f"An HTTP/1.1 request needs exactly one Host header, this one has {n_hosts}."
    if coding and (coding != b"chunked" or version == "1.0"):
        return "The only transfer coding served is chunked, in HTTP/1.1."
    if length.startswith(b"0") and length != b"0":
        return "The Content-Length begins with a zero."
    return ""
