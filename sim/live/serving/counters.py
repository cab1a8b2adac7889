"""What ``/metrics`` reports: plain numbers on the path, Prometheus families at scrape."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector
from typing_extensions import override

from sim.engine.requests import EndReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client import Metric

    from sim.engine.requests import Began, Ended, Loads

_TTFT_BUCKETS_S: Final = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_E2E_BUCKETS_S: Final = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_LABELS: Final = ("engine_type", "model_name")


class Histogram:
    """Counts of observations by upper bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by bound, as Prometheus wants them."""
        out = []
        count = 0
        for bound, n in zip((*self._bounds, float("inf")), self._counts, strict=True):
            count += n
            out.append(("+Inf" if bound == float("inf") else str(float(bound)), float(count)))
        return out


class Counters:
    """What the requests of one replica added up to. Times are engine seconds."""

    def __init__(self) -> None:
        self.ttft_s = Histogram(_TTFT_BUCKETS_S)
        self.e2e_s = Histogram(_E2E_BUCKETS_S)
        self.n_requests = 0
        self.n_aborted = 0

    def began(self, event: Began, *, ttft_s: float) -> None:
        """A request sent its first token."""
        del event
        self.ttft_s.observe(ttft_s)

    def ended(self, event: Ended, *, e2e_s: float) -> None:
        """A request ended, one way or the other."""
        self.n_requests += 1
        if event.reason is EndReason.ABORT:
            self.n_aborted += 1
        else:
            self.e2e_s.observe(e2e_s)


class _Engine(Collector):
    """Turns loads and counters into metric families."""

    def __init__(self, counters: Counters, loads: Callable[[], Loads], model: str) -> None:
        self._counters = counters
        self._loads = loads
        self._labels = ["unified", model]

    @override
    def collect(self) -> Iterator[Metric]:
        """The families of one scrape."""
        loads = self._loads()
        for name, text, value in _gauges(loads):
            gauge = GaugeMetricFamily(f"sglang:{name}", text, labels=_LABELS)
            gauge.add_metric(self._labels, value)
            yield gauge
        for name, text, count in (
            ("prompt_tokens", "Prompt tokens of admitted requests.", loads.total_prompt_tokens),
            ("generation_tokens", "Generated tokens.", loads.total_generated_tokens),
            ("num_requests", "Requests that ended.", self._counters.n_requests),
            ("num_aborted_requests", "Requests aborted.", self._counters.n_aborted),
        ):
            counter = CounterMetricFamily(f"sglang:{name}", text, labels=_LABELS)
            counter.add_metric(self._labels, count)
            yield counter
        cached = CounterMetricFamily(
            "sglang:cached_tokens", "Cached tokens by tier.", labels=(*_LABELS, "cache_source")
        )
        device_tokens = loads.total_cached_tokens - loads.total_host_tokens
        cached.add_metric([*self._labels, "device"], device_tokens)
        cached.add_metric([*self._labels, "host"], loads.total_host_tokens)
        yield cached
        for name, text, histogram in (
            ("time_to_first_token_seconds", "Engine seconds.", self._counters.ttft_s),
            ("e2e_request_latency_seconds", "Engine seconds.", self._counters.e2e_s),
        ):
            family = HistogramMetricFamily(f"sglang:{name}", text, labels=_LABELS)
            family.add_metric(self._labels, histogram.buckets(), histogram.total)
            yield family


def exposition(counters: Counters, loads: Callable[[], Loads], model: str) -> bytes:
    """The text of one scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Engine(counters, loads, model))
    return generate_latest(registry)


def _gauges(loads: Loads) -> Iterable[tuple[str, str, float]]:
    free_tokens = loads.capacity_tokens - loads.used_tokens - loads.cached_tokens
    return (
        ("num_running_reqs", "Requests admitted.", loads.running),
        ("num_queue_reqs", "Requests waiting.", loads.waiting),
        ("token_usage", "Share of the pool held by running requests.", loads.usage_ratio),
        ("num_used_tokens", "Tokens held by running requests.", loads.used_tokens),
        ("kv_evictable_tokens", "Cached tokens that may be evicted.", loads.cached_tokens),
        ("kv_available_tokens", "Free tokens.", free_tokens),
        ("max_total_num_tokens", "Tokens of the device pool.", loads.capacity_tokens),
        ("cache_hit_rate", "Cached over prompt tokens since the start.", loads.hit_ratio),
        ("hicache_host_used_tokens", "Tokens in the host tier.", loads.host_tokens),
        ("hicache_host_total_tokens", "Room of the host tier.", loads.host_capacity_tokens),
    )
