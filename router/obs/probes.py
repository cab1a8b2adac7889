"""What observing the fleet costs and how it goes: counted by kind of question, for all replicas together."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from router.obs.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.metrics_core import Metric

_BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)


def _histogram() -> Histogram:
    return Histogram(_BOUNDS_S)


@dataclass(slots=True)
class ProbeCounts:
    """Plain integers; kinds and outcomes are enumerations of ``router.control.observe``.

    ``load_changed_s``: by replica, when its load report last said something new, by the router's clock.
    """

    ended: defaultdict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    took: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(_histogram))
    load_changed_s: dict[str, float] = field(default_factory=dict)


def probe_metrics(
    counts: ProbeCounts, meanings: Mapping[str, str], now_s: float
) -> Iterator[Metric]:
    """The families of observation, with their meanings by name."""
    name = "homeport_probes_total"
    ended = CounterMetricFamily(name, meanings[name], labels=("kind", "outcome"))
    for labels, n in counts.ended.items():
        ended.add_metric(labels, n)
    yield ended
    name = "homeport_probe_seconds"
    took = HistogramMetricFamily(name, meanings[name], labels=("kind",))
    for kind, histogram in counts.took.items():
        took.add_metric([kind], histogram.buckets(), histogram.sum_s)
    yield took
    name = "homeport_replica_load_age_seconds"
    ages = GaugeMetricFamily(name, meanings[name], labels=("replica",))
    for replica_id, changed_s in counts.load_changed_s.items():
        ages.add_metric([replica_id], max(0.0, now_s - changed_s))
    yield ages
