"""What is told of the worker processes of a router."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from router.workers.board import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from router.workers.board import Board


def worker_metrics(board: Board | None, meanings: Mapping[str, str]) -> Iterator[Metric]:
    """The workers' families, with their meanings by name; empty for a router of one process."""
    rows = [] if board is None else [board.row(slot) for slot in range(board.rows)]
    present = [row for row in rows if row.stage is not Stage.EMPTY]
    name = "homeport_workers"
    stages = GaugeMetricFamily(name, meanings[name], labels=("stage",))
    for stage in Stage if present else ():
        if stage is not Stage.EMPTY:
            n = sum(row.stage is stage for row in present)
            stages.add_metric([stage.name.lower()], n)
    yield stages
    name = "homeport_worker_connections"
    connections = GaugeMetricFamily(name, meanings[name], labels=("row",))
    for row in present:
        connections.add_metric([str(row.slot)], row.connections)
    yield connections
    name = "homeport_workers_died_total"
    died = CounterMetricFamily(name, meanings[name])
    died.add_metric([], 0 if board is None else board.died)
    yield died
