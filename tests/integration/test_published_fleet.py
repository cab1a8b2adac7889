"""Emulated replicas publish their caches as SGLang does; the router believes them to the page."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.doubles.engines import MODEL, PAGE_TOKENS
from tests.doubles.processes import Running, emulate, end, running
from tests.doubles.published import DICE, Seen, Talk
from tests.doubles.replica_calls import new_text

if TYPE_CHECKING:
    from collections.abc import Iterator

PORTS = ("--port", "0", "--admin-port", "0")


@contextmanager
def replica(*more: str, port: int = 0) -> Iterator[Running]:
    """One emulated replica that publishes, ready."""
    process = emulate("--kv-events", "--model", MODEL, "--tool-turns", "0", *more, port=port)
    try:
        process.wait_ready()
        yield process
    finally:
        end(process)


async def _turns(
    talks: list[Talk], router: Running, url: str, seen: Seen, n_tied: int
) -> list[int]:
    """A turn of each session, tied, whose prediction is right; answers what was cached."""
    found = []
    async with aiohttp.ClientSession(router.url) as http, aiohttp.ClientSession(url) as direct:
        for n, talk in enumerate(talks):
            predicted, cached = await talk.turn(http, direct, 3_000)
            assert predicted == cached
            found.append(cached)
            await seen.tied(n_tied + n + 1)
    return found


async def test_a_flush_and_a_restart_are_known_before_the_next_answer() -> None:
    talks = [Talk(new_text(DICE, n_bytes=2_000)) for _ in range(2)]
    with replica() as first:
        port = int(first.url.rpartition(":")[2])
        with running("serve", *PORTS, "--replica", first.url) as router:
            seen = Seen(router)
            await seen.believed()
            assert await _turns(talks, router, first.url, seen, 0) == [0, 0]
            assert min(await _turns(talks, router, first.url, seen, 2)) > PAGE_TOKENS
            async with (
                aiohttp.ClientSession(first.url) as http,
                http.post("/flush_cache?timeout=10") as answer,
            ):
                assert answer.status == 200
            await seen.until(lambda found: found["known_pages"] == 0)
            assert await _turns(talks, router, first.url, seen, 4) == [0, 0]
            await asyncio.to_thread(first.kill)
            await seen.until(lambda found: found["source"] != "events")
            with replica(port=port) as second:
                await seen.believed()
                assert await _turns(talks, router, second.url, seen, 6) == [0, 0]
                assert min(await _turns(talks, router, second.url, seen, 8)) > PAGE_TOKENS


@pytest.mark.parametrize("host_tokens", [0, 10_000])
async def test_a_small_pool_is_known_to_the_page(host_tokens: int) -> None:
    """With a host tier, too: what leaves the device stays until it leaves the host."""
    talks = [Talk(new_text(DICE, n_bytes=500)) for _ in range(8)]
    sizes = ("--capacity-tokens", "12000", "--host-tokens", str(host_tokens))
    with (
        replica(*sizes) as member,
        running("serve", *PORTS, "--replica", member.url) as router,
    ):
        seen = Seen(router)
        await seen.believed()
        rounds = []
        for n in range(4):
            DICE.shuffle(talks)
            rounds.append(await _turns(talks, router, member.url, seen, n * len(talks)))
        found = await seen.until(lambda found: found["homeport_kv_events_total/pages-removed"] > 0)
        assert found["homeport_replica_prediction_error_tokens_total/" + member.url[7:]] == 0
        assert any(rounds[1])  # while all had room
        assert min(rounds[-1]) < 1_000  # when they had not


async def test_a_router_that_starts_later_knows_what_is_there() -> None:
    talk = Talk(new_text(DICE, n_bytes=2_000))
    with replica() as member:
        for _ in range(2):
            with running("serve", *PORTS, "--replica", member.url) as router:
                seen = Seen(router)
                await seen.believed()
                async with (
                    aiohttp.ClientSession(router.url) as http,
                    aiohttp.ClientSession(member.url) as direct,
                ):
                    await talk.turn(http, direct, 3_000)  # nothing ties it yet
                    await seen.tied(1)
                    known = (await seen.belief())["known_pages"]
                    predicted, cached = await talk.turn(http, direct, 3_000)
                    assert predicted == cached > PAGE_TOKENS
                    assert known * PAGE_TOKENS >= cached


async def test_followed_or_not_is_a_setting() -> None:
    with (
        replica() as member,
        running("serve", *PORTS, "--replica", member.url, "--kv-events", "off") as router,
    ):
        talk, seen = Talk(new_text(DICE, n_bytes=500)), Seen(router)
        async with (
            aiohttp.ClientSession(router.url) as http,
            aiohttp.ClientSession(member.url) as direct,
        ):
            await talk.turn(http, direct, 1_000)
        belief = await seen.belief()
        assert (belief["source"], belief["known_pages"]) == ("reported", 0)
        assert "homeport_ties_total/tied" not in await seen.metrics()
