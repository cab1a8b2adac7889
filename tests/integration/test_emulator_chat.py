"""The emulated replica behind the official openai client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from openai import AsyncOpenAI

from replica.hardware.profiles import profile_named
from sim.live.emulator import EmulatedReplica, EmulatorOptions, start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


SYSTEM = {"role": "system", "content": "You are a careful engineer. " * 100}
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Works on one file. " * 20,
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
    for name in ("read_file", "write_file")
]


@pytest.fixture
async def replica() -> AsyncIterator[EmulatedReplica]:
    options = EmulatorOptions(facts=profile_named("b200-tp4-fp8"), time_scale=200.0)
    async with start(options) as replicas:
        yield replicas[0]


@pytest.fixture
async def client(replica: EmulatedReplica) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(
        base_url=f"{replica.url}/v1", api_key="none", max_retries=0, timeout=20
    ) as client:
        yield client


def ask(output_tokens: int, call: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"homeport_emulate": {"output_tokens": output_tokens, "tool_call": call}}


async def test_a_growing_conversation_is_cached_to_the_page(client: AsyncOpenAI) -> None:
    """Each turn finds the whole previous prompt and answer, tool calls included."""
    messages: list[Any] = [SYSTEM, {"role": "user", "content": "Start."}]
    before = 0
    for turn in range(5):
        call = {"name": "write_file", "arguments": {"path": f"ä{turn}.py", "n": turn}}
        done = await client.chat.completions.create(
            model="kimi-k2.6",
            messages=messages,
            tools=TOOLS,
            extra_body=ask(150 + turn, call if turn % 2 == 0 else None),
        )
        usage = done.usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens == before
        assert usage.completion_tokens == 150 + turn
        # The last token was never fed back, so it has no KV.
        before = (usage.prompt_tokens + usage.completion_tokens - 1) // 64 * 64
        assert before > 0
        messages.append(done.choices[0].message.model_dump(exclude_none=True))
        calls = done.choices[0].message.tool_calls or []
        assert len(calls) == (turn % 2 == 0)
        for made in calls:
            assert made.id == f"functions.write_file:{turn // 2}"
            messages.append({"role": "tool", "tool_call_id": made.id, "content": "done " * 30})
        messages.append({"role": "user", "content": f"Next, {turn}."})


async def test_a_stream_says_what_the_whole_answer_says(
    client: AsyncOpenAI, replica: EmulatedReplica
) -> None:
    arguments = {"path": "x", "text": "y" * 400}
    extra = ask(900, {"name": "write_file", "arguments": arguments})
    user: Any = [{"role": "user", "content": "Go."}]
    whole = await client.chat.completions.create(model="m", messages=user, extra_body=extra)
    assert replica.loads.running == 0
    stream = await client.chat.completions.create(
        model="m",
        messages=user,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=extra,
    )
    chunks = [chunk async for chunk in stream]

    assert len({chunk.id for chunk in chunks}) == 1
    assert len(chunks[0].id) == 32
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content == ""
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 900
    assert chunks[-2].choices[0].finish_reason == "tool_calls"
    choices = [chunk.choices[0] for chunk in chunks[:-1]]
    assert len(choices) > 4
    assert "".join(c.delta.content or "" for c in choices) == whole.choices[0].message.content
    calls = [call for choice in choices for call in choice.delta.tool_calls or ()]
    assert whole.choices[0].message.tool_calls is not None
    expected: Any = whole.choices[0].message.tool_calls[0]
    assert [call.id for call in calls if call.id] == [expected.id]
    text = "".join(call.function.arguments or "" for call in calls if call.function)
    assert text == expected.function.arguments
    assert json.loads(text) == arguments


async def test_shape_of_the_raw_stream(replica: EmulatedReplica) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 20}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{replica.url}/v1/chat/completions", json=body) as response,
    ):
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        events = (await response.text()).split("\n\n")

    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert chunks[0]["choices"][0]["delta"] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": None,
    }
    assert chunks[-1]["choices"][0]["delta"] == {"reasoning_content": None}
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    keys = {"index", "delta", "logprobs", "finish_reason", "matched_stop"}
    assert all(set(chunk["choices"][0]) == keys for chunk in chunks)
    assert all("usage" not in chunk for chunk in chunks)


async def test_a_salt_isolates_the_cache(client: AsyncOpenAI) -> None:
    async def cached(**more: object) -> int | None:
        done = await client.chat.completions.create(
            model="m",
            messages=[SYSTEM, {"role": "user", "content": "x"}],  # type: ignore[list-item]
            extra_body=ask(5) | more,
        )
        assert done.usage is not None
        assert done.usage.prompt_tokens_details is not None
        return done.usage.prompt_tokens_details.cached_tokens

    assert await cached() == 0
    assert await cached() != 0
    assert await cached(cache_salt="tenant") == 0


async def test_tokenize_counts_what_the_completion_reports(
    client: AsyncOpenAI, replica: EmulatedReplica
) -> None:
    messages: Any = [SYSTEM, {"role": "user", "content": "Grüße, 世界"}]
    done = await client.chat.completions.create(
        model="m", messages=messages, tools=TOOLS, extra_body=ask(5)
    )
    body = {"model": "m", "messages": messages, "tools": TOOLS}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{replica.url}/v1/tokenize", json=body) as response,
    ):
        answer = await response.json()

    assert done.usage is not None
    assert answer["count"] == len(answer["tokens"]) == done.usage.prompt_tokens
    assert answer["max_model_len"] == 262_144


async def test_models_are_listed(client: AsyncOpenAI) -> None:
    listed = [model.id async for model in client.models.list()]
    assert listed == ["kimi-k2.6"]
