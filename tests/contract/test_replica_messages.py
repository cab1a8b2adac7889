"""Messages of the Anthropic dialect: the order of events, their keys, and the usage in pieces."""

from __future__ import annotations

import random
import re
import string
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.engines import MODEL
from tests.doubles.replica_calls import new_text, session
from tests.doubles.replica_streams import MESSAGES, message_events, one_of_few

if TYPE_CHECKING:
    import aiohttp

    from tests.doubles.engines import Member

DICE = random.Random()  # a replica that outlives the run knows what it was told before
KEYS = {"id", "type", "role", "content", "model", "usage"}
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "enum": ["a.py"]}},
    "required": ["path"],
    "additionalProperties": False,
}
CALLS_READ: dict[str, Any] = {
    "tools": [{"name": "read", "description": "Read.", "input_schema": SCHEMA, "strict": True}],
    "tool_choice": {"type": "tool", "name": "read"},
    "max_tokens": 4000,
    "thinking": {"type": "disabled"},
    "homeport_emulate": {
        "output_tokens": 90,
        "tool_call": {"name": "read", "arguments": {"path": "a.py"}},
    },
}
# Most letters end what a random model says; an emulated one ends of itself.
ENDS_SOON: dict[str, Any] = {
    "stop_sequences": [*string.ascii_lowercase, " "],
    "homeport_emulate": {"output_tokens": 30, "reasoning_tokens": 10},
}


def body_of(text: str = "Say something.", **more: object) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": MODEL, "messages": messages, "max_tokens": 30, **more}


async def whole(http: aiohttp.ClientSession, body: dict[str, Any]) -> dict[str, Any]:
    async with http.post(MESSAGES, json=body) as response:
        assert response.status == 200, await response.text()
        answer: dict[str, Any] = await response.json()
        return answer


def check_start(event: dict[str, Any]) -> dict[str, Any]:
    """The first event; answers its usage."""
    assert set(event) == {"type", "message"}
    message = event["message"]
    assert event["type"] == "message_start"
    assert set(message) == KEYS
    assert re.fullmatch(r"msg_[0-9a-f]{32}", message["id"])
    assert message["type"] == "message"
    assert (message["role"], message["content"], message["model"]) == ("assistant", [], MODEL)
    usage: dict[str, Any] = message["usage"]
    assert usage["output_tokens"] == 0
    return usage


def check_blocks(events: list[dict[str, Any]]) -> list[str]:
    """The events between the first and the two last ones; answers the kinds of the blocks."""
    deltas = {
        "thinking": ("thinking_delta", "thinking"),
        "text": ("text_delta", "text"),
        "tool_use": ("input_json_delta", "partial_json"),
    }
    kinds: list[str] = []
    is_open = False
    for event in events:
        if event["type"] == "content_block_start":
            assert not is_open
            is_open = True
            assert set(event) == {"type", "index", "content_block"}
            block = event["content_block"]
            kinds.append(block["type"])
            empty = {"id": block.get("id"), "name": block.get("name"), "input": {}}
            if block["type"] != "tool_use":
                empty = {block["type"]: ""}
            assert block == {"type": block["type"], **empty}
        assert is_open
        assert event["index"] == len(kinds) - 1
        if event["type"] == "content_block_delta":
            assert set(event) == {"type", "index", "delta"}
            kind, key = deltas[kinds[-1]]
            assert set(event["delta"]) == {"type", key}
            assert event["delta"]["type"] == kind
            assert event["delta"][key]
        elif event["type"] == "content_block_stop":
            assert set(event) == {"type", "index"}
            is_open = False
    assert not is_open
    return kinds


def check_end(events: list[dict[str, Any]]) -> tuple[str, int]:
    """The two last events; answers the reason of the end and the output tokens."""
    delta, stop = events
    assert set(delta) == {"type", "delta", "usage"}
    assert delta["type"] == "message_delta"
    assert set(delta["delta"]) == {"stop_reason"}
    assert set(delta["usage"]) == {"output_tokens"}
    assert stop == {"type": "message_stop"}
    return delta["delta"]["stop_reason"], delta["usage"]["output_tokens"]


@pytest.mark.parametrize("thinking", [None, "disabled"])
async def test_a_stream_from_its_start_to_its_stop(plain: Member, thinking: str | None) -> None:
    switch: dict[str, Any] = {} if thinking is None else {"thinking": {"type": thinking}}
    async with session(plain) as http:
        cut = await message_events(http, body_of(temperature=0, **switch))
        ended = await message_events(http, body_of(**switch, **ENDS_SOON))
    for events in (cut, ended):
        check_start(events[0])
        kinds = check_blocks(events[1:-2])
        assert kinds == sorted(set(kinds), reverse=True)  # thinking, then text
        assert thinking is None or kinds in (["text"], [])
    reason, output_tokens = check_end(ended[-2:])
    assert reason == "end_turn"
    assert output_tokens <= 30
    reason, output_tokens = check_end(cut[-2:])
    assert reason == ("max_tokens" if output_tokens == 30 else "end_turn")  # by chance


async def test_the_prompt_is_counted_at_the_start_and_the_output_at_the_end(plain: Member) -> None:
    """Cached tokens are named only where there are some; input tokens leave them out."""
    async with session(plain) as http:
        body = body_of(new_text(DICE, n_bytes=4000), max_tokens=8)
        async with http.post("/v1/messages/count_tokens", json=body) as response:
            n_tokens = (await response.json())["input_tokens"]
        cached = (n_tokens - 1) // 64 * 64
        first = await message_events(http, body)
        again = await message_events(http, body)
        answer = await whole(http, body)

    assert check_start(first[0]) == {"input_tokens": n_tokens, "output_tokens": 0}
    warm = {"input_tokens": n_tokens - cached, "cache_read_input_tokens": cached}
    assert check_start(again[0]) == {**warm, "output_tokens": 0}
    assert 1 <= check_end(again[-2:])[1] <= 8
    assert answer["usage"] == {**warm, "output_tokens": answer["usage"]["output_tokens"]}


async def test_a_whole_answer(plain: Member) -> None:
    async with session(plain) as http:
        thought = await whole(http, body_of(temperature=0))
        spoken = await whole(http, body_of(temperature=0, thinking={"type": "disabled"}))
    for answer in (thought, spoken):
        assert set(answer) == {*KEYS, "stop_reason"}
        assert re.fullmatch(r"msg_[0-9a-f]{32}", answer["id"])
        assert (answer["type"], answer["role"], answer["model"]) == ("message", "assistant", MODEL)
        assert answer["stop_reason"] in {"max_tokens", "end_turn"}
        assert set(answer["usage"]) == {"input_tokens", "output_tokens"}
    assert thought["content"][0]["type"] == "thinking"
    assert all(set(block) == {"type", block["type"]} for block in thought["content"])
    [block] = spoken["content"]
    assert block == {"type": "text", "text": block["text"]}


async def test_a_tool_use_as_a_whole_and_streamed(plain: Member) -> None:
    async with session(plain) as http:
        body = body_of(**CALLS_READ)
        answer = await one_of_few(
            lambda: whole(http, body), lambda answer: answer["stop_reason"] == "tool_use"
        )
        events = await one_of_few(
            lambda: message_events(http, body),
            lambda events: events[-2]["delta"] == {"stop_reason": "tool_use"},
        )
    use = next(block for block in answer["content"] if block["type"] == "tool_use")
    assert set(use) == {"type", "id", "name", "input"}
    assert (use["type"], use["id"], use["name"]) == ("tool_use", "functions.read:0", "read")
    assert use["input"] == {"path": "a.py"}
    check_start(events[0])
    assert "tool_use" in check_blocks(events[1:-2])
    blocks = [event["content_block"] for event in events if "content_block" in event]
    named = {"id": "functions.read:0", "name": "read", "input": {}}
    assert {"type": "tool_use", **named} in blocks
    check_end(events[-2:])
