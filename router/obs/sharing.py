"""How what routers share fares, and the metrics of that."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from router.obs.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from router.core import RouterCore
    from router.state.shared.desk import DeskCounts

_READ_BOUNDS_S: Final = (0.000_25, 0.000_5, 0.001, 0.002, 0.003, 0.004, 0.005, 0.01, 0.025, 0.1)


class Reading(StrEnum):
    """What came of a request that asked the store for its session."""

    FOUND = "found"
    NOTHING = "nothing"
    LATE = "late"
    SKIPPED = "skipped"
    """It did not wait: the store is away, or was late lately."""


@dataclass(slots=True)
class SharingCounts:
    """What the link to the other routers counts. ``trouble`` is why the store is not used as it should, "" if it is.

    ``desk`` is what became of sessions, None without a store; ``commands`` answers how many it was sent.
    """

    trouble: str = ""
    desk: DeskCounts | None = None
    commands: Callable[[], int] = int
    readings: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    troubles: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    read: Histogram = field(default_factory=lambda: Histogram(_READ_BOUNDS_S))


def sharing_metrics(
    core: RouterCore, counts: SharingCounts, texts: Mapping[str, str]
) -> Iterator[Metric]:
    """The metrics of what routers share; without a store those of a router that is alone."""

    def counter(name: str, label: str, rows: Mapping[str, int]) -> CounterMetricFamily:
        family = CounterMetricFamily(name, texts[name], labels=[label])
        for value, n in rows.items():
            family.add_metric([value], n)
        return family

    def gauge(name: str, value: float) -> GaugeMetricFamily:
        return GaugeMetricFamily(name, texts[name], value=value)

    desk = counts.desk
    yield gauge("homeport_store_up", float(desk is not None and not counts.trouble))
    yield gauge("homeport_store_peers", float(core.peers.n))
    yield counter("homeport_store_troubles_total", "trouble", counts.troubles)
    yield counter("homeport_store_readings_total", "outcome", counts.readings)
    shape = HistogramMetricFamily(
        "homeport_store_read_seconds", texts["homeport_store_read_seconds"]
    )
    shape.add_metric([], counts.read.buckets(), counts.read.sum_s)
    yield shape
    commands = CounterMetricFamily(
        "homeport_store_commands_total", texts["homeport_store_commands_total"]
    )
    commands.add_metric([], counts.commands())
    yield commands
    sessions: dict[str, int] = {}
    if desk is not None:
        sessions = {
            "said": desk.said,
            "told": desk.told,
            "stored": desk.stored,
            "healed": desk.healed,
            "found": desk.found,
            "unread": desk.unread,
        }
    yield counter("homeport_store_sessions_total", "what", sessions)
    gaps = CounterMetricFamily("homeport_store_gaps_total", texts["homeport_store_gaps_total"])
    gaps.add_metric([], 0 if desk is None else desk.gaps)
    yield gaps
