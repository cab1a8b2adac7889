"""What a chat completion's answer says of itself."""

from __future__ import annotations

import json

import pytest

from router.dialect import DialectOptions, dialects
from router.dialect.base import StreamFault, Tap, Usage
from router.dialect.stream.sse import EVENT_BYTES_MAX
from router.dialect.stream.tap import BODY_BYTES_MAX


def tap(*, is_stream: bool = True, strip_usage: bool = False) -> Tap:
    dialect = dialects(DialectOptions())["/v1/chat/completions"]
    return dialect.tap(is_stream=is_stream, strip_usage=strip_usage)


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def text(content: str, **more: object) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": content}}], usage=None, **more)


COUNTS = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
CACHED = {**COUNTS, "prompt_tokens_details": {"cached_tokens": 64}}
USAGE = event(choices=[], usage=CACHED)
DONE = b"data: [DONE]\n\n"
FULL = {"object": "error", "message": "The request queue is full.", "code": 503}


def test_a_whole_stream_passes_untouched() -> None:
    followed = tap()
    chunks = [b": ping\n\n", text(""), text("Hello"), USAGE, DONE]

    assert not followed.has_begun
    assert [followed.feed(chunk) for chunk in chunks] == chunks
    assert followed.finish() == b""
    assert followed.has_begun
    assert followed.is_complete
    assert followed.fault is None
    assert followed.usage == Usage(100, 7, 64)


def test_a_comment_is_no_beginning() -> None:
    followed = tap()
    followed.feed(b": ping\n\n")
    assert not followed.has_begun
    followed.feed(text(""))
    assert followed.has_begun
    assert not followed.is_complete


def test_the_added_usage_event_is_taken_out() -> None:
    followed = tap(strip_usage=True)

    assert followed.feed(text("a") + text("b")[:20]) == text("a")
    assert followed.feed(text("b")[20:] + USAGE + DONE) == text("b") + DONE
    assert followed.finish() == b""
    assert followed.usage == Usage(100, 7, 64)
    assert followed.is_complete


def test_text_that_looks_like_usage_stays() -> None:
    followed = tap(strip_usage=True)
    imitation = text('{"choices": [], "usage": {"prompt_tokens": 1}} "error": {} [DONE]')

    assert followed.feed(text("") + imitation) == text("") + imitation
    assert followed.usage is None
    assert followed.fault is None
    assert not followed.is_complete


def test_continuous_usage_stays_on_its_chunks() -> None:
    followed = tap(strip_usage=True)
    chunk = event(choices=[{"delta": {"content": "a"}}], usage=COUNTS)

    assert followed.feed(chunk) == chunk
    assert followed.usage == Usage(100, 7, None)
    assert followed.feed(event(choices=[], usage={**COUNTS, "completion_tokens": 9})) == b""
    assert followed.usage == Usage(100, 9, None)


def test_a_full_queue_is_the_first_event() -> None:
    followed = tap()
    followed.feed(event(error=FULL) + DONE)

    assert followed.fault == StreamFault(503, "The request queue is full.")
    assert not followed.has_begun
    assert followed.is_complete


def test_an_error_after_the_beginning() -> None:
    followed = tap()
    followed.feed(text("a"))
    followed.feed(event(error={"message": "Out of memory.", "code": None}))
    followed.feed(event(error=FULL))

    assert followed.has_begun
    assert followed.fault == StreamFault(500, "Out of memory.")


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        ({"message": "m", "code": "429"}, StreamFault(429, "m")),
        ({"message": "m", "code": 42}, StreamFault(500, "m")),
        ({"message": "m", "code": "9" * 5000}, StreamFault(500, "m")),
        ({"message": "m", "code": "queue"}, StreamFault(500, "m")),
        ("text", StreamFault(500, "text")),
        (None, None),
    ],
)
def test_errors_of_other_shapes(error: object, fault: StreamFault | None) -> None:
    followed = tap()
    followed.feed(event(error=error))
    assert followed.fault == fault
    assert followed.has_begun is (fault is None)


@pytest.mark.parametrize(
    "data", [b"hello", b"[1]", b'{"usage": {"prompt_tokens": -1}}', b"[" * 9999]
)
def test_an_event_that_cannot_be_read_is_passed_on(data: bytes) -> None:
    followed = tap(strip_usage=True)
    sent = b"data: " + data + b"\n\n"

    assert followed.feed(sent) == sent
    assert followed.has_begun
    assert followed.usage is None


@pytest.mark.parametrize("cut", [b"", b"\n"])
def test_an_end_without_an_empty_line(cut: bytes) -> None:
    followed = tap(strip_usage=True)

    assert followed.feed(text("a") + USAGE.rstrip() + cut) == text("a")
    assert followed.finish() == b""
    assert followed.usage == Usage(100, 7, 64)
    assert not followed.is_complete

    other = tap(strip_usage=True)
    assert other.feed(text("a") + DONE.rstrip() + cut) == text("a")
    assert other.finish() == DONE.rstrip() + cut
    assert other.is_complete


@pytest.mark.parametrize("strip_usage", [False, True])
def test_an_event_that_is_too_long_is_passed_on(strip_usage: bool) -> None:  # noqa: FBT001
    long = text("x" * EVENT_BYTES_MAX)
    whole, cut = tap(strip_usage=strip_usage), tap(strip_usage=strip_usage)

    assert whole.feed(long + USAGE).startswith(long)
    pieces = [long[start : start + 100_000] for start in range(0, len(long), 100_000)]
    passed = b"".join([cut.feed(piece) for piece in [*pieces, USAGE]]) + cut.finish()
    assert passed == (long if strip_usage else long + USAGE)
    assert whole.has_begun
    assert cut.has_begun
    assert whole.usage == cut.usage == Usage(100, 7, 64)


def test_a_body_is_read_at_its_end() -> None:
    body = json.dumps({"choices": [{"message": {"content": "Hi"}}], "usage": CACHED}).encode()
    followed = tap(is_stream=False)

    assert followed.feed(body[:10]) == body[:10]
    assert followed.has_begun
    assert followed.feed(body[10:]) == body[10:]
    assert not followed.is_complete
    assert followed.finish() == b""
    assert followed.is_complete
    assert followed.usage == Usage(100, 7, 64)


@pytest.mark.parametrize(
    ("body", "is_complete"),
    [
        (b"", False),
        (b'{"choices": [', False),
        (b"[]", True),
        (b'{"usage": 7}', True),
        (b"{}", True),
    ],
)
def test_bodies_without_usage(body: bytes, is_complete: bool) -> None:  # noqa: FBT001
    followed = tap(is_stream=False)
    assert followed.feed(body) == body
    followed.finish()
    assert followed.is_complete is is_complete
    assert followed.usage is None


def test_a_body_that_holds_an_error() -> None:
    followed = tap(is_stream=False)
    followed.feed(json.dumps({"error": FULL}).encode())
    followed.finish()
    assert followed.fault == StreamFault(503, "The request queue is full.")


def test_a_body_that_is_too_long_is_passed_on_unread() -> None:
    followed = tap(is_stream=False)
    for _ in range(BODY_BYTES_MAX // 100_000 + 1):
        followed.feed(b"x" * 100_000)
    assert followed.feed(b"} \n") == b"} \n"
    followed.finish()
    assert followed.is_complete
    assert followed.usage is None
