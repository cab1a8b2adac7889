"""What an answer of the messages API says of itself."""

from __future__ import annotations

import json

import pytest

from router.dialect import DialectOptions, dialects
from router.dialect.base import StreamFault, Tap, Usage


def tap(*, is_stream: bool = True) -> Tap:
    dialect = dialects(DialectOptions())["/v1/messages"]
    return dialect.tap(is_stream=is_stream, strip_usage=False)


def event(kind: str, **fields: object) -> bytes:
    data = json.dumps({"type": kind, **fields})
    return f"event: {kind}\ndata: {data}\n\n".encode()


START = event(
    "message_start",
    message={
        "id": "m",
        "usage": {"input_tokens": 36, "output_tokens": 0, "cache_read_input_tokens": 64},
    },
)
DELTA = event(
    "content_block_delta", index=0, delta={"type": "text_delta", "text": '"usage" "error"'}
)
END = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 7})
STOP = event("message_stop")


def test_a_whole_stream() -> None:
    followed = tap()
    chunks = [event("ping"), START, DELTA, END, STOP]

    assert followed.feed(chunks[0]) == chunks[0]
    assert not followed.has_begun
    assert followed.feed(START) == START
    assert not followed.has_begun
    assert followed.usage == Usage(100, 0, 64)
    assert followed.feed(DELTA) == DELTA
    assert followed.has_begun
    assert [followed.feed(chunk) for chunk in chunks[3:]] == chunks[3:]
    assert followed.finish() == b""
    assert followed.is_complete
    assert followed.fault is None
    assert followed.usage == Usage(100, 7, 64)


def test_counts_that_come_only_at_the_end() -> None:
    followed = tap()
    followed.feed(
        event("message_start", message={"usage": {"input_tokens": 0, "output_tokens": 0}})
    )
    counts = {
        "input_tokens": 30,
        "output_tokens": 7,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 10,
    }
    followed.feed(event("message_delta", delta={}, usage=counts))
    assert followed.usage == Usage(100, 7, 60)


def test_without_a_cache_report_nothing_is_known_of_it() -> None:
    followed = tap()
    followed.feed(
        event("message_start", message={"usage": {"input_tokens": 5, "output_tokens": 0}})
    )
    assert followed.usage == Usage(5, 0, None)


def test_an_error_before_and_after_the_beginning() -> None:
    busy = event("error", error={"type": "overloaded_error", "message": "Full."})
    first, later = tap(), tap()
    first.feed(busy)
    later.feed(START + DELTA)
    later.feed(event("error", error={"type": "api_error", "message": "Broken."}) + busy)

    assert (first.has_begun, first.fault) == (False, StreamFault(503, "Full."))
    assert (later.has_begun, later.fault) == (True, StreamFault(500, "Broken."))
    assert not later.is_complete


def test_a_refusal_behind_a_start_of_nothing_is_no_beginning() -> None:
    """What SGLang streams where its queue is full, cut anywhere."""
    nothing = {"usage": {"input_tokens": 0, "output_tokens": 0}}
    busy = event("error", error={"type": "overloaded_error", "message": "Full."})
    told = event("message_start", message=nothing) + busy + STOP
    for cut in range(len(told)):
        followed = tap()
        followed.feed(told[:cut])
        followed.feed(told[cut:])
        assert (followed.has_begun, followed.fault) == (False, StreamFault(503, "Full."))
        assert followed.usage is None


@pytest.mark.parametrize("error", [None, "text", 7])
def test_an_error_that_cannot_be_read(error: object) -> None:
    followed = tap()
    followed.feed(event("error", error=error))
    assert followed.fault == StreamFault(500, "an error that cannot be read")


def test_an_event_that_cannot_be_read_is_a_beginning() -> None:
    followed = tap()
    assert followed.feed(b"data: hello\n\n") == b"data: hello\n\n"
    assert followed.has_begun


def test_a_body() -> None:
    usage = {"input_tokens": 36, "output_tokens": 7, "cache_read_input_tokens": 64}
    body = json.dumps({"type": "message", "content": [], "usage": usage}).encode()
    followed = tap(is_stream=False)

    assert followed.feed(body) == body
    assert followed.finish() == b""
    assert followed.is_complete
    assert followed.usage == Usage(100, 7, 64)


@pytest.mark.parametrize(
    ("body", "is_complete", "fault"),
    [
        (b'{"type": 7}', True, None),
        (b'{"type": "mess', False, None),
        (
            b'{"type": "error", "error": {"type": "rate_limit_error", "message": "Slow."}}',
            True,
            StreamFault(429, "Slow."),
        ),
    ],
)
def test_other_bodies(body: bytes, is_complete: bool, fault: StreamFault | None) -> None:  # noqa: FBT001
    followed = tap(is_stream=False)
    followed.feed(body)
    followed.finish()
    assert (followed.is_complete, followed.fault, followed.usage) == (is_complete, fault, None)
