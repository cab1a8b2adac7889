"""Guarded processes: whatever ends whom, nothing of an engine is left, and its output never holds it up."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replica.supervise.engine.process import EngineProcess, Exit
from tests.doubles import frail_engine
from tests.doubles.marked import NAME, new_mark, none_left, wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SLEEP = (sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)")
FRAIL = (sys.executable, str(Path(frail_engine.__file__)))
GONE_S_MAX = 10.0


class Guarded:
    """One engine process under test, with what it printed."""

    def __init__(self, engine: EngineProcess, lines: list[str], said: asyncio.Event) -> None:
        self.engine = engine
        self.lines = lines
        self._said = said

    async def line(self, count: int = 1) -> str:
        """Its ``count``-th line."""
        async with asyncio.timeout(GONE_S_MAX):
            while len(self.lines) < count:
                self._said.clear()
                await self._said.wait()
        return self.lines[count - 1]


@asynccontextmanager
async def guarded(mark: str, *argv: str) -> AsyncIterator[tuple[Guarded, asyncio.Task[Exit]]]:
    lines: list[str] = []
    said = asyncio.Event()

    def on_line(line: str) -> None:
        if len(lines) < 1000:
            lines.append(line)
        said.set()

    environment = {**os.environ, NAME: mark}
    engine = await EngineProcess.start(argv, environment, on_line)
    async with asyncio.TaskGroup() as tasks:
        ended = tasks.create_task(engine.ended())
        try:
            yield Guarded(engine, lines, said), ended
        finally:
            engine.kill()


async def outcome(ended: asyncio.Task[Exit]) -> Exit:
    async with asyncio.timeout(GONE_S_MAX):
        return await asyncio.shield(ended)


async def family(mark: str, count: int = 4) -> dict[int, str]:
    """The guardian, the engine, its child and its grandchild, once all are there."""
    return await asyncio.to_thread(wait_for, mark, count)


async def test_it_is_told_how_a_program_ended() -> None:
    mark = new_mark()
    async with guarded(mark, sys.executable, "-c", "print('bye'); raise SystemExit(7)") as (
        it,
        ended,
    ):
        assert await outcome(ended) == Exit(7)
        assert it.lines == ["bye"]
    assert none_left(mark) == {}


async def test_a_signal_is_told_as_one() -> None:
    async with guarded(new_mark(), *SLEEP) as (it, ended):
        await it.line()
        it.engine.term()
        assert await outcome(ended) == Exit(-signal.SIGTERM)


@pytest.mark.parametrize(("name", "number"), [("missing", 2), ("plain", 13)])
async def test_a_program_that_cannot_be_executed_says_why(
    name: str, number: int, tmp_path: Path
) -> None:
    (tmp_path / "plain").write_text("no program")
    async with guarded(new_mark(), str(tmp_path / name)) as (_, ended):
        assert (await outcome(ended)).not_executed == number


async def test_a_detached_grandchild_ends_with_the_engine() -> None:
    mark = new_mark()
    async with guarded(mark, *FRAIL, "0", "family") as (it, ended):
        await family(mark)
        assert it.engine.pid is not None
        os.kill(it.engine.pid, signal.SIGKILL)
        assert await outcome(ended) == Exit(-signal.SIGKILL)
        assert none_left(mark) == {}


async def test_stopped_processes_are_killed_as_well() -> None:
    mark = new_mark()
    async with guarded(mark, *FRAIL, "0", "family", "stubborn") as (it, ended):
        await family(mark)
        assert it.engine.pid is not None
        os.kill(it.engine.pid, signal.SIGSTOP)
        it.engine.kill()
        assert (await outcome(ended)).was_killed
        assert none_left(mark) == {}


async def test_a_killed_guardian_takes_everything_along() -> None:
    mark = new_mark()
    script = (
        "import asyncio, os, sys\n"
        "from replica.supervise.engine.process import EngineProcess, adopt_orphans\n"
        "async def main():\n"
        "    adopt_orphans()\n"
        "    engine = await EngineProcess.start(sys.argv[1:], dict(os.environ), lambda line: None)\n"
        "    print(await engine.ended(), flush=True)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", script, *FRAIL, "0", "family"]
    supervisor = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, NAME: mark}, stdout=subprocess.PIPE
    )
    assert supervisor.stdout is not None
    async with asyncio.timeout(2 * GONE_S_MAX):
        there = await family(mark, 5)
        (guardian,) = (pid for pid, words in there.items() if "guardian.py" in words)
        os.kill(guardian, signal.SIGKILL)
        assert b"code=None" in await supervisor.stdout.readline()
        await supervisor.wait()
    assert none_left(mark) == {}


def test_a_killed_supervisor_leaves_nothing() -> None:
    mark = new_mark()
    script = (
        "import asyncio, os, sys\n"
        "from replica.supervise.engine.process import EngineProcess\n"
        "async def main():\n"
        "    engine = await EngineProcess.start(sys.argv[1:], dict(os.environ), lambda line: None)\n"
        "    await engine.ended()\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", script, *FRAIL, "0", "family", "stubborn"]
    supervisor = subprocess.Popen(command, env={**os.environ, NAME: mark})
    wait_for(mark, 5)
    supervisor.kill()
    supervisor.wait()
    assert none_left(mark) == {}


async def test_an_engine_that_floods_its_log_is_read_and_can_be_ended() -> None:
    mark = new_mark()
    async with guarded(mark, *FRAIL, "0", "flood") as (it, ended):
        await it.line(1000)
        it.engine.term()
        assert await outcome(ended) == Exit(-signal.SIGTERM)
    assert none_left(mark) == {}
