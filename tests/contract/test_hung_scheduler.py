"""A scheduler that hangs behind an HTTP server that answers 200: noticed, left, and back by itself."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.doubles.engines import MODEL
from tests.doubles.processes import emulate, end, running
from tests.doubles.replica_calls import CHAT, hung, new_text, session

if TYPE_CHECKING:
    from tests.doubles.engines import Member

DICE = random.SystemRandom()
WAIT_S_MAX = 40.0
NOTICED_S_MAX = 3.0
STEP_TOKENS = 2_500
"""No step of the prompts that are asked here is longer."""

LATE_S = 1.0
"""What the other replica, and the machine that runs the tests, need for the answer."""


def asked(text: str) -> dict[str, Any]:
    """A short turn."""
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 4}


async def replica_row(http: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """How the router sees one replica."""
    async with http.get("/fleet") as answer:
        rows: list[dict[str, Any]] = (await answer.json())["replicas"]
    return next(row for row in rows if row["url"] == url)


async def replica_state(http: aiohttp.ClientSession, url: str) -> str:
    """Its state."""
    return str((await replica_row(http, url))["state"])


async def until_state(http: aiohttp.ClientSession, url: str, *states: str) -> None:
    """Wait until the router sees a replica so."""
    async with asyncio.timeout(WAIT_S_MAX):
        while await replica_state(http, url) not in states:  # noqa: ASYNC110  (it is only told when asked)
            await asyncio.sleep(0.05)


async def test_what_was_sent_to_a_hung_scheduler_is_served_elsewhere_and_it_returns(
    plain: Member,
) -> None:
    other = emulate("--model", MODEL, time_scale=1.0)
    try:
        other.wait_ready()
        flags = ("--port", "0", "--admin-port", "0", "--health-s", "2")
        replicas = ("--replica", plain.url, "--replica", other.url)
        with running("serve", *flags, *replicas) as router:
            async with (
                aiohttp.ClientSession(router.url) as http,
                aiohttp.ClientSession(router.admin_url) as admin,
                session(plain) as replica,
            ):
                key, text = await _session_at(http, admin, plain)
                await until_state(admin, plain.url, "ready")
                step_s = STEP_TOKENS / (await replica_row(admin, plain.url))["prefill_tokens_per_s"]
                async with hung(plain, replica) as go_on:
                    # Its HTTP server goes on answering.
                    async with replica.get("/v1/loads") as answer:
                        assert answer.status == 200
                    loop = asyncio.get_running_loop()
                    began_s = loop.time()
                    async with asyncio.timeout(WAIT_S_MAX):
                        async with http.post(
                            CHAT, json=asked(text), headers={"x-session-id": key}
                        ) as answer:
                            assert answer.status == 200, await answer.text()
                            assert answer.headers["x-homeport-replica"] in other.url
                    assert loop.time() - began_s <= NOTICED_S_MAX + step_s + LATE_S
                    assert await replica_state(admin, plain.url) in ("stalled", "not-ready")
                    # Others are not even sent there.
                    began_s = loop.time()
                    async with http.post(CHAT, json=asked(new_text(DICE, n_bytes=400))) as answer:
                        assert answer.headers["x-homeport-replica"] in other.url
                    assert loop.time() - began_s < NOTICED_S_MAX
                    await go_on()
                await until_state(admin, plain.url, "ready")
    finally:
        end(other)


async def _session_at(
    http: aiohttp.ClientSession, admin: aiohttp.ClientSession, member: Member
) -> tuple[str, str]:
    """A session that lives at a replica whose speed is known by then, and what it says next."""
    key = new_text(DICE, n_bytes=24).replace(" ", "-").strip("-")
    place, headers = {"replica": member.url.removeprefix("http://")}, {"x-session-id": key}
    assumed = (await replica_row(admin, member.url))["prefill_tokens_per_s"]
    async with http.post(CHAT, json=asked("hello"), headers=headers) as answer:
        assert answer.status == 200, await answer.text()
    async with admin.put(f"/sessions/{key}/pin", json=place) as answer:
        assert answer.status == 200, await answer.text()
    async with asyncio.timeout(WAIT_S_MAX):
        while (await replica_row(admin, member.url))["prefill_tokens_per_s"] == assumed:
            text = asked(new_text(DICE, n_bytes=24_000))
            async with http.post(CHAT, json=text, headers=headers) as answer:
                assert answer.status == 200, await answer.text()
                assert answer.headers["x-homeport-replica"] == place["replica"]
    return key, new_text(DICE, n_bytes=2_000)
