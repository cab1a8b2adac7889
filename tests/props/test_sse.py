"""Where reads are cut makes no difference."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from router.dialect import DialectOptions, dialects
from router.dialect.stream.sse import EventSplitter, split_events

stream = st.lists(
    st.sampled_from(
        [
            b"data: a",
            b"data:b",
            b": c",
            b"event: x",
            b"\n",
            b"\r",
            b"\r\n",
            b"\n\n",
            b"\xef\xbb\xbf",
            b"x",
        ]
    ),
    max_size=25,
).map(b"".join)


def event(end: bytes, **fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + end


line_end = st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r", b"\n", b""])
chunk = st.sampled_from(
    [
        {"choices": [{"delta": {"content": 'é "usage" [DONE]'}}]},
        {"choices": [{"delta": {}}], "usage": {"prompt_tokens": 5}},
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}},
        {"error": {"message": "m", "code": 503}},
        {"type": "ping"},
        {"type": "message_start", "message": {"usage": {"input_tokens": 3}}},
        {"type": "message_delta", "usage": {"output_tokens": 4}},
        {"type": "error", "error": {"type": "overloaded_error", "message": "m"}},
        {"type": "message_stop"},
        {"type": "response.created", "response": {"id": "resp_1", "error": None}},
        {"type": "response.output_text.delta", "delta": 'é "response.failed"'},
        {"type": "response.completed", "response": {"usage": {"input_tokens": 3}}},
        {"type": "response.failed", "response": {"error": {"message": "m"}}},
    ]
)
answer = st.lists(
    st.builds(lambda fields, end: event(end, **fields), chunk, line_end)
    | st.sampled_from([b"data: [DONE]\n\n", b": ping\n\n", b"\n", b"\r", b"junk"]),
    max_size=10,
).map(b"".join)


def pieces(whole: bytes, data: st.DataObject) -> list[bytes]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


def events_of(reads: list[bytes], event_bytes_max: int) -> tuple[list[bytes], bytes, bytes]:
    splitter = EventSplitter(event_bytes_max)
    found: list[bytes] = []
    passed = b""
    for read in reads:
        opaque, block = splitter.feed(read)
        passed += opaque + block
        found += [
            one for one in (split_events(block) if block else []) if len(one) <= event_bytes_max
        ]
    return found, splitter.rest, passed + splitter.rest


@settings(deadline=None, max_examples=300)
@given(stream, st.data(), st.sampled_from([4, 12, 1000]))
def test_events_do_not_depend_on_the_cuts(whole: bytes, data: st.DataObject, limit: int) -> None:
    found, rest, passed = events_of(pieces(whole, data), limit)
    expected, expected_rest, _ = events_of([whole], limit)

    assert passed == whole
    assert found == expected
    if limit == 1000:
        assert rest == expected_rest


@settings(deadline=None, max_examples=300)
@given(
    answer,
    st.data(),
    st.sampled_from(["/v1/chat/completions", "/v1/messages", "/v1/responses"]),
    st.booleans(),
    st.booleans(),
)
def test_what_a_tap_passes_and_reads_does_not_depend_on_the_cuts(
    whole: bytes,
    data: st.DataObject,
    path: str,
    is_stream: bool,  # noqa: FBT001
    strip_usage: bool,  # noqa: FBT001
) -> None:
    dialect = dialects(DialectOptions())[path]
    results = []
    for reads in (pieces(whole, data), [whole], [bytes([byte]) for byte in whole]):
        tap = dialect.tap(is_stream=is_stream, strip_usage=strip_usage)
        passed = b"".join([tap.feed(read) for read in reads]) + tap.finish()
        results.append((passed, tap.usage, tap.fault, tap.is_complete, tap.has_begun))

    assert results[0] == results[1] == results[2]
    if not strip_usage:
        assert results[0][0] == whole
