"""The server's side of the framing: what is accepted, what is refused, and with which words."""

from __future__ import annotations

import pytest
from msgspec import structs

from router.framing.events import MESSAGE_END, FramingError, RequestEvent, RequestHead
from router.framing.requests import RequestParser


def read(*parts: bytes, **bounds: int) -> list[RequestEvent]:
    parser = RequestParser(**bounds)
    return [event for part in parts for event in parser.feed(part)]


def head_of(*parts: bytes) -> RequestHead:
    event = read(*parts)[0]
    assert isinstance(event, RequestHead), event
    return event


def test_a_request_with_a_body() -> None:
    head, body, end = read(
        b"POST /v1/x?beta=true HTTP/1.1\r\nHost: h\r\nX-A:  b c \r\nContent-Length: 3\r\n\r\nabc"
    )
    assert structs.replace(head, alike=None) == RequestHead(
        method=b"POST",
        target=b"/v1/x?beta=true",
        headers=[(b"host", b"h"), (b"x-a", b"b c"), (b"content-length", b"3")],
        content_length=3,
        is_chunked=False,
        keep_alive=True,
        expects_continue=False,
        http_version="1.1",
        host=b"h",
    )
    assert (body, end) == (b"abc", MESSAGE_END)
    assert head.path == b"/v1/x"
    assert head.has_body


def test_pipelined_requests_come_in_order() -> None:
    events = read(
        b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nPOST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx"
    )
    heads = [event.target for event in events if isinstance(event, RequestHead)]
    assert heads == [b"/a", b"/b"]


def test_trailers_are_dropped() -> None:
    events = read(
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"1;ext=1\r\na\r\n0\r\nAuthorization: Bearer x\r\n\r\n"
    )
    head = events[0]
    assert isinstance(head, RequestHead)
    assert [name for name, _ in head.headers] == [b"host", b"transfer-encoding"]
    assert events[1:] == [b"a", MESSAGE_END]


@pytest.mark.parametrize(
    ("target", "origin"),
    [
        (b"http://h/v1/models?a=b", b"/v1/models?a=b"),
        (b"http://h", b"/"),
        (b"http://h?a=b", b"/?a=b"),
        (b"/x://y", b"/x://y"),
        (b"*", b"*"),
    ],
)
def test_targets_are_in_origin_form(target: bytes, origin: bytes) -> None:
    method = b"OPTIONS" if target == b"*" else b"GET"
    assert head_of(b"%b %b HTTP/1.1\r\nHost: h\r\n\r\n" % (method, target)).target == origin


@pytest.mark.parametrize(
    ("lines", "keep_alive", "expects"),
    [
        (b"HTTP/1.1\r\nHost: h\r\n", True, False),
        (b"HTTP/1.1\r\nHost: h\r\nConnection: close\r\n", False, False),
        (b"HTTP/1.0\r\n", False, False),
        (b"HTTP/1.0\r\nConnection: keep-alive\r\n", True, False),
        (b"HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\n", True, True),
        (b"HTTP/1.0\r\nExpect: 100-continue\r\n", False, False),
    ],
)
def test_connection_and_expectation(lines: bytes, *, keep_alive: bool, expects: bool) -> None:
    head = head_of(b"POST / " + lines + b"Content-Length: 0\r\n\r\n")
    assert (head.keep_alive, head.expects_continue) == (keep_alive, expects)


H11 = b"POST / HTTP/1.1\r\nHost: h\r\n"


@pytest.mark.parametrize(
    ("data", "code", "word"),
    [
        (H11 + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n", "upgrade-refused", "Upgrade"),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", "bad-request", "CONNECT"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "bad-request", "HTTP/1.1"),
        (b"GET / HTTP/0.9\r\n\r\n", "bad-request", "0.9"),
        (b"GET / HTTP/1.1\r\n\r\n", "bad-request", "Host"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "bad-request", "Host"),
        (H11 + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na", "bad-request", "Content-Length"),
        (H11 + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", "bad-request", "Length"),
        (H11 + b"Content-Length: 99999999999999999999\r\n\r\n", "bad-request", "overflow"),
        (H11 + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "bad-request", "chunked"),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "bad-request", "chunked"),
        (b"GET / HTTP/1.1\nHost: h\n\n", "bad-request", "CRLF"),
        (H11 + b"X: a\r\n b\r\n\r\n", "bad-request", "whitespace"),
        (H11 + b"X : a\r\n\r\n", "bad-request", "token"),
        (H11 + b"X: a\x00\r\n\r\n", "bad-request", "char"),
        (b"\x16\x03\x01\x02\x00\x01", "bad-request", "TLS"),
    ],
)
def test_refused(data: bytes, code: str, word: str) -> None:
    *_, fault = read(data, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert isinstance(fault, FramingError)
    assert fault.code == code
    assert fault.status == 400
    assert word in fault.message


@pytest.mark.parametrize(
    "data",
    [
        b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 2000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\n" + b"x: y\r\n" * 20 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 2000,
        b"\r\n" * 1000,
        H11 + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 2000,
        H11 + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * 500,
    ],
    ids=["target", "value", "lines", "unfinished", "blank", "extension", "trailers"],
)
@pytest.mark.parametrize("step", [7, 700])
def test_heads_are_bounded(data: bytes, step: int) -> None:
    parts = [data[at : at + step] for at in range(0, len(data), step)]
    events = read(*parts, header_bytes_max=1000, headers_max=16)
    fault = events[-1]
    assert isinstance(fault, FramingError)
    assert (fault.code, fault.status) == ("headers-too-large", 431)


def test_large_bodies_are_not_heads() -> None:
    data = H11 + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000
    events = read(data, header_bytes_max=1000)
    assert events[-1] is MESSAGE_END


def test_what_follows_the_last_request_is_ignored() -> None:
    data = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    assert len(read(data + b"junk", b"more junk")) == 2


def test_between_requests() -> None:
    parser = RequestParser()
    parts = [b"", b"GET / HT", b"TP/1.1\r\nHost: h\r\n\r\n", b"\r\n"]
    seen = [(len(parser.feed(part)), parser.is_between) for part in parts]
    assert seen == [(0, True), (0, False), (2, True), (0, False)]


def test_a_closed_parser_reads_nothing() -> None:
    parser = RequestParser()
    parser.close()
    assert parser.feed(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n") == []
