"""Whose request is this."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.dialect import DialectOptions, dialects
from router.dialect.base import PromptFacts, SessionSource
from router.dialect.clients.identity import KEY_LENGTH_MAX, safe_key

HELLO = {"role": "user", "content": "Hi"}


def facts(
    headers: dict[str, str] | None = None,
    configured: str | None = None,
    path: str = "/v1/chat/completions",
    **body: object,
) -> PromptFacts:
    sent = json.dumps({"messages": [HELLO], **body}).encode()
    lines = [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    return dialects(DialectOptions(session_header=configured))[path].read(sent, lines)


@pytest.mark.parametrize(
    "name",
    [
        "modal-session-id",
        "x-claude-code-session-id",
        "x-dynamo-session-id",
        "x-smg-routing-key",
        "thread-id",
        "session-id",
        "session_id",
        "x-session-id",
        "x-session-affinity",
        "x-opencode-session",
        "x-goose-session-id",
    ],
)
def test_headers_that_clients_send(name: str) -> None:
    found = facts({"host": "h", name: "s1"}, prompt_cache_key="other")
    assert (found.session_key, found.session_source) == ("s1", SessionSource.HEADER)
    assert found.parent_key is None


@pytest.mark.parametrize("name", ["x-request-id", "x-client-request-id", "x-correlation-id"])
def test_request_ids_are_no_sessions(name: str) -> None:
    assert facts({name: "r1"}).session_source is SessionSource.CHAIN


def test_a_configured_header_comes_first() -> None:
    headers = {"x-session-id": "s1", "x-correlation-id": "c1"}
    found = facts(headers, configured="X-Correlation-ID")
    assert (found.session_key, found.session_source) == ("c1", SessionSource.CONFIGURED_HEADER)
    assert facts({"x-session-id": "s1"}, configured="X-Correlation-ID").session_key == "s1"


@pytest.mark.parametrize(
    ("headers", "key", "parent"),
    [
        ({"x-claude-code-session-id": "S", "x-claude-code-agent-id": "A"}, "S/A", "S"),
        (
            {
                "x-claude-code-session-id": "S",
                "x-claude-code-agent-id": "B",
                "x-claude-code-parent-agent-id": "A",
            },
            "S/B",
            "S/A",
        ),
        ({"session-id": "S", "thread-id": "T", "x-openai-subagent": "review"}, "T", "S"),
        ({"session_id": "S", "x-codex-window-id": "S:3"}, "S", None),
        ({"x-codex-window-id": "T:3", "x-codex-parent-thread-id": "S"}, "T", "S"),
        ({"x-session-id": "C", "x-parent-session-id": "P"}, "C", "P"),
        ({"x-dynamo-session-id": "C", "x-dynamo-parent-session-id": "P"}, "C", "P"),
        ({"session-id": "S", "thread-id": "T", "x-codex-parent-thread-id": "S"}, "T", "S"),
        ({"x-session-id": "C", "x-parent-session-id": "C"}, "C", None),
        ({"x-session-id": " ", "session-id": "S"}, "S", None),
    ],
)
def test_descent(headers: dict[str, str], key: str, parent: str | None) -> None:
    found = facts(headers)
    assert (found.session_key, found.parent_key) == (key, parent)


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({"prompt_cache_key": "p", "session_id": "s", "user": "u"}, "p"),
        ({"metadata": {"user_id": "user_ab_account_c_session_0a1b-2c3d-4e5f"}}, "0a1b-2c3d-4e5f"),
        ({"metadata": {"user_id": '{"device_id": "d", "session_id": "0a1b"}'}}, "0a1b"),
        ({"previous_response_id": "r", "session_id": "s"}, "r"),
        ({"session_id": "s", "conversation_id": "c"}, "s"),
        ({"conversation_id": "c", "user": "u"}, "c"),
    ],
)
def test_body_fields(body: dict[str, Any], key: str) -> None:
    found = facts(**body)
    assert (found.session_key, found.session_source) == (key, SessionSource.BODY)


def test_a_person_has_several_conversations() -> None:
    one = facts(prompt_cache_key="", session_id=None, user="u")
    other = facts(user="u", messages=[{"role": "user", "content": "Another task"}])
    grown = facts(user="u", messages=[HELLO, {"role": "assistant", "content": "Yes?"}])
    assert one.session_key.startswith("u/chain:")
    assert (one.session_source, one.parent_key) == (SessionSource.BODY, "u")
    assert grown.session_key == one.session_key != other.session_key


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"user_id": "user_ab"}},
        {"metadata": {"user_id": "{"}},
        {"metadata": {"user_id": "{}"}},
        {"metadata": {"user_id": 7}},
        {"metadata": "text"},
        {"user": 7},
        {"user": {"id": "u"}},
        {"user": "x" * 5000},
        {},
    ],
)
def test_without_a_name_the_prompt_identifies_the_session(body: dict[str, Any]) -> None:
    found = facts(**body)
    assert found.session_source is SessionSource.CHAIN
    assert found.session_key == f"chain:{found.chain[0]:016x}"


def test_the_first_user_message_is_the_last_that_counts() -> None:
    first = facts(messages=[HELLO])
    later = facts(messages=[HELLO, {"role": "assistant", "content": "Yes?"}, HELLO])
    other = facts(messages=[{"role": "user", "content": "Ho"}])

    assert first.session_key == later.session_key
    assert first.session_key != other.session_key


def test_an_agent_id_is_added_to_a_session_from_the_body() -> None:
    user_id = "user_ab_account_c_session_0a1b-2c3d-4e5f"
    found = facts(
        {"x-claude-code-agent-id": "A"}, path="/v1/messages", metadata={"user_id": user_id}
    )
    assert (found.session_key, found.parent_key) == ("0a1b-2c3d-4e5f/A", "0a1b-2c3d-4e5f")


def test_keys_are_bounded_printable_and_never_look_like_our_own() -> None:
    imitation = facts().session_key
    strange = [
        "x" * (KEY_LENGTH_MAX + 1),
        "a\x00b",
        "a\nb",
        "\u200e",
        imitation,
        "body:1",
        "hash:1",
    ]
    keys = {safe_key(text) for text in strange}

    assert len(keys) == len(strange)
    assert all(key.startswith("hash:") and len(key) == 37 and key.isprintable() for key in keys)
    assert safe_key("x" * KEY_LENGTH_MAX) == "x" * KEY_LENGTH_MAX
    assert safe_key(" s 1 ") == "s 1"
    assert safe_key(" \t") == ""
    assert facts({"x-session-id": imitation}).session_key != imitation
    assert facts({"x-session-id": "caf\xe9"}).session_key == "caf\xe9"


@pytest.mark.parametrize("messages", [[HELLO], None])
def test_a_models_name_is_kept_short_and_printable(messages: object) -> None:
    """It is kept and logged, readable body or not."""
    for name in ("m" * 1_000_000, "m\nx=1"):
        found = facts(model=name, messages=messages)
        assert found.model.isprintable()
        assert 0 < len(found.model) <= KEY_LENGTH_MAX
    assert facts(model="moonshotai/Kimi-K2.6").model == "moonshotai/Kimi-K2.6"


def test_a_limit_that_is_null_does_not_hide_the_other() -> None:
    assert facts(max_completion_tokens=None, max_tokens=7).output_tokens_max == 7
    assert facts(max_completion_tokens=5, max_tokens=7).output_tokens_max == 5
