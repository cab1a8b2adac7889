"""What ``homeport sim matrix`` does: the runs of a plan, in an order in which each finds what it needs, and the verdict."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from router.policy.registry import POLICIES
from sim.jobs.commands import Outcome
from sim.jobs.results import document
from sim.jobs.running import REFERENCE, Job, reference_by
from sim.matrix.plan import RANKED_LOADS, RANKED_MAX, Place, Traffic, ranking
from sim.matrix.rules import Point, Run, judge, sound_throughput
from sim.matrix.saturation import saturation
from sim.matrix.table import Judged, in_short, part_table, summary
from sim.scenario.errors import ScenarioError
from sim.scenario.facts import lanes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.jobs.commands import Asked
    from sim.jobs.running import Done
    from sim.matrix.plan import Part, Plan

    Figures = dict[str, object]

_TOLD: Final = (
    "requests",
    "ttft_s",
    "tok_per_s_per_user",
    "tokens_per_min_per_gpu",
    "cached_ratio",
    "cached_ratio_ceiling",
    "inflight_mean",
    "inflight_var_to_mean",
    "moves",
    "errors",
    "unfinished",
    "rule",
)
_SATURATED_PER_REPLICA: Final = 48
"""About how many sessions saturate a replica, as long as that was not found."""
_SEARCHES: Final = 12
_MINUTE_S: Final = 60.0
_RULES: Final = 3


class Found(NamedTuple):
    """What one traffic and order have for all fleets: sessions at saturation, the best baselines, the reference's rules."""

    saturated_lanes: int
    tried: tuple[tuple[int, float], ...]
    ranked: list[str]
    rules: dict[float, str]

    @property
    def baselines(self) -> list[str]:
        """Those that the policy is held against."""
        return self.ranked[:RANKED_MAX]


class Matrix:
    """The runs of one plan for one policy."""

    def __init__(self, plan: Plan, policy: str, asked: Asked) -> None:
        self._plan = plan
        self._policy = policy
        self._asked = asked
        self._left = _Left(plan)
        self._batch = asked.batch._replace(ended=self._left.ended)
        self._say = asked.batch.say
        self._found: dict[Part, Found] = {}
        self.is_met = False
        """Whether no rule is broken, once it has run."""

    def run(self) -> Outcome:
        """Everything that is not kept yet, then the verdict.

        Raises:
            ScenarioError: nothing was chosen, or something in a scenario is impossible.
            RunError: a run failed.
            OSError: a result cannot be kept.
        """
        plan = self._plan
        parts = plan.parts()
        if plan.trace is None and Traffic.TRACE in plan.traffics:
            self._say("no --trace: the part on recorded traffic is left out")
        if not parts:
            raise ScenarioError(
                "--only: nothing is left of the matrix; recorded traffic needs --trace"
            )
        judged: list[Judged] = []
        told: list[Figures] = []
        for part in parts:
            found = self._ranked(plan.ranked(part))
            points, runs = self._points(part, found)
            sessions = found.saturated_lanes / plan.ranked_replicas
            verdict = judge(points, self._policy)
            one = Judged(part, self._policy, sessions, found.baselines, points, verdict)
            self._say(in_short(one))
            judged.append(one)
            told.append(_told(one, found, runs))
        self.is_met = all(one.verdict.is_met for one in judged)
        lines = [line for one in judged for line in [*part_table(one, plan), ""]]
        lines += summary(judged, has_trace=plan.trace is not None)
        made = document(self._asked.draft.scenario(), self._asked.arguments)
        return Outcome(lines, {**made, "policy": self._policy, "parts": told})

    # What all fleets of one traffic and order have in common

    def _ranked(self, part: Part) -> Found:
        """Find saturation, the best baselines and the best of the reference's rules at each load, once."""
        if part in self._found:
            return self._found[part]
        plan = self._plan
        n_replicas = part.size.n_replicas

        def throughputs(lanes: Sequence[int]) -> list[float]:
            figures = self._run(part, [(Place(part, n, 1), REFERENCE) for n in lanes])
            return [sound_throughput(_run_of(one)) for one in figures]

        saturated, tried = saturation(
            throughputs,
            start=plan.start_lanes * n_replicas,
            step=n_replicas,
            ways=self._batch.n_processes,
        )
        self._say(
            f"{part.traffic}, {part.order}: saturated by {saturated / n_replicas:g} sessions a replica"
        )
        loads = sorted({load for size in plan.sizes for load in size.loads})
        places = {
            load: plan.place(part, load, 1, saturated_lanes=saturated)
            for load in {*loads, *RANKED_LOADS}
        }
        names = [name for name in POLICIES if name not in (self._policy, "home")]
        pairs = [(places[load], REFERENCE) for load in loads]
        pairs += [(places[load], name) for name in names for load in RANKED_LOADS]
        figures = self._run(part, pairs)
        rules = {load: str(one["rule"]) for load, one in zip(loads, figures, strict=False)}
        rest = iter(figures[len(loads) :])
        runs = {name: [_run_of(next(rest)) for _ in RANKED_LOADS] for name in names}
        found = self._found[part] = Found(saturated, tried, ranking(runs), rules)
        self._say(
            f"{part.traffic}, {part.order}: the best baselines are {', '.join(found.baselines)}"
        )
        return found

    # One part

    def _points(
        self, part: Part, found: Found
    ) -> tuple[list[Point], dict[float, dict[str, list[Figures]]]]:
        """Run the policy, the baselines and the reference at every load with every seed."""
        plan, size = self._plan, part.size
        names = [REFERENCE, self._policy, *found.baselines]
        pairs: list[tuple[Place, str]] = []
        for seed in range(1, size.n_seeds + 1):
            for load in sorted(size.loads, reverse=True):  # what takes longest first
                place = plan.place(part, load, seed, saturated_lanes=found.saturated_lanes)
                is_found = seed == 1 and size.n_replicas == plan.ranked_replicas
                reference = REFERENCE if is_found else reference_by(found.rules[load])
                pairs += [(place, reference if name == REFERENCE else name) for name in names]
        figures = iter(self._run(part, pairs))
        runs: dict[float, dict[str, list[Figures]]] = {
            load: {name: [] for name in names} for load in size.loads
        }
        for place, policy in pairs:
            assert place.load is not None, "what is judged has a load"
            name = REFERENCE if policy.startswith(REFERENCE) else policy
            runs[place.load][name].append(next(figures))
        points = []
        for load, by_name in runs.items():
            of = {name: [_run_of(one) for one in ones] for name, ones in by_name.items()}
            points.append(Point(load, of, of.pop(REFERENCE)))
        return points, runs

    def _run(self, part: Part, pairs: Sequence[tuple[Place, str]]) -> list[Figures]:
        jobs = []
        for place, policy in pairs:
            values = self._plan.values(place)
            draft = self._asked.draft
            for key, value in values.items():
                draft = draft.with_value(key, value, by=f"matrix, {key}")
            at = f"{place.n_lanes:,}" if place.load is None else f"{place.load * 100:g} %"
            repeat = self._asked.repeat(policy.partition(":")[0], values)
            jobs.append(Job(draft.scenario(), policy, repeat, f"{part.words} at {at}"))
        self._left.begin(part, jobs)
        return self._batch.run(jobs)


class _Left:
    """About how long the rest takes: what is left to be sent, at the speed so far."""

    def __init__(self, plan: Plan, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._later: dict[Part, float] = {}
        n_policies = RANKED_MAX + len((REFERENCE, "the policy"))
        for part in plan.parts():
            ranked, size = plan.ranked(part), part.size
            loads_s = sum(load * plan.times_s(load)[1] for load in size.loads)
            lanes = _SATURATED_PER_REPLICA * size.n_replicas
            self._later[part] = lanes * loads_s * size.n_seeds * n_policies
            lanes = _SATURATED_PER_REPLICA * ranked.size.n_replicas
            searched_s = _SEARCHES * plan.duration_s
            baselines_s = sum(RANKED_LOADS) * plan.duration_s * len(POLICIES)
            self._later[ranked] = lanes * (_RULES * (searched_s + loads_s) + baselines_s)
        self._now = 0.0
        self._run = 0.0
        self._wall_s = 0.0
        self._began_s = clock()

    def begin(self, part: Part, jobs: Sequence[Job]) -> None:
        """These are next of a part; what was thought of it before is forgotten."""
        self._later.pop(part, None)
        self._now = sum(map(_size, jobs))
        self._began_s = self._clock()

    def ended(self, job: Job, done: Done | None) -> str:
        """One run less; answers about how long the others take."""
        self._now -= _size(job)
        if done is None:
            return ""
        now_s = self._clock()
        self._run += _size(job)
        self._wall_s += now_s - self._began_s
        self._began_s = now_s
        left_s = (self._now + sum(self._later.values())) * self._wall_s / self._run
        return f"; about {max(1.0, left_s / _MINUTE_S):.0f} min left"


def _size(job: Job) -> float:
    scenario = job.scenario
    return lanes_of(scenario) * scenario.duration_s * (_RULES if job.policy == REFERENCE else 1)


def _run_of(figures: Figures) -> Run:
    ttft_s = figures["ttft_s"]
    assert isinstance(ttft_s, dict), "a run tells its TTFT"

    def number(value: object) -> float | None:
        return float(value) if isinstance(value, int | float) else None

    return Run(
        throughput=number(figures["tokens_per_min_per_gpu"]) or 0.0,
        ttft_mean_s=number(ttft_s["mean"]),
        ttft_p99_s=number(ttft_s["p99"]),
        hit_ratio=number(figures["cached_ratio"]),
        hit_ceiling=number(figures["cached_ratio_ceiling"]),
        inflight_mean=number(figures["inflight_mean"]) or 0.0,
        inflight_var_to_mean=number(figures["inflight_var_to_mean"]),
    )


def _told(one: Judged, found: Found, runs: dict[float, dict[str, list[Figures]]]) -> Figures:
    """A part in the document."""
    part = one.part
    return {
        "replicas": part.size.n_replicas,
        "workload": str(part.traffic),
        "order": part.order,
        "seeds": part.size.n_seeds,
        "saturated_sessions_per_replica": one.sessions,
        "searched": [
            {"sessions": lanes, "tokens_per_min_per_gpu": value} for lanes, value in found.tried
        ],
        "baselines": found.ranked,
        "is_met": one.verdict.is_met,
        "judged": sorted(map(str, one.verdict.judged)),
        "findings": [
            {**finding._asdict(), "rule": str(finding.rule)} for finding in one.verdict.findings
        ],
        "points": [
            {
                "load": load,
                "runs": {
                    name: [{key: figures[key] for key in _TOLD} for figures in ones]
                    for name, ones in by_name.items()
                },
            }
            for load, by_name in runs.items()
        ],
    }
