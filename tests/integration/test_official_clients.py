"""The official clients through the router, unchanged: sync, async, streamed, with tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anthropic
import httpx2
import openai
import pytest

from tests.doubles.processes import Stack, stack

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL = "kimi-k2.6"
CHAT_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read",
            "description": "Read a file.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
        },
    }
]
MESSAGES_TOOLS = [
    {
        "name": "read",
        "description": "Read a file.",
        "input_schema": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
        },
    }
]
CALLS_READ = {
    "homeport_emulate": {
        "output_tokens": 60,
        "tool_call": {"name": "read", "arguments": {"path": "src/app.py"}},
    }
}
TEXT = "Fix the failing parser test in the repository. " * 40


@pytest.fixture(scope="module")
def fleet() -> Iterator[Stack]:
    with stack(2) as started:
        yield started


@pytest.fixture
def chat(fleet: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{fleet.router.url}/v1", api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture
def messages(fleet: Stack) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=fleet.router.url, auth_token="any", max_retries=0) as client:
        yield client


def test_chat_whole_answer(chat: openai.OpenAI) -> None:
    answer = chat.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": TEXT}], max_tokens=32
    )
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 32


@pytest.mark.parametrize("asks", [True, False])
def test_chat_stream_has_usage_exactly_when_asked(chat: openai.OpenAI, *, asks: bool) -> None:
    more = {"stream_options": {"include_usage": True}} if asks else {}
    stream = chat.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": TEXT}],
        max_tokens=64,
        stream=True,
        **more,
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert chunks[-1].choices == [] if asks else chunks[-1].choices[0].finish_reason == "length"
    assert sum(chunk.usage is not None for chunk in chunks) == int(asks)


def test_chat_tool_loop_is_cached_at_home(chat: openai.OpenAI, fleet: Stack) -> None:
    history: list[dict[str, object]] = [
        {"role": "system", "content": "You are a terminal agent. " * 60},
        {"role": "user", "content": TEXT},
    ]
    homes, cached = set(), []
    for _ in range(4):
        raw = chat.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=history,
            tools=CHAT_TOOLS,
            max_tokens=200,
            extra_body=CALLS_READ,
            extra_headers={"x-session-affinity": "ses_loop"},
        )
        homes.add(raw.headers["x-homeport-replica"])
        answer = raw.parse()
        call = answer.choices[0].message.tool_calls[0]
        assert call.function.name == "read"
        assert json.loads(call.function.arguments) == {"path": "src/app.py"}
        cached.append(answer.usage.prompt_tokens_details.cached_tokens)
        history.append(answer.choices[0].message.model_dump(exclude_none=True))
        history.append({"role": "tool", "tool_call_id": call.id, "content": "x = 1\n" * 80})
    assert len(homes) == 1
    assert cached[0] == 0
    assert cached[1] > 700
    assert cached == sorted(cached)
    view = httpx2.get(f"{fleet.router.admin_url}/sessions/ses_loop").json()
    assert view["source"] == "header"
    assert {view["home"]} == homes
    last = view["decisions"][-1]
    assert last["reported_cached_tokens"] == cached[-1]
    assert abs(last["predicted_cached_tokens"] - cached[-1]) <= 128
    assert last["prices"][view["home"]]["prefill_s"] < 0.1


def test_messages_whole_and_streamed(messages: anthropic.Anthropic) -> None:
    body = {
        "model": MODEL,
        "max_tokens": 48,
        "system": "You are a terminal agent.",
        "messages": [{"role": "user", "content": TEXT}],
    }
    whole = messages.messages.create(**body)
    assert [block.type for block in whole.content] == ["thinking", "text"]
    with messages.messages.stream(**body) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert [text] == [block.text for block in final.content if block.type == "text"]
    assert final.usage.output_tokens == 48
    assert final.usage.cache_read_input_tokens > 0


def test_messages_tool_loop_is_cached_at_home(messages: anthropic.Anthropic) -> None:
    history: list[dict[str, object]] = [{"role": "user", "content": TEXT}]
    billing = "x-anthropic-billing-header: cc_version=2.1.99.a1b; cc_entrypoint=cli; cch={:05x};"
    cached = []
    for turn in range(3):
        answer = messages.messages.create(
            model=MODEL,
            max_tokens=200,
            system=[
                {"type": "text", "text": billing.format(turn * 7919)},
                {"type": "text", "text": "You are a terminal agent. " * 60},
            ],
            tools=MESSAGES_TOOLS,
            messages=history,
            extra_body=CALLS_READ,
            extra_headers={"x-claude-code-session-id": "11111111-2222-3333-4444-555555555555"},
        )
        used = next(block for block in answer.content if block.type == "tool_use")
        assert used.input == {"path": "src/app.py"}
        cached.append(answer.usage.cache_read_input_tokens)
        history.append({"role": "assistant", "content": answer.model_dump()["content"]})
        result = {"type": "tool_result", "tool_use_id": used.id, "content": "x = 1\n" * 80}
        history.append({"role": "user", "content": [result]})
    assert cached[1] > 700
    assert cached[2] > cached[1]


async def test_async_clients(fleet: Stack) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{fleet.router.url}/v1", api_key="any", max_retries=0
    ) as chat:
        stream = await chat.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": TEXT}], max_tokens=40, stream=True
        )
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert [model.id async for model in chat.models.list()] == [MODEL]
    async with (
        anthropic.AsyncAnthropic(
            base_url=fleet.router.url, auth_token="any", max_retries=0
        ) as messages,
        messages.messages.stream(
            model=MODEL, max_tokens=40, messages=[{"role": "user", "content": TEXT}]
        ) as stream,
    ):
        assert "".join([text async for text in stream.text_stream])


def test_errors_reach_the_clients_as_their_own_exceptions(
    chat: openai.OpenAI, messages: anthropic.Anthropic
) -> None:
    with pytest.raises(openai.BadRequestError):
        chat.chat.completions.create(model=MODEL, messages=[])
    with pytest.raises(openai.NotFoundError) as missing:
        chat.images.generate(model=MODEL, prompt="x")
    assert missing.value.code == "unknown-path"
    with pytest.raises(anthropic.BadRequestError):
        messages.messages.create(
            model=MODEL,
            max_tokens=300_000,
            messages=[{"role": "user", "content": "x"}],
            timeout=30,
        )
