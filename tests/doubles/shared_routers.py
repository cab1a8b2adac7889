"""Several routers before the same emulated replicas, and agents that reconnect for every request.

``several(2, 3, redis_url=...)`` yields router processes and replicas, all in one process. ``Agents`` plays sessions
that grow: each request is sent over a connection of its own to any of the routers, and once more to another one
if it breaks; what became of each is kept in ``turns``.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp
import httpx2

from tests.doubles.processes import end, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.doubles.processes import Running

WORDS = 400


@dataclass
class Turn:
    """How one request went; ``tries`` counts the connections it took."""

    session: int
    number: int
    router: int
    replica: str = ""
    reason: str = ""
    status: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tries: int = 1
    text: str = ""


@dataclass
class Several:
    """Routers that share what they know, and the replicas behind them."""

    routers: list[Running]
    replicas: list[str]
    """Their URLs."""

    def metric(self, router: int, name: str, labels: str = "") -> float:
        """One number of a router's metrics; 0 if it is not there."""
        text = httpx2.get(f"{self.routers[router].admin_url}/metrics").text
        found = re.search(rf"^{re.escape(name + labels)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def metrics_sum(self, name: str) -> float:
        """The sum of a metric over its labels and all routers that answer."""
        total = 0.0
        for router in self.routers:
            if router.process.poll() is None:
                text = httpx2.get(f"{router.admin_url}/metrics").text
                rows = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
                total += sum(map(float, rows))
        return total


@contextlib.contextmanager
def several(
    n_routers: int,
    n_replicas: int,
    *flags: str,
    redis_url: str | None = None,
    time_scale: float = 20.0,
) -> Iterator[Several]:
    """Routers that are ready, each in a process of its own, before replicas that share one."""
    scale = ("--time-scale", f"{time_scale:g}")
    count = ("--count", f"{n_replicas}")
    fleet = start("emulate", "--port", "0", *count, *scale, count=n_replicas)
    routers: list[Running] = []
    try:
        fleet.wait_ready()
        replicas = [row["url"] for row in fleet.ready]
        named = [flag for url in replicas for flag in ("--replica", url)]
        shared = () if redis_url is None else ("--redis-url", redis_url)
        ports = ("--port", "0", "--admin-port", "0", "--no-access-log")
        routers += [start("serve", *ports, *named, *shared, *flags) for _ in range(n_routers)]
        for router in routers:
            router.wait_ready()
        yield Several(routers, replicas)
    finally:
        for process in (*routers, fleet):
            end(process)


@dataclass
class Agents:
    """Sessions over several routers; ``pause_s`` lies between an answer and the next turn."""

    routers: list[Running]
    n_sessions: int
    n_turns: int
    seed: int = 1
    pause_s: float = 0.0
    output_tokens: int = 20
    turns: list[Turn] = field(default_factory=list)
    is_over: bool = False
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def play(self) -> None:
        """Play all sessions to their end, or until ``is_over``."""
        async with asyncio.TaskGroup() as group:
            for n in range(self.n_sessions):
                group.create_task(self._session(n))

    async def until(self, holds: Callable[[], bool], wait_s: float = 40.0) -> None:
        """Wait until something holds of the turns so far."""
        async with asyncio.timeout(wait_s), self._changed:
            await self._changed.wait_for(holds)

    async def more(self, n: int) -> None:
        """Wait for so many turns more."""
        wanted = len(self.turns) + n
        await self.until(lambda: len(self.turns) >= wanted)

    async def _session(self, n: int) -> None:
        dice = random.Random(f"{self.seed}/{n}")
        await asyncio.sleep(n * self.pause_s / self.n_sessions)
        messages = [
            {"role": "system", "content": "You are an agent. " + "tools " * WORDS},
            {"role": "user", "content": f"task {n} {dice.random()} " + "words " * 4 * WORDS},
        ]
        for number in range(self.n_turns):
            if self.is_over:
                return
            turn = Turn(n, number, dice.randrange(len(self.routers)))
            await self._ask(turn, messages, dice)
            self.turns.append(turn)
            async with self._changed:
                self._changed.notify_all()
            messages.append({"role": "assistant", "content": turn.text})
            more = f"result {number} {dice.random()} " + "data " * dice.randrange(WORDS)
            messages.append({"role": "user", "content": more})
            if self.pause_s:
                await asyncio.sleep(self.pause_s * (0.5 + dice.random()))

    async def _ask(self, turn: Turn, messages: list[dict[str, str]], dice: random.Random) -> None:
        body = {
            "model": "default",
            "messages": messages,
            "max_tokens": self.output_tokens,
            "homeport_emulate": {"output_tokens": self.output_tokens},
        }
        headers = {"x-session-id": f"agent-{self.seed}-{turn.session}"}
        limit = aiohttp.ClientTimeout(total=30)
        while turn.tries <= 8:
            url = self.routers[turn.router].url
            try:
                async with (
                    aiohttp.ClientSession(timeout=limit) as http,
                    http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as got,
                ):
                    turn.status = got.status
                    answer = await got.json()
                    turn.replica = got.headers.get("x-homeport-replica", "")
                    turn.reason = got.headers.get("x-homeport-reason", "")
                    if got.status == 200:
                        usage = answer["usage"]
                        turn.prompt_tokens = usage["prompt_tokens"]
                        details = usage["prompt_tokens_details"]
                        turn.cached_tokens = details["cached_tokens"] if details else 0
                        turn.text = answer["choices"][0]["message"]["content"] or ""
                    return
            except aiohttp.ClientError:
                turn.tries += 1
                turn.router = dice.randrange(len(self.routers))
                await asyncio.sleep(0.05)

    # What came of it

    @property
    def hit_ratio(self) -> float:
        """Cached tokens over prompt tokens, of all but first turns."""
        later = [turn for turn in self.turns if turn.number]
        return sum(t.cached_tokens for t in later) / max(1, sum(t.prompt_tokens for t in later))

    @property
    def failed(self) -> list[Turn]:
        """Turns that were not answered."""
        return [turn for turn in self.turns if turn.status != 200]

    @property
    def moved(self) -> list[list[tuple[int, int, str, str]]]:
        """Of each session served at more than one place: turn, router, replica and reason, in order."""
        told: dict[int, list[tuple[int, int, str, str]]] = {}
        for turn in self.turns:
            row = (turn.number, turn.router, turn.replica, turn.reason)
            told.setdefault(turn.session, []).append(row)
        return [rows for rows in told.values() if len({row[2] for row in rows}) > 1]

    def homes(self, n: int) -> list[str]:
        """Where one session's turns were served, each place once, in order."""
        found: list[str] = []
        for turn in self.turns:
            if turn.session == n and turn.replica not in found:
                found.append(turn.replica)
        return found
