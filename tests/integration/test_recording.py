"""A real router records its traffic; the replay decides as it did, and the file tells no words."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import socket
import subprocess
import zlib
from typing import TYPE_CHECKING

import aiohttp
import httpx2

from router.recording.codec import MAGIC, Recording
from router.recording.player import Player, arrivals
from tests.doubles.agents import BODIES, SESSION_HEADER, SYSTEM
from tests.doubles.processes import COMMAND, end, stack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.doubles.processes import Stack

N_SESSIONS = 12
PATHS = sorted(BODIES)
WORDS = "the quick brown fox of session"


class Load:
    """Sessions that grow turn by turn, more of them than the fleet takes at once."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._changed = asyncio.Condition()
        self.statuses: list[int] = []
        self.is_over = False

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(40), self._changed:
            await self._changed.wait_for(holds)

    def count(self, status: int) -> int:
        return self.statuses.count(status)

    async def session(self, http: aiohttp.ClientSession, n: int) -> None:
        """One agent; every third one sends no session id."""
        path = PATHS[n % 2]
        body = json.loads(BODIES[path](f"{WORDS} {n}"))
        headers = {"content-type": "application/json"}
        if n % 3:
            headers[SESSION_HEADER[path]] = f"secret-session-{n}"
        for turn in itertools.count():
            if self.is_over:
                return
            try:
                sent = json.dumps(body)
                async with http.post(f"{self._url}{path}", data=sent, headers=headers) as got:
                    await got.read()
                    status = got.status
            except aiohttp.ClientError:
                status = 0
            self.statuses.append(status)
            async with self._changed:
                self._changed.notify_all()
                if status == 503:
                    n_served = self.count(200)
                    await self._changed.wait_for(
                        lambda: self.is_over or self.count(200) > n_served  # noqa: B023
                    )
            if status == 200:
                body["messages"].append({"role": "assistant", "content": f"reply {turn} " * 30})
                body["messages"].append({"role": "user", "content": f"{WORDS} {n} {turn}"})


def homeport(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=40, check=False
    )


async def play(started: Stack) -> Load:
    """Load with a replica killed in the midst of it."""
    load = Load(started.router.url)
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(timeout=timeout) as http, asyncio.TaskGroup() as group:
        for n in range(N_SESSIONS):
            group.create_task(load.session(http, n))
        await load.until(lambda: load.count(200) >= 100)
        await asyncio.to_thread(started.replicas[0].kill)
        before = load.count(200)
        await load.until(lambda: load.count(200) >= before + 150 and load.count(503) >= 5)
        load.is_over = True
        async with load._changed:
            load._changed.notify_all()
    return load


def replayed(path: Path) -> tuple[Recording, Player]:
    recording = Recording(iter([path.read_bytes()]))
    player = Player(recording.header)
    assert [str(difference) for difference in player.play(recording)] == []
    return recording, player


async def test_a_router_under_trouble_replays_decision_by_decision(tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    flags = ("--record", str(path), "--probe-s", "0.25", "--max-inflight-per-replica", "3")
    with stack(3, *flags, time_scale=20.0) as started:
        load = await play(started)
        metrics = httpx2.get(f"{started.router.admin_url}/metrics").text
        await asyncio.to_thread(end, started.router)
        assert started.router.process.returncode == 0
    assert "homeport_recording 1.0" in metrics
    recording, player = replayed(path)
    assert (recording.is_truncated, recording.end_reason) == (False, "closed")
    tally = player.tally
    assert tally.placed >= load.count(200) >= 250
    assert tally.refused >= 5
    assert tally.placed + tally.refused >= len(load.statuses) - load.count(0)
    assert player.core.history.totals.rehomes + tally.moved > 0  # the killed replica's sessions
    told = await asyncio.to_thread(homeport, "replay", str(path))
    assert told.returncode == 0, told.stderr
    assert told.stdout.endswith("all equal\n")
    assert f"{tally.placed:,} placed" in told.stdout
    # No words.
    data = zlib.decompress(path.read_bytes().removeprefix(MAGIC))
    for secret in (WORDS, SYSTEM[:20], "secret-session", "kimi-k2.6", "chain:", "reply", "tool_"):
        assert secret.encode() not in data
    again = Recording(iter([path.read_bytes()]))
    sessions = {row.facts.session_key for row in arrivals(again.header, again)}
    assert len(sessions) >= N_SESSIONS
    assert path.stat().st_size / tally.placed < 150


async def test_what_a_killed_router_had_written_replays(tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    with stack(2, "--record", str(path), "--probe-s", "0.25", time_scale=20.0) as started:
        load = Load(started.router.url)
        async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
            for n in range(4):
                group.create_task(load.session(http, n))
            await load.until(lambda: load.count(200) >= 20)
            async with asyncio.timeout(20):
                # Another process makes it true: there is nothing to wait on but time.
                while path.stat().st_size < 1_500:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            started.router.signal(signal.SIGKILL)
            load.is_over = True
    recording, player = replayed(path)
    assert recording.is_truncated
    assert player.tally.placed > 5


def test_a_router_that_could_not_listen_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = homeport("serve", "--port", port, "--admin-port", "0", "--record", str(path))
    assert done.returncode == 1
    assert "cannot listen on" in done.stderr
    assert not path.exists()


def test_mistakes_with_files_are_one_line(tmp_path: Path) -> None:
    here = tmp_path / "here.rec"
    here.write_text("something else")
    ports = ("--port", "0", "--admin-port", "0")
    for command, said in (
        (("serve", *ports, "--record", str(here)), "the file exists"),
        (("replay", str(here)), "this is no recording: it begins with b'something else'"),
        (("replay", str(tmp_path / "gone")), "No such file or directory"),
        (("replay",), "file"),
    ):
        done = homeport(*command)
        assert done.returncode == 2, command
        assert said in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
    assert here.read_text() == "something else"
