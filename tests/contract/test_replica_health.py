"""Whether a replica lives, and whether it may be sent to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.doubles.engines import HEALTH_TIMEOUT_S
from tests.doubles.replica_calls import (
    WAIT_S_MAX,
    chat_body,
    complete,
    hung,
    load_of,
    load_when,
    session,
    status_of,
)

if TYPE_CHECKING:
    from tests.doubles.engines import Member

SILENCE_S = 0.5
PATHS = ("/ready", "/health", "/health_generate")


@pytest.mark.parametrize(
    ("path", "least_s", "most_s"),
    [
        ("/ready", 0.0, 0.9),
        # These look for the engine's output once a second.
        ("/health", 0.9, HEALTH_TIMEOUT_S),
        ("/health_generate", 0.9, HEALTH_TIMEOUT_S),
    ],
)
async def test_a_well_replica_says_so_with_an_empty_body(
    plain: Member, path: str, least_s: float, most_s: float
) -> None:
    loop = asyncio.get_running_loop()
    async with session(plain) as http:
        began_s = loop.time()
        async with http.get(path) as response:
            assert (response.status, await response.read()) == (200, b"")
        assert least_s <= loop.time() - began_s < most_s


@pytest.mark.parametrize("path", PATHS)
async def test_only_get_asks_for_health(plain: Member, path: str) -> None:
    async with session(plain) as http:
        for method in ("POST", "HEAD"):
            assert await status_of(http, path, method=method) == 405


async def test_a_hung_engine_shows_in_health_first_and_then_in_readiness(plain: Member) -> None:
    loop = asyncio.get_running_loop()
    async with session(plain) as http, hung(plain, http) as go_on:
        before = await load_of(http)
        assert await status_of(http, "/ready") == 200
        began_s = loop.time()
        assert await status_of(http, "/health") == 503
        assert HEALTH_TIMEOUT_S - 0.1 < loop.time() - began_s < 3 * HEALTH_TIMEOUT_S
        assert await status_of(http, "/ready") == 503

        # The load report goes on being served, and only its own time tells that it is old.
        assert (await load_of(http))["timestamp"] == before["timestamp"]
        assert await status_of(http, "/v1/models") == 200
        assert await status_of(http, "/metrics") == 200

        await go_on()
        now = await load_when(http, lambda load: load["timestamp"] > before["timestamp"])
        assert now["timestamp"] >= before["timestamp"] + HEALTH_TIMEOUT_S - 1.0
        assert await status_of(http, "/ready") == 503
        assert await status_of(http, "/health") == 200
        assert await status_of(http, "/ready") == 200


async def test_what_needs_a_hung_engine_waits_for_it(plain: Member) -> None:
    async with session(plain) as http, asyncio.TaskGroup() as group, hung(plain, http) as go_on:
        tasks = [
            group.create_task(complete(http, chat_body("hello"))),
            group.create_task(status_of(http, "/server_info")),
            group.create_task(status_of(http, "/flush_cache?timeout=30", method="POST")),
        ]
        done, _ = await asyncio.wait(tasks, timeout=SILENCE_S)
        assert not done
        await go_on()
        async with asyncio.timeout(WAIT_S_MAX):
            await asyncio.wait(tasks)
    answer, *statuses = (task.result() for task in tasks)
    assert answer["usage"]["completion_tokens"] == 4
    assert statuses == [200, 200]
