"""The wire shapes of the agents, against the skeletons of their real requests."""

from __future__ import annotations

import random
import uuid

import msgspec
import pytest

from sim.workload.text import Tool
from sim.workload.turns import Answer, ToolCall
from sim.workload.wire import Agent, ChatAgent, ClaudeCode, Head, Identity, random_uuid

_HEAD = Head((Tool("Read", "Reads a file.", ("path", "limit")),), "House rules.")
_CALL = ToolCall("toolu_1", "Read", '{"path": "/a"}')
_ASK: dict[str, object] = {"output_tokens": 3}


def _claude(identity: Identity | None = None) -> ClaudeCode:
    return ClaudeCode(identity=identity or Identity("S"), head=_HEAD, rng=random.Random(1))


def _chat(agent: Agent, *, wants_usage: bool = True, identity: Identity | None = None) -> ChatAgent:
    return ChatAgent(
        agent=agent, identity=identity or Identity("S"), head=_HEAD, wants_usage=wants_usage
    )


def test_claude_code_moves_its_mark_and_changes_its_billing_line() -> None:
    agent = _claude()
    agent.add_user("Fix it.")
    first = msgspec.json.decode(agent.body(_ASK))
    agent.add_answer(Answer("Reading.", (_CALL,)))
    agent.add_results([(_CALL, "1 def")])
    second = msgspec.json.decode(agent.body(_ASK))

    assert first["metadata"]["user_id"].endswith("_session_S")
    assert first["system"][0]["text"].startswith("x-anthropic-billing-header: cc_version=")
    assert first["system"][0] != second["system"][0]
    assert first["system"][1:] == second["system"][1:]
    assert first["tools"][0]["input_schema"]["required"] == ["path"]
    assert first["stream"] is True
    assert first["homeport_emulate"] == _ASK
    assert "cache_control" in first["messages"][0]["content"][-1]
    assert "cache_control" not in second["messages"][0]["content"][-1]
    assert "cache_control" in second["messages"][-1]["content"][-1]
    assert second["messages"][1]["content"] == [
        {"type": "text", "text": "Reading."},
        {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "/a"}},
    ]
    assert second["messages"][2]["content"][0]["tool_use_id"] == "toolu_1"


def test_claude_code_names_sub_agents_in_headers() -> None:
    headers = dict(_claude(Identity("S", agent_id="A", parent_id="P")).headers)
    assert headers["x-claude-code-session-id"] == "S"
    assert headers["x-claude-code-agent-id"] == "A"
    assert headers["x-claude-code-parent-agent-id"] == "P"
    assert "x-claude-code-agent-id" not in dict(_claude().headers)


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", "[" * 5_000])
def test_odd_arguments_become_an_empty_input(arguments: str) -> None:
    agent = _claude()
    agent.add_user("Go.")
    agent.add_answer(Answer("", (ToolCall("t", "Read", arguments),)))
    agent.add_user("On.")
    assert msgspec.json.decode(agent.body(_ASK))["messages"][1]["content"][0]["input"] == {}


def test_opencode_speaks_of_its_session_in_headers() -> None:
    agent = _chat(Agent.OPENCODE, identity=Identity("S", agent_id="C", parent_id="main"))
    headers = dict(agent.headers)
    assert headers["x-session-affinity"] == headers["x-session-id"] == "C"
    assert headers["x-parent-session-id"] == "S"
    agent.add_user("Go.")
    body = msgspec.json.decode(agent.body(_ASK))
    assert "prompt_cache_key" not in body
    assert body["stream_options"] == {"include_usage": True}


def test_kimi_cli_speaks_of_its_session_in_the_body() -> None:
    agent = _chat(Agent.KIMI_CLI, wants_usage=False)
    agent.add_user("Go.")
    agent.add_answer(Answer("Reading.", (_CALL,)))
    agent.add_results([(_CALL, "1 def")])
    raw = agent.body(_ASK)
    body = msgspec.json.decode(raw)
    assert raw.startswith(b'{"messages":')
    assert body["prompt_cache_key"] == "S"
    assert "stream_options" not in body
    assert body["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"path": "/a"}'
    assert body["messages"][3]["content"] == [{"type": "text", "text": "1 def"}]
    assert not any("session" in name for name, _ in agent.headers)


def test_an_empty_answer_adds_no_message() -> None:
    for agent in (_claude(), _chat(Agent.OPENCODE)):
        agent.add_user("Go.")
        agent.add_answer(Answer())
        agent.add_user("Again.")
        roles = [m["role"] for m in msgspec.json.decode(agent.body(_ASK))["messages"]]
        assert "assistant" not in roles


def test_random_uuid_is_a_version_4_uuid() -> None:
    assert uuid.UUID(random_uuid(random.Random(1))).version == 4
