"""How the sources of the fleet fare, and the metrics of that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric


@dataclass(slots=True)
class SourceHealth:
    """One source that is read again and again; ``heard_s`` is its last good word, else its start."""

    source: str
    heard_s: float
    failures: int = 0
    is_failing: bool = False


@dataclass(slots=True)
class SourceCounts:
    """What the metrics need of all sources. ``named`` answers how many replicas each of them names."""

    named: Callable[[], Mapping[str, int]]
    now_s: Callable[[], float]
    healths: list[SourceHealth] = field(default_factory=list)

    def begin(self, source: str) -> SourceHealth:
        """A source is read from now on; it may have several parts, each with a health of its own."""
        health = SourceHealth(source, self.now_s())
        self.healths.append(health)
        return health


def source_metrics(counts: SourceCounts | None, meanings: Mapping[str, str]) -> Iterator[Metric]:
    """How many replicas each source names, how old its word is, and how often it failed.

    Of a source with several parts the oldest word counts, and the sum of failures.
    """
    replicas, age, failures = (
        "homeport_source_replicas",
        "homeport_source_age_seconds",
        "homeport_source_failures_total",
    )
    named = GaugeMetricFamily(replicas, meanings[replicas], labels=["source"])
    ages = GaugeMetricFamily(age, meanings[age], labels=["source"])
    failed = CounterMetricFamily(failures, meanings[failures], labels=["source"])
    if counts is not None:
        for source, n in counts.named().items():
            named.add_metric([source], n)
        now_s = counts.now_s()
        for source in dict.fromkeys(health.source for health in counts.healths):
            parts = [health for health in counts.healths if health.source == source]
            ages.add_metric([source], now_s - min(part.heard_s for part in parts))
            failed.add_metric([source], sum(part.failures for part in parts))
    yield named
    yield ages
    yield failed
