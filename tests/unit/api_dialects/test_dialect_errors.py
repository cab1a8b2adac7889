"""Errors in each API's shape, as its official client reads them."""

from __future__ import annotations

import json

import pytest

from router.dialect import DialectOptions, dialects
from router.dialect.stream.sse import event_data, split_events
from router.errors import CODES, ClientError, RouterError

CHAT = dialects(DialectOptions())["/v1/chat/completions"]
MESSAGES = dialects(DialectOptions())["/v1/messages"]


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_body_and_an_event(code: str) -> None:
    error = RouterError(code, "What happened.")
    chat = json.loads(CHAT.error_body(error))
    messages = json.loads(MESSAGES.error_body(error))

    assert chat["error"]["code"] == {"unknown-model": "model_not_found"}.get(code, code)
    assert chat["error"]["message"] == messages["error"]["message"] == "What happened."
    assert set(chat["error"]) == {"message", "type", "param", "code"}
    assert messages["type"] == "error"

    first, last = split_events(CHAT.error_event(error))
    assert json.loads(event_data(first) or b"") == chat
    assert event_data(last) == b"[DONE]"
    (only,) = split_events(MESSAGES.error_event(error))
    assert only.startswith(b"event: error\n")
    assert json.loads(event_data(only) or b"") == messages


@pytest.mark.parametrize(
    ("status", "chat", "messages"),
    [
        (400, "invalid_request_error", "invalid_request_error"),
        (401, "authentication_error", "authentication_error"),
        (404, "not_found_error", "not_found_error"),
        (405, "invalid_request_error", "invalid_request_error"),
        (413, "invalid_request_error", "request_too_large"),
        (429, "rate_limit_error", "rate_limit_error"),
        (500, "server_error", "api_error"),
        (502, "server_error", "api_error"),
        (503, "overloaded_error", "overloaded_error"),
        (504, "timeout_error", "timeout_error"),
        (529, "overloaded_error", "overloaded_error"),
    ],
)
def test_types_by_status(status: int, chat: str, messages: str) -> None:
    error = RouterError("internal", "x", http_status=status)
    assert json.loads(CHAT.error_body(error))["error"]["type"] == chat
    assert json.loads(MESSAGES.error_body(error))["error"]["type"] == messages


def test_a_message_is_always_one_line_of_valid_utf8() -> None:
    error = ClientError("bad-request", "a\nb \ud800")
    event = CHAT.error_event(error)
    assert event.count(b"\n") == 4
    assert json.loads(CHAT.error_body(error))["error"]["message"] == "a\nb ?"
