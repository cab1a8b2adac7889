"""However a stream is cut, the taps pass on the same bytes and read the same usage and end."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from router.dialect.chat.chat_tap import chat_tap
from router.dialect.messages.messages_tap import messages_tap

if TYPE_CHECKING:
    from router.dialect.base import Tap

ENDS = st.sampled_from([b"\n\n", b"\n\n\n", b"\r\n\r\n", b"\n\r\n", b"\r\n\n", b"\r\r"])
CHAT = st.sampled_from(
    [
        b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}',
        b'data: {"choices":[{"delta":{"content":"\\"error\\" [DON"}}]}',
        b": comment",
        b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}',
        b'data: {"error":{"message":"full","code":503}}',
        b"data: [DONE]",
    ]
)
MESSAGES = st.sampled_from(
    [
        b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"a"}}',
        b'event: ping\ndata: {"type":"ping"}',
        b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":9}}}',
        b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":3}}',
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"m"}}',
        b'event: message_stop\ndata: {"type":"message_stop"}',
    ]
)


def followed(tap: Tap, parts: list[bytes]) -> tuple[bytes, object]:
    """What a tap passes on of these reads, and what it has seen at their end."""
    passed = b"".join([tap.feed(part) for part in parts]) + tap.finish()
    return passed, (tap.has_begun, tap.is_complete, tap.usage, tap.fault)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The stream in reads, none of them empty."""
    marks = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(marks)]


@settings(deadline=None)
@given(
    st.lists(st.tuples(CHAT, ENDS), max_size=12),
    st.lists(st.integers(0, 10_000), max_size=12),
    st.booleans(),
)
def test_chat(
    events: list[tuple[bytes, bytes]],
    places: list[int],
    is_stripping: bool,  # noqa: FBT001
) -> None:
    data = b"".join([event + end for event, end in events])
    whole = followed(chat_tap(is_stream=True, strip_usage=is_stripping), [data] if data else [])
    parts = followed(chat_tap(is_stream=True, strip_usage=is_stripping), cut(data, places))
    by_event = [event + end for event, end in events]
    one_by_one = followed(chat_tap(is_stream=True, strip_usage=is_stripping), by_event)
    assert parts[1] == whole[1] == one_by_one[1]
    if not is_stripping:
        assert parts[0] == whole[0] == one_by_one[0] == data


@settings(deadline=None)
@given(
    st.lists(st.tuples(MESSAGES, ENDS), max_size=12), st.lists(st.integers(0, 10_000), max_size=12)
)
def test_messages(events: list[tuple[bytes, bytes]], places: list[int]) -> None:
    data = b"".join([event + end for event, end in events])
    whole = followed(messages_tap(is_stream=True), [data] if data else [])
    parts = followed(messages_tap(is_stream=True), cut(data, places))
    one_by_one = followed(messages_tap(is_stream=True), [event + end for event, end in events])
    assert parts == whole == one_by_one
    assert parts[0] == data
