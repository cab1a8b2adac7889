"""The supervisor's own metrics, and the port that serves them. ``docs/metrics.md`` has a row for each."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from replica.lifecycle import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from prometheus_client.core import Metric

    from replica.supervise.replica import Supervised

_PREFIX: Final = "homeport_replica_supervisor_"
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"

COUNTERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "starts": ("engine processes started", ("replica",)),
    "restarts": ("restarts after a fault", ("replica",)),
    "faults": ("faults, by code", ("replica", "code")),
    "heartbeats": ("calls to routers that keep the registration", ("replica", "router", "outcome")),
    "log_lines": ("lines that the engine printed", ("replica",)),
    "log_lines_dropped": ("lines that were not passed on: nobody read them in time", ()),
}
GAUGES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "state": ("1 for the state that the replica is in", ("replica", "state")),
    "registered": ("1 while the router knows the replica", ("replica", "router")),
    "start_seconds": ("from the last start until it said ready", ("replica",)),
    "warmup_seconds": ("the last warm-up", ("replica",)),
    "quiet_seconds": ("since it was last seen to move", ("replica",)),
}


class SupervisorMetrics:
    """Read from the replicas when asked for."""

    def __init__(self, replicas: Sequence[Supervised], dropped: Callable[[], int]) -> None:
        self._replicas = replicas
        self._dropped = dropped
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """All metrics now."""
        counters = {
            name: CounterMetricFamily(_PREFIX + name, text, labels=labels)
            for name, (text, labels) in COUNTERS.items()
        }
        gauges = {
            name: GaugeMetricFamily(_PREFIX + name, text, labels=labels)
            for name, (text, labels) in GAUGES.items()
        }
        families = counters | gauges
        for name, labels, value in self._samples():
            families[name].add_metric(labels, value)
        return families.values()

    def _samples(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        yield "log_lines_dropped", (), self._dropped()
        for replica in self._replicas:
            name, counts, lifecycle = replica.name, replica.counts, replica.lifecycle
            yield "starts", (name,), counts.starts_total
            yield "restarts", (name,), lifecycle.restarts_total
            yield "log_lines", (name,), counts.lines_total
            for code, count in counts.faults.items():
                yield "faults", (name, code), count
            for (router, outcome), count in counts.beats.items():
                yield "heartbeats", (name, router, outcome), count
            for state in State:
                yield "state", (name, state), float(state is lifecycle.state)
            for member, router, is_known in replica.registered:
                yield "registered", (member, router), float(is_known)
            if counts.start_s is not None:
                yield "start_seconds", (name,), counts.start_s
            if counts.warmup_s is not None:
                yield "warmup_seconds", (name,), counts.warmup_s
            if lifecycle.state is State.READY:
                yield "quiet_seconds", (name,), counts.quiet_s


@asynccontextmanager
async def served(
    replicas: Sequence[Supervised], metrics: SupervisorMetrics, *, host: str, port: int
) -> AsyncIterator[str]:
    """Serve ``/metrics``, ``/healthz`` and ``/readyz`` (200 while a replica is ready); the URL.

    Raises:
        OSError: the port cannot be bound.
    """

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"content-type": _TEXT})

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def ready(_: web.Request) -> web.Response:
        states = {replica.name: replica.lifecycle.state.value for replica in replicas}
        is_ready = State.READY in states.values()
        return web.json_response(
            {"ready": is_ready, "replicas": states}, status=200 if is_ready else 503
        )

    app = web.Application(client_max_size=1 << 16)
    app.add_routes(
        [web.get("/metrics", scrape), web.get("/healthz", health), web.get("/readyz", ready)]
    )
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        bound_host, bound_port = runner.addresses[0][:2]
        yield f"http://{bound_host}:{bound_port}"
    finally:
        await runner.cleanup()
