"""The emulated replica behind the official anthropic client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from anthropic import AsyncAnthropic

from replica.hardware.profiles import profile_named
from sim.live.emulator import EmulatedReplica, EmulatorOptions, start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


SYSTEM: Any = [{"type": "text", "text": "You are a careful engineer. " * 100}]
TOOLS: Any = [
    {
        "name": name,
        "description": "Works on one file. " * 20,
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }
    for name in ("Read", "Write")
]


@pytest.fixture
async def replica() -> AsyncIterator[EmulatedReplica]:
    options = EmulatorOptions(facts=profile_named("b200-tp4-fp8"), time_scale=200.0)
    async with start(options) as replicas:
        yield replicas[0]


@pytest.fixture
async def client(replica: EmulatedReplica) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(
        base_url=replica.url, api_key="none", max_retries=0, timeout=20
    ) as client:
        yield client


def ask(output_tokens: int, call: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"homeport_emulate": {"output_tokens": output_tokens, "tool_call": call}}


async def test_a_growing_conversation_is_cached_to_the_page(client: AsyncAnthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": "Start."}]
    before = 0
    for turn in range(5):
        call = {"name": "Write", "arguments": {"path": f"ä{turn}.py", "n": 1.5}}
        async with client.messages.stream(
            model="kimi-k2.6",
            max_tokens=2000,
            system=SYSTEM,
            tools=TOOLS,
            messages=messages,
            extra_body=ask(150 + turn, call if turn % 2 == 0 else None),
        ) as stream:
            done = await stream.get_final_message()
        usage = done.usage
        cached = usage.cache_read_input_tokens or 0  # left out where nothing was cached
        assert cached == before
        assert usage.output_tokens == 150 + turn
        prompt_tokens = usage.input_tokens + cached
        # The last token was never fed back, so it has no KV.
        before = (prompt_tokens + usage.output_tokens - 1) // 64 * 64
        assert before > 0
        content = [block.model_dump(exclude_none=True) for block in done.content]
        messages.append({"role": "assistant", "content": content})
        answer: list[Any] = [{"type": "text", "text": f"Next, {turn}."}]
        if turn % 2 == 0:
            assert done.stop_reason == "tool_use"
            made: Any = done.content[-1]
            assert made.input == call["arguments"]
            result = {"type": "tool_result", "tool_use_id": made.id, "content": "done " * 30}
            answer.insert(0, result)
        else:
            assert done.stop_reason == "end_turn"
        messages.append({"role": "user", "content": answer})


async def test_whole_and_streamed_answers_agree(client: AsyncAnthropic) -> None:
    extra = ask(600, {"name": "Write", "arguments": {"path": "x", "text": "y" * 400}})
    body: Any = {"model": "m", "max_tokens": 900, "messages": [{"role": "user", "content": "Go."}]}
    whole = await client.messages.create(**body, extra_body=extra)
    async with client.messages.stream(**body, extra_body=extra) as stream:
        streamed = await stream.get_final_message()

    assert [b.model_dump() for b in whole.content] == [b.model_dump() for b in streamed.content]
    assert whole.usage.output_tokens == streamed.usage.output_tokens == 600


async def test_order_of_the_raw_events(replica: EmulatedReplica) -> None:
    body = {
        "model": "m",
        "max_tokens": 900,
        "stream": True,
        "messages": [{"role": "user", "content": "x"}],
        **ask(300, {"name": "Write", "arguments": {"path": "x"}}),
    }
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{replica.url}/v1/messages", json=body) as response,
    ):
        text = await response.text()
    names = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        names.append(name.removeprefix("event: "))
        assert json.loads(data.removeprefix("data: "))["type"] == names[-1]

    once = [n for i, n in enumerate(names) if i == 0 or n != names[i - 1]]
    run = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert once == ["message_start", *run, *run, "message_delta", "message_stop"]


async def test_max_tokens_cuts_the_answer(client: AsyncAnthropic) -> None:
    done = await client.messages.create(
        model="m", max_tokens=10, messages=[{"role": "user", "content": "x"}]
    )
    assert done.stop_reason == "max_tokens"
    assert done.usage.output_tokens == 10


async def test_tokens_are_counted_as_they_are_billed(client: AsyncAnthropic) -> None:
    body: Any = {"model": "m", "system": SYSTEM, "tools": TOOLS}
    body["messages"] = [{"role": "user", "content": "x"}]
    counted = await client.messages.count_tokens(**body)
    done = await client.messages.create(**body, max_tokens=5)
    assert counted.input_tokens == done.usage.input_tokens
