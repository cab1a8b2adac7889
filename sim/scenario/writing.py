"""A typed scenario as plain values under the names that TOML has for them, for results and digests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.scenario.keys import FAULT_KEYS, TABLES, Kind

if TYPE_CHECKING:
    from sim.scenario.model import FaultSpec, Scenario


def document_of(scenario: Scenario) -> dict[str, object]:
    """All of the scenario, defaults too; reading it gives an equal one. What is None is left out."""
    workload = _plain(scenario.workload, "workload")
    if scenario.workload.sessions_in_all is not None:
        del workload["sessions"]
    if scenario.workload.trace is not None:
        del workload["preset"]
    elif scenario.workload.mix:
        workload["mix"] = dict(sorted(scenario.workload.mix.items()))
    document = _plain(scenario, "")
    document["workload"] = workload
    document["fleet"] = [_plain(group, "fleet") for group in scenario.fleet]
    document["engine"] = _plain(scenario.engine, "engine")
    document["routers"] = _plain(scenario.routers, "routers")
    if scenario.faults:
        document["fault"] = [_fault(fault) for fault in scenario.faults]
    document["slo"] = _plain(scenario.slo, "slo")
    return document


def _plain(value: object, table: str, only: tuple[str, ...] | None = None) -> dict[str, object]:
    plain: dict[str, object] = {}
    for name, key in TABLES[table].items():
        found = getattr(value, key.field)
        if found is None or (only is not None and name not in only):
            continue
        if key.kind in (Kind.CHOICES, Kind.COUNTS):
            found = list(found)
        plain[name] = str(found) if key.kind is Kind.CHOICE else found
    return plain


def _fault(fault: FaultSpec) -> dict[str, object]:
    return _plain(fault, "fault", ("kind", "at_s", *FAULT_KEYS[fault.kind]))
