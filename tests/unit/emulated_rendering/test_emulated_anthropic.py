from __future__ import annotations

import json
from typing import Any

import pytest

from sim.live.rendering.anthropic_bodies import MessagesBody, messages_prompt
from sim.live.rendering.bodies import (
    BadBodyError,
    ChatBody,
    TemplateDefaults,
    chat_prompt,
    decode,
)
from sim.live.rendering.template import render

USER = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"z": {}, "a": {}}}


def messages(body: dict[str, Any], defaults: TemplateDefaults | None = None) -> str:
    read = decode(json.dumps(body).encode(), MessagesBody)
    return render(messages_prompt(read, defaults or TemplateDefaults())).decode()


def chat(body: dict[str, Any]) -> str:
    read = decode(json.dumps(body).encode(), ChatBody)
    return render(chat_prompt(read, TemplateDefaults())).decode()


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_system_blocks_are_joined_by_newline_and_none_is_removed() -> None:
    billing = "x-anthropic-billing-header: cch=1;"
    assert messages({"system": [text(billing), text("b")], "messages": [USER]}) == chat(
        {"messages": [{"role": "system", "content": f"{billing}\nb"}, USER]}
    )
    assert messages({"system": " ", "messages": [USER]}) == chat({"messages": [USER]})


def test_tools_gain_strict_and_server_tools_vanish() -> None:
    tools = [
        {"name": "f", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}},
        {"name": "web_search", "type": "web_search_20250305"},
    ]
    function = {"name": "f", "description": "", "parameters": SCHEMA, "strict": False}
    expected = chat({"messages": [USER], "tools": [{"type": "function", "function": function}]})
    assert messages({"messages": [USER], "tools": tools}) == expected
    assert messages(
        {"messages": [USER], "tools": tools, "tool_choice": {"type": "tool", "name": "f"}}
    ) == (expected)
    none = {"messages": [USER], "tools": tools, "tool_choice": {"type": "none"}}
    assert messages(none) == chat({"messages": [USER]})


def test_a_turn_with_tool_use_and_results() -> None:
    call = {"type": "tool_use", "id": "functions.f:0", "name": "f", "input": {"q": "é"}}
    result = {"type": "tool_result", "tool_use_id": "functions.f:0", "is_error": True}
    body = {
        "messages": [
            USER,
            {"role": "assistant", "content": [text("so"), call]},
            {
                "role": "user",
                "content": [
                    text("before"),
                    {**result, "content": [text("a"), text("b")]},
                    text("z"),
                ],
            },
        ]
    }
    function = {"name": "f", "arguments": '{"q": "\\u00e9"}'}
    expected = {
        "messages": [
            USER,
            {
                "role": "assistant",
                "content": "so",
                "tool_calls": [{"id": "functions.f:0", "function": function}],
            },
            {"role": "user", "content": "before"},
            {"role": "tool", "tool_call_id": "functions.f:0", "content": "a b"},
            {"role": "user", "content": "z"},
        ]
    }
    assert messages(body) == chat(expected)


def test_thinking_goes_into_the_content() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    body = {"messages": [USER, {"role": "assistant", "content": [thought, text("so")]}, USER]}
    assert "<think></think><think>hm\n</think>so<|im_end|>" in messages(body)


def test_disabled_thinking_closes_it() -> None:
    body = {"messages": [USER], "thinking": {"type": "disabled"}}
    assert messages(body).endswith("<think></think>")


def test_inline_system_messages_stay_or_are_hoisted() -> None:
    body = {"system": "s", "messages": [USER, {"role": "system", "content": " late "}]}
    kept = {"messages": [{"role": "system", "content": "s"}, USER]}
    kept["messages"].append({"role": "system", "content": " late "})
    assert messages(body) == chat(kept)
    hoisted = {"messages": [{"role": "system", "content": "s\nlate"}, USER]}
    assert messages(body, TemplateDefaults(hoist_inline_system=True)) == chat(hoisted)


@pytest.mark.parametrize(
    "body",
    [
        {"messages": []},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": [{"type": "document"}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "redacted_thinking"}]}]},
        {"messages": [USER], "tool_choice": {"type": "tool", "name": "f"}},
    ],
)
def test_bad_bodies_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(BadBodyError):
        messages(body)
