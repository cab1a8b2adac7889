"""What is told of each tenant; the labels are names from the tenants file and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from router.tenants.accounts import Account
    from router.tenants.gate import Gate


def tenant_metrics(gate: Gate | None, meanings: Mapping[str, str]) -> Iterator[Metric]:
    """The tenants' families, with their meanings by name; without tenants they are empty."""
    accounts = {} if gate is None else gate.accounts
    by_label: tuple[tuple[str, str, Callable[[Account], dict[str, int]]], ...] = (
        ("homeport_tenant_requests_total", "outcome", lambda a: a.ended),
        ("homeport_tenant_refused_total", "code", lambda a: a.refused),
    )
    for name, label, read in by_label:
        family = CounterMetricFamily(name, meanings[name], labels=("tenant", label))
        for tenant, account in accounts.items():
            for value, n in read(account).items():
                family.add_metric([tenant, value], n)
        yield family
    name = "homeport_tenant_inflight"
    inflight = GaugeMetricFamily(name, meanings[name], labels=("tenant",))
    for tenant, account in accounts.items():
        inflight.add_metric([tenant], account.inflight)
    yield inflight
    counters: tuple[tuple[str, Callable[[Account], int]], ...] = (
        ("homeport_tenant_prompt_tokens_total", lambda a: a.prompt_tokens),
        ("homeport_tenant_cached_tokens_total", lambda a: a.cached_tokens),
        ("homeport_tenant_output_tokens_total", lambda a: a.output_tokens),
    )
    for name, count in counters:
        totals = CounterMetricFamily(name, meanings[name], labels=("tenant",))
        for tenant, account in accounts.items():
            totals.add_metric([tenant], count(account))
        yield totals
