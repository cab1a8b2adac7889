"""The client's side of the framing: where an answer ends, and whether its connection lives on."""

from __future__ import annotations

import pytest

from router.framing.events import MESSAGE_END, FramingError, ResponseEvent, ResponseHead
from router.framing.responses import ResponseParser


def read(*parts: bytes, is_head: bool = False) -> tuple[list[ResponseEvent], ResponseParser]:
    parser = ResponseParser(header_bytes_max=1000)
    parser.start(is_head=is_head)
    return [event for part in parts for event in parser.feed(part)], parser


@pytest.mark.parametrize(
    ("data", "body", "can_reuse"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", b"ab", True),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", b"", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", b"a", True),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nT: x\r\n\r\n",
            b"a",
            True,
        ),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na", b"a", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", b"a", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b"", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", b"a", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n\r\nb", b"a", False),
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_whole_answers(data: bytes, body: bytes, step: int, *, can_reuse: bool) -> None:
    events, parser = read(*[data[at : at + step] for at in range(0, len(data), step)])
    assert isinstance(events[0], ResponseHead)
    assert events[-1] is MESSAGE_END
    assert b"".join(event for event in events if isinstance(event, bytes)) == body
    assert parser.can_reuse is can_reuse
    assert parser.feed_eof() == []


def test_an_answer_to_head_has_no_body() -> None:
    events, parser = read(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", is_head=True)
    assert events[1:] == [MESSAGE_END]
    assert not parser.can_reuse  # llhttp still waits for nine bytes


def test_two_answers_on_one_connection() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"
    _, parser = read(answer)
    parser.start()
    assert not parser.has_bytes
    assert parser.feed(answer)[1:] == [b"a", MESSAGE_END]
    assert parser.feed(b"unasked") == []
    assert not parser.can_reuse


def test_the_end_of_the_connection_ends_an_unframed_answer() -> None:
    events, parser = read(b"HTTP/1.1 200 OK\r\n\r\nabc")
    head = events[0]
    assert isinstance(head, ResponseHead)
    assert head.is_eof_framed
    assert events[1:] == [b"abc"]
    assert parser.feed_eof() == [MESSAGE_END]
    assert not parser.can_reuse


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 O",
    ],
)
def test_a_cut_answer_is_a_fault(data: bytes) -> None:
    _, parser = read(data)
    (fault,) = parser.feed_eof()
    assert isinstance(fault, FramingError)
    assert (fault.code, fault.status) == ("bad-upstream-response", 502)


@pytest.mark.parametrize(
    "data",
    [
        b"garbage\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 2000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
    ],
)
def test_garbage_is_a_fault(data: bytes) -> None:
    events, parser = read(*[data[at : at + 9] for at in range(0, len(data), 9)])
    assert isinstance(events[-1], FramingError)
    assert events[-1].code == "bad-upstream-response"
    assert parser.feed(b"HTTP/1.1 200 OK\r\n\r\n") == []
    assert not parser.can_reuse
    parser.close()
