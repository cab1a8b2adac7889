"""What is measured: each target as a fresh process before two upstreams.

A target is started for one measurement and ended after it, so that none inherits what another
left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from bench.conversations import API_KEY, small_body
from bench.peers import Address, Place, Tools, command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from bench.cases import Answer

ROOT: Final = Path(__file__).resolve().parent.parent
N_UPSTREAMS: Final = 2
N_WORKERS: Final = 2
T = TypeVar("T")

_READY_S: Final = 30.0
_END_S: Final = 5.0
_ASK_EVERY_S: Final = 0.02
_TENANTS: Final = """\
[tenants.bench]
keys = ["sha256:{digest}"]
inflight_max = 100000
requests_per_min_max = 100000000
prompt_tokens_per_min_max = 1000000000000
"""
_UPSTREAM_READY: Final = re.compile(r"upstream ready url=http://([\d.]+):(\d+)")
_ROUTER_READY: Final = re.compile(r"router ready url=http://([\d.]+):(\d+)")


class BenchError(Exception):
    """A process did not do its part."""


@dataclass(slots=True, frozen=True)
class Cpus:
    """Where processes run: None leaves them to the scheduler."""

    router: set[int] | None = None
    others: set[int] | None = None

    @classmethod
    def pinned(cls) -> Cpus:
        """The router alone on the last CPU, all else on the others.

        Raises:
            BenchError: there is one CPU only.
        """
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) == 1:
            raise BenchError("--pin needs two CPUs")
        return cls({cpus[-1]}, set(cpus[:-1]))


@dataclass(slots=True, frozen=True)
class Started:
    """A running target: where to send requests, and the process whose CPU time counts, with its children's."""

    addresses: list[Address]
    pid: int


def known_targets(tools: Tools) -> list[str]:
    """The targets that can be measured here, the baseline first."""
    before = [name for name in ("haproxy", "nginx") if name in tools.programs]
    behind = [name for name in ("sglang-router", "smg") if name in tools.programs]
    return ["direct", *before, "homeport", "homeport-full", "homeport-workers", *behind]


@contextlib.asynccontextmanager
async def upstreams(answer: Answer, folder: Path, cpus: Cpus) -> AsyncIterator[list[Address]]:
    """The bench's own replicas, one process each."""
    argv = [sys.executable, "-m", "bench.upstream", answer.value]
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for number in range(N_UPSTREAMS):
            log = folder / f"upstream-{number}.log"
            process = await stack.enter_async_context(child(argv, log, cpus.others))
            found.append(await announced(process, log, _UPSTREAM_READY))
        yield found


@contextlib.asynccontextmanager
async def target(
    name: str, replicas: Sequence[Address], folder: Path, tools: Tools, cpus: Cpus
) -> AsyncIterator[Started]:
    """Start one target before the replicas, and end it afterwards."""
    if name == "direct":
        yield Started(list(replicas), 0)
        return
    log = folder / f"{name}.log"
    if name.startswith("homeport"):
        argv = _homeport(replicas, folder, is_full=name == "homeport-full")
        if name == "homeport-workers":
            argv += ["--workers", str(N_WORKERS)]
        async with child(argv, log, cpus.router) as process:
            yield Started([await announced(process, log, _ROUTER_READY)], process.pid)
        return
    port, spare_port = _free_ports(2)
    place = Place(("127.0.0.1", port), replicas, folder, spare_port)
    argv = command(name, tools, place)
    async with child(argv, log, cpus.router) as process:
        await _answering(process, log, place.address)
        yield Started([place.address], process.pid)


def _homeport(replicas: Sequence[Address], folder: Path, *, is_full: bool) -> list[str]:
    """The router: as small as it can be, or with access log, keys and a tenant's limits."""
    flags = [word for host, port in replicas for word in ("--replica", f"http://{host}:{port}")]
    more = ["--no-access-log"]
    if is_full:
        tenants = folder / "tenants.toml"
        tenants.write_text(_TENANTS.format(digest=hashlib.sha256(API_KEY.encode()).hexdigest()))
        more = ["--access-log", "--tenants-file", str(tenants)]
    return [
        *(sys.executable, "-P", "-m", "router.cli", "serve", *flags),
        *("--port", "0", "--admin-port", "0", "--policy", "home", *more),
    ]


def _free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        listeners = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [int(listener.getsockname()[1]) for listener in listeners]


@contextlib.asynccontextmanager
async def child(
    argv: Sequence[str], log: Path, cpus: set[int] | None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child whose output goes to a file; it is ended with its user."""
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=ROOT,
            env=child_env(),
        )
    try:
        if cpus is not None:
            os.sched_setaffinity(process.pid, cpus)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_END_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def child_env() -> dict[str, str]:
    """Our environment without what would set up the router."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HOMEPORT_")}


async def announced(
    process: asyncio.subprocess.Process, log: Path, pattern: re.Pattern[str]
) -> Address:
    """Wait for the line that tells the address."""

    async def found() -> Address | None:
        match = pattern.search(_printed(log))
        return (match[1], int(match[2])) if match else None

    return await _ready(process, log, found)


async def _answering(process: asyncio.subprocess.Process, log: Path, address: Address) -> None:
    """Wait until a request is answered; a health check passes before it knows its replicas."""
    body = small_body()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}"
    )

    async def passes() -> bool | None:
        try:
            reader, writer = await asyncio.open_connection(*address)
        except OSError:
            return None
        writer.write(b"%b\r\n\r\n%b" % (head.encode(), body))
        line = b""
        with contextlib.suppress(OSError):
            line = await reader.readline()
        writer.close()
        return True if b" 200 " in line else None

    await _ready(process, log, passes)


async def _ready(
    process: asyncio.subprocess.Process, log: Path, ask: Callable[[], Awaitable[T | None]]
) -> T:
    """Ask again and again until there is an answer.

    Raises:
        BenchError: the process ended, or was not ready in time; with the end of what it printed.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_READY_S):
            while process.returncode is None:
                answer = await ask()
                if answer is not None:
                    return answer
                await asyncio.sleep(_ASK_EVERY_S)
    raise BenchError(f"{log.stem} did not become ready:\n{_printed(log)[-2_000:]}")


def _printed(log: Path) -> str:
    return log.read_text(errors="replace")
