"""What extremes cost the front door: ``python -m bench.bounds [CASE ...]``.

The router and an emulated replica are processes of their own. A case asks the router for something
extreme while another client asks for its health all the time: its longest wait is how long the event
loop was held up. Memory is the router's resident set (``/proc/PID/status``).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import re
import resource
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import uvloop
from rich.console import Console
from rich.table import Table
from typing_extensions import override

from bench.targets import announced, child

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

_MIB: Final = 1024 * 1024
_FILES: Final = 16_000
_EMULATOR_READY: Final = re.compile(r"ready .*url=http://([\d.]+):(\d+)")
_ROUTER_READY: Final = re.compile(r"router ready url=http://([\d.]+):(\d+)")
_HEALTH: Final = b"GET /health HTTP/1.1\r\nhost: bench\r\n\r\n"
_ASK_EVERY_S: Final = 0.005
_TOKENS: Final = 1_000
_RAMP_S: Final = 0.25
"""Between batches of new streams: the emulated replica accepts 128 connections at a time."""
_CONNECT_AT_ONCE: Final = 200
_ACCEPTED: Final = 100


@dataclass(slots=True)
class Router:
    """The running router."""

    host: str
    port: int
    pid: int
    clients: list[Client] = field(default_factory=list)

    def memory_kib(self, name: str = "VmRSS") -> int:
        """Its resident memory, or the peak of it (``VmHWM``)."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(text.partition(f"{name}:")[2].split()[0])


class Client(asyncio.Protocol):
    """One connection that counts what comes."""

    def __init__(self) -> None:
        self.n_events = 0
        self.n_bytes = 0
        self.status = 0
        self.answered = asyncio.Event()
        self.tail = b""
        self.began_s = self.ended_s = 0.0
        self.done = asyncio.get_running_loop().create_future()
        self.closed = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The loop: connected."""
        self.transport = cast("asyncio.Transport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        """The loop: more of the answer."""
        if not self.status:
            self.status = int(data[9:12])
            self.answered.set()
        self.n_events += data.count(b"data: {")
        self.n_bytes += len(data)
        self.tail = (self.tail + data)[-40:]
        if self.tail.endswith(b"0\r\n\r\n") or (self.status != 200 and not self.done.done()):
            self._end()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """The loop: closed."""
        self._end()
        self.closed.set_result(None)

    def send(self, data: bytes) -> None:
        """Send a request."""
        self.began_s = time.perf_counter()
        assert self.transport is not None
        self.transport.write(data)

    def close(self) -> None:
        """Let go of the connection."""
        assert self.transport is not None
        self.transport.close()

    def _end(self) -> None:
        self.answered.set()
        if not self.done.done():
            self.ended_s = time.perf_counter()
            self.done.set_result(None)


@contextlib.asynccontextmanager
async def fleet(folder: Path, time_scale: str) -> AsyncIterator[Router]:
    """A router before one emulated replica that takes anything."""
    command = (sys.executable, "-P", "-m", "router.cli")
    emulate = [
        *(*command, "emulate", "--time-scale", time_scale, "--max-running-requests", "4096"),
        *("--context-tokens", "100000000", "--capacity-tokens", "200000000"),
        *("--log-level", "warning"),
    ]
    async with child(emulate, folder / "emulator.log", None) as replica:
        host, port = await announced(replica, folder / "emulator.log", _EMULATOR_READY)
        serve = [
            *(*command, "serve", "--replica", f"http://{host}:{port}", "--port", "0"),
            *("--admin-port", "0", "--no-access-log"),
        ]
        settings = folder / "bounds.toml"
        settings.write_text(
            "[limits]\nconnections_max = 14000\nclient_idle_s = 600\nconnect_s = 30\n"
        )
        serve += ["--config", str(settings)]
        async with child(serve, folder / "router.log", None) as router:
            host, port = await announced(router, folder / "router.log", _ROUTER_READY)
            yield Router(host, port, router.pid)


async def connect(router: Router) -> Client:
    """One more connection to the router."""
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(Client, router.host, router.port)
    router.clients.append(client)
    return client


async def ask_health(router: Router, waits_s: list[float]) -> None:
    """Ask for the health again and again; keep how long each answer took."""
    reader, writer = await asyncio.open_connection(router.host, router.port)
    try:
        while True:
            began_s = time.perf_counter()
            writer.write(_HEALTH)
            await reader.readuntil(b"}")
            waits_s.append(time.perf_counter() - began_s)
            await asyncio.sleep(_ASK_EVERY_S)
    finally:
        writer.close()


def chat(messages: str, *, stream: bool = False, max_tokens: int = 1) -> bytes:
    """A chat body; ``messages`` is JSON."""
    flags = f'"stream":{json.dumps(stream)},"max_tokens":{max_tokens},"ignore_eos":true'
    return f'{{"model":"kimi-k2.6",{flags},"messages":[{messages}]}}'.encode()


def post(body: bytes, fields: bytes = b"") -> bytes:
    """A whole request."""
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        b"%bcontent-length: %d\r\n\r\n%b" % (fields, len(body), body)
    )


async def one_body(router: Router, request: bytes) -> list[str]:
    """Send one request and wait for the first byte of its answer."""
    client = await connect(router)
    before_kib, began_s = router.memory_kib(), time.perf_counter()
    client.send(request)
    await client.answered.wait()
    took_s = time.perf_counter() - began_s
    grown_mib = (router.memory_kib("VmHWM") - before_kib) / 1024
    size = f"{len(request) / _MIB:.1f} MiB sent"
    return [
        f"status {client.status}",
        size,
        f"answer after {took_s:.2f} s",
        f"peak +{grown_mib:.0f} MiB",
    ]


async def messages(router: Router) -> list[str]:
    """100,000 messages in one body."""
    return await one_body(router, post(chat(",".join(['{"role":"user","content":"a"}'] * 100_000))))


async def large(router: Router) -> list[str]:
    """One body of 60 MiB."""
    text = "word " * (12 * _MIB)
    return await one_body(router, post(chat(json.dumps({"role": "user", "content": text}))))


async def packed(router: Router) -> list[str]:
    """The same body, compressed."""
    words = "".join(f"word {n * 7919 % 100_003} " for n in range(5_100_000))
    body = chat(json.dumps({"role": "user", "content": words[: 60 * _MIB]}))
    request = post(gzip.compress(body, 1), b"content-encoding: gzip\r\n")
    return [f"{len(body) / _MIB:.0f} MiB plain", *await one_body(router, request)]


async def idle(router: Router) -> list[str]:
    """10,000 connections that were used once and say nothing more."""
    n_connections = 10_000
    before_kib = router.memory_kib()
    clients = []
    for _ in range(0, n_connections, _CONNECT_AT_ONCE):
        batch = await asyncio.gather(*(connect(router) for _ in range(_CONNECT_AT_ONCE)))
        for client in batch:
            client.send(_HEALTH)
        for client in batch:
            await client.answered.wait()
        clients += batch
    grown_kib = router.memory_kib() - before_kib
    await asyncio.sleep(5.0)
    n_open = sum(not client.done.done() or client.status == 200 for client in clients)
    return [f"{n_open:,} open", f"{grown_kib / n_connections:.1f} KiB a connection"]


async def streams(router: Router) -> list[str]:
    """2,000 streams at once."""
    n_streams = 2_000
    warm = await connect(router)
    body = chat('{"role":"user","content":"warm"}', stream=True, max_tokens=_TOKENS)
    warm.send(post(body))
    await warm.done
    clients: list[Client] = []
    for _ in range(0, n_streams, _CONNECT_AT_ONCE):
        clients += await asyncio.gather(*(connect(router) for _ in range(_CONNECT_AT_ONCE)))
    before_kib, began_s = router.memory_kib(), time.perf_counter()
    for number, client in enumerate(clients):
        text = json.dumps({"role": "user", "content": f"session {number}"})
        client.send(post(chat(text, stream=True, max_tokens=_TOKENS)))
        if number % _ACCEPTED == 0:
            await asyncio.sleep(_RAMP_S)
    for client in clients:
        await client.done
    took_s = time.perf_counter() - began_s
    grown_kib = router.memory_kib("VmHWM") - before_kib
    n_sound = sum(c.status == 200 and b"data: [DONE]" in c.tail for c in clients)
    n_events = sum(c.n_events for c in clients) / n_streams
    durations_s = sorted(c.ended_s - c.began_s for c in clients)
    p1_s, p50_s, p99_s = (durations_s[n_streams * part // 100] for part in (1, 50, 99))
    statuses = Counter(c.status for c in clients)
    others = ", ".join(f"{n} x {status}" for status, n in statuses.items() if status != 200)
    return [
        f"{n_sound:,} whole{others and '; ' + others}",
        f"{took_s:.1f} s",
        f"{grown_kib / n_streams:.1f} KiB a stream",
        f"{n_events:.0f} events each in p1 {p1_s:.1f}, p50 {p50_s:.1f}, p99 {p99_s:.1f} s",
    ]


CASES: Final[dict[str, Callable[[Router], Awaitable[list[str]]]]] = {
    "messages": messages,
    "large": large,
    "packed": packed,
    "idle": idle,
    "streams": streams,
}


async def measure(name: str) -> list[str]:
    """Run one case with processes of its own, after raising the limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, _FILES), hard), hard))
    with tempfile.TemporaryDirectory(prefix="bounds-") as folder:
        scale = "2" if name == "streams" else "10000"
        async with fleet(Path(folder), scale) as router:
            waits_s: list[float] = []
            asking = asyncio.create_task(ask_health(router, waits_s))
            await asyncio.sleep(1.0)
            waits_s.clear()
            found = await CASES[name](router)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            for client in router.clients:
                client.close()
            await asyncio.gather(*(client.closed for client in router.clients))
            longest_ms = max(waits_s, default=0.0) * 1000
            return [*found, f"others waited {longest_ms:.0f} ms at most"]


async def main(names: list[str]) -> None:
    """Run the cases and print a table."""
    table = Table("case", "what", "measured")
    for name in names:
        words = await measure(name)
        table.add_row(name, (CASES[name].__doc__ or "").rstrip("."), "; ".join(words))
    Console(width=170).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.bounds", description=__doc__)
    parser.add_argument("case", nargs="*", choices=[[], *CASES], metavar="CASE")
    uvloop.run(main(parser.parse_args().case or list(CASES)))
