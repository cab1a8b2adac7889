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


def test_tools_keep_strict_and_defer_loading_and_schemas_have_a_type() -> None:
    tool = {"name": "f", "input_schema": {"title": "F"}, "strict": True, "defer_loading": True}
    parameters = {"title": "F", "type": "object"}
    function = {"name": "f", "description": "", "parameters": parameters, "strict": True}
    declared = {"type": "function", "function": function, "defer_loading": True}
    assert messages({"messages": [USER], "tools": [tool]}) == chat(
        {"messages": [USER], "tools": [declared]}
    )


def test_references_to_tools_have_messages_of_their_own() -> None:
    content = [text("a"), text(""), {"type": "tool_reference", "tool_name": "f"}, text("b")]
    result = {"type": "tool_result", "id": "c", "content": content}
    results = [
        {"role": "tool", "tool_call_id": "c", "content": each}
        for each in ("a", [{"type": "tool_reference", "name": "f"}], "b")
    ]
    assert messages({"messages": [USER, {"role": "user", "content": [result]}]}) == chat(
        {"messages": [USER, *results]}
    )


def test_blank_blocks_count_and_empty_ones_do_not() -> None:
    blank = {"role": "system", "content": " "}
    assert messages({"system": [text(""), text(" ")], "messages": [USER]}) == chat(
        {"messages": [blank, USER]}
    )
    silent = [{"role": "user", "content": []}, {"role": "system", "content": []}]
    assert messages({"messages": [USER, *silent]}) == chat(
        {"messages": [USER, {"role": "system", "content": ""}]}
    )


def test_one_text_at_the_end_is_a_users() -> None:
    body = {"messages": [USER, {"role": "assistant", "content": [text("yes")]}]}
    thought = {"type": "thinking", "thinking": "hm"}
    assert messages(body) == chat({"messages": [USER, {"role": "user", "content": "yes"}]})
    body["messages"][1]["content"].insert(0, thought)  # type: ignore[index,union-attr]
    assert "<think></think><think>hm\n</think>yes<|im_end|>" in messages(body)


def test_images_are_those_of_the_other_api() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    content = [{"type": "image", "source": source}, {"type": "image", "source": None}]
    assert messages({"messages": [{"role": "user", "content": content}]}) == chat(
        {"messages": [{"role": "user", "content": [url]}]}
    )


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
    late = [text(" late "), text(" ")]
    in_blocks = {"system": "s", "messages": [USER, {"role": "system", "content": late}]}
    assert messages(in_blocks, TemplateDefaults(hoist_inline_system=True)) == messages(
        body, TemplateDefaults(hoist_inline_system=True)
    )
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
        {"messages": [USER], "tools": [{"name": "f"}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"messages": [{"role": "user", "content": []}]},
    ],
)
def test_bad_bodies_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(BadBodyError):
        messages(body)
