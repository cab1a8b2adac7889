"""Heads and chunks as bytes."""

from __future__ import annotations

from router.framing.writing import HOP_BY_HOP, chunk, clean, end_to_end, lines, status_line


def test_chunks_carry_their_size_in_hexadecimal() -> None:
    assert chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"


def test_status_lines() -> None:
    assert status_line(503) == b"HTTP/1.1 503 Service Unavailable\r\n"
    assert status_line(599) == b"HTTP/1.1 599 \r\n"


def test_headers_of_one_connection_stay_there() -> None:
    headers = [
        (b"connection", b"close, X-Private"),
        (b"x-private", b"1"),
        (b"te", b"trailers"),
        (b"authorization", b"Bearer k"),
        (b"x-both", b"1"),
        (b"x-both", b"2"),
    ]
    kept = end_to_end(headers, HOP_BY_HOP)
    assert lines(kept) == b"authorization: Bearer k\r\nx-both: 1\r\nx-both: 2\r\n"


def test_values_cannot_break_out_of_their_line() -> None:
    assert clean("replica-1") == b"replica-1"
    assert clean("a\r\nx: b\u00e9") == b"a??x: b?"
