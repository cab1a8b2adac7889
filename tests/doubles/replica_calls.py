"""What contract tests ask of a replica of either kind, in few words."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from tests.doubles.engines import MODEL

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.doubles.engines import Member

CHAT: Final = "/v1/chat/completions"
POLL_S: Final = 0.005
WAIT_S_MAX: Final = 30.0
_ANSWER_S_MAX: Final = 40.0  # less than a test may take: a hanging replica fails it, not the run
_SCHEDULER: Final = "sglang::schedul"  # what is left of its title in /proc


def session(member: Member) -> aiohttp.ClientSession:
    """A client with the member's key; an answer that does not end in time is a TimeoutError."""
    limit = aiohttp.ClientTimeout(total=_ANSWER_S_MAX)
    return aiohttp.ClientSession(member.url, headers=member.headers, timeout=limit)


def chat_body(text: str, *, output_tokens: int = 4, **more: object) -> dict[str, Any]:
    """A chat that is answered with exactly so many tokens."""
    messages = [{"role": "user", "content": text}]
    limits = {"max_tokens": output_tokens, "ignore_eos": True}
    return {"model": MODEL, "messages": messages, **limits, **more}


def new_text(dice: random.Random, *, n_bytes: int) -> str:
    """Text that no replica has seen, a whole number of four bytes long."""
    return dice.randbytes(n_bytes // 8 * 4).hex()


async def complete(http: aiohttp.ClientSession, body: dict[str, Any]) -> dict[str, Any]:
    """The answer to a chat without streaming."""
    async with http.post(CHAT, json=body) as response:
        assert response.status == 200, await response.text()
        answer: dict[str, Any] = await response.json()
        return answer


async def usage_of(http: aiohttp.ClientSession, body: dict[str, Any]) -> tuple[int, int]:
    """Prompt tokens of a chat, and how many of them were cached."""
    usage = (await complete(http, body))["usage"]
    details = usage["prompt_tokens_details"]
    return usage["prompt_tokens"], details["cached_tokens"] if details else 0


@asynccontextmanager
async def streaming(http: aiohttp.ClientSession, body: dict[str, Any]) -> AsyncIterator[None]:
    """A chat whose first event has come; the client leaves with the block."""
    async with http.post(CHAT, json={**body, "stream": True}) as response:
        assert response.status == 200
        await response.content.readline()
        yield


async def load_of(http: aiohttp.ClientSession, include: str = "all") -> dict[str, Any]:
    """The one rank's load report."""
    async with http.get("/v1/loads", params={"include": include}) as response:
        assert response.status == 200
        [rank] = (await response.json())["loads"]
        found: dict[str, Any] = rank
        return found


async def load_when(
    http: aiohttp.ClientSession, is_met: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The first load report that meets a condition."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            load = await load_of(http)
            if is_met(load):
                return load
            await asyncio.sleep(POLL_S)


def is_idle(load: dict[str, Any]) -> bool:
    """Nothing runs, waits or is held."""
    return not (load["num_running_reqs"] or load["num_waiting_reqs"] or load["num_total_tokens"])


async def status_of(http: aiohttp.ClientSession, path: str, *, method: str = "GET") -> int:
    """The status of a request without a body."""
    async with http.request(method, path) as response:
        await response.read()
        return response.status


@asynccontextmanager
async def hung(
    member: Member, http: aiohttp.ClientSession
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A member whose engine hangs behind a server that answers; yields what lets it go on.

    With the block it goes on in any case, and is found well.
    """
    schedulers = _schedulers(member)

    async def hang(number: signal.Signals) -> None:
        for pid in schedulers:
            os.kill(pid, number)
        if not schedulers:
            fault = {"kind": "hang", "count": int(number is signal.SIGSTOP)}
            async with http.post("/emulator/fault", json=fault) as response:
                assert response.status == 200

    async def go_on() -> None:
        await hang(signal.SIGCONT)

    await hang(signal.SIGSTOP)
    try:
        yield go_on
    finally:
        await go_on()
        assert await status_of(http, "/health") == 200


def _schedulers(member: Member) -> list[int]:
    """The processes of a real replica that run its engine; an emulated one has none."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, behind = path.read_text().partition(" (")[2].rpartition(") ")
        except OSError:
            continue
        if name == _SCHEDULER and int(behind.split()[2]) == member.pid:
            found.append(int(path.parent.name))
    return found
