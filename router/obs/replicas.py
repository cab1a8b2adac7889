"""What is told of each replica: its state, load, working set, speed, and what came of its requests."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from router.state.health.table import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from router.core import RouterCore
    from router.state.fleet.replica import Replica

_GAUGES: Final[tuple[tuple[str, Callable[[Replica], float]], ...]] = (
    ("homeport_replica_inflight", lambda r: r.inflight),
    ("homeport_replica_backlog_seconds", lambda r: r.prefill_ahead_s),
    ("homeport_replica_live_sessions", lambda r: r.live_sessions),
    ("homeport_replica_live_tokens", lambda r: r.live_tokens),
    ("homeport_replica_capacity_tokens", lambda r: r.capacity_tokens),
    ("homeport_replica_stated_tokens", lambda r: r.stated_tokens),
    ("homeport_replica_idle_lifetime_seconds", lambda r: r.keeping.lifetime_s or inf),
    ("homeport_replica_held_bytes", lambda r: r.held_bytes),
    ("homeport_replica_prefill_tokens_per_second", lambda r: r.rate.tokens_per_s),
)
_COUNTERS: Final[tuple[tuple[str, Callable[[Replica], float]], ...]] = (
    ("homeport_replica_requests_total", lambda r: r.counters.requests),
    ("homeport_replica_prompt_tokens_total", lambda r: r.counters.prompt_tokens),
    ("homeport_replica_cached_tokens_total", lambda r: r.counters.cached_tokens),
    ("homeport_replica_failures_total", lambda r: r.counters.failures),
    ("homeport_replica_cache_losses_total", lambda r: r.counters.cache_losses),
    ("homeport_replica_lost_bytes_total", lambda r: r.counters.lost_bytes),
    ("homeport_replica_stalls_total", lambda r: r.counters.stalls),
)


def replica_metrics(core: RouterCore, meanings: Mapping[str, str]) -> Iterator[Metric]:
    """The families of the replicas, with their meanings by name."""
    replicas = core.fleet.replicas()
    name = "homeport_replica_state"
    states = GaugeMetricFamily(name, meanings[name], labels=("replica", "state"))
    for replica in replicas:
        for state in State:
            states.add_metric([replica.replica_id, state.value], float(replica.state is state))
    yield states
    for name, value_of in _GAUGES:
        gauge = GaugeMetricFamily(name, meanings[name], labels=("replica",))
        for replica in replicas:
            gauge.add_metric([replica.replica_id], value_of(replica))
        yield gauge
    for name, count_of in _COUNTERS:
        counter = CounterMetricFamily(name, meanings[name], labels=("replica",))
        for replica in replicas:
            counter.add_metric([replica.replica_id], count_of(replica))
        yield counter
