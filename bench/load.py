"""The load generator: a process of its own that keeps a fixed number of requests in flight.

``python -m bench.load PLAN`` takes the plan as JSON and prints the result as JSON. It reads the
router's CPU time itself, so that time and work are counted over the same window. After the window
the latency of one client alone is measured, without queueing. An answer that is not complete and
of exactly the expected length ends the run with an error.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Final, cast

import httptools
import msgspec
import uvloop
from typing_extensions import override

from bench.cases import CASES, EVENT_GAP_S, EVENTS_A_STREAM, Answer, answer_bytes, requests
from bench.cases import templates as templates_of
from bench.machine import tree_cpu_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.conversations import Template

_STUCK_S: Final = 30.0
_OK: Final = 200


class Plan(msgspec.Struct, frozen=True):
    """What to do: where to, how long, and whose CPU time to read (0: nobody's)."""

    case: str
    addresses: list[tuple[str, int]]
    warmup_s: float
    seconds: float
    alone_s: float
    pid: int = 0
    connections: int = 0


class Latencies(msgspec.Struct, frozen=True):
    """Milliseconds from sending a request to the answer's first body byte and to its last."""

    n: int
    first_p50_ms: float
    first_p99_ms: float
    whole_p50_ms: float
    whole_p99_ms: float


class Result(msgspec.Struct, frozen=True):
    """What was counted in the window; ``reads_per_event`` near 1 means events came one by one."""

    requests: int
    events: int
    body_bytes: int
    window_s: float
    router_cpu_s: float
    load_cpu_s: float
    reads_per_event: float
    loaded: Latencies
    alone: Latencies | None


class LoadError(Exception):
    """An answer was wrong, or none came."""


class Meter:
    """Counts of one window."""

    def __init__(self) -> None:
        self.requests = 0
        self.events = 0
        self.body_bytes = 0
        self.reads = 0
        self.times_s: list[tuple[float, float]] = []

    def latencies(self) -> Latencies:
        """Percentiles of the requests that ended in the window; zeros if none did."""
        firsts = sorted(first for first, _ in self.times_s)
        wholes = sorted(whole for _, whole in self.times_s)
        return Latencies(
            len(firsts),
            percentile(firsts, 0.50) * 1e3,
            percentile(firsts, 0.99) * 1e3,
            percentile(wholes, 0.50) * 1e3,
            percentile(wholes, 0.99) * 1e3,
        )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value at ``share`` of sorted values, 0 if there are none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Load:
    """All connections, and the window they count in."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.case = CASES[plan.case]
        self.expected_bytes = answer_bytes(self.case.answer)
        self.meter = Meter()
        self.n_running = 1 << 30
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, reason: str) -> None:
        """End the run."""
        if not self.failed.done():
            self.failed.set_exception(LoadError(reason))

    async def run(self) -> Result:
        """Warm up, measure the window, then one client alone.

        Raises:
            LoadError: an answer was wrong or a connection was lost.
        """
        plan = self.plan
        streams = await self._connect()
        await self._pause(plan.warmup_s)
        self.meter = window = Meter()
        began_s, began_ns, own_s = time.perf_counter(), tree_cpu_ns(plan.pid), time.process_time()
        await self._pause(plan.seconds)
        ended_ns, ended_s = tree_cpu_ns(plan.pid), time.perf_counter()
        self.meter = Meter()
        return Result(
            requests=window.requests,
            events=window.events,
            body_bytes=window.body_bytes,
            window_s=ended_s - began_s,
            router_cpu_s=(ended_ns - began_ns) / 1e9,
            load_cpu_s=time.process_time() - own_s,
            reads_per_event=window.reads / window.events if window.events else 0.0,
            loaded=window.latencies(),
            alone=await self._alone(streams),
        )

    async def _connect(self) -> list[Stream]:
        """Open the connections one after the other, spread over one stream's length if paced."""
        loop = asyncio.get_running_loop()
        count = self.plan.connections or self.case.connections
        bodies = templates_of(self.case)
        is_paced = self.case.answer is Answer.PACED
        spread_s = min(self.plan.warmup_s, EVENTS_A_STREAM * EVENT_GAP_S) if is_paced else 0.0
        streams = []
        for number in range(count):
            source = self._source(number, count, bodies)
            host, port = self.plan.addresses[number % len(self.plan.addresses)]
            _, stream = await loop.create_connection(
                lambda number=number, source=source: Stream(self, number, source),  # type: ignore[misc]
                host,
                port,
            )
            streams.append(stream)
            loop.call_later(spread_s * number / count, stream.send)
        return streams

    def _source(self, number: int, count: int, bodies: list[list[Template]]) -> Iterator[bytes]:
        """Requests of one connection: no session is on two connections, none is empty-handed."""
        n_sessions = max(count, len(bodies))
        mine = [index for index in range(n_sessions) if index % count == number]
        sessions = [(f"ses_{index:012d}", bodies[index % len(bodies)]) for index in mine]
        return requests(sessions, first_pass=1)

    async def _alone(self, streams: list[Stream]) -> Latencies | None:
        """Let all connections but one come to rest, then measure that one."""
        if not self.plan.alone_s:
            return None
        self.n_running = 1
        until_s = time.perf_counter() + _STUCK_S
        while any(stream.is_busy for stream in streams[1:]):
            if time.perf_counter() > until_s:
                raise LoadError(f"requests were still running after {_STUCK_S:g} s")
            await self._pause(0.01)
        self.meter = alone = Meter()
        await self._pause(self.plan.alone_s)
        return alone.latencies()

    async def _pause(self, seconds: float) -> None:
        """Let the load run; raises what ended it."""
        await asyncio.wait([self.failed], timeout=seconds)
        if self.failed.done():
            self.failed.result()


class Stream(asyncio.Protocol):
    """One keep-alive connection that sends its next request when an answer is whole."""

    def __init__(self, load: Load, number: int, source: Iterator[bytes]) -> None:
        self._load = load
        self._number = number
        self._source = source
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._sent_s = 0.0
        self._first_s = 0.0
        self._n_bytes = 0
        self.is_busy = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._load.fail(f"connection {self._number} was closed ({exc or 'by the other side'})")

    def send(self) -> None:
        """Send the next request."""
        assert self._transport is not None
        data = next(self._source)
        self._n_bytes = 0
        self.is_busy = True
        self._sent_s = time.perf_counter()
        self._transport.write(data)

    @override
    def data_received(self, data: bytes) -> None:
        meter = self._load.meter
        meter.reads += 1
        if not self._n_bytes:
            self._first_s = time.perf_counter()
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        """Called by the parser, for each part of a body."""
        meter = self._load.meter
        self._n_bytes += len(data)
        meter.body_bytes += len(data)
        meter.events += data.count(b"\n\n")

    def on_message_complete(self) -> None:
        """Called by the parser: the answer is whole."""
        load = self._load
        status = self._parser.get_status_code()
        if status < _OK:
            return
        if status != _OK or self._n_bytes != load.expected_bytes:
            load.fail(
                f"status {status} with {self._n_bytes} bytes instead of {load.expected_bytes}"
            )
            return
        load.meter.requests += 1
        load.meter.times_s.append(
            (self._first_s - self._sent_s, time.perf_counter() - self._sent_s)
        )
        self.is_busy = False
        if self._number < load.n_running:
            asyncio.get_running_loop().call_soon(self.send)


async def _run(plan: Plan) -> Result:
    return await Load(plan).run()


def main(arguments: Sequence[str]) -> int:
    """Run one plan; the exit code is 1 if an answer was wrong."""
    plan = msgspec.json.decode(arguments[0], type=Plan)
    try:
        result = uvloop.run(_run(plan))
    except (LoadError, OSError) as error:
        print(f"bench.load: {error}", file=sys.stderr)
        return 1
    print(msgspec.json.encode(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
