"""Events as bytes."""

from __future__ import annotations

import pytest

from router.dialect.stream.sse import EventSplitter, data_event, event_data, split_events


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\n\r\n", b"\r\n\n"])
def test_an_event_is_whole_with_its_empty_line(end: bytes) -> None:
    splitter = EventSplitter()

    assert splitter.feed(b"data: a") == (b"", b"")
    assert splitter.feed(end) == (b"", b"data: a" + end)
    assert splitter.rest == b""


def test_a_carriage_return_waits_for_its_line_feed() -> None:
    splitter = EventSplitter()

    assert splitter.feed(b"data: a\r\r") == (b"", b"")
    assert splitter.feed(b"\ndata: b\r\r") == (b"", b"data: a\r\r\n")
    assert splitter.feed(b"d") == (b"", b"data: b\r\r")
    assert splitter.rest == b"d"


def test_many_events_in_one_read() -> None:
    splitter = EventSplitter()
    block = b"data: a\n\n: comment\n\ndata: b\n\n"

    assert splitter.feed(block + b"data: c") == (b"", block)
    assert split_events(block) == [b"data: a\n\n", b": comment\n\n", b"data: b\n\n"]
    assert split_events(b"data: a\r\n\r\ndata: b\r\r") == [b"data: a\r\n\r\n", b"data: b\r\r"]


def test_an_event_without_end_is_not_kept() -> None:
    splitter = EventSplitter(event_bytes_max=10)

    assert splitter.feed(b"data: 4567") == (b"", b"")
    assert splitter.feed(b"8") == (b"data: 45", b"")
    assert splitter.feed(b"9" * 50) == (b"678" + b"9" * 47, b"")
    assert splitter.rest == b"999"
    assert splitter.feed(b"\n") == (b"9", b"")
    assert splitter.feed(b"\ndata: a\n\nda") == (b"99\n\n", b"data: a\n\n")
    assert splitter.rest == b"da"


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: a\n\n", b"a"),
        (b"data:a\n\n", b"a"),
        (b"data:  a\r\n\r\n", b" a"),
        (b"event: x\ndata: a\nid: 1\n\n", b"a"),
        (b"data: a\ndata: b\n\n", b"a\nb"),
        (b"\ndata: a\r\r", b"a"),
        (b"\xef\xbb\xbfdata: a\n\n", b"a"),
        (b": data: a\n\n", None),
        (b"event: x\n\n", None),
        (b"data\n\n", None),
        (b"data: \n\n", b""),
        (b"\n\n", None),
        (b"data: a", b"a"),
        (b"database: a\n\n", None),
    ],
)
def test_data_of_an_event(event: bytes, data: bytes | None) -> None:
    assert event_data(event) == data


def test_writing_an_event() -> None:
    assert data_event(b"{}") == b"data: {}\n\n"
    assert data_event(b"{}", name="error") == b"event: error\ndata: {}\n\n"


def test_empty_lines_in_a_row_are_cut_alike_wherever_the_reads_were_cut() -> None:
    whole = b"data: a\n\n\n\n\ndata: b\n\n\n\n"

    def events(*reads: bytes) -> list[bytes]:
        splitter = EventSplitter()
        found = []
        for read in reads:
            _, block = splitter.feed(read)
            found += split_events(block) if block else []
        return found

    expected = events(whole)
    assert expected[0] == b"data: a\n\n"
    for cut in range(1, len(whole)):
        assert events(whole[:cut], whole[cut:]) == expected
