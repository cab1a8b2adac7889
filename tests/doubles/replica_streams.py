"""What contract tests ask of generations: prompts of an exact length, and streams taken apart."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tests.doubles.engines import MODEL
from tests.doubles.replica_calls import CHAT, chat_body, load_when

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    import aiohttp

_T = TypeVar("_T")

MESSAGES: Final = "/v1/messages"
PATHS: Final = (CHAT, MESSAGES)
MESSAGE: Final = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "x"}],
    "max_tokens": 4,
    "temperature": 0,  # a random model that says its likeliest word does not end by chance
}
ENDLESS: Final = 15_000  # output tokens: half a minute and more for either kind
PAD: Final = "~"  # one token, whatever stands beside it, or a quarter of one
_MARKERS: Final = (
    "<think></think><|im_end|><|im_user|><|im_assistant|><|im_system|><|im_middle|>"
    "<|tool_calls_section_begin|><|tool_call_begin|>"
)
_STOP: Final = "<|eos|>"
_TRIES_MAX: Final = 60
_ANSWERS_MAX: Final = 25


async def tokens_of(http: aiohttp.ClientSession, body: dict[str, Any]) -> list[int]:
    """The token ids of a chat's prompt."""
    async with http.post("/v1/tokenize", json=body) as response:
        assert response.status == 200, await response.text()
        ids: list[int] = (await response.json())["tokens"]
        return ids


async def _words(http: aiohttp.ClientSession, text: str) -> list[int]:
    return await tokens_of(http, {"model": MODEL, "prompt": text})


async def only(http: aiohttp.ClientSession, text: str) -> dict[str, Any]:
    """Fields of a chat that let a real model say this token and nothing else."""
    return {"logit_bias": {str(token): 100 for token in await _words(http, text)}}


async def stops_at_once(http: aiohttp.ClientSession) -> dict[str, Any]:
    """Fields of a chat that let any model end its answer soon."""
    return {**await only(http, _STOP), "homeport_emulate": {"output_tokens": 20}}


async def plain_words(http: aiohttp.ClientSession) -> dict[str, Any]:
    """Fields of a chat that keep a real model's noise free of markers."""
    return {"logit_bias": {str(token): -100 for token in await _words(http, _MARKERS)}}


async def text_of_tokens(http: aiohttp.ClientSession, start: str, n_tokens: int) -> str:
    """Text beginning with ``start`` whose chat has a prompt of exactly so many tokens."""
    text = start
    for _ in range(_TRIES_MAX):
        messages = [{"role": "user", "content": text}]
        missing = n_tokens - len(await tokens_of(http, {"model": MODEL, "messages": messages}))
        if not missing:
            return text
        assert missing > 0, f"{start[:20]!r} alone has {-missing} tokens too many"
        text += PAD * missing
    raise AssertionError(f"no text of {n_tokens} tokens was found")


def common_tokens(first: Iterable[int], second: Iterable[int]) -> int:
    """How many ids two prompts begin with alike."""
    n_common = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        n_common += 1
    return n_common


def events_of(text: str) -> list[tuple[str, Any]]:
    """The events of a stream: the name ("" without one) and the data, as JSON but for an end mark."""
    assert text.endswith("\n\n"), text[-200:]
    events = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        lines = block.split("\n")
        name = lines.pop(0).removeprefix("event: ") if block.startswith("event: ") else ""
        assert len(lines) == 1, block
        assert lines[0].startswith("data: "), block
        data = lines[0].removeprefix("data: ")
        events.append((name, data if data == "[DONE]" else json.loads(data)))
    return events


async def chunks_of(http: aiohttp.ClientSession, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks of a chat's stream, which has to begin with status 200 and to end in ``[DONE]``."""
    async with http.post(CHAT, json={**body, "stream": True}) as response:
        assert response.status == 200, await response.text()
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        events = events_of(await response.text())
    assert events.pop() == ("", "[DONE]")
    assert {name for name, _ in events} <= {""}
    return [data for _, data in events]


async def message_events(http: aiohttp.ClientSession, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a message's stream, each named by its own type."""
    async with http.post(MESSAGES, json={**body, "stream": True}) as response:
        assert response.status == 200, await response.text()
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        events = events_of(await response.text())
    assert all(name == data["type"] for name, data in events)
    return [data for _, data in events]


async def one_of_few(ask: Callable[[], Awaitable[_T]], is_wanted: Callable[[_T], bool]) -> _T:
    """The first wanted answer: a random model that has to call a tool fails to now and then."""
    for _ in range(_ANSWERS_MAX):
        answer = await ask()
        if is_wanted(answer):
            return answer
    raise AssertionError(f"none of {_ANSWERS_MAX} answers was as wanted")


async def read_event(response: aiohttp.ClientResponse) -> str:
    """The next event of an open stream, as text."""
    return (await response.content.readuntil(b"\n\n")).decode()


@asynccontextmanager
async def occupied(http: aiohttp.ClientSession) -> AsyncIterator[aiohttp.ClientResponse]:
    """One request runs for as long as the block lasts, and nothing waits."""
    await load_when(http, lambda load: not load["num_running_reqs"] + load["num_waiting_reqs"])
    body = chat_body("occupant", output_tokens=ENDLESS, stream=True)
    async with http.post(CHAT, json=body) as response:
        assert response.status == 200
        await read_event(response)
        yield response


@asynccontextmanager
async def waiting(
    http: aiohttp.ClientSession, path: str, body: dict[str, Any]
) -> AsyncIterator[asyncio.Task[aiohttp.ClientResponse]]:
    """A request that waits; its client leaves with the block if it has no answer by then."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(http.post(path, json=body))
        await load_when(http, lambda load: load["num_waiting_reqs"] == 1)
        yield task
        leave(task)


def leave(task: asyncio.Task[aiohttp.ClientResponse]) -> None:
    """Let a client go, whatever it has of its answer."""
    if not task.cancel() and not task.cancelled():
        task.result().close()
