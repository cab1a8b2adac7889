"""Redis killed, hung, emptied, full: no request fails, none waits for it, and all is well when it is back."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.doubles.redis_server import free_port, running_redis
from tests.doubles.shared_routers import Agents, Several, several

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.doubles.redis_server import RedisServer

HEALED_S_MAX = 10.0
READ_S_MAX = 0.1
"""A tenth of what a command to the store may take. Of a router that gets a core when it wants one it is 5 ms."""


class Under:
    """Two routers under load, and the Redis between them."""

    def __init__(self, shared: Several, agents: Agents, server: RedisServer) -> None:
        self.shared = shared
        self.agents = agents
        self.server = server

    async def turns(self, n: int) -> None:
        """Wait for so many more turns."""
        await self.agents.more(n)

    async def healed(self, since_s: float) -> None:
        """Wait until both routers say that all is well and Redis has every session."""
        wanted = {turn.session for turn in self.agents.turns}
        while True:
            up = await asyncio.to_thread(self.shared.metrics_sum, "homeport_store_up")
            peers = await asyncio.to_thread(self.shared.metrics_sum, "homeport_store_peers")
            known = len(self.server.client.keys("homeport:v1:pin:*"))
            if up == peers == 2 and known >= len(wanted):
                return
            assert time.monotonic() - since_s < HEALED_S_MAX, (up, peers, known)
            await asyncio.sleep(0.1)

    def waited(self) -> float:
        """The share of all requests that waited for Redis longer than allowed."""
        n = within = 0.0
        for router in range(2):
            name = "homeport_store_read_seconds"
            n += self.shared.metric(router, f"{name}_count")
            within += self.shared.metric(router, f"{name}_bucket", f'{{le="{READ_S_MAX}"}}')
        return (n - within) / len(self.agents.turns)

    def warnings(self) -> list[str]:
        """What the routers' logs say of the store."""
        lines = [line for router in self.shared.routers for line in router.lines]
        return [line for line in lines if "store-" in line]


@asynccontextmanager
async def under_load(*flags: str) -> AsyncIterator[Under]:
    with (
        running_redis(*flags) as server,
        several(2, 3, redis_url=server.url, time_scale=4.0) as shared,
    ):
        agents = Agents(shared.routers, 12, 400, pause_s=0.3)
        async with asyncio.TaskGroup() as group:
            group.create_task(agents.play())
            under = Under(shared, agents, server)
            await under.turns(36)
            yield under
            await under.turns(24)
            agents.is_over = True
        assert agents.failed == []
        assert all(turn.tries == 1 for turn in agents.turns)
        assert agents.moved == []


async def kill(under: Under) -> None:
    under.server.send(signal.SIGKILL)
    await under.turns(60)
    await asyncio.to_thread(under.server.start)


async def hang(under: Under, wait_s: float = 4.0) -> None:
    under.server.send(signal.SIGSTOP)
    await asyncio.sleep(wait_s)
    await under.turns(24)
    under.server.send(signal.SIGCONT)


async def flush(under: Under) -> None:
    under.server.client.flushall()


async def fill(under: Under) -> None:
    client = under.server.client
    client.set("filler", b"x" * 3_000_000)
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1_000_000)
    await under.turns(36)
    client.delete("filler")
    client.config_set("maxmemory", 0)


async def forbid(under: Under) -> None:
    """As a replica does that was a master until now."""
    under.server.client.execute_command("REPLICAOF", "127.0.0.1", "1")
    await under.turns(36)
    under.server.client.execute_command("REPLICAOF", "NO", "ONE")


@pytest.mark.parametrize("trouble", [kill, hang, flush, fill, forbid])
async def test_no_request_notices(trouble: Callable[[Under], object]) -> None:
    async with under_load() as under:
        await trouble(under)  # type: ignore[misc]
        await under.healed(time.monotonic())
        assert under.waited() <= 0.01
        told = under.warnings()
        n_told = 0 if trouble is flush else 2  # one of each router
        assert sum("store-trouble" in line for line in told) == n_told, told


@pytest.mark.slow
async def test_half_a_minute_of_silence() -> None:
    async with under_load() as under:
        await hang(under, 30.0)
        await under.healed(time.monotonic())
        assert under.waited() <= 0.01


async def test_routers_start_without_it_and_find_it_later() -> None:
    port = free_port()
    url = f"redis://127.0.0.1:{port}"
    with several(2, 2, redis_url=url, time_scale=4.0) as shared:
        agents = Agents(shared.routers, 8, 400, pause_s=0.3)
        async with asyncio.TaskGroup() as group:
            group.create_task(agents.play())
            await agents.until(lambda: len(agents.turns) >= 24)
            assert shared.metrics_sum("homeport_store_up") == 0
            with running_redis(port=port) as server:
                under = Under(shared, agents, server)
                await under.turns(16)
                await under.healed(time.monotonic())
                agents.is_over = True
        assert agents.failed == []
        assert agents.moved == []
