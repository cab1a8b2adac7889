"""Results as tables: for a terminal, or as Markdown for the documentation."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from bench.cases import CASES
from bench.facts import FactsRun
from bench.memory import MemoryRun
from bench.observe import ObserveRun
from bench.relay import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.load import Latencies, Result
    from bench.machine import Machine
    from bench.relay import Sample

AnyRun = Run | FactsRun | MemoryRun | ObserveRun

BASELINE = "direct"
PEER = "haproxy"


@dataclass(slots=True, frozen=True)
class Sheet:
    """One table: a title, the names of the columns, and rows of cells."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def markdown(sheet: Sheet) -> str:
    """A sheet as a Markdown table; all columns but the first are numbers."""
    lines = [
        f"**{sheet.title}**",
        "",
        "| " + " | ".join(sheet.columns) + " |",
        "|---" + "|---:" * (len(sheet.columns) - 1) + "|",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in sheet.rows]
    return "\n".join(lines)


def machine_lines(machine: Machine) -> list[str]:
    """What it ran on."""
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    place = (
        f"{machine.cpu}, {machine.cores} cores, Linux {machine.kernel}, load average "
        f"{machine.load_average:.2f} at the start"
    )
    return [place, f"Python {machine.python}, {versions}"]


def relay_sheets(run: Run) -> Iterator[Sheet]:
    """One sheet a case, targets in the order they were named in."""
    for case_name in run.options.cases:
        case = CASES[case_name]
        samples = [sample for sample in run.samples if sample.case == case_name]
        n_connections = run.options.connections or case.connections
        yield Sheet(
            f"{case.title}; body {run.body_bytes[case_name]:,} B, {n_connections} connections, "
            f"median of {run.options.rounds} x {run.options.seconds:g} s",
            (
                "",
                f"CPU us per {case.unit}",
                "min-max",
                f"ratio to {PEER}",
                "requests/s",
                "events/s",
                "reads/event",
                "first byte p50 / p99 ms",
                "last byte p50 / p99 ms",
            ),
            [_relay_row(name, samples) for name in run.options.targets],
        )


def cpu_us(case_name: str, result: Result) -> float:
    """The router's CPU time per unit of the case, in microseconds; 0 without a router."""
    units = result.events if CASES[case_name].unit == "event" else result.requests
    return 1e6 * result.router_cpu_s / units if units else 0.0


def _relay_row(name: str, samples: Sequence[Sample]) -> list[str]:
    mine = {sample.round: sample for sample in samples if sample.target == name}
    if not mine:
        return [name, *["-"] * 8]
    costs = [cpu_us(sample.case, sample.result) for sample in mine.values()]
    has_cost = name != BASELINE
    results = [sample.result for sample in mine.values()]
    ratios = [
        cpu_us(sample.case, sample.result) / cpu_us(sample.case, peer.result)
        for sample in mine.values()
        for peer in samples
        if peer.target == PEER and peer.round == sample.round and peer.result.router_cpu_s
    ]
    return [
        name,
        _number(median(costs)) if has_cost else "-",
        f"{_number(min(costs))}-{_number(max(costs))}" if has_cost else "-",
        f"{median(ratios):.2f}" if has_cost and ratios else "-",
        f"{median(r.requests / r.window_s for r in results):,.1f}",
        f"{median(r.events / r.window_s for r in results):,.0f}",
        f"{median(r.reads_per_event for r in results):.2f}",
        _times(name, mine, samples, lambda t: (t.first_p50_ms, t.first_p99_ms)),
        _times(name, mine, samples, lambda t: (t.whole_p50_ms, t.whole_p99_ms)),
    ]


def _times(
    name: str,
    mine: dict[int, Sample],
    samples: Sequence[Sample],
    pick: Callable[[Latencies], tuple[float, float]],
) -> str:
    """Latencies: the baseline's own, of the others what they add to it in the same round."""

    def of(sample: Sample) -> tuple[float, float]:
        return pick(sample.result.alone or sample.result.loaded)

    base = {sample.round: of(sample) for sample in samples if sample.target == BASELINE}
    if name == BASELINE:
        pairs = list(base.values())
        return f"{median(a for a, _ in pairs):.2f} / {median(b for _, b in pairs):.2f}"
    gains = [
        (of(sample)[0] - base[number][0], of(sample)[1] - base[number][1])
        for number, sample in mine.items()
        if number in base
    ]
    if not gains:
        return "-"
    return f"{median(a for a, _ in gains):+.2f} / {median(b for _, b in gains):+.2f}"


def facts_sheet(run: FactsRun) -> Sheet:
    """Where the time of a decision goes, a row for each dialect and fleet."""
    rows = [
        [
            f"{row.dialect}, {row.replicas} replicas",
            *[f"{row.phases_us[name]:.0f}" for name in run.phases],
            f"{row.decision_p50_us:.0f} / {row.decision_p99_us:.0f}",
            f"{row.total_p50_us:.0f} / {row.total_p99_us:.0f}",
        ]
        for row in run.rows
    ]
    recorded = ", recorded" if run.is_recorded else ""
    return Sheet(
        f"CPU us per request{recorded}, median of {run.iterations}; body {run.body_bytes:,} B, "
        f"{run.n_messages} messages, 20 tools; budget of read + arrive {run.budget_us:.0f} us",
        ("", *run.phases, "read + arrive p50 / p99", "all p50 / p99"),
        rows,
    )


def memory_sheet(run: MemoryRun) -> Sheet:
    """What a client takes, a row for each target and kind."""
    rows = [
        [
            row.target,
            row.kind,
            f"{row.count:,}",
            f"{row.before_kib / 1024:.0f}",
            f"{row.after_kib / 1024:.0f}",
            f"{row.each_kib:.1f}",
        ]
        for row in run.rows
    ]
    columns = ("", "clients", "number", "before MiB", "after MiB", "KiB each")
    return Sheet("Resident memory of the router", columns, rows)


def observe_sheet(run: ObserveRun) -> Sheet:
    """What observing an idle fleet takes."""
    shares = [100 * row.share for row in run.rounds]
    asked = [sum(row.asked.values()) / row.window_s for row in run.rounds]
    each = [1e6 * row.cpu_s / max(1, sum(row.asked.values())) for row in run.rounds]
    row = [
        f"{run.replicas} replicas",
        f"{median(shares):.2f}",
        f"{min(shares):.2f}-{max(shares):.2f}",
        f"{median(asked):,.0f}",
        f"{median(each):.0f}",
        f"{sum(row.unanswered for row in run.rounds)}",
    ]
    columns = ("", "% of a core", "min-max", "questions/s", "CPU us each", "unanswered")
    title = f"Observing an idle fleet, median of {len(run.rounds)} x {run.rounds[0].window_s:.0f} s"
    return Sheet(title, columns, [row])


def sheets(run: AnyRun) -> list[Sheet]:
    """The tables of a run of any kind."""
    if isinstance(run, Run):
        return list(relay_sheets(run))
    if isinstance(run, FactsRun):
        return [facts_sheet(run)]
    return [memory_sheet(run) if isinstance(run, MemoryRun) else observe_sheet(run)]


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"
