"""What the router believes of real replicas that publish their caches: the tokens that they then report."""

from __future__ import annotations

import asyncio
import random
import signal
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.doubles.engines import API_KEY, MODEL, PAGE_TOKENS, Role, running_engines
from tests.doubles.processes import running
from tests.doubles.replica_calls import CHAT, is_idle, load_when, new_text, session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.doubles.engines import Member
    from tests.doubles.processes import Running

pytestmark = pytest.mark.engine

DICE = random.SystemRandom()
PORTS = ("--port", "0", "--admin-port", "0")
WAIT_S_MAX = 30.0
BELIEVED = ("events", "ready")
OUTPUT_TOKENS = 4
TAIL_TOKENS = 8
"""What the template writes behind the last message, and somewhat more."""


class Talk:
    """A session whose prompts and answers end within a page: what follows cannot change its pages."""

    def __init__(self, shared: str) -> None:
        self._messages: list[dict[str, Any]] = [{"role": "system", "content": shared}]
        self._headers = {"x-session-id": f"s-{DICE.getrandbits(64):x}"}

    async def turn(
        self, http: aiohttp.ClientSession, replica: aiohttp.ClientSession, n_bytes: int
    ) -> tuple[int, int]:
        """Say something more; answers the cached tokens that were predicted and reported."""
        said = {"role": "user", "content": new_text(DICE, n_bytes=n_bytes)}
        self._messages.append(said)
        while True:
            asked = {"messages": self._messages}
            async with replica.post("/v1/tokenize", json=asked) as answer:
                count = int((await answer.json())["count"])
            if TAIL_TOKENS < count % PAGE_TOKENS < PAGE_TOKENS - OUTPUT_TOKENS:
                break
            said["content"] += f" {DICE.randrange(10_000)}"
        body = {"model": MODEL, "messages": self._messages, "max_tokens": OUTPUT_TOKENS}
        async with http.post(CHAT, json=body, headers=self._headers) as answer:
            assert answer.status == 200, await answer.text()
            found = await answer.json()
            predicted = int(answer.headers["x-homeport-cached-tokens"])
        text = found["choices"][0]["message"]["content"] or ""
        self._messages.append({"role": "assistant", "content": text})
        details = found["usage"].get("prompt_tokens_details") or {}
        return predicted, int(details.get("cached_tokens") or 0)


class Seen:
    """What the router's control port tells."""

    def __init__(self, router: Running) -> None:
        self._url = router.admin_url

    async def metrics(self) -> dict[str, float]:
        """Every value by its name, and its last label's value."""
        async with aiohttp.ClientSession() as http, http.get(f"{self._url}/metrics") as answer:
            families = text_string_to_metric_families(await answer.text())
        return {
            "/".join([sample.name, *list(sample.labels.values())[-1:]]): sample.value
            for family in families
            for sample in family.samples
        }

    async def belief(self) -> dict[str, Any]:
        """What is believed of the one replica's cache, and its state."""
        async with aiohttp.ClientSession() as http, http.get(f"{self._url}/fleet") as answer:
            replica: dict[str, Any] = (await answer.json())["replicas"][0]
            return {**replica["belief"], "state": replica["state"]}

    async def until(self, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for a belief and metrics."""
        found: dict[str, Any] = {}
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                while True:
                    found = {**await self.metrics(), **await self.belief()}
                    if is_so(found):
                        return found
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(found) from None

    async def tied(self, n: int) -> None:
        """Wait until so many prompts' pages are known."""
        await self.until(lambda found: found.get("homeport_ties_total/tied", 0) >= n)


async def test_after_a_flush_every_session_is_believed_to_the_page(
    engines: dict[str, Member],
) -> None:
    member = engines["first"]
    shared = new_text(DICE, n_bytes=4_000)
    talks, n = [Talk(shared) for _ in range(3)], 0
    with running("serve", *PORTS, "--replica", member.url) as router:
        seen = Seen(router)
        await seen.until(lambda found: (found["source"], found["state"]) == BELIEVED)
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
        await seen.until(lambda found: (found["source"], found["state"]) == BELIEVED)
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
            await seen.until(lambda found: (found["source"], found["state"]) == BELIEVED)
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
                assert await asyncio.to_thread(engine.restart_if_ended)
                await seen.until(lambda found: (found["source"], found["state"]) == BELIEVED)
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
