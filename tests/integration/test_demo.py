"""``homeport demo`` as a process: traffic, its report, and no process left behind, however it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import aiohttp

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

_COMMAND = (sys.executable, "-P", "-m", "router.cli", "demo", "--port", "0")
_SMALL = ("--replicas", "2", "--lanes", "6", "--time-scale", "20", "--json")


class Demo:
    """A running demo and the mark that all its processes carry in their environment."""

    def __init__(self, process: Process, mark: str) -> None:
        self.process = process
        self._mark = mark.encode()

    def pids(self) -> set[int]:
        """Processes of this demo that have not ended, the demo itself included."""
        found = set()
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    environment = (folder / "environ").read_bytes()
                except OSError:
                    continue
                if self._mark in environment:
                    found.add(int(folder.name))
        return found

    async def ready(self) -> dict[str, str]:
        """The environment variables that it tells an agent to use."""
        assert self.process.stderr is not None
        told = {}
        async for raw in self.process.stderr:
            line = raw.decode().strip()
            if line.startswith("export "):
                name, _, value = line.removeprefix("export ").partition("=")
                told[name] = value
            elif line.startswith("control API"):
                return told
        raise AssertionError(f"the demo ended before it was ready; it told {told}")

    async def end(self) -> tuple[int, dict[str, Any], str]:
        """Exit code, JSON report and the rest of standard error."""
        out, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, json.loads(out) if out else {}, err.decode()


@asynccontextmanager
async def _demo(*arguments: str) -> AsyncIterator[Demo]:
    mark = uuid4().hex
    process = await asyncio.create_subprocess_exec(
        *(*_COMMAND, *arguments),
        env={**os.environ, "TEST_MARK": mark},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    demo = Demo(process, mark)
    try:
        yield demo
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_timed_demo_reports_and_leaves_no_process() -> None:
    async with _demo(*_SMALL, "--duration", "3", "--seed", "7") as demo:
        told = await demo.ready()
        assert told["OPENAI_BASE_URL"] == told["ANTHROPIC_BASE_URL"] + "/v1"
        # Itself, the router, the supervisor, the emulated replicas and their guardian.
        assert len(demo.pids()) == 5
        code, report, errors = await demo.end()
        assert code == 0, errors
        assert report["errors"] == 0, report["error_kinds"]
        assert report["requests"] >= 10
        assert 0.3 < report["hit_ratio"] <= report["hit_ratio_ceiling"] + 0.01
        assert 0.0 < report["ttft_s"]["p50"] <= report["ttft_s"]["p99"]
        assert sum(report["per_replica"].values()) == report["requests"]
        assert len(report["per_replica"]) == 2
        assert {replica["state"] for replica in report["router"]["replicas"]} == {"ready"}
        assert demo.pids() == set()


async def test_ctrl_c_ends_it_cleanly() -> None:
    async with _demo(*_SMALL) as demo:
        await demo.ready()
        demo.process.send_signal(signal.SIGINT)
        code, report, errors = await demo.end()
        assert code == 0, errors
        assert report["policy"] == "home"
        assert "Traceback" not in errors
        assert demo.pids() == set()


async def test_ctrl_c_before_it_is_ready_ends_it_too() -> None:
    async with _demo(*_SMALL) as demo:
        assert demo.process.stderr is not None
        assert await demo.process.stderr.readline()  # "starting ..."
        demo.process.send_signal(signal.SIGTERM)
        code, _, errors = await demo.end()
        assert code == 0, errors
        assert demo.pids() == set()


async def test_a_killed_demo_takes_its_children_along() -> None:
    async with _demo(*_SMALL) as demo:
        await demo.ready()
        children = demo.pids() - {demo.process.pid}
        watches = {os.pidfd_open(pid) for pid in children}
        try:
            demo.process.kill()
            await demo.process.wait()
            async with asyncio.timeout(10):
                for watch in watches:
                    await _readable(watch)
        finally:
            for watch in watches:
                os.close(watch)
        assert len(watches) == 4


async def test_a_child_that_dies_is_one_clear_error() -> None:
    async with _demo("--policy", "no-such-policy", "--json") as demo:
        code, _, errors = await demo.end()
        assert code == 1
        assert "homeport serve (pid " in errors
        assert "no-such-policy" in errors
        assert "Traceback" not in errors
        assert demo.pids() == set()


async def test_without_load_it_serves_whoever_comes() -> None:
    async with _demo("--replicas", "1", "--time-scale", "100", "--no-load", "--json") as demo:
        told = await demo.ready()
        body = {"model": "kimi-k2.6", "messages": [{"role": "user", "content": "Hello"}]}
        async with (
            aiohttp.ClientSession() as client,
            client.post(told["OPENAI_BASE_URL"] + "/chat/completions", json=body) as answer,
        ):
            assert answer.status == 200
            assert (await answer.json())["choices"][0]["message"]["content"]
        demo.process.send_signal(signal.SIGINT)
        code, report, errors = await demo.end()
        assert code == 0, errors
        assert "requests" not in report
        assert report["lanes"] == 0


async def _readable(descriptor: int) -> None:
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)
