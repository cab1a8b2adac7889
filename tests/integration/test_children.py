"""Child processes: ready lines, failures with their last lines, and none left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from sim.live.children import ChildError, Children, child_failures

_READY = "print('thing ready url=http://x a=b=c', flush=True);"
_PYTHON = (sys.executable, "-c")
_STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"


def _is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


async def _ended(pid: int) -> None:
    """Wait until a process that is not our child has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        async with asyncio.timeout(10):
            await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def test_ready_lines_are_read_and_children_end_with_the_block() -> None:
    async with Children(_PYTHON) as children:
        child = await children.start("thing", [f"{_READY} import time; time.sleep(600)"])
        assert await child.wait_ready(1) == [{"url": "http://x", "a": "b=c"}]
        assert _is_running(child.process.pid)
    assert child.process.returncode == -signal.SIGTERM
    assert not _is_running(child.process.pid)


async def test_a_child_that_dies_ends_the_block_with_its_last_lines() -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(ChildError, match="exit code 3")) as caught:
        async with Children(_PYTHON) as children:
            other = await children.start("other", ["import time; time.sleep(600)"])
            await children.start("thing", ["import sys; print('cause'); sys.exit(3)"])
            await asyncio.sleep(600)
    (text,) = child_failures(caught.value)
    assert text.startswith("thing (pid ")
    assert text.endswith("  | cause")
    assert not _is_running(other.process.pid)


async def test_a_stubborn_child_and_its_own_children_are_killed() -> None:
    grandchild = (
        "import subprocess, sys;"
        f"p = subprocess.Popen([sys.executable, '-c', {_STUBBORN + 'time.sleep(600)'!r}]);"
        "print('thing ready', f'pid={p.pid}', flush=True);"
    )
    async with Children(_PYTHON, stop_s_max=0.1) as children:
        child = await children.start("thing", [f"{_STUBBORN}{grandchild} time.sleep(600)"])
        pid = int((await child.wait_ready(1))[0]["pid"])
    assert child.process.returncode == -signal.SIGKILL
    await _ended(pid)


async def test_children_die_with_a_killed_parent() -> None:
    script = (
        "import asyncio\n"
        "from sim.live.children import Children\n"
        "async def main():\n"
        f"    async with Children({_PYTHON!r}) as children:\n"
        "        child = await children.start('x', ['import time; time.sleep(600)'])\n"
        "        print(child.process.pid, flush=True)\n"
        "        await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(*_PYTHON, script, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert _is_running(pid)
    os.kill(parent.pid, signal.SIGKILL)
    await parent.wait()
    await _ended(pid)
