"""Heads that come again: which are taken for the last one, and what they are read as."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from router.framing.alike import Alike
from router.framing.events import FramingError, RequestHead, ResponseHead
from router.framing.requests import RequestParser
from router.framing.responses import ResponseParser

HEAD = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: %b\r\nX-A: b\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nserver: s\r\ncontent-length: %d\r\n\r\n"


def two_heads(first: bytes, second: bytes) -> list[RequestHead]:
    parser = RequestParser()
    heads = [parser.feed(first)[0], parser.feed(second)[0]]
    assert all(isinstance(head, RequestHead) for head in heads), heads
    return [head for head in heads if isinstance(head, RequestHead)]


def test_heads_that_differ_in_their_length_only_are_alike() -> None:
    first, second = two_heads(HEAD % b"2" + b"ab", HEAD % b"10" + b"abc")
    assert first.alike is not None
    assert second.alike is first.alike
    assert second.headers == [(b"host", b"h"), (b"content-length", b"10"), (b"x-a", b"b")]
    assert second.content_length == 10


@pytest.mark.parametrize(
    "second",
    [
        HEAD.replace(b"X-A: b", b"X-A: c") % b"2",
        HEAD.replace(b"/x", b"/y") % b"2",
        HEAD.replace(b"\r\n\r\n", b"\r\nX-B: c\r\n\r\n") % b"2",
        b"\r\n" + HEAD % b"2",
        HEAD % b"2 ",
    ],
)
def test_other_heads_are_not_alike(second: bytes) -> None:
    first, other = two_heads(HEAD % b"2" + b"ab", second + b"ab")
    assert other.alike is not first.alike


@pytest.mark.parametrize("length", [b"", b"02", b"-2", b"2a", b"9" * 21])
def test_a_length_that_is_none_is_refused_as_ever(length: bytes) -> None:
    known, fresh = RequestParser(), RequestParser()
    known.feed(HEAD % b"2" + b"ab")
    [refused] = fresh.feed(HEAD % length + b"ab")
    assert isinstance(refused, FramingError)
    assert known.feed(HEAD % length + b"ab") == [refused]


def test_a_head_without_a_length_is_not_kept() -> None:
    head = b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    first, second = two_heads(head + b"0\r\n\r\n", head)
    assert first.alike is None
    assert second.alike is None


def test_a_large_head_is_not_kept() -> None:
    head = HEAD.replace(b"X-A: b", b"X-A: " + b"b" * 5_000) % b"2" + b"ab"
    first, second = two_heads(head, head)
    assert first.alike is None
    assert second.headers == first.headers


def test_a_length_in_another_line_is_not_taken_for_the_head_s() -> None:
    data = b"POST / HTTP/1.1\r\nX: content-length: 7\r\ncontent-length:  2\r\n\r\n"
    alike = Alike.of(data, [(b"x", b"content-length: 7"), (b"content-length", b"2")])
    assert alike is not None
    assert alike.read(data.replace(b"  2", b"  5")) == (len(data), b"5")
    assert alike.read(data.replace(b": 7", b": 8")) is None


def test_a_head_over_the_limit_is_judged_though_one_like_it_was_not() -> None:
    parser = RequestParser(header_bytes_max=len(HEAD % b"1"))
    parser.feed(HEAD % b"1" + b"a")
    fresh = RequestParser(header_bytes_max=len(HEAD % b"1"))
    data = HEAD % (b"1" + b"0" * 14) + b"a" * 100
    seen = [
        replace(event, alike=None) if isinstance(event, RequestHead) else event
        for reader in (parser, fresh)
        for event in reader.feed(data)
    ]
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


def test_an_answer_s_head_comes_again() -> None:
    parser = ResponseParser()
    heads = []
    for body in (b"abc", b"", b"0123456789"):
        parser.start()
        head, *rest = parser.feed(ANSWER % len(body) + body[:4])
        if body[4:]:
            rest += parser.feed(body[4:])
        assert isinstance(head, ResponseHead)
        assert b"".join(part for part in rest if isinstance(part, bytes)) == body
        assert parser.can_reuse
        heads.append(head)
    assert [head.content_length for head in heads] == [3, 0, 10]
    assert heads[0].alike is heads[1].alike is heads[2].alike is not None


def test_what_follows_a_known_answer_ends_the_connection_s_use() -> None:
    for first in (b"ab", b""):
        parser = ResponseParser()
        parser.start()
        parser.feed(ANSWER % 2 + b"ab")
        parser.start()
        parser.feed(ANSWER % 2 + first)
        parser.feed(b"ab" + b"more")
        assert not parser.can_reuse


def test_an_answer_to_head_is_none_of_those() -> None:
    parser = ResponseParser()
    parser.start()
    parser.feed(ANSWER % 2 + b"ab")
    parser.start(is_head=True)
    head, _ = parser.feed(ANSWER % 2)
    assert isinstance(head, ResponseHead)
    assert not parser.can_reuse
