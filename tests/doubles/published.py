"""A session and a router, as tests of published caches see them: what is predicted, reported, believed."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.doubles.engines import MODEL, PAGE_TOKENS
from tests.doubles.replica_calls import CHAT, new_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doubles.processes import Running

DICE: Final = random.SystemRandom()
WAIT_S_MAX: Final = 30.0
OUTPUT_TOKENS: Final = 4
TAIL_TOKENS: Final = 8
"""What the template writes behind the last message, and somewhat more."""
BELIEVED: Final = ("events", "ready")


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

    async def believed(self) -> None:
        """Wait until the replica is ready and its pages are believed."""
        await self.until(lambda found: (found["source"], found["state"]) == BELIEVED)
