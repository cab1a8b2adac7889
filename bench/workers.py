"""``python -m bench.workers``: CPU per request of two workers beside one worker, and beside two routers.

All run at the same time under paced load from one generator, so that a noisy minute is noisy for all. ``one`` has
a rate and connections; ``workers`` (``--workers 2``) and ``apart`` (two routers that know nothing of each other,
which shows what a second process costs by itself) have twice as much: each process as much as ``one``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import uvloop
from typing_extensions import override

from bench.cases import CASES, Answer, answer_bytes, requests, templates
from bench.machine import machine, tree_cpu_ns
from bench.peers import Tools
from bench.tables import machine_lines
from bench.targets import N_WORKERS, Cpus, target, upstreams

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.cases import Case
    from bench.targets import Started

_TAIL_BYTES: Final = 5
_LAST_CHUNK: Final = b"0\r\n\r\n"
_SIDES: Final = {
    "one": ["homeport"],
    "workers": ["homeport-workers"],
    "apart": ["homeport"] * N_WORKERS,
}
"""The targets that each consists of."""


class Paced(asyncio.Protocol):
    """One connection that asks once a period, unless it still waits for an answer."""

    def __init__(self, source: Iterator[bytes], period_s: float, answer_bytes: int | None) -> None:
        """``answer_bytes`` is a whole answer's body, None for one that ends with its last chunk."""
        self.n = 0
        self._source, self._period_s, self._answer_bytes = source, period_s, answer_bytes
        self._seen = b""
        self._is_busy = False
        self._transport: asyncio.Transport | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def ask(self) -> None:
        """Ask now, and again after each period."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        asyncio.get_running_loop().call_later(self._period_s, self.ask)
        if not self._is_busy:
            self._is_busy, self._seen = True, b""
            transport.write(next(self._source))

    @override
    def data_received(self, data: bytes) -> None:
        if not self._seen and not data.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"a wrong answer: {data[:200]!r}")
        if self._answer_bytes is None:
            self._seen = (self._seen + data)[-_TAIL_BYTES:]
            is_whole = self._seen == _LAST_CHUNK
        else:
            self._seen += data
            _, end, body = self._seen.partition(b"\r\n\r\n")
            is_whole = bool(end) and len(body) >= self._answer_bytes
        if is_whole:
            self.n += 1
            self._is_busy = False


class Side:
    """One of those that are compared: its processes and its connections."""

    def __init__(self, started: Sequence[Started], connections: list[Paced]) -> None:
        self._pids = [each.pid for each in started]
        self._connections = connections

    def counts(self) -> tuple[int, int]:
        """CPU time so far in nanoseconds, and answers."""
        return sum(map(tree_cpu_ns, self._pids)), sum(each.n for each in self._connections)


async def measure(
    case: Case, *, rate: float, connections: int, rounds: int, seconds: float
) -> None:
    """Print CPU per request of each side, and medians of the ratios to one worker."""
    tools, cpus = Tools(), Cpus()
    ratios: dict[str, list[float]] = {"workers": [], "apart": []}
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="homeport-bench-")))
        replicas = await stack.enter_async_context(upstreams(case.answer, folder, cpus))
        sides: dict[str, Side] = {}
        for name, names in _SIDES.items():
            started: list[Started] = []
            for number, kind in enumerate(names):
                place = folder / f"{name}-{number}"
                place.mkdir()
                router = target(kind, replicas, place, tools, cpus)
                started.append(await stack.enter_async_context(router))
            times = 1 if name == "one" else N_WORKERS
            sides[name] = Side(
                started, await _connected(case, started, rate * times, connections * times)
            )
        await asyncio.sleep(min(5.0, seconds))
        for number in range(rounds):
            before = {name: side.counts() for name, side in sides.items()}
            await asyncio.sleep(seconds)
            us: dict[str, float] = {}
            words = []
            for name, side in sides.items():
                cpu_ns, n = (
                    now - then for now, then in zip(side.counts(), before[name], strict=True)
                )
                us[name] = cpu_ns / 1e3 / n
                words.append(f"{name} {n / seconds:.0f}/s {us[name]:.0f} us")
            for name, found in ratios.items():
                found.append(us[name] / us["one"])
            print(f"round {number + 1}: {', '.join(words)}", flush=True)
    for name, found in ratios.items():
        print(
            f"{name}: {statistics.median(found):.2f} of one worker's CPU a request "
            f"({min(found):.2f}-{max(found):.2f})"
        )


async def _connected(
    case: Case, started: Sequence[Started], rate: float, count: int
) -> list[Paced]:
    """Connections that ask one after the other, so many times a second together."""
    loop, bodies = asyncio.get_running_loop(), templates(case)
    n_sessions = max(count, len(bodies))
    found: list[Paced] = []
    for number in range(count):
        mine = [n for n in range(n_sessions) if n % count == number]
        source = requests([(f"ses_{n:012d}", bodies[n % len(bodies)]) for n in mine], first_pass=1)
        whole = answer_bytes(case.answer) if case.answer is Answer.WHOLE else None
        connection = Paced(source, count / rate, whole)
        address = started[number % len(started)].addresses[0]
        await loop.create_connection(lambda connection=connection: connection, *address)  # type: ignore[misc]
        loop.call_later(number / rate, connection.ask)
        found.append(connection)
    return found


def main() -> int:
    """Measure as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__)
    parser.add_argument("--case", choices=list(CASES), default="small")
    parser.add_argument("--rate", type=float, default=200.0, help="requests/s of one worker")
    parser.add_argument("--connections", type=int, default=32, help="of one worker")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="the window of a round")
    options = parser.parse_args()
    print("\n".join(machine_lines(machine(peers={}))))
    uvloop.run(
        measure(
            CASES[options.case],
            rate=options.rate,
            connections=options.connections,
            rounds=options.rounds,
            seconds=options.seconds,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
