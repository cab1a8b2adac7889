"""A router of several worker processes: who they are, and whether it ever refuses a connection."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from yarl import URL

from tests.doubles.shared_routers import several

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.doubles.processes import Running
    from tests.doubles.shared_routers import Several

WAIT_S = 40.0


@dataclass
class Workers:
    """One router; ``fleet`` has its metrics and its replicas."""

    fleet: Several

    @property
    def router(self) -> Running:
        """The parent."""
        return self.fleet.routers[0]

    @property
    def pids(self) -> list[int]:
        """The workers' processes."""
        return children(self.router.process.pid)

    def said(self, words: str) -> int:
        """How many lines of the log have these words."""
        return sum(words in line for line in self.router.lines)

    def metric(self, name: str, labels: str = "") -> float:
        """One number of the whole router's metrics."""
        return self.fleet.metric(0, name, labels)

    def metrics_sum(self, name: str) -> float:
        """The same, summed over its labels."""
        return self.fleet.metrics_sum(name)


@contextlib.contextmanager
def workers(n: int, *flags: str, replicas: int = 3, time_scale: float = 20.0) -> Iterator[Workers]:
    """A router of ``n`` workers that is ready, before emulated replicas."""
    with several(1, replicas, "--workers", str(n), *flags, time_scale=time_scale) as fleet:
        yield Workers(fleet)


def children(pid: int) -> list[int]:
    """The processes that a process started and that are there."""
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def is_there(pid: int) -> bool:
    """A process runs; one that nobody has waited for yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def until(holds: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    """Look again and again until something holds of other processes, which tell nobody."""
    end_s = time.monotonic() + wait_s
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < end_s, "it did not come to hold"
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def knocking(url: str) -> AsyncIterator[list[str]]:
    """Connect all the time while the block runs; yields what was wrong with any."""
    host, port = URL(url).host, URL(url).port
    wrong: list[str] = []

    async def knock() -> None:
        while True:
            try:
                _, writer = await asyncio.open_connection(host, port)
            except OSError as failure:
                wrong.append(repr(failure))
            else:
                writer.close()
            await asyncio.sleep(0.005)

    task = asyncio.create_task(knock())
    try:
        yield wrong
    finally:
        task.cancel()
