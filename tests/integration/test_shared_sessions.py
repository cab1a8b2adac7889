"""Two and four routers that share sessions through a real Redis, with agents that land on any of them."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
from typing import TYPE_CHECKING

import pytest

from router.recording.codec import Recording
from tests.doubles.processes import COMMAND, running
from tests.doubles.redis_server import running_redis
from tests.doubles.shared_routers import Agents, several

if TYPE_CHECKING:
    from pathlib import Path

N_SESSIONS = 16
N_TURNS = 8
PACE = {"pause_s": 0.5, "output_tokens": 60}


def played(n_routers: int, *flags: str, redis_url: str | None) -> tuple[Agents, float, float]:
    """The agents, commands to Redis a request, and how many routers each heard of at the end."""
    with several(n_routers, 3, *flags, redis_url=redis_url, time_scale=2.0) as shared:
        agents = Agents(shared.routers, N_SESSIONS, N_TURNS, **PACE)  # type: ignore[arg-type]
        before = shared.metrics_sum("homeport_store_commands_total")
        asyncio.run(agents.play())
        commands = shared.metrics_sum("homeport_store_commands_total") - before
        peers = shared.metrics_sum("homeport_store_peers") / n_routers
    assert agents.failed == []
    return agents, commands / len(agents.turns), peers


@pytest.fixture(scope="module")
def alone() -> Agents:
    """What one router makes of it."""
    return played(1, redis_url=None)[0]


@pytest.mark.parametrize("n_routers", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_any_router_knows_every_session(n_routers: int, alone: Agents) -> None:
    with running_redis() as server:
        agents, commands, peers = played(n_routers, redis_url=server.url)
        assert all(server.client.pttl(key) != -1 for key in server.client.keys("*"))
        assert {key.split(b":")[0] for key in server.client.keys("*")} == {b"homeport"}
    assert agents.moved == []
    assert agents.hit_ratio >= alone.hit_ratio - 0.01
    assert peers == n_routers - 1
    assert commands < 4.0  # so little traffic pays for the words that go around at any rate


@pytest.mark.parametrize("n_routers", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_routers_that_cannot_talk_agree(n_routers: int, alone: Agents) -> None:
    agents, _, _ = played(n_routers, "--routers-apart", redis_url=None)
    assert agents.moved == []
    assert agents.hit_ratio >= alone.hit_ratio - 0.03


async def test_a_killed_router_takes_no_session_with_it() -> None:
    with (
        running_redis() as server,
        several(3, 3, redis_url=server.url, time_scale=2.0) as shared,
    ):
        agents = Agents(shared.routers, N_SESSIONS, 40, **PACE)  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as group:
            group.create_task(agents.play())
            await agents.until(lambda: len(agents.turns) >= 3 * N_SESSIONS)
            await asyncio.to_thread(shared.routers[1].kill)
            await agents.more(4 * N_SESSIONS)
            agents.is_over = True
    assert agents.failed == []
    assert any(turn.tries > 1 for turn in agents.turns)
    for n in range(N_SESSIONS):
        mine = [turn for turn in agents.turns if turn.session == n]
        changes = [b.reason for a, b in itertools.pairwise(mine) if a.replica != b.replica]
        assert changes == [], (n, changes)


def test_what_others_told_is_in_a_recording_and_replays(tmp_path: Path) -> None:
    file = tmp_path / "shared.rec"
    with running_redis() as server, several(1, 3, redis_url=server.url, time_scale=2.0) as shared:
        named = [flag for url in shared.replicas for flag in ("--replica", url)]
        ports = ("--port", "0", "--admin-port", "0", "--no-access-log")
        flags = ("--redis-url", server.url, "--record", str(file))
        with running("serve", *ports, *named, *flags) as recorded:
            agents = Agents([*shared.routers, recorded], 8, 5, **PACE)  # type: ignore[arg-type]
            asyncio.run(agents.play())
    assert agents.failed == []
    told = subprocess.run(
        [*COMMAND, "replay", str(file)], capture_output=True, text=True, check=False, timeout=60
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "all equal" in told.stdout
    kinds = {type(record).__name__ for record in Recording(iter([file.read_bytes()]))}
    assert kinds >= {"Pinned", "Loaded", "Arrive"}
