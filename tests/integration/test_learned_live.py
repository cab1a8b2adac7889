"""A fleet of two kinds of emulated replicas, over HTTP: whose rates nobody told, and who is not hung."""

from __future__ import annotations

import asyncio
import io
import json
import random
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from replica.hardware.profiles import PROFILES
from tests.doubles.processes import emulate, end, running

if TYPE_CHECKING:
    from collections.abc import Iterator

LOADED_S = 60.0
SESSIONS = 10
SHOWN_TOKENS = 32_768
BYTES_PER_TOKEN = 4
CONTEXT_TOKENS_MAX = 250_000
KINDS = ("b200-tp4-fp8", "b300-tp4-fp8")


def words(dice: random.Random, n_tokens: int) -> str:
    return "".join(dice.choices("abcdefghijklmnop ", k=n_tokens * BYTES_PER_TOKEN))


async def fleet(admin: aiohttp.ClientSession) -> list[dict[str, Any]]:
    async with admin.get("/fleet") as answer:
        rows: list[dict[str, Any]] = (await answer.json())["replicas"]
        return rows


async def agent(http: aiohttp.ClientSession, n: int, until_s: float, first_tokens: int) -> int:
    """A session that grows turn by turn; answers how many turns it had."""
    dice, n_turns = random.Random(n), 0
    messages = [
        {"role": "user", "content": words(dice, dice.randint(first_tokens // 2, first_tokens))}
    ]
    loop = asyncio.get_running_loop()
    while loop.time() < until_s:
        body = {"model": "kimi-k2.6", "stream": True, "messages": messages, "max_tokens": 64}
        raw = json.dumps(body).encode()
        headers = {"content-type": "application/json", "x-session-id": f"session-{n}-of-this-run"}
        async with http.post(
            "/v1/chat/completions", data=io.BytesIO(raw), headers=headers
        ) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()
        n_turns += 1
        messages.append({"role": "assistant", "content": "done"})
        messages.append({"role": "user", "content": words(dice, dice.randint(200, 4_000))})
        if sum(len(m["content"]) for m in messages) > CONTEXT_TOKENS_MAX * BYTES_PER_TOKEN:
            del messages[1:]  # as a compaction leaves it
    return n_turns


@pytest.fixture
def replicas() -> Iterator[dict[str, str]]:
    """Two of each kind: the profile of each URL."""
    started = [(kind, emulate("--profile", kind, time_scale=1.0)) for kind in KINDS * 2]
    try:
        for _, process in started:
            process.wait_ready()
        yield {process.url: kind for kind, process in started}
    finally:
        for _, process in started:
            end(process)


async def loaded(urls: dict[str, str], first_tokens: int) -> tuple[list[dict[str, Any]], int]:
    """A minute of agents: the fleet as the router then sees it, and how many turns there were."""
    flags = [word for url in urls for word in ("--replica", url)]
    with running("serve", "--port", "0", "--admin-port", "0", *flags) as router:
        timeout = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(router.url, timeout=timeout) as http,
            aiohttp.ClientSession(router.admin_url) as admin,
        ):
            until_s = asyncio.get_running_loop().time() + LOADED_S
            turns = await asyncio.gather(
                *(agent(http, n, until_s, first_tokens) for n in range(SESSIONS))
            )
            return await fleet(admin), sum(turns)


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_rates_that_nobody_told_are_known_after_a_minute(replicas: dict[str, str]) -> None:
    rows, n_turns = await loaded(replicas, 60_000)
    assert n_turns > 2 * SESSIONS
    for row in rows:
        facts = PROFILES[replicas[row["url"]]]
        true_s = facts.times.prompt_s(SHOWN_TOKENS, 0, chunk_tokens=facts.chunk_tokens)
        assert row["prefill_tokens_per_s"] == pytest.approx(SHOWN_TOKENS / true_s, rel=0.1), row


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_contexts_of_a_quarter_million_tokens_are_no_hang(replicas: dict[str, str]) -> None:
    rows, n_turns = await loaded(replicas, CONTEXT_TOKENS_MAX - 8_000)
    assert n_turns >= SESSIONS
    for row in rows:
        assert (row["state"], row["stalls_total"], row["failures_total"]) == ("ready", 0, 0), row
