"""First turns that share a long system prompt and tools spread over the fleet, known or not."""

from __future__ import annotations

import asyncio
from collections import Counter

import aiohttp
import pytest

from tests.doubles.agents import BODIES, SESSION_HEADER
from tests.doubles.shared_routers import several

N_SESSIONS = 48
N_REPLICAS = 4
TIME_SCALE = 20.0


@pytest.mark.parametrize(
    ("path", "has_header"), list(zip(sorted(BODIES), (True, False), strict=True))
)
async def test_every_replica_gets_its_share(path: str, *, has_header: bool) -> None:
    """48 sessions begin within one engine minute: an ideal spread is 12 each, 10 to 14 will do."""
    gap_s = 60.0 / N_SESSIONS / TIME_SCALE

    async def first_turn(http: aiohttp.ClientSession, url: str, n: int) -> str:
        headers = {"content-type": "application/json"}
        if has_header:
            headers[SESSION_HEADER[path]] = f"session-{n:04d}"
        text = f"Task {n}: the build of module {n * 37} fails since this morning. Find out why."
        async with http.post(url + path, data=BODIES[path](text), headers=headers) as answer:
            await answer.read()
            assert answer.status == 200
            return answer.headers["x-homeport-replica"]

    with several(1, N_REPLICAS, time_scale=TIME_SCALE) as started:
        timeout = aiohttp.ClientTimeout(total=30)
        async with aiohttp.ClientSession(timeout=timeout) as http, asyncio.TaskGroup() as group:
            turns = []
            for n in range(N_SESSIONS):
                turns.append(group.create_task(first_turn(http, started.routers[0].url, n)))
                await asyncio.sleep(gap_s)
    counts = Counter(turn.result() for turn in turns)
    assert len(counts) == N_REPLICAS, counts
    assert all(10 <= n <= 14 for n in counts.values()), counts
