"""What observing a fleet costs the router: its CPU while nothing is asked of it.

Emulated replicas, some dozens in each of a few processes, are named to a router with default settings;
once all are known, its CPU time is read at both ends of a window.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from bench.machine import Machine, cpu_ns, machine
from bench.targets import BenchError, announced, child

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.peers import Address

_A_PROCESS: Final = 50
_READY_S: Final = 120.0
_SETTLE_S: Final = 5.0
_REPLICA: Final = re.compile(r"replica ready url=http://([\d.]+):(\d+)")
_ROUTER: Final = re.compile(
    r"router ready url=http://([\d.]+):(\d+) admin_url=http://([\d.]+):(\d+)"
)
_PROBES: Final = re.compile(
    r'^homeport_probes_total\{kind="(\w+)",outcome="([\w-]+)"\} ([\d.e+]+)$', re.MULTILINE
)


class Round(msgspec.Struct, frozen=True):
    """One window: CPU seconds of the router, and what it asked meanwhile."""

    window_s: float
    cpu_s: float
    asked: dict[str, int]
    unanswered: int

    @property
    def share(self) -> float:
        """Of one core."""
        return self.cpu_s / self.window_s


class ObserveRun(msgspec.Struct, tag="observe", tag_field="kind"):
    """Everything a run measured."""

    machine: Machine
    replicas: int
    rounds: list[Round]


async def measure(*, replicas: int, rounds: int, seconds: float) -> ObserveRun:
    """Measure a router before so many emulated replicas.

    Raises:
        BenchError: a process failed.
    """
    run = ObserveRun(machine(peers={}), replicas, [])
    with tempfile.TemporaryDirectory(prefix="homeport-bench-") as place:
        folder = Path(place)
        async with contextlib.AsyncExitStack() as stack:
            addresses: list[Address] = []
            for first in range(0, replicas, _A_PROCESS):
                count = min(_A_PROCESS, replicas - first)
                log = folder / f"emulate-{first}.log"
                argv = [*_COMMAND, "emulate", "--count", str(count), "--log-level", "error"]
                await stack.enter_async_context(child(argv, log, None))
                addresses += await _all_ready(log, count)
            named = [w for host, port in addresses for w in ("--replica", f"http://{host}:{port}")]
            argv = [*_COMMAND, "serve", "--port", "0", "--admin-port", "0", *named]
            log = folder / "router.log"
            process = await stack.enter_async_context(child(argv, log, None))
            await announced(process, log, _ROUTER)
            match = _ROUTER.search(_printed(log))
            assert match is not None
            admin = match[3], int(match[4])
            await asyncio.sleep(_SETTLE_S)
            for number in range(rounds):
                row = await _round(process.pid, admin, seconds)
                asked = sum(row.asked.values())
                print(
                    f"round {number + 1}: {100 * row.share:.2f} % of a core, "
                    f"{asked / row.window_s:.0f} questions/s, {row.unanswered} unanswered",
                    file=sys.stderr,
                )
                run.rounds.append(row)
    return run


_COMMAND: Final = (sys.executable, "-P", "-m", "router.cli")


async def _round(pid: int, admin: Address, seconds: float) -> Round:
    before = await _probes(admin)
    begun_ns, begun_s = cpu_ns(pid), time.perf_counter()
    await asyncio.sleep(seconds)
    cpu_s, window_s = (cpu_ns(pid) - begun_ns) / 1e9, time.perf_counter() - begun_s
    after = await _probes(admin)
    asked: dict[str, int] = {}
    unanswered = 0
    for (kind, outcome), n in after.items():
        n_new = n - before.get((kind, outcome), 0)
        asked[kind] = asked.get(kind, 0) + n_new
        unanswered += 0 if outcome == "ok" else n_new
    return Round(window_s, cpu_s, asked, unanswered)


async def _probes(admin: Address) -> dict[tuple[str, str], int]:
    """The router's own count of what it has asked."""
    reader, writer = await asyncio.open_connection(*admin)
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")
    text = (await reader.read(-1)).decode()
    writer.close()
    return {(kind, outcome): int(float(n)) for kind, outcome, n in _PROBES.findall(text)}


async def _all_ready(log: Path, count: int) -> Sequence[Address]:
    """The addresses of a process's replicas, once all listen.

    Raises:
        BenchError: they do not in time; with the end of what was printed.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_READY_S):
            while True:
                found = _REPLICA.findall(_printed(log))
                if len(found) == count:
                    return [(host, int(port)) for host, port in found]
                await asyncio.sleep(0.1)
    raise BenchError(f"emulated replicas did not become ready:\n{_printed(log)[-2_000:]}")


def _printed(log: Path) -> str:
    return log.read_text(errors="replace")
