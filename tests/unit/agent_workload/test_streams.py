"""Streamed answers of both dialects, cut anywhere."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.live.streams import AnswerStream, Usage
from sim.workload.turns import CHAT_PATH, MESSAGES_PATH, Answer, ToolCall


def _events(*events: object) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def _chat_delta(**delta: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


_CHAT = (
    b": heartbeat\n\n"
    + _events(
        _chat_delta(role="assistant", content=""),
        _chat_delta(content="Grüß "),
        _chat_delta(content="dich."),
        _chat_delta(
            tool_calls=[{"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a'}}]
        ),
        _chat_delta(tool_calls=[{"index": 0, "function": {"arguments": '": 1}'}}]),
        {
            "choices": [],
            "usage": {
                "prompt_tokens": 100,
                "completion_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 64},
            },
        },
    )
    + b"data: [DONE]\n\n"
)
_MESSAGES = _events(
    {"type": "message_start", "message": {"usage": {"input_tokens": 36, "output_tokens": 0}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Grüß "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "dich."}},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
    },
    {"type": "content_block_delta", "index": 1, "delta": {"partial_json": '{"a'}},
    {"type": "content_block_delta", "index": 1, "delta": {"partial_json": '": 1}'}},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use"},
        "usage": {"input_tokens": 36, "cache_read_input_tokens": 64, "output_tokens": 9},
    },
    {"type": "message_stop"},
).replace(b"\n", b"\r\n")


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([(CHAT_PATH, _CHAT), (MESSAGES_PATH, _MESSAGES)]), st.data())
def test_answers_do_not_depend_on_the_cuts(case: tuple[str, bytes], data: st.DataObject) -> None:
    path, raw = case
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    stream = AnswerStream(path)
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        stream.feed(raw[start:end])
    assert stream.answer() == Answer("Grüß dich.", (ToolCall("c1", "f", '{"a": 1}'),))
    assert stream.usage == Usage(prompt_tokens=100, cached_tokens=64, output_tokens=9)
    assert stream.is_ended
    assert stream.error is None


def test_role_chunks_and_message_starts_are_no_first_token() -> None:
    chat, messages = AnswerStream(CHAT_PATH), AnswerStream(MESSAGES_PATH)
    chat.feed(_events(_chat_delta(role="assistant", content="")))
    messages.feed(_events({"type": "message_start", "message": {}}, {"type": "ping"}))
    assert [chat.has_begun, messages.has_begun] == [False, False]
    chat.feed(_events(_chat_delta(reasoning_content="Hm")))
    assert [chat.has_begun, chat.is_ended] == [True, False]


@pytest.mark.parametrize("path", [CHAT_PATH, MESSAGES_PATH])
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'data: {"error": {"message": "queue is full"}}\n\n', "queue is full"),
        (b'event: error\ndata: {"type": "error", "error": {"message": "gone"}}\n\n', "gone"),
        (b"data: {oops\n\n", "unreadable event"),
        (b"data: " + b"[" * 5_000 + b"\n\n", "unreadable event"),
        (b"x" * (8 * 1024 * 1024 + 1), "over"),
    ],
)
def test_errors_in_the_stream_are_kept(path: str, raw: bytes, text: str) -> None:
    stream = AnswerStream(path)
    stream.feed(raw)
    assert stream.error is not None
    assert text in stream.error
