"""What ``homeport sim`` does once it knows what is asked: runs, comparisons, sweeps and sizes of fleets."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from sim.jobs.results import document
from sim.jobs.running import REFERENCE, Job
from sim.jobs.sizing import (
    Sizing,
    Tried,
    failures_of,
    is_asked,
    replicas_min,
    search,
    sized,
)
from sim.jobs.table import sweep_table, table_of
from sim.scenario.draft import VARIANT
from sim.scenario.errors import ScenarioError
from sim.scenario.facts import lanes_of
from sim.scenario.model import WorkloadPace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim.jobs.batch import Batch
    from sim.scenario.draft import Draft, Point
    from sim.scenario.model import Scenario


@dataclass(frozen=True, slots=True)
class Asked:
    """One command: the draft as set, and how its runs are run.

    ``words`` are the scenario and what is set in it, ``arguments`` the whole command behind
    ``homeport sim``; neither says where results go.
    """

    draft: Draft
    words: tuple[str, ...]
    batch: Batch
    arguments: tuple[str, ...]

    def repeat(self, policy: str, at: Mapping[str, object] | None = None) -> str:
        """The command that runs one policy, at one point of a sweep, again."""
        command = "compare" if policy == REFERENCE else "run"
        words = ["homeport", "sim", command, *self.words]
        for key, value in (at or {}).items():
            words += (
                ["--variant", str(value)] if key == VARIANT else ["--set", _setting(key, value)]
            )
        return shlex.join(words if policy == REFERENCE else [*words, "--policies", policy])


class Outcome(NamedTuple):
    """What a command found: lines to print, and the document of all results."""

    lines: list[str]
    document: dict[str, object]


def run(asked: Asked, *, is_compared: bool) -> Outcome:
    """Run the scenario's policies, and the reference where they are compared to it.

    Raises:
        ScenarioError: something in the scenario is impossible.
        RunError: a run failed.
    """
    scenario = asked.draft.scenario()
    names = [*scenario.policies, *([REFERENCE] if is_compared else [])]
    jobs = [Job(scenario, name, asked.repeat(name)) for name in names]
    figures = dict(zip(names, asked.batch.run(jobs), strict=True))
    reference = figures.pop(REFERENCE, None)
    made = document(scenario, asked.arguments, policies=figures, reference=reference)
    return Outcome([*title_of(scenario), "", *table_of(figures, reference)], made)


def sweep(asked: Asked, axes: Mapping[str, list[object]], *, has_reference: bool) -> Outcome:
    """Run the policies at every combination of the axes' values.

    Raises:
        ScenarioError: a key or value is impossible, or nothing is swept.
        RunError: a run failed.
        OSError: a result cannot be kept.
    """
    if not axes:
        raise ScenarioError(
            f"{asked.draft.origin}: no [sweep] in it: say --over KEY=VALUE,VALUE (homeport sim keys)"
        )
    points = asked.draft.points(axes, by="--over")
    jobs = [
        Job(point.scenario, name, asked.repeat(name, point.at), _place(point.at))
        for point in points
        for name in _names(point, has_reference=has_reference)
    ]
    found = iter(asked.batch.run(jobs))
    told: list[dict[str, object]] = []
    for point in points:
        figures = {name: next(found) for name in _names(point, has_reference=has_reference)}
        reference = figures.pop(REFERENCE, None)
        told.append({"at": dict(point.at), "policies": figures, "reference": reference})
    scenario = asked.draft.scenario()
    lines = [*title_of(scenario, f"over {', '.join(axes)}"), "", *sweep_table(list(axes), told)]
    return Outcome(lines, document(scenario, asked.arguments, points=told))


def size(asked: Asked, *, replicas_max: int) -> Outcome:
    """Find the smallest fleet for the scenario's sessions, a policy each.

    Raises:
        ScenarioError: nothing is asked for, or something in the scenario is impossible.
        RunError: a run failed.
        OSError: a result cannot be kept.
    """
    scenario = asked.draft.scenario()
    if not is_asked(scenario.slo):
        raise ScenarioError(
            f"{asked.draft.origin}: no SLO: say --ttft-p99 SECONDS or another, or write [slo]"
        )
    told: list[dict[str, object]] = []
    lines = title_of(scenario)
    for policy in scenario.policies:
        sizing = _sized(asked, scenario, policy, replicas_max)
        lines += ["", *_size_lines(sizing, policy)]
        told += [
            {
                "at": {"replicas": tried.n_replicas},
                "policies": {policy: tried.figures},
                "reference": None,
                "failures": list(tried.failures),
            }
            for tried in sizing.tried
        ]
    return Outcome(lines, document(scenario, asked.arguments, points=told))


def _sized(asked: Asked, scenario: Scenario, policy: str, most: int) -> Sizing:
    def try_size(n_replicas: int) -> Tried:
        tried = replace(sized(scenario, n_replicas), policies=(policy,))
        at: dict[str, object] = {
            f"fleet.{number}.replicas": group.replicas
            for number, group in enumerate(tried.fleet, 1)
        }
        at["workload.sessions_in_all"] = tried.workload.sessions_in_all
        (figures,) = asked.batch.run(
            [Job(tried, policy, asked.repeat(policy, at), f"{n_replicas} replicas")]
        )
        failures = failures_of(figures, scenario.slo)
        asked.batch.say(f"{n_replicas} replicas: {'; '.join(failures) or 'enough'}")
        return Tried(n_replicas, figures, failures)

    least = replicas_min(scenario)
    return search(try_size, start=scenario.n_replicas, least=least, most=max(most, least))


def _size_lines(sizing: Sizing, policy: str) -> list[str]:
    rows = {f"{tried.n_replicas}": tried.figures for tried in sizing.tried}
    if sizing.smallest is None:
        last = sizing.tried[-1]
        verdict = f"{policy}: not even {last.n_replicas} replicas: {'; '.join(last.failures)}"
    else:
        verdict = f"{policy}: {sizing.smallest} replicas are enough"
        below = [tried for tried in sizing.tried if tried.n_replicas == sizing.smallest - 1]
        if below:
            verdict += f"; with {below[0].n_replicas}, {'; '.join(below[0].failures)}"
    return [*table_of(rows, None, head="replicas", is_ranked=False), verdict]


def _names(point: Point, *, has_reference: bool) -> Sequence[str]:
    return (*point.scenario.policies, *((REFERENCE,) if has_reference else ()))


def _place(at: Mapping[str, object]) -> str:
    return ", ".join(_setting(key, value) for key, value in at.items())


def _setting(key: str, value: object) -> str:
    return f"{key}={str(value).lower() if isinstance(value, bool) else value}"


def title_of(scenario: Scenario, subject: str = "") -> list[str]:
    """One line that says what ran; ``subject`` instead of the fleet and sessions of this scenario."""
    traffic = "fitted" if scenario.workload.trace is None else "recorded"
    if not subject:
        is_open = scenario.workload.pace is WorkloadPace.OPEN
        lanes = "open loop" if is_open else f"{lanes_of(scenario):,} sessions"
        groups = [f"{group.replicas} x {group.profile}" for group in scenario.fleet]
        subject = f"{', '.join(groups)}; {lanes}"
    times = f"{scenario.duration_s:,.0f} s, the first {scenario.warmup_s:,.0f} not counted"
    if scenario.workload.is_once:
        times = f"each once, the first {scenario.warmup_s:,.0f} s not counted"
    return [f"{scenario.name}: {subject}; {traffic} traffic; {times}; seed {scenario.seed}"]
