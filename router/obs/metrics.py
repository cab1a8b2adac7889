"""Every metric of the router, declared here and nowhere else.

On the path there are only plain integers (:class:`Counts` and the core's own state); a scrape turns
them into metrics. Labels are enumerations, dialects, error codes and replica ids, never anything a
client sent.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from router.clock import now_s
from router.obs.beliefs import belief_metrics
from router.obs.histogram import Histogram
from router.obs.probes import ProbeCounts, probe_metrics
from router.obs.replicas import replica_metrics
from router.obs.sharing import SharingCounts, sharing_metrics
from router.obs.sources import source_metrics
from router.obs.tenants import tenant_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from router.core import RouterCore
    from router.obs.recorder import Recorder
    from router.obs.sources import SourceCounts
    from router.state.history import RequestRecord
    from router.tenants.gate import Gate

_TTFT_BOUNDS_S: Final = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4)

METRICS: Final[dict[str, str]] = {
    "homeport_requests_total": "requests that were placed and have ended, by dialect and outcome",
    "homeport_turned_away_total": "requests answered by the router itself, by error code",
    "homeport_errors_total": "placed requests that failed, by error code",
    "homeport_retries_total": "requests sent to another replica before their first event",
    "homeport_retries_denied_total": "failed requests not sent again, as the retry budget was spent",
    "homeport_repeats_total": "requests sent once more to the only replica there was",
    "homeport_held_requests": "requests that wait at the door for room",
    "homeport_held_total": "requests that waited at the door, by how that ended",
    "homeport_decisions_total": "placed requests, by the policy's reason",
    "homeport_sessions_moved_total": "sessions that left a home which could still take them",
    "homeport_sessions_rehomed_total": "sessions that lost their home (gone, down, not ready, draining)",
    "homeport_prompt_tokens_total": "prompt tokens the engines reported",
    "homeport_cached_tokens_total": "of these, tokens they had cached",
    "homeport_predicted_cached_tokens_total": "cached tokens the router had predicted for the same",
    "homeport_ttft_seconds": "from a request's arrival to its first model event",
    "homeport_duration_seconds": "from a request's arrival to its end",
    "homeport_price_seconds_total": "the chosen replicas' prices, by part",
    "homeport_sessions_live": "sessions seen within the live time",
    "homeport_recording": "1 while what is decided is recorded",
    "homeport_recorded_records_total": "records taken for the recording",
    "homeport_recorded_bytes_total": "bytes of the recording in its file",
    "homeport_operator_changes_total": "changes that operators made through the control API, by event",
    "homeport_reloads_total": "files that were read again, by file and outcome",
    "homeport_file_unusable": "1 while a file on disk cannot be used and the one before it is",
    "homeport_source_replicas": "replicas that a source of the fleet names",
    "homeport_source_age_seconds": "since a source of the fleet was last read without fault",
    "homeport_source_failures_total": "tries at reading a source of the fleet that failed",
    "homeport_tenant_requests_total": "placed requests of a tenant that have ended, by outcome",
    "homeport_tenant_refused_total": "a tenant's requests that were not placed, by error code",
    "homeport_tenant_inflight": "a tenant's requests that were let in and are not over",
    "homeport_tenant_prompt_tokens_total": "prompt tokens the engines reported for a tenant",
    "homeport_tenant_cached_tokens_total": "of these, tokens they had cached",
    "homeport_tenant_output_tokens_total": "tokens the engines generated for a tenant",
    "homeport_replica_state": "1 for the state a replica is in",
    "homeport_replica_inflight": "requests in flight at a replica, as the router believes",
    "homeport_replica_backlog_seconds": "prefill dispatched to a replica and not yet begun",
    "homeport_replica_live_sessions": "live sessions whose home a replica is",
    "homeport_replica_live_tokens": "their tokens",
    "homeport_replica_capacity_tokens": "tokens a replica is believed to hold, device and host tier",
    "homeport_replica_stated_tokens": "tokens a replica is said to hold",
    "homeport_replica_idle_lifetime_seconds": "idle time from which a replica keeps a session no more",
    "homeport_replica_prefill_tokens_per_second": "how fast a replica computes a cold prompt",
    "homeport_replica_stalls_total": "times a replica's scheduler stood still",
    "homeport_replica_held_bytes": "canonical bytes a replica is believed to hold",
    "homeport_replica_requests_total": "placed requests that ended at a replica",
    "homeport_replica_cached_tokens_total": "cached tokens a replica reported",
    "homeport_replica_prompt_tokens_total": "prompt tokens a replica reported",
    "homeport_replica_failures_total": "failed tries at a replica",
    "homeport_replica_cache_losses_total": "reports of a smaller cache than was believed",
    "homeport_replica_lost_bytes_total": "bytes of prompts no longer believed to be cached after such a report",
    "homeport_replica_load_age_seconds": "since a replica's load report last said something new",
    "homeport_probes_total": "questions to replicas that have ended, by kind and outcome",
    "homeport_probe_seconds": "from a question to a replica to its answer, by kind",
    "homeport_replica_belief_source": "1 for the source of what is believed of a replica's cache",
    "homeport_replica_belief_age_seconds": "since that source was last heard of",
    "homeport_replica_prediction_error_tokens_total": "predicted against reported cached tokens, summed without sign",
    "homeport_replica_known_pages": "pages that a replica has published and holds",
    "homeport_kv_events_total": "what came of following a replica's KV events",
    "homeport_store_up": "1 while what routers share is told and stored",
    "homeport_store_peers": "other routers that were heard of lately",
    "homeport_store_troubles_total": "calls to the store that failed, by trouble",
    "homeport_store_readings_total": "requests whose session was asked for, by outcome",
    "homeport_store_read_seconds": "what requests waited for their session",
    "homeport_store_commands_total": "commands sent to the store",
    "homeport_store_sessions_total": "sessions said, told, stored, healed, found, or not readable",
    "homeport_store_gaps_total": "times other routers' words were missed",
    "homeport_ties_total": "prompts whose pages were to be learned, by outcome",
}
"""Name and meaning of each; ``docs/metrics.md`` has the same rows."""


def _histogram() -> Histogram:
    return Histogram(_TTFT_BOUNDS_S)


@dataclass(slots=True)
class Counts:
    """What the edge counts; plain integers, bounded by the enumerations they are keyed by."""

    requests: defaultdict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    errors: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    turned_away: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    decisions: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    price_us: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    reloads: defaultdict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    unusable_files: dict[str, bool] = field(default_factory=dict)
    operator_changes: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    pressure: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    ttft: Histogram = field(default_factory=_histogram)
    duration: Histogram = field(default_factory=_histogram)
    events: defaultdict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    ties: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    probes: ProbeCounts = field(default_factory=ProbeCounts)
    sharing: SharingCounts = field(default_factory=SharingCounts)

    def finished(self, record: RequestRecord) -> None:
        """Count a placed request that is over."""
        self.requests[record.dialect, str(record.outcome)] += 1
        self.decisions[record.reason] += 1
        if record.error_code is not None:
            self.errors[record.error_code] += 1
        price = record.prices.get(record.replica_id)
        if price is not None:
            price_us = self.price_us
            price_us["wait_s"] += round(price.wait_s * 1e6)
            price_us["prefill_s"] += round(price.prefill_s * 1e6)
            price_us["interference_s"] += round(price.interference_s * 1e6)
            price_us["pressure_s"] += round(price.pressure_s * 1e6)
        ttft_s = record.ttft_s
        if ttft_s is not None:
            self.ttft.add(ttft_s)
        self.duration.add(record.duration_s)


class RouterMetrics(Collector):
    """Turns the core's state and the counts into metrics when scraped."""

    def __init__(
        self,
        core: RouterCore,
        counts: Counts,
        recorder: Recorder | None = None,
        gate: Gate | None = None,
        sources: SourceCounts | None = None,
        *,
        now_s: Callable[[], float] = now_s,
    ) -> None:
        self._core = core
        self._sources = sources
        self._counts = counts
        self._now_s = now_s
        self._recorder = recorder
        self._gate = gate
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    @override
    def collect(self) -> Iterator[Metric]:
        """Every metric of :data:`METRICS`."""
        yield from self._requests()
        yield from self._pressure()
        yield from self._totals()
        yield from self._recording()
        yield from self._files()
        yield from source_metrics(self._sources, METRICS)
        yield from tenant_metrics(self._gate, METRICS)
        yield from replica_metrics(self._core, METRICS)
        yield from sharing_metrics(self._core, self._counts.sharing, METRICS)
        yield from probe_metrics(self._counts.probes, METRICS, self._now_s())
        yield from belief_metrics(
            self._core, self._counts.events, self._counts.ties, METRICS, self._now_s()
        )

    def _requests(self) -> Iterator[Metric]:
        counts = self._counts
        requests = _counter("homeport_requests_total", "dialect", "outcome")
        for (dialect, outcome), n in counts.requests.items():
            requests.add_metric([dialect, outcome], n)
        yield requests
        for name, label, table in (
            ("homeport_turned_away_total", "code", counts.turned_away),
            ("homeport_errors_total", "code", counts.errors),
            ("homeport_decisions_total", "reason", counts.decisions),
            ("homeport_operator_changes_total", "event", counts.operator_changes),
        ):
            family = _counter(name, label)
            for value, n in table.items():
                family.add_metric([value], n)
            yield family
        prices = _counter("homeport_price_seconds_total", "part")
        for part, us in counts.price_us.items():
            prices.add_metric([part.removesuffix("_s")], us / 1e6)
        yield prices
        for name, histogram in (
            ("homeport_ttft_seconds", counts.ttft),
            ("homeport_duration_seconds", counts.duration),
        ):
            shape = HistogramMetricFamily(name, METRICS[name])
            shape.add_metric([], histogram.buckets(), histogram.sum_s)
            yield shape

    def _pressure(self) -> Iterator[Metric]:
        counts = self._counts.pressure
        for name, event in (
            ("homeport_retries_denied_total", "retry-denied"),
            ("homeport_repeats_total", "repeated"),
        ):
            family = _counter(name)
            family.add_metric([], counts.get(event, 0))
            yield family
        ended = _counter("homeport_held_total", "outcome")
        n_ended = 0
        for outcome in ("placed", "given-up", "client-gone"):
            n = counts.get(f"held-{outcome}", 0)
            ended.add_metric([outcome], n)
            n_ended += n
        yield ended
        waiting = _gauge("homeport_held_requests")
        waiting.add_metric([], counts.get("held", 0) - n_ended)
        yield waiting

    def _totals(self) -> Iterator[Metric]:
        totals = self._core.history.totals
        for name, value in (
            ("homeport_retries_total", totals.retries),
            ("homeport_sessions_moved_total", totals.moves),
            ("homeport_sessions_rehomed_total", totals.rehomes),
            ("homeport_prompt_tokens_total", totals.prompt_tokens),
            ("homeport_cached_tokens_total", totals.cached_tokens),
            ("homeport_predicted_cached_tokens_total", totals.predicted_cached_tokens),
        ):
            family = _counter(name)
            family.add_metric([], value)
            yield family
        yield GaugeMetricFamily(
            "homeport_sessions_live",
            METRICS["homeport_sessions_live"],
            value=self._core.pins.live_count,
        )

    def _recording(self) -> Iterator[Metric]:
        recorder = self._recorder
        recording = _gauge("homeport_recording")
        recording.add_metric([], float(recorder is not None and recorder.is_open))
        yield recording
        for name, value in (
            ("homeport_recorded_records_total", 0 if recorder is None else recorder.n_records),
            ("homeport_recorded_bytes_total", 0 if recorder is None else recorder.n_bytes),
        ):
            family = _counter(name)
            family.add_metric([], value)
            yield family

    def _files(self) -> Iterator[Metric]:
        reloads = _counter("homeport_reloads_total", "file", "outcome")
        for labels, n in self._counts.reloads.items():
            reloads.add_metric(labels, n)
        yield reloads
        unusable = _gauge("homeport_file_unusable", "file")
        for name, is_unusable in self._counts.unusable_files.items():
            unusable.add_metric([name], float(is_unusable))
        yield unusable


def _counter(name: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, METRICS[name], labels=labels)


def _gauge(name: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, METRICS[name], labels=labels)
