"""What is measured: each target as a fresh process before two upstreams.

A target is started for one measurement and ended after it, so that none inherits what another
left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from bench.machine import haproxy_version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from bench.cases import Answer

ROOT: Final = Path(__file__).resolve().parent.parent
N_UPSTREAMS: Final = 2
Address = tuple[str, int]
T = TypeVar("T")

_READY_S: Final = 30.0
_END_S: Final = 5.0
_ASK_EVERY_S: Final = 0.02
_UPSTREAM_READY: Final = re.compile(r"upstream ready url=http://([\d.]+):(\d+)")
_ROUTER_READY: Final = re.compile(r"router ready url=http://([\d.]+):(\d+)")

# http-no-delay: without it HAProxy marks parts of a chunked answer as "more to come", and the
# kernel may hold an event back; a load balancer for streams is set up with it.
_HAPROXY: Final = """\
global
  nbthread 1
  maxconn 4096
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option http-no-delay
  http-reuse safe
frontend door
  bind fd@{fd}
  default_backend fleet
backend fleet
{servers}
"""


class BenchError(Exception):
    """A process did not do its part."""


@dataclass(slots=True, frozen=True)
class Tools:
    """What is installed: programs by path, and their versions; why others are left out."""

    haproxy: str | None
    sglang_python: str | None
    versions: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


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
    """A running target: where to send requests, and the process whose CPU time counts."""

    addresses: list[Address]
    pid: int


def find_tools(sglang_python: str) -> Tools:
    """Look for the peers; one line for each that is not there."""
    versions: dict[str, str] = {}
    skipped: list[str] = []
    haproxy = shutil.which("haproxy")
    if haproxy is None:
        skipped.append("haproxy is left out: no such program; there will be no ratios")
    else:
        versions["haproxy"] = haproxy_version(haproxy)
    code = "import importlib.metadata as m, sglang_router; print(m.version('sglang-router'))"
    try:
        asked = subprocess.run(
            [sglang_python, "-c", code], capture_output=True, text=True, check=False
        )
        version = asked.stdout.strip() if asked.returncode == 0 else ""
    except OSError:
        version = ""
    if version:
        versions["sglang-router"] = version
    else:
        skipped.append(
            f"sglang-router is left out: {sglang_python} cannot import it "
            "(pip install sglang-router in an environment, then --sglang-python ITS_PYTHON)"
        )
    return Tools(haproxy, sglang_python if version else None, versions, skipped)


def known_targets(tools: Tools) -> list[str]:
    """The targets that can be measured here, the baseline first."""
    names = ["direct"]
    if tools.haproxy:
        names.append("haproxy")
    names += ["homeport", "homeport-log"]
    if tools.sglang_python:
        names.append("sglang-router")
    return names


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
    with _listener() as listener:
        if name == "haproxy":
            argv = _haproxy(tools, replicas, folder, listener)
        elif name == "sglang-router":
            argv = _sglang(tools, replicas, listener)
        else:
            argv = _homeport(replicas, has_log=name == "homeport-log")
        fds = (listener.fileno(),) if name == "haproxy" else ()
        address: Address = listener.getsockname()
        if not fds:
            listener.close()
        async with child(argv, log, cpus.router, fds=fds) as process:
            if name.startswith("homeport"):
                address = await announced(process, log, _ROUTER_READY)
            else:
                await _answering(process, log, address)
            yield Started([address], process.pid)


def _haproxy(
    tools: Tools, replicas: Sequence[Address], folder: Path, listener: socket.socket
) -> list[str]:
    rows = [f"  server r{n} {host}:{port}" for n, (host, port) in enumerate(replicas)]
    config = folder / "haproxy.cfg"
    config.write_text(_HAPROXY.format(fd=listener.fileno(), servers="\n".join(rows)))
    assert tools.haproxy is not None
    return [tools.haproxy, "-db", "-f", str(config)]


def _sglang(tools: Tools, replicas: Sequence[Address], listener: socket.socket) -> list[str]:
    assert tools.sglang_python is not None
    urls = [f"http://{host}:{port}" for host, port in replicas]
    port = str(listener.getsockname()[1])
    return [
        *(tools.sglang_python, "-m", "sglang_router.launch_router", "--worker-urls", *urls),
        *("--policy", "cache_aware", "--host", "127.0.0.1", "--port", port),
        *("--prometheus-port", str(_free_port()), "--log-level", "error"),
    ]


def _homeport(replicas: Sequence[Address], *, has_log: bool) -> list[str]:
    flags = [word for host, port in replicas for word in ("--replica", f"http://{host}:{port}")]
    return [
        *(sys.executable, "-P", "-m", "router.cli", "serve", *flags),
        *("--port", "0", "--admin-port", "0", "--policy", "home"),
        "--access-log" if has_log else "--no-access-log",
    ]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def _listener() -> Iterator[socket.socket]:
    """A listening socket on a free port; a program that cannot inherit it gets only its number."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        listener.set_inheritable(True)
        yield listener


@contextlib.asynccontextmanager
async def child(
    argv: Sequence[str], log: Path, cpus: set[int] | None, *, fds: tuple[int, ...] = ()
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
            pass_fds=fds,
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
    """Wait until a health check through it passes."""

    async def passes() -> bool | None:
        try:
            reader, writer = await asyncio.open_connection(*address)
        except OSError:
            return None
        writer.write(b"GET /health HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")
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
