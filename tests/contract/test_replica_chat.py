"""Chat completions: the shape of streams and whole answers, and the usage in them."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.engines import MODEL
from tests.doubles.replica_calls import chat_body, complete, session
from tests.doubles.replica_streams import chunks_of, one_of_few, plain_words, stops_at_once

if TYPE_CHECKING:
    from tests.doubles.engines import Member

HEAD_KEYS = {"id", "object", "created", "model", "choices"}
CHOICE_KEYS = {"index", "delta", "logprobs", "finish_reason", "matched_stop"}
USAGE_KEYS = {
    "prompt_tokens",
    "total_tokens",
    "completion_tokens",
    "prompt_tokens_details",
    "reasoning_tokens",
    "completion_tokens_details",
}
ROLE = {"reasoning_content": None, "role": "assistant", "content": ""}
OPTIONS: list[dict[str, bool] | None] = [
    None,
    {"include_usage": True},
    {"include_usage": True, "continuous_usage_stats": True},
    {"continuous_usage_stats": True},
]
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "enum": ["a.py"]}},
    "required": ["path"],
    "additionalProperties": False,
}
FUNCTION = {"name": "read", "description": "Read a file.", "parameters": SCHEMA, "strict": True}
CALLS_READ = {
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": {"type": "function", "function": {"name": "read"}},
    "max_tokens": 4000,
    "ignore_eos": False,
    "chat_template_kwargs": {"thinking": False},
    "homeport_emulate": {
        "output_tokens": 90,
        "tool_call": {"name": "read", "arguments": {"path": "a.py"}},
    },
}


def text_of(name: str) -> str:
    return f"{random.Random(name).getrandbits(64):016x} Say something."


def has_called(end: dict[str, Any]) -> bool:
    return bool(end["choices"][0]["finish_reason"] == "tool_calls")


def check_usage(usage: dict[str, Any]) -> None:
    assert set(usage) == USAGE_KEYS
    assert set(usage["prompt_tokens_details"]) == {"cached_tokens"}
    counts = [value for key, value in usage.items() if "details" not in key]
    counts.append(usage["prompt_tokens_details"]["cached_tokens"])
    assert all(type(count) is int for count in counts)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    thought = usage["reasoning_tokens"]
    assert usage["completion_tokens_details"] == (
        {"reasoning_tokens": thought} if thought else None
    )


def check_deltas(deltas: list[dict[str, Any]], *, thinks: bool) -> None:
    """Reasoning comes first, where there is any; each kind has keys of its own."""
    thoughts = [delta for delta in deltas if delta.get("reasoning_content")]
    assert bool(thoughts) is thinks
    assert deltas[: len(thoughts)] == thoughts
    assert all(set(delta) == {"reasoning_content"} for delta in thoughts)
    for delta in deltas[len(thoughts) :]:
        assert set(delta) == {"reasoning_content", "content"}
        assert delta["reasoning_content"] is None
        assert delta["content"]


@pytest.mark.parametrize("thinks", [True, False])
@pytest.mark.parametrize("options", OPTIONS)
async def test_a_stream_from_its_role_to_its_end(
    plain: Member, options: dict[str, bool] | None, *, thinks: bool
) -> None:
    asked = options or {}
    async with session(plain) as http:
        body = chat_body(text_of("stream"), output_tokens=40, **await plain_words(http))
        body["chat_template_kwargs"] = {"thinking": thinks}
        chunks = await chunks_of(
            http, body if options is None else {**body, "stream_options": asked}
        )

    assert re.fullmatch(r"[0-9a-f]{32}", chunks[0]["id"])
    for key, value in (("object", "chat.completion.chunk"), ("model", MODEL)):
        assert {chunk[key] for chunk in chunks} == {value}
    assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1

    if asked.get("include_usage"):
        last = chunks.pop()
        assert set(last) == {*HEAD_KEYS, "usage"}
        assert last["choices"] == []
        check_usage(last["usage"])
        assert last["usage"]["completion_tokens"] == 40
        assert bool(last["usage"]["reasoning_tokens"]) is thinks
    for chunk in chunks:
        assert len(chunk["choices"]) == 1
        assert set(chunk["choices"][0]) == CHOICE_KEYS
        assert (chunk["choices"][0]["index"], chunk["choices"][0]["logprobs"]) == (0, None)
    first, *middle, end = chunks
    assert (set(first), set(end)) == (HEAD_KEYS, HEAD_KEYS)
    assert first["choices"][0]["delta"] == ROLE
    assert end["choices"][0]["delta"] == {"reasoning_content": None}
    assert end["choices"][0]["finish_reason"] == "length"
    assert {chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]} == {None}
    assert {chunk["choices"][0]["matched_stop"] for chunk in chunks} == {None}

    assert 2 <= len(middle) <= 40
    if asked.get("continuous_usage_stats"):
        usages = [chunk.pop("usage") for chunk in middle]
        told = [usage["completion_tokens"] for usage in usages]
        assert told == sorted(told)
        for usage in usages:
            check_usage(usage)
    assert all(set(chunk) == HEAD_KEYS for chunk in middle)
    check_deltas([chunk["choices"][0]["delta"] for chunk in middle], thinks=thinks)


@pytest.mark.parametrize("thinks", [True, False])
async def test_a_whole_answer(plain: Member, *, thinks: bool) -> None:
    async with session(plain) as http:
        body = chat_body(text_of("whole"), output_tokens=40, **await plain_words(http))
        answer = await complete(http, {**body, "chat_template_kwargs": {"thinking": thinks}})

    assert set(answer) == {*HEAD_KEYS, "usage", "metadata"}
    assert re.fullmatch(r"[0-9a-f]{32}", answer["id"])
    assert (answer["object"], answer["model"]) == ("chat.completion", MODEL)
    [choice] = answer["choices"]
    assert set(choice) == {"index", "message", "logprobs", "finish_reason", "matched_stop"}
    assert (choice["finish_reason"], choice["matched_stop"]) == ("length", None)
    message = choice["message"]
    assert set(message) == {"role", "content", "reasoning_content"}
    assert bool(message["reasoning_content"]) is thinks
    assert thinks or message["reasoning_content"] is None
    assert message["content"] if not thinks else isinstance(message["content"], str)
    check_usage(answer["usage"])
    assert answer["usage"]["completion_tokens"] == 40
    assert 0 < answer["usage"]["reasoning_tokens"] <= 40 or not thinks
    version = {"version": "default", "start": 0, "end": 40}
    assert answer["metadata"] == {"weight_version": "default", "weight_versions": [version]}


async def test_an_answer_of_its_own_length_stops(plain: Member) -> None:
    """Nothing is said of its length; what ended it is named."""
    async with session(plain) as http:
        body = {"messages": [{"role": "user", "content": text_of("stop")}]}
        body.update(await stops_at_once(http))
        [choice] = (await complete(http, body))["choices"]
        *_, end, usage = await chunks_of(http, {**body, "stream_options": {"include_usage": True}})
    for stopped in (choice, end["choices"][0]):
        assert stopped["finish_reason"] == "stop"
        assert type(stopped["matched_stop"]) is int
    assert usage["usage"]["completion_tokens"] <= 20


async def test_a_tool_call_as_a_whole_and_streamed(plain: Member) -> None:
    async with session(plain) as http:
        body = {**chat_body(text_of("call")), **CALLS_READ}
        answer = await one_of_few(lambda: complete(http, body), has_called)
        silent = await one_of_few(lambda: chunks_of(http, body), lambda got: has_called(got[-1]))
        counting = {"include_usage": True, "continuous_usage_stats": True}
        counted = await one_of_few(
            lambda: chunks_of(http, {**body, "stream_options": counting}),
            lambda got: has_called(got[-2]),
        )

    [choice] = answer["choices"]
    assert choice["matched_stop"] is None
    message = choice["message"]
    assert set(message) == {"role", "content", "reasoning_content", "tool_calls"}
    call = message["tool_calls"][0]
    function = call.pop("function")
    assert call == {"id": "functions.read:0", "index": 0, "type": "function"}
    assert function["name"] == "read"
    assert type(function["arguments"]) is str

    for chunks in (silent, counted[:-1]):
        first, *middle, end = chunks
        assert first["choices"][0]["delta"] == ROLE
        assert end["choices"][0]["delta"] == {"reasoning_content": None}
        assert type(end["choices"][0]["matched_stop"]) is int
        calling = [chunk for chunk in middle if "tool_calls" in chunk["choices"][0]["delta"]]
        for chunk in calling:
            assert set(chunk) == {*HEAD_KEYS, "usage"}
            assert chunk["usage"] is None if chunks is silent else chunk["usage"]
            delta = chunk["choices"][0]["delta"]
            assert set(delta) == {"role", "content", "reasoning_content", "tool_calls"}
            assert (delta["role"], delta["content"], delta["reasoning_content"]) == (None,) * 3
            assert set(delta["tool_calls"][0]) == {"id", "index", "type", "function"}
        opening, *rest = [chunk["choices"][0]["delta"]["tool_calls"][0] for chunk in calling]
        assert opening == {**call, "function": {"name": "read", "arguments": ""}}
        assert all(part["function"]["arguments"] for part in rest)
        own = [part for part in rest if part["index"] == 0]
        assert {(part["id"], part["function"]["name"]) for part in own} == {(None, None)}
        text = "".join(part["function"]["arguments"] for part in own)
        assert text.replace(" ", "").replace("\n", "")[:1] == "{"


async def test_ids_and_models_are_echoed(plain: Member) -> None:
    async with session(plain) as http:
        body = chat_body(text_of("echo"), rid="an-id-of-my-own", model="nobody/knows")
        answer = await complete(http, body)
        assert (answer["id"], answer["model"]) == ("an-id-of-my-own", "nobody/knows")
        chunks = await chunks_of(http, body)
        assert {chunk["id"] for chunk in chunks} == {"an-id-of-my-own"}
        assert {chunk["model"] for chunk in chunks} == {"nobody/knows"}
        del body["model"]
        assert (await complete(http, body))["model"] == "default"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 9}, 9),
        ({"max_tokens": 7, "max_completion_tokens": 9}, 9),
        ({"max_tokens": 130}, 130),
    ],
)
async def test_limits_are_met_exactly(plain: Member, limits: dict[str, int], expected: int) -> None:
    async with session(plain) as http:
        messages = [{"role": "user", "content": text_of("limit")}]
        answer = await complete(http, {"messages": messages, "ignore_eos": True, **limits})
        ended = await complete(http, {"messages": messages, **limits})
    assert answer["usage"]["completion_tokens"] == expected
    assert answer["choices"][0]["finish_reason"] == "length"
    n_tokens = ended["usage"]["completion_tokens"]
    assert n_tokens <= expected
    assert n_tokens == expected or ended["choices"][0]["finish_reason"] == "stop"


async def test_a_priority_changes_nothing_without_priority_scheduling(plain: Member) -> None:
    async with session(plain) as http:
        for priority in (-3, 50):
            answer = await complete(http, chat_body(text_of("priority"), priority=priority))
            assert answer["usage"]["completion_tokens"] == 4
