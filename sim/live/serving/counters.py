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
    from collections.abc import Iterator

    from prometheus_client import Metric

    from sim.engine.requests import Began, Ended, LoadReport, Loads
    from sim.live.serving.options import EmulatorOptions

_TTFT_BUCKETS_S: Final = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_E2E_BUCKETS_S: Final = (*_TTFT_BUCKETS_S, 600, 1200, 1800, 2400)
_LABELS: Final = ("engine_type", "model_name")
_SCHEDULER_LABELS: Final = (*_LABELS, "moe_ep_rank", "pp_rank", "tp_rank")


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


class _Finished:
    """Requests of one kind that ended, streamed or not. Times are engine seconds."""

    def __init__(self) -> None:
        self.ttft_s = Histogram(_TTFT_BUCKETS_S)
        self.e2e_s = Histogram(_E2E_BUCKETS_S)
        self.n_requests = 0
        self.prompt_tokens = 0
        self.output_tokens = 0


class Counters:
    """What the requests of one replica added up to, by whether they were streamed."""

    def __init__(self) -> None:
        self.by_stream: dict[bool, _Finished] = {}
        self.n_aborted = 0
        self.cached_tokens = {"device": 0, "host": 0}

    def began(self, *, ttft_s: float, is_stream: bool) -> None:
        """A request sent its first token, engine seconds after it came."""
        self.by_stream.setdefault(is_stream, _Finished()).ttft_s.observe(ttft_s)

    def ended(
        self,
        event: Ended,
        began: Began | None,
        *,
        prompt_tokens: int,
        e2e_s: float,
        is_stream: bool,
    ) -> None:
        """A request ended, one way or the other; ``began`` is None if it never sent a token."""
        finished = self.by_stream.setdefault(is_stream, _Finished())
        finished.n_requests += 1
        finished.prompt_tokens += prompt_tokens
        finished.output_tokens += event.output_tokens
        finished.e2e_s.observe(e2e_s)
        self.n_aborted += event.reason is EndReason.ABORT
        if began is not None:
            self.cached_tokens["host"] += began.host_tokens
            self.cached_tokens["device"] += began.cached_tokens - began.host_tokens


class _Engine(Collector):
    """Turns the engine's state and the counters into metric families."""

    def __init__(
        self, counters: Counters, loads: Loads, report: LoadReport, options: EmulatorOptions
    ) -> None:
        self._counters = counters
        self._loads = loads
        self._report = report
        self._options = options
        self._labels = ["unified", options.model]

    @override
    def collect(self) -> Iterator[Metric]:
        """The families of one scrape."""
        ranks = [*self._labels, "0", "0", "0"]
        for name, text, value in self._gauges():
            gauge = GaugeMetricFamily(f"sglang:{name}", text, labels=_SCHEDULER_LABELS)
            gauge.add_metric(ranks, value)
            yield gauge
        loads = self._loads
        prefilled = CounterMetricFamily(
            "sglang:prefill_effective_tokens",
            "Prompt tokens by where they came from.",
            labels=(*_SCHEDULER_LABELS, "mode"),
        )
        for mode, tokens in (
            ("device_hit", loads.total_cached_tokens - loads.total_host_tokens),
            ("host_hit", loads.total_host_tokens),
            ("storage_hit", 0),
            ("input", loads.total_prefill_uncached_tokens),
        ):
            prefilled.add_metric([*ranks, mode], tokens)
        yield prefilled
        yield from self._requests()

    def _requests(self) -> Iterator[Metric]:
        """The families that count requests."""
        stream_labels = (*_LABELS, "is_streaming")
        kinds = [
            ([*self._labels, "true" if is_stream else "false"], finished)
            for is_stream, finished in self._counters.by_stream.items()
        ]
        counters = [
            CounterMetricFamily(f"sglang:{name}", text, labels=stream_labels)
            for name, text in (
                ("prompt_tokens", "Prompt tokens of requests that ended."),
                ("generation_tokens", "Output tokens of requests that ended."),
                ("num_requests", "Requests that ended."),
            )
        ]
        histograms = [
            HistogramMetricFamily(f"sglang:{name}", "Engine seconds.", labels=stream_labels)
            for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds")
        ]
        for labels, kind in kinds:
            counts = (kind.prompt_tokens, kind.output_tokens, kind.n_requests)
            for counter, count in zip(counters, counts, strict=True):
                counter.add_metric(labels, count)
            for family, histogram in zip(histograms, (kind.ttft_s, kind.e2e_s), strict=True):
                family.add_metric(labels, histogram.buckets(), histogram.total)
        yield from counters
        yield from histograms
        aborted = CounterMetricFamily(
            "sglang:num_aborted_requests", "Requests aborted.", labels=_LABELS
        )
        aborted.add_metric(self._labels, self._counters.n_aborted)
        yield aborted
        cached = CounterMetricFamily(
            "sglang:cached_tokens", "Cached tokens by tier.", labels=(*_LABELS, "cache_source")
        )
        for source, tokens in self._counters.cached_tokens.items():
            if tokens:
                cached.add_metric([*self._labels, source], tokens)
        yield cached

    def _gauges(self) -> Iterator[tuple[str, str, float]]:
        loads, report, facts = self._loads, self._report, self._options.facts
        free_tokens = loads.capacity_tokens - loads.used_tokens - loads.cached_tokens
        yield from (
            ("num_running_reqs", "Requests that generate.", report.running),
            ("num_queue_reqs", "Requests waiting.", report.waiting),
            ("token_usage", "Share of the pool held by running requests.", loads.usage_ratio),
            ("num_used_tokens", "Tokens held by running requests.", loads.used_tokens),
            ("kv_used_tokens", "Tokens held by running requests.", loads.used_tokens),
            ("kv_evictable_tokens", "Cached tokens that may be evicted.", loads.cached_tokens),
            ("kv_available_tokens", "Free tokens.", free_tokens),
            ("max_total_num_tokens", "Tokens of the device pool.", loads.capacity_tokens),
            ("page_size", "Tokens of a page.", facts.page_tokens),
            ("num_pages", "Pages of the pool.", loads.capacity_tokens // facts.page_tokens),
            ("context_len", "Tokens of the longest context.", facts.context_tokens_max),
            ("cache_hit_rate", "Hit ratio of the last prefill step.", report.hit_ratio),
            ("gen_throughput", "Generated tokens a second.", report.generated_per_s),
        )
        if facts.host_capacity_tokens:
            yield "hicache_host_used_tokens", "Tokens in the host tier.", loads.host_tokens
            yield (
                "hicache_host_total_tokens",
                "Room of the host tier.",
                loads.host_capacity_tokens,
            )


def exposition(
    counters: Counters, loads: Loads, report: LoadReport, options: EmulatorOptions
) -> bytes:
    """The text of one scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Engine(counters, loads, report, options))
    return generate_latest(registry)
