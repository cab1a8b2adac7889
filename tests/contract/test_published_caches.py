"""What the router believes of real replicas that publish their caches: the tokens that they then report."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.doubles.engines import API_KEY, PAGE_TOKENS, Role, running_engines
from tests.doubles.processes import running
from tests.doubles.published import DICE, Seen, Talk
from tests.doubles.replica_calls import is_idle, load_when, new_text, session

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.engines import Member

pytestmark = pytest.mark.engine

PORTS = ("--port", "0", "--admin-port", "0")


async def test_after_a_flush_every_session_is_believed_to_the_page(
    engines: dict[str, Member],
) -> None:
    member = engines["first"]
    shared = new_text(DICE, n_bytes=4_000)
    talks, n = [Talk(shared) for _ in range(3)], 0
    with running("serve", *PORTS, "--replica", member.url) as router:
        seen = Seen(router)
        await seen.believed()
        async with aiohttp.ClientSession(router.url) as http, session(member) as replica:
            for turn in range(3):
                for talk in talks:
                    predicted, cached = await talk.turn(http, replica, 3_000)
                    n += 1
                    if turn or n == len(talks):  # the third session finds the exact common head
                        assert predicted == cached
                        assert cached > PAGE_TOKENS
                    await seen.tied(n)
            await load_when(replica, is_idle)
            async with replica.post("/flush_cache?timeout=10") as answer:
                assert answer.status == 200
            await seen.until(lambda found: found["known_pages"] == 0)
            for at, talk in enumerate(talks):
                predicted, cached = await talk.turn(http, replica, 3_000)
                assert predicted == cached
                assert (cached > 0) is (at > 0)
                n += 1
                await seen.tied(n)
            metrics = await seen.metrics()
            assert metrics["homeport_replica_cache_losses_total/" + _id(member)] == 0


async def test_a_replica_that_evicts_is_believed_to_the_page(engines: dict[str, Member]) -> None:
    member = engines["tight"]
    talks, n, n_partial = [Talk(new_text(DICE, n_bytes=500)) for _ in range(8)], 0, 0
    key = ("--replica-api-key", API_KEY)
    with running("serve", *PORTS, "--replica", member.url, *key) as router:
        seen = Seen(router)
        await seen.believed()
        async with aiohttp.ClientSession(router.url) as http, session(member) as replica:
            for turn in range(4):
                DICE.shuffle(talks)
                for talk in talks:
                    before = n
                    predicted, cached = await talk.turn(http, replica, 3_500)
                    assert predicted == cached, (turn, before)
                    n_partial += turn > 1 and cached < 1_000
                    n += 1
                    await seen.tied(n)
            assert n_partial  # it did evict
            found = await seen.until(
                lambda found: found["homeport_kv_events_total/pages-removed"] > 0
            )
            assert found["source"] == "events"


async def test_a_restart_behind_its_url_is_believed_at_once(tmp_path: Path) -> None:
    talks, n = [Talk(new_text(DICE, n_bytes=1_000)) for _ in range(2)], 0
    with running_engines((Role("again"),), tmp_path) as (engine,):
        member = engine.member
        with running("serve", *PORTS, "--replica", member.url) as router:
            seen = Seen(router)
            await seen.believed()
            async with aiohttp.ClientSession(router.url) as http:
                async with session(member) as replica:
                    for turn in range(2):
                        for talk in talks:
                            predicted, cached = await talk.turn(http, replica, 3_000)
                            assert predicted == cached
                            assert bool(cached) is bool(turn)
                            n += 1
                            await seen.tied(n)
                engine.signal(signal.SIGKILL)
                await seen.until(lambda found: found["source"] != "events")
                await asyncio.to_thread(engine.wait_ended)  # its cache may be given up before that
                assert await asyncio.to_thread(engine.restart_if_ended)
                await seen.believed()
                async with session(engine.member) as replica:
                    for turn in range(2):
                        for talk in talks:
                            predicted, cached = await talk.turn(http, replica, 3_000)
                            assert predicted == cached
                            assert bool(cached) is bool(turn)
                            n += 1
                            await seen.tied(n)


def _id(member: Member) -> str:
    return member.url.removeprefix("http://")
