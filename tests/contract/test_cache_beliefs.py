"""What the router believes of a replica's cache, once the replica's own reports say otherwise."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.doubles.engines import MODEL
from tests.doubles.processes import running
from tests.doubles.replica_calls import CHAT, is_idle, load_when, new_text, session

if TYPE_CHECKING:
    from tests.doubles.engines import Member

DICE = random.SystemRandom()
N_BYTES = 6_000


class Talk:
    """A session of one client; its prompts begin with what all sessions share."""

    def __init__(self, shared: str) -> None:
        self._messages: list[dict[str, Any]] = [{"role": "system", "content": shared}]
        self._headers = {"x-session-id": new_text(DICE, n_bytes=24).replace(" ", "-").strip("-")}

    async def turn(self, http: aiohttp.ClientSession) -> tuple[int, int]:
        """Say something more; answers the cached tokens that were predicted and reported."""
        said = {"role": "user", "content": new_text(DICE, n_bytes=N_BYTES)}
        self._messages.append(said)
        body = {"model": MODEL, "messages": self._messages, "max_tokens": 4}
        async with http.post(CHAT, json=body, headers=self._headers) as answer:
            assert answer.status == 200, await answer.text()
            found = await answer.json()
            predicted = int(answer.headers["x-homeport-cached-tokens"])
        text = found["choices"][0]["message"]["content"] or ""
        self._messages.append({"role": "assistant", "content": text})
        details = found["usage"].get("prompt_tokens_details") or {}
        return predicted, int(details.get("cached_tokens") or 0)


async def losses(admin_url: str) -> float:
    """What the router's metrics say of caches that were smaller than believed."""
    async with aiohttp.ClientSession() as http, http.get(f"{admin_url}/metrics") as answer:
        families = text_string_to_metric_families(await answer.text())
    name = "homeport_replica_cache_losses_total"
    return sum(s.value for family in families for s in family.samples if s.name == name)


async def test_a_flush_is_known_of_every_session_after_one_request(plain: Member) -> None:
    shared = new_text(DICE, n_bytes=N_BYTES)
    talks = [Talk(shared) for _ in range(3)]
    flags = ("--port", "0", "--admin-port", "0", "--kv-events", "off")
    with running("serve", *flags, "--replica", plain.url) as router:
        async with aiohttp.ClientSession(router.url) as http, session(plain) as replica:
            for talk in (*talks, *talks[:-1]):
                await talk.turn(http)
            predicted, cached = await talks[-1].turn(http)
            before = cached
            assert before > 1_000
            assert abs(predicted - cached) < 0.1 * cached
            assert await losses(router.admin_url) == 0
            await load_when(replica, is_idle)
            async with replica.post("/flush_cache?timeout=10") as answer:
                assert answer.status == 200
            predicted, cached = await talks[0].turn(http)
            assert (predicted > 1_000, cached) == (True, 0)
            assert await losses(router.admin_url) == 1
            # Of the others the replica has what they share with the first, and that is believed.
            for talk in talks[1:]:
                predicted, cached = await talk.turn(http)
                assert 0 < cached < 0.7 * before
                assert predicted < 1.1 * cached + 256
            assert await losses(router.admin_url) == 1
            for talk in talks:
                predicted, cached = await talk.turn(http)
                assert abs(predicted - cached) < 0.1 * cached
            assert await losses(router.admin_url) == 1
