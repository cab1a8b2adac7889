from __future__ import annotations

import json
from typing import Any

import pytest

from sim.live.rendering.bodies import (
    BadBodyError,
    ChatBody,
    TemplateDefaults,
    TokenizeBody,
    cache_key,
    chat_prompt,
    decode,
)
from sim.live.rendering.template import render

WEATHER = {"name": "weather", "parameters": {"z": 1, "a": 2}, "description": "today"}


def rendered(body: dict[str, Any]) -> str:
    read = decode(json.dumps(body).encode(), ChatBody)
    return render(chat_prompt(read, TemplateDefaults())).decode()


def talk(*messages: dict[str, Any], **more: object) -> str:
    return rendered({"messages": list(messages), **more})


USER = {"role": "user", "content": "hi"}
OPEN = "<|im_assistant|>assistant<|im_middle|><think>"


def test_parts_stand_in_the_templates_order() -> None:
    call = {"id": "functions.weather:0", "function": {"name": "weather", "arguments": '{"b": 1}'}}
    text = talk(
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "functions.weather:0", "content": "sun"},
        tools=[{"function": WEATHER, "type": "function"}],
    )

    assert text == (
        '<|im_system|>tool_declare<|im_middle|>[{"type":"function","function":{"name":"weather",'
        '"parameters":{"z":1,"a":2},"description":"today"},"defer_loading":null}]<|im_end|>'
        "<|im_system|>system<|im_middle|>be brief<|im_end|>"
        "<|im_user|>user<|im_middle|>ab<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|><think>hm</think><|tool_calls_section_begin|>"
        "<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
        '{"b": 1}<|tool_call_end|><|tool_calls_section_end|><|im_end|>'
        "<|im_system|>tool<|im_middle|>## Return of functions.weather:0\nsun<|im_end|>" + OPEN
    )


def test_tool_results_join_their_parts_by_one_blank() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert "## Return of x\na b<|im_end|>" in talk(
        USER, {"role": "tool", "tool_call_id": "x", "content": parts}
    )


def test_reasoning_vanishes_up_to_the_last_answer_without_calls() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": {}}}
    messages = (
        USER,
        {"role": "assistant", "content": "1", "reasoning_content": "old", "tool_calls": [call]},
        {"role": "assistant", "content": "2", "reasoning_content": "last"},
        USER,
        {"role": "assistant", "content": "3", "reasoning_content": "new", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    )

    text = talk(*messages)
    assert "<think></think>1" in text
    assert "<think></think>2" in text
    assert "<think>new</think>3" in text

    kept = talk(*messages, chat_template_kwargs={"preserve_thinking": True})
    assert "<think>old</think>1" in kept
    assert "<think>last</think>2" in kept


@pytest.mark.parametrize(
    "more", [{"chat_template_kwargs": {"thinking": False}}, {"reasoning_effort": "none"}]
)
def test_instant_mode_closes_the_thinking(more: dict[str, Any]) -> None:
    assert talk(USER, **more).endswith(OPEN + "</think>")


def test_tool_choice_selects_what_is_declared() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
    assert "tool_declare" not in talk(USER, tools=tools, tool_choice="none")
    named = {"type": "function", "function": {"name": "g"}}
    assert '[{"type":"function","function":{"name":"g",' in talk(
        USER, tools=tools, tool_choice=named
    )
    with pytest.raises(BadBodyError, match="'h'"):
        talk(USER, tools=tools, tool_choice={"function": {"name": "h"}})


def test_a_name_replaces_the_role_but_for_users() -> None:
    assert "<|im_system|>bob<|im_middle|>x" in talk(
        USER, {"role": "system", "name": "bob", "content": "x"}
    )
    assert talk({**USER, "name": "bob"}) == talk(USER)


def test_images_match_only_themselves() -> None:
    def image(url: str) -> str:
        return talk({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})

    assert image("data:a") == image("data:a") != image("data:b")


@pytest.mark.parametrize(
    ("first", "second", "is_equal"),
    [
        ({"content": "ab"}, {"content": [{"type": "text", "text": "ab"}]}, True),
        ({"content": None}, {"content": ""}, True),
        ({"content": "a", "cache_control": {"type": "ephemeral"}}, {"content": "a"}, True),
        ({"content": "a"}, {"content": "b"}, False),
    ],
)
def test_variations(first: dict[str, Any], second: dict[str, Any], *, is_equal: bool) -> None:
    assert (talk({"role": "user"} | first) == talk({"role": "user"} | second)) is is_equal


def test_order_inside_arguments_is_kept_and_blanks_are_not() -> None:
    def with_arguments(arguments: object) -> str:
        call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
        return talk(USER, {"role": "assistant", "tool_calls": [call]}, USER)

    assert with_arguments('{"a" :1, "b":2}') == with_arguments({"a": 1, "b": 2})
    assert with_arguments('{"a":1,"b":2}') != with_arguments('{"b":2,"a":1}')


def test_an_assistants_words_at_the_end_are_a_users_or_open_the_answer() -> None:
    last = {"role": "assistant", "content": "yes", "reasoning_content": "hm"}
    said = "<|im_end|><|im_user|>user<|im_middle|>yes<|im_end|>"

    assert talk(USER, last).endswith(said + OPEN)
    assert talk(USER, last, continue_final_message=True) == talk(USER) + "yes"
    assert talk(USER, last, add_generation_prompt=False).endswith("<think></think>yes<|im_end|>")
    parts = {**last, "content": [{"type": "text", "text": "yes"}]}
    assert talk(USER, parts).endswith("<think></think>yes<|im_end|>" + OPEN)


def test_tools_are_printed_with_the_keys_that_were_not_sent() -> None:
    def declared(**tool: object) -> str:
        text = talk(USER, tools=[{"type": "function", **tool}])
        return text.removeprefix("<|im_system|>tool_declare<|im_middle|>").partition("<|im_end|>")[
            0
        ]

    assert declared(function={"strict": None, "name": "f", "x": 1}) == (
        '[{"type":"function","function":{"name":"f","description":null,"parameters":null},'
        '"defer_loading":null}]'
    )
    assert declared(function={"name": "f", "strict": True}, defer_loading=False) == (
        '[{"type":"function","function":{"name":"f","strict":true,"description":null,'
        '"parameters":null,"defer_loading":false},"defer_loading":false}]'
    )


def test_numbers_are_printed_as_they_were_read() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": '{"a": 1e5, "b": [1.0, 1, 1e22]}'}}
    large = {"id": "d", "function": {"name": "f", "arguments": '{"a": 36893488147419103232}'}}
    text = talk(USER, {"role": "assistant", "tool_calls": [call, large]}, USER)
    assert '{"a": 100000.0, "b": [1.0, 1, 1e+22]}' in text
    assert '{"a": 3.6893488147419103e+19}' in text


def test_a_salt_and_an_extra_key_keep_caches_apart() -> None:
    def key(**more: object) -> str | None:
        return cache_key(decode(json.dumps({"messages": [USER], **more}).encode(), ChatBody))

    assert key() is None
    assert key(cache_salt="", extra_key=None) is None
    assert len({key(), key(cache_salt="a"), key(extra_key="a"), key(cache_salt="b")}) == 4


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"{}",
        b'{"messages": []}',
        b'{"messages": [{"content": "no role"}]}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": [{"type": "video"}]}]}',
        b'{"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "[]"}}]}]}',
        b'{"messages": ' + b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_bad_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(BadBodyError):
        render(chat_prompt(decode(body, ChatBody), TemplateDefaults()))


def test_tokenize_bodies_tell_text_from_messages() -> None:
    assert decode(b'{"prompt": "x"}', TokenizeBody).messages is None
    assert decode(b'{"messages": [1]}', TokenizeBody).messages is not None
