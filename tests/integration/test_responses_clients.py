"""`/v1/responses` through the router: the official client, and sessions as Codex has them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx2
import openai
import pytest

from tests.doubles.processes import Stack, stack

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL = "kimi-k2.6"
TEXT = "Fix the failing parser test in the repository. " * 40
SHELL: dict[str, Any] = {
    "type": "function",
    "name": "shell",
    "description": "Run a command.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"command": {"type": "array", "items": {"type": "string"}}},
        "required": ["command"],
    },
}
PATCH: dict[str, Any] = {"type": "custom", "name": "apply_patch", "description": "Change files."}
CALLS_SHELL = {
    "homeport_emulate": {
        "output_tokens": 80,
        "reasoning_tokens": 20,
        "tool_call": {"name": "shell", "arguments": {"command": ["pytest", "-x"]}},
    }
}
PAGE_TOKENS = 64


@pytest.fixture(scope="module")
def fleet() -> Iterator[Stack]:
    with stack(3, replica_flags=("--enable-response-store",), time_scale=50.0) as started:
        yield started


@pytest.fixture
def client(fleet: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{fleet.router.url}/v1", api_key="any", max_retries=0) as made:
        yield made


def test_a_whole_response(client: openai.OpenAI) -> None:
    answer = client.responses.create(model=MODEL, input=TEXT, max_output_tokens=34)
    assert answer.status == "incomplete"
    assert answer.output
    assert answer.usage is not None
    assert answer.usage.output_tokens == 32


def test_a_stream(client: openai.OpenAI) -> None:
    stream = client.responses.create(model=MODEL, input=TEXT, stream=True)
    events = list(stream)
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    final = events[-1]
    assert final.type == "response.completed"
    assert final.response.output_text == text
    assert text
    assert final.response.usage is not None
    assert final.response.usage.input_tokens_details.cached_tokens > 0  # it was asked before


def test_the_helper_that_follows_a_stream(client: openai.OpenAI) -> None:
    with client.responses.stream(model=MODEL, input=TEXT, instructions="Be brief.") as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text


def test_a_custom_tool(client: openai.OpenAI) -> None:
    asked = {
        "output_tokens": 60,
        "tool_call": {"name": "apply_patch", "arguments": {"input": "*** Begin"}},
    }
    events = list(
        client.responses.create(
            model=MODEL,
            input=TEXT,
            tools=[PATCH],
            stream=True,
            extra_body={"homeport_emulate": asked},
        )
    )
    called = events[-1].response.output[-1]
    assert (called.type, called.name, called.input) == (
        "custom_tool_call",
        "apply_patch",
        "*** Begin",
    )


def test_a_kept_response_is_shown_cancelled_and_gone_on_from(client: openai.OpenAI) -> None:
    """Over three replicas: only one of them has it."""
    for _ in range(6):
        first = client.responses.create(model=MODEL, input=TEXT, store=True, max_output_tokens=30)
        assert client.responses.retrieve(first.id).output_text == first.output_text
        second = client.responses.create(
            model=MODEL, input="Go on.", previous_response_id=first.id, max_output_tokens=30
        )
        assert second.previous_response_id == first.id
        assert second.usage is not None
        assert first.usage is not None
        assert second.usage.input_tokens > first.usage.input_tokens
    running = client.responses.create(model=MODEL, input=TEXT, background=True)
    assert running.status == "queued"
    assert client.responses.cancel(running.id).status == "cancelled"
    assert client.responses.retrieve(running.id).status == "cancelled"


def test_what_is_unknown_is_the_clients_own_exception(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.responses.retrieve("resp_unknown")
    assert missing.value.code == "unknown-response"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model=MODEL, input="x", previous_response_id="resp_unknown")
    with pytest.raises(openai.NotFoundError) as other:
        client.responses.create(model="another", input="x")
    assert "another" in str(other.value)
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model=MODEL, input=[{"type": "invented"}])  # type: ignore[list-item]


async def test_the_async_client(fleet: Stack) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{fleet.router.url}/v1", api_key="any", max_retries=0
    ) as client:
        stream = await client.responses.create(model=MODEL, input=TEXT, stream=True)
        assert [event.type async for event in stream][-1] == "response.completed"


class Codex:
    """One conversation: the whole history is sent each turn, nothing is kept by the server."""

    def __init__(self, client: openai.OpenAI, number: int) -> None:
        self._client = client
        self._id = f"0196f0a0-0000-7000-8000-{number:012x}"
        self.homes: set[str] = set()
        self.hits: list[tuple[int, int, int]] = []
        """Prompt tokens, cached tokens, and cached tokens at most: what was sent before, in pages."""

        self._items: list[dict[str, Any]] = [
            _said("developer", "Sandbox: workspace-write."),
            _said("user", f"<environment_context>cwd: /src/{number}</environment_context>"),
            _said("user", f"{number} {TEXT}"),
        ]

    def turn(self) -> None:
        raw = self._client.responses.with_raw_response.create(
            model=MODEL,
            instructions="You are a coding agent in a terminal. " * 60,
            input=self._items,  # type: ignore[arg-type]
            tools=[SHELL, PATCH],  # type: ignore[list-item]
            tool_choice="auto",
            parallel_tool_calls=False,
            reasoning={"effort": "medium", "summary": "auto"},
            store=False,
            stream=True,
            include=["reasoning.encrypted_content"],
            prompt_cache_key=self._id,
            extra_headers={
                "session-id": self._id,
                "thread-id": self._id,
                "x-client-request-id": self._id,
                "x-codex-window-id": f"{self._id}:0",
                "originator": "codex_cli_rs",
            },
            extra_body={**CALLS_SHELL, "client_metadata": {"x-codex-window-id": f"{self._id}:0"}},
        )
        self.homes.add(raw.headers["x-homeport-replica"])
        final = list(raw.parse())[-1].response
        before = self.hits[-1][0] if self.hits else 0
        usage = final.usage
        assert usage is not None
        cached = usage.input_tokens_details.cached_tokens
        self.hits.append((usage.input_tokens, cached, before // PAGE_TOKENS * PAGE_TOKENS))
        for item in final.output:
            sent = item.model_dump(exclude_none=True)
            for name in ("id", "status", "phase"):  # what Codex does not send back
                sent.pop(name, None)
            if item.type == "reasoning":
                sent.pop("content", None)
            self._items.append(sent)
        called = final.output[-1]
        assert called.type == "function_call"
        assert json.loads(called.arguments) == {"command": ["pytest", "-x"]}
        result = {
            "type": "function_call_output",
            "call_id": called.call_id,
            "output": "1 failed\n" * 80,
        }
        self._items.append(result)


def _said(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def test_sessions_of_codex_find_all_of_their_past_at_home(
    client: openai.OpenAI, fleet: Stack
) -> None:
    sessions = [Codex(client, number) for number in range(6)]
    for _ in range(4):
        for session in sessions:
            session.turn()
    for session in sessions:
        assert len(session.homes) == 1
        for _, cached, at_most in session.hits[1:]:
            assert cached >= at_most - PAGE_TOKENS  # the past is cached but for its last page
    homes = [next(iter(session.homes)) for session in sessions]
    assert {homes.count(home) for home in set(homes)} == {2}  # and they are spread

    view = httpx2.get(f"{fleet.router.admin_url}/sessions/{sessions[0]._id}").json()
    assert view["source"] == "header"
    last = view["decisions"][-1]
    assert last["reported_cached_tokens"] == sessions[0].hits[-1][1]
    assert abs(last["predicted_cached_tokens"] - sessions[0].hits[-1][1]) <= 2 * PAGE_TOKENS
