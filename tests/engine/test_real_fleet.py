"""The router in front of real replicas, as its clients see it: SDKs, usage, leaving, a full replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import anthropic
import openai
import pytest

from tests.doubles.engines import FLEET, MODEL, Member
from tests.doubles.processes import Running, running
from tests.doubles.replica_calls import CHAT, chat_body, is_idle, load_when, session
from tests.doubles.replica_streams import MESSAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

TEXT = "The build of the parser fails since this morning; find out why and say what you ran. " * 30
TOOL: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
}


@pytest.fixture(scope="module")
def fleet(engines: dict[str, Member]) -> list[Member]:
    """The replicas behind the router."""
    return [engines[role.name] for role in FLEET]


@pytest.fixture(scope="module")
def door(fleet: list[Member]) -> Iterator[Running]:
    """A router in front of three real replicas."""
    named = [word for member in fleet for word in ("--replica", member.url)]
    with running("serve", "--port", "0", "--admin-port", "0", *named) as router:
        yield router


@pytest.mark.parametrize("asks", [True, False])
def test_openai_client(door: Running, *, asks: bool) -> None:
    more: dict[str, Any] = {"stream_options": {"include_usage": True}} if asks else {}
    with openai.OpenAI(base_url=f"{door.url}/v1", api_key="any", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == [MODEL]
        chunks = list(
            client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": TEXT}],
                tools=[{"type": "function", "function": {"name": "read", "parameters": TOOL}}],
                max_tokens=24,
                stream=True,
                **more,
            )
        )
        whole = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": TEXT}], max_tokens=24
        )
    finishes = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert finishes[-1] in ("length", "stop")
    # Asked for by the router where the client did not, and taken out again.
    assert sum(chunk.usage is not None for chunk in chunks) == int(asks)
    assert whole.usage is not None
    assert whole.usage.prompt_tokens > 500


def test_anthropic_client(door: Running) -> None:
    history: list[Any] = [{"role": "user", "content": TEXT}]
    cached = []
    with anthropic.Anthropic(base_url=door.url, auth_token="any", max_retries=0) as client:
        for turn in range(3):
            with client.messages.stream(
                model=MODEL,
                max_tokens=24,
                system=[
                    {"type": "text", "text": f"x-anthropic-billing-header: cch={turn:05x};"},
                    {"type": "text", "text": "You are a terminal agent. " * 40},
                ],
                tools=[{"name": "read", "description": "Read a file.", "input_schema": TOOL}],
                messages=history,
                extra_headers={"x-claude-code-session-id": "7ffb1c1a-4b6e-4e0b-9d43-8b6cf1e6a001"},
            ) as stream:
                final = stream.get_final_message()
            assert final.usage.output_tokens <= 24
            cached.append(final.usage.cache_read_input_tokens or 0)
            history.append({"role": "assistant", "content": final.model_dump()["content"]})
            history.append({"role": "user", "content": f"Go on with step {turn}. " * 20})
    assert cached[1] > 500
    assert cached[2] > cached[1]


async def test_a_client_that_leaves_frees_the_engine(door: Running, fleet: list[Member]) -> None:
    body = chat_body(TEXT, output_tokens=4_000, stream=True)
    async with aiohttp.ClientSession(door.url) as client:
        async with client.post(CHAT, json=body) as answer:
            assert answer.status == 200
            await answer.content.readline()
            [home] = [
                member
                for member in fleet
                if member.url.endswith(answer.headers["x-homeport-replica"])
            ]
            async with session(home) as http:
                await load_when(http, lambda load: load["num_running_reqs"] > 0)
        async with session(home) as http:
            await load_when(http, is_idle)


async def test_a_refusal_is_told_as_a_status_on_both_apis(door: Running) -> None:
    """Real SGLang streams it on messages, behind a start of the message."""
    too_long = {**chat_body("x"), "max_tokens": 10**6, "stream": True}
    async with aiohttp.ClientSession(door.url) as client:
        for path in (CHAT, MESSAGES):
            async with client.post(path, json=too_long) as answer:
                text = await answer.text()
                assert answer.status == 400, text
                assert answer.headers["content-type"].startswith("application/json")
