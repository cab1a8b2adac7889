"""Memory of a router a client: connections that are idle, and streams that wait for their next event.

Each kind is measured with a router of its own. Every connection first gets a whole answer (idle) or
the first event of a stream behind a 400 KB request (streams), then nothing more happens on it; what
counts is by how much the router's resident memory has grown when all are there.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import msgspec
from typing_extensions import override

from bench.cases import CASES, Answer, requests, templates
from bench.machine import Machine, machine
from bench.targets import BenchError, Cpus, target, upstreams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.conversations import Template
    from bench.peers import Address, Tools

    Bodies = Sequence[Sequence[Template]]

_AT_ONCE: Final = 16
"""Connections that are being made at a time: more would measure buffers of a crowd that arrives."""

_STUCK_S: Final = 60.0
_CALM_S: Final = 1.5
_LOOK_S: Final = 0.25
_RSS: Final = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)
_OK: Final = b"HTTP/1.1 200"


class Grown(msgspec.Struct, frozen=True):
    """One target: KiB of resident memory before anybody came and when ``count`` clients were there."""

    target: str
    kind: str
    count: int
    before_kib: int
    after_kib: int

    @property
    def each_kib(self) -> float:
        """What one client takes."""
        return (self.after_kib - self.before_kib) / self.count


class MemoryRun(msgspec.Struct, tag="memory", tag_field="kind"):
    """Everything a run measured."""

    machine: Machine
    rows: list[Grown]


class Client(asyncio.Protocol):
    """One connection: sends one request, and is ``arrived`` when its answer has begun."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.transport: asyncio.Transport | None = None
        self.arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._data)

    @override
    def data_received(self, data: bytes) -> None:
        if self.arrived.done():
            return
        if data.startswith(_OK):
            self.arrived.set_result(None)
        else:
            self.arrived.set_exception(BenchError(f"the answer began with {data[:80]!r}"))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if not self.arrived.done():
            self.arrived.set_exception(BenchError(f"a connection was closed ({exc})"))


async def measure(targets: Sequence[str], tools: Tools, *, idle: int, streams: int) -> MemoryRun:
    """Measure each target with ``idle`` idle connections, and anew with ``streams`` streams.

    Raises:
        BenchError: a process failed or a client got no good answer.
    """
    run = MemoryRun(machine(peers=tools.versions), [])
    for name in targets:
        if name == "direct":
            continue
        for kind, count in (("idle", idle), ("streams", streams)):
            if count:
                row = await _measure_one(name, kind, count, tools)
                print(f"{name:<14} {kind:<8}{row.each_kib:9.1f} KiB each", file=sys.stderr)
                run.rows.append(row)
    return run


async def _measure_one(name: str, kind: str, count: int, tools: Tools) -> Grown:
    case = CASES["small" if kind == "idle" else "burst"]
    answer = Answer.WHOLE if kind == "idle" else Answer.HELD
    bodies = templates(case)
    with tempfile.TemporaryDirectory(prefix="homeport-bench-") as place:
        folder = Path(place)
        async with (
            upstreams(answer, folder, Cpus()) as replicas,
            target(name, replicas, folder, tools, Cpus()) as started,
        ):
            await _warm_up(started.addresses[0], bodies)
            before_kib = await _settled_kib(started.pid)
            crowd: list[Client] = []
            gate = asyncio.Semaphore(_AT_ONCE)

            async def come(number: int) -> None:
                async with gate:
                    crowd.append(await _client(started.addresses[0], number, bodies))

            try:
                async with asyncio.TaskGroup() as group:
                    for number in range(count):
                        group.create_task(come(number))
                after_kib = await _settled_kib(started.pid)
            except* BenchError as failures:
                raise BenchError(f"{kind}, {name}: {failures.exceptions[0]}") from None
            finally:
                for client in crowd:
                    if client.transport is not None:
                        client.transport.abort()
    return Grown(name, kind, count, before_kib, after_kib)


async def _warm_up(address: Address, bodies: Bodies) -> None:
    """Let what is built once be built."""
    for number in range(_AT_ONCE):
        client = await _client(address, -1 - number, bodies)
        assert client.transport is not None
        client.transport.abort()


async def _client(address: Address, number: int, bodies: Bodies) -> Client:
    """A connection whose answer has begun; each has a session of its own."""
    session = [(f"ses_{number:012d}", bodies[number % len(bodies)])]
    data = next(requests(session, first_pass=1))
    _, client = await asyncio.get_running_loop().create_connection(lambda: Client(data), *address)
    async with asyncio.timeout(_STUCK_S):
        await client.arrived
    return client


async def _settled_kib(pid: int) -> int:
    """Resident memory of a process once it stays the same for a moment."""
    kib, since_s = _rss_kib(pid), 0.0
    for _ in range(int(_STUCK_S / _LOOK_S)):
        await asyncio.sleep(_LOOK_S)
        now_kib = _rss_kib(pid)
        since_s = since_s + _LOOK_S if now_kib == kib else 0.0
        kib = now_kib
        if since_s >= _CALM_S:
            break
    return kib


def _rss_kib(pid: int) -> int:
    match = _RSS.search(Path(f"/proc/{pid}/status").read_text())
    assert match is not None, "a living process has resident memory"
    return int(match[1])
