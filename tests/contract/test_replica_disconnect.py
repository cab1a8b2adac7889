"""Clients that leave: how long the engine works on for nobody."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.engines import DISCONNECT_POLL_S, PAGE_TOKENS
from tests.doubles.replica_calls import (
    CHAT,
    chat_body,
    is_idle,
    load_when,
    new_text,
    session,
    usage_of,
)
from tests.doubles.replica_streams import (
    ENDLESS,
    MESSAGE,
    MESSAGES,
    PATHS,
    leave,
    occupied,
    read_event,
    text_of_tokens,
    waiting,
)

if TYPE_CHECKING:
    import aiohttp

    from tests.doubles.engines import Member

DICE = random.Random()  # a replica that outlives the run knows what it was told before
AT_ONCE_S = 2.0
POLLED_S = 3.0 * DISCONNECT_POLL_S + 2.0
LONG_PROMPT_TOKENS = 12_000


async def idle_within(http: aiohttp.ClientSession, limit_s: float) -> None:
    async with asyncio.timeout(limit_s):
        await load_when(http, is_idle)


def endless(path: str, *, is_stream: bool) -> dict[str, Any]:
    """A request that ends by itself only long after all limits here."""
    asked = {"stream": is_stream, "homeport_emulate": {"output_tokens": ENDLESS}}
    if path == CHAT:
        return chat_body("x", output_tokens=ENDLESS, **asked)
    return {**MESSAGE, "max_tokens": ENDLESS, **asked}


@pytest.mark.parametrize("path", PATHS)
async def test_a_stream_that_is_left_ends_at_once(plain: Member, path: str) -> None:
    async with session(plain) as http:
        await load_when(http, is_idle)
        async with http.post(path, json=endless(path, is_stream=True)) as response:
            await read_event(response)
        await idle_within(http, AT_ONCE_S)


@pytest.mark.parametrize("path", PATHS)
async def test_a_whole_answer_that_is_left_ends_when_its_client_is_looked_for(
    plain: Member, path: str
) -> None:
    async with session(plain) as http, asyncio.TaskGroup() as group:
        await load_when(http, is_idle)
        asked = group.create_task(http.post(path, json=endless(path, is_stream=False)))
        await load_when(http, lambda load: load["num_running_reqs"] == 1)
        leave(asked)
        await idle_within(http, POLLED_S)


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_a_waiting_request_that_is_left_gives_its_place_away(
    tight: Member, path: str, *, is_stream: bool
) -> None:
    """A streamed message has its head, and is missed at once; the others are looked for."""
    body = endless(path, is_stream=is_stream)
    is_followed = path == MESSAGES and is_stream
    async with session(tight) as http, occupied(http), waiting(http, path, body) as asked:
        if is_followed:
            async with asyncio.timeout(AT_ONCE_S):
                await asked
        leave(asked)
        async with asyncio.timeout(AT_ONCE_S if is_followed else POLLED_S):
            await load_when(http, lambda load: not load["num_waiting_reqs"])


async def test_a_prompt_that_is_left_half_way_keeps_the_steps_that_were_followed_by_another(
    plain: Member,
) -> None:
    """The step in progress is finished and thrown away; none follows it."""
    start = new_text(DICE, n_bytes=16)
    async with session(plain) as http:
        async with http.get("/server_info") as response:
            chunk = (await response.json())["chunked_prefill_size"]
        text = await text_of_tokens(http, start, 4 * chunk - PAGE_TOKENS)
        body = {**MESSAGE, "messages": [{"role": "user", "content": text}], "stream": True}
        async with http.post(MESSAGES, json=body) as response:
            assert response.status == 200
            await load_when(http, lambda load: load["num_used_tokens"] >= 2 * chunk)
        await idle_within(http, 25.0)  # a real one needs some seconds for a step
        n_tokens = 2 * chunk + 2 * PAGE_TOKENS
        part = await text_of_tokens(http, start, n_tokens)
        prompt_tokens, cached = await usage_of(http, chat_body(part, output_tokens=1))
    assert prompt_tokens == n_tokens
    assert cached in (chunk, 2 * chunk)
