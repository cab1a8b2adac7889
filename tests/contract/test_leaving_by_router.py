"""A client of the router that leaves: how long the engine behind it works on for nobody."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.doubles.engines import DISCONNECT_POLL_S, PAGE_TOKENS, Member
from tests.doubles.processes import Running, running
from tests.doubles.replica_calls import CHAT, chat_body, is_idle, load_when, new_text, session
from tests.doubles.replica_streams import (
    ENDLESS,
    MESSAGE,
    MESSAGES,
    PATHS,
    leave,
    occupied,
    read_event,
    text_of_tokens,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

_log = logging.getLogger(__name__)

DICE = random.Random()  # a replica that outlives the run knows what it was told before
AT_ONCE_S = 2.0
POLLED_S = 3.0 * DISCONNECT_POLL_S + 2.0
STEP_S = 25.0
"""The step in progress is finished: a real replica on a CPU needs some seconds for one."""

Load = dict[str, Any]


@pytest.fixture(scope="module")
def routers(plain: Member, tight: Member) -> Iterator[dict[str, Running]]:
    """A router before each of the two replicas, by its replica's role."""
    flags = ("--port", "0", "--admin-port", "0", "--forward-client-key")
    with (
        running("serve", *flags, "--replica", plain.url) as one,
        running("serve", *flags, "--replica", tight.url) as other,
    ):
        yield {plain.role.name: one, tight.role.name: other}


@asynccontextmanager
async def clients(
    routers: dict[str, Running], member: Member
) -> AsyncIterator[tuple[aiohttp.ClientSession, aiohttp.ClientSession]]:
    """A client of the router, and one of the replica behind it."""
    url = routers[member.role.name].url
    async with aiohttp.ClientSession(url, headers=member.headers) as door, session(member) as http:
        yield door, http


def endless(path: str, *, is_stream: bool) -> Load:
    """A request that ends by itself only long after all limits here."""
    asked = {"stream": is_stream, "homeport_emulate": {"output_tokens": ENDLESS}}
    if path == CHAT:
        return chat_body("x", output_tokens=ENDLESS, **asked)
    return {**MESSAGE, "max_tokens": ENDLESS, **asked}


async def freed(
    http: aiohttp.ClientSession, within_s: float, is_met: Callable[[Load], bool] = is_idle
) -> None:
    """Wait until the engine's counts have fallen, and note how long that took (``--log-cli-level``)."""
    began_s = time.monotonic()
    async with asyncio.timeout(within_s):
        await load_when(http, is_met)
    _log.info("freed after %.3f s", time.monotonic() - began_s)


@pytest.mark.parametrize("path", PATHS)
async def test_while_a_stream_runs(routers: dict[str, Running], plain: Member, path: str) -> None:
    async with clients(routers, plain) as (door, http):
        async with door.post(path, json=endless(path, is_stream=True)) as response:
            assert response.status == 200, await response.text()
            await read_event(response)
            await load_when(http, lambda load: load["num_running_reqs"] == 1)
        await freed(http, AT_ONCE_S)


@pytest.mark.parametrize("path", PATHS)
async def test_while_a_whole_answer_is_made(
    routers: dict[str, Running], plain: Member, path: str
) -> None:
    async with clients(routers, plain) as (door, http), asyncio.TaskGroup() as group:
        asked = group.create_task(door.post(path, json=endless(path, is_stream=False)))
        await load_when(http, lambda load: load["num_running_reqs"] == 1)
        leave(asked)
        await freed(http, POLLED_S)


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_while_it_waits_in_the_engines_queue(
    routers: dict[str, Running],
    tight: Member,
    path: str,
    *,
    is_stream: bool,
) -> None:
    async with (
        clients(routers, tight) as (door, http),
        occupied(http),
        asyncio.TaskGroup() as group,
    ):
        asked = group.create_task(door.post(path, json=endless(path, is_stream=is_stream)))
        await load_when(http, lambda load: load["num_waiting_reqs"] == 1)
        leave(asked)
        await freed(http, POLLED_S, lambda load: not load["num_waiting_reqs"])


@pytest.mark.parametrize("is_stream", [False, True])
async def test_while_its_prompt_is_computed(
    routers: dict[str, Running], plain: Member, *, is_stream: bool
) -> None:
    start = new_text(DICE, n_bytes=16)
    async with clients(routers, plain) as (door, http), asyncio.TaskGroup() as group:
        async with http.get("/server_info") as response:
            chunk = (await response.json())["chunked_prefill_size"]
        text = await text_of_tokens(http, start, 4 * chunk - PAGE_TOKENS)
        messages = [{"role": "user", "content": text}]
        body = {**MESSAGE, "messages": messages, "stream": is_stream}
        asked = group.create_task(door.post(MESSAGES, json=body))
        await load_when(http, lambda load: load["num_used_tokens"] >= 2 * chunk)
        leave(asked)
        await freed(http, STEP_S)
