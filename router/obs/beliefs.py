"""What is told of the beliefs about caches: their sources, their ages, and how far off they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from router.state.beliefs import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from router.core import RouterCore


def belief_metrics(
    core: RouterCore,
    events: Mapping[tuple[str, str], int],
    ties: Mapping[str, int],
    meanings: Mapping[str, str],
    now_s: float,
) -> Iterator[Metric]:
    """The beliefs' families, with their meanings by name."""
    beliefs, replicas = core.beliefs, core.fleet.replicas()
    name = "homeport_replica_belief_source"
    sources = GaugeMetricFamily(name, meanings[name], labels=("replica", "source"))
    name = "homeport_replica_belief_age_seconds"
    ages = GaugeMetricFamily(name, meanings[name], labels=("replica",))
    name = "homeport_replica_known_pages"
    pages = GaugeMetricFamily(name, meanings[name], labels=("replica",))
    name = "homeport_replica_prediction_error_tokens_total"
    errors = CounterMetricFamily(name, meanings[name], labels=("replica",))
    for replica in replicas:
        replica_id = replica.replica_id
        present = beliefs.source(replica_id, reports_cached=replica.reports_cached)
        for source in Source:
            sources.add_metric([replica_id, source.value], float(source is present))
        age_s = beliefs.age_s(replica_id, now_s)
        if age_s is not None:
            ages.add_metric([replica_id], age_s)
        pages.add_metric([replica_id], beliefs.pages(replica_id))
        errors.add_metric([replica_id], beliefs.accuracy(replica_id).error_tokens)
    yield from (sources, ages, pages, errors)
    name = "homeport_kv_events_total"
    counted = CounterMetricFamily(name, meanings[name], labels=("replica", "what"))
    # The events' thread adds to these.
    for labels, n in list(events.items()):
        counted.add_metric(labels, n)
    yield counted
    name = "homeport_ties_total"
    outcomes = CounterMetricFamily(name, meanings[name], labels=("outcome",))
    for outcome, n in ties.items():
        outcomes.add_metric([outcome], n)
    yield outcomes
