"""By which rules a policy is judged, and the statistics behind them. Pure numbers: nothing is run here.

Runs of two policies with equal seeds play the same sessions, so they are compared in pairs: the mean of the
logarithms of their ratios, with Student's interval. What is said of a ratio then holds the other way round too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import exp, log, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

BEATEN_MAX: Final = {"throughput": 1.01, "ttft_mean_s": 1.05, "ttft_p99_s": 1.05}
"""How many times better a baseline may be: what a median of five seeds tells apart with ease."""
KEPT_MIN: Final = 0.90
"""Least share of its own best throughput that a policy keeps at ``COLLAPSE_LOAD``."""
COLLAPSE_LOAD: Final = 1.30
NEAR_LOAD_MAX: Final = 0.90
"""Up to this load a policy is held against the reference."""
TTFT_MAX: Final = 2.5
TTFT_GOAL: Final = 2.0
THROUGHPUT_MIN: Final = 0.98
HIT_POINTS_MAX: Final = 0.01
SPREAD_MEAN_MIN: Final = 3.0
"""With fewer requests in flight a replica, their variance is that of single arrivals."""
SPREAD_GOAL: Final = 0.5
SPREAD_OVER_REFERENCE: Final = 0.15

SOUND_P99_S: Final = 60.0
"""p99 TTFT up to which the reference serves its sessions soundly. Beyond, engines that take short prompts first let long
ones starve: throughput goes on rising with the sessions, to 1.4 times and more, but it is that of short turns alone."""

_STUDENT: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Two-sided 95 % of Student's t by degrees of freedom, from 1; for more than 30 the last, which is a little wide."""
_LEAST: Final = 1e-9


class Rule(StrEnum):
    """What is judged; the last two are goals, which are shown and fail nothing."""

    BEATEN = "a"
    COLLAPSE = "b"
    REFERENCE = "c"
    NEAR = "goal 2x"
    SPREAD = "goal d"


GOALS: Final = frozenset({Rule.NEAR, Rule.SPREAD})


class Run(NamedTuple):
    """What is judged of one run; None where nothing was measured. Names as in :mod:`sim.measure.result`."""

    throughput: float
    ttft_mean_s: float | None
    ttft_p99_s: float | None
    hit_ratio: float | None
    hit_ceiling: float | None
    inflight_mean: float
    inflight_var_to_mean: float | None


def sound_throughput(run: Run) -> float:
    """A run's throughput, 0 where it does not serve its sessions soundly."""
    is_sound = run.ttft_p99_s is not None and run.ttft_p99_s <= SOUND_P99_S
    return run.throughput if is_sound else 0.0


class Ratio(NamedTuple):
    """How many times one is the other, and between what that lies with 95 %; with one pair that is not known."""

    mean: float
    low: float | None = None
    high: float | None = None

    @property
    def is_surely_over_one(self) -> bool:
        """Whether the interval lies above 1; of one pair, whether the ratio does."""
        return self.mean > 1.0 if self.low is None else self.low > 1.0

    def inverse(self) -> Ratio:
        """The same the other way round."""
        if self.low is None or self.high is None:
            return Ratio(1.0 / self.mean)
        return Ratio(1.0 / self.mean, 1.0 / self.high, 1.0 / self.low)


def paired(ones: Sequence[float | None], others: Sequence[float | None]) -> Ratio | None:
    """The ratio of two figures, a pair a seed; None if there are no pairs, or one is missing or not above 0.

    Raises:
        ValueError: they are not equally many.
    """
    logs: list[float] = []
    for one, other in zip(ones, others, strict=True):
        if one is None or other is None or min(one, other) < _LEAST:
            return None
        logs.append(log(one) - log(other))
    n = len(logs)
    if not n:
        return None
    mean = sum(logs) / n
    if n == 1:
        return Ratio(exp(mean))
    deviation = sqrt(sum((value - mean) ** 2 for value in logs) / (n - 1))
    reach = _STUDENT[min(n - 1, len(_STUDENT)) - 1] * deviation / sqrt(n)
    return Ratio(exp(mean), exp(mean - reach), exp(mean + reach))


@dataclass(frozen=True, slots=True)
class Point:
    """One load: runs by policy, and the reference's, each in the order of the seeds."""

    load: float
    runs: Mapping[str, Sequence[Run]]
    reference: Sequence[Run]

    def against(self, policy: str, other: str, figure: str) -> Ratio | None:
        """How many times better the other is in a figure of :data:`BEATEN_MAX`; below 1 it is worse."""
        return better(_values(self.runs[other], figure), _values(self.runs[policy], figure), figure)

    def of_reference(self, policy: str, figure: str) -> Ratio | None:
        """How many times the reference's a policy's figure is."""
        return paired(_values(self.runs[policy], figure), _values(self.reference, figure))

    def hit_points(self, policy: str) -> float | None:
        """By how much the hit ratio is under what a cache that never forgets would hold, of the same requests."""
        lost = [
            run.hit_ceiling - run.hit_ratio
            for run in self.runs[policy]
            if run.hit_ceiling is not None and run.hit_ratio is not None
        ]
        return sum(lost) / len(lost) if lost else None

    def mean(self, policy: str | None, figure: str) -> float | None:
        """The mean of a figure over the seeds; the reference's without a policy."""
        runs = self.reference if policy is None else self.runs[policy]
        values = [value for value in _values(runs, figure) if value is not None]
        return sum(values) / len(values) if values else None


class Finding(NamedTuple):
    """A rule that is not met at a load; ``figure`` names the one it is about, ``words`` what was found."""

    rule: Rule
    load: float
    figure: str
    words: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found in some points, and which rules could be judged there."""

    findings: tuple[Finding, ...]
    judged: frozenset[Rule]

    @property
    def is_met(self) -> bool:
        """Whether nothing but goals is missed."""
        return all(finding.rule in GOALS for finding in self.findings)

    def of(self, rule: Rule) -> list[Finding]:
        """What was found against one rule."""
        return [finding for finding in self.findings if finding.rule is rule]


def better(
    ones: Sequence[float | None], others: Sequence[float | None], figure: str
) -> Ratio | None:
    """How many times better ``ones`` are: more throughput, or less time."""
    found = paired(ones, others)
    if found is None:
        return None
    return found if figure == "throughput" else found.inverse()


def judge(points: Sequence[Point], policy: str) -> Verdict:
    """Hold a policy against every rule that can be judged at these loads."""
    findings: list[Finding] = []
    judged: set[Rule] = set()
    for point in points:
        if len(point.runs) > 1:
            judged.add(Rule.BEATEN)
            findings += _beaten(point, policy)
        if point.load <= NEAR_LOAD_MAX + _LEAST:
            judged |= {Rule.REFERENCE, Rule.NEAR}
            findings += _far(point, policy)
        if (point.mean(policy, "inflight_mean") or 0.0) >= SPREAD_MEAN_MIN:
            judged.add(Rule.SPREAD)
            findings += _uneven(point, policy)
    if any(abs(point.load - COLLAPSE_LOAD) < _LEAST for point in points) and len(points) > 1:
        judged.add(Rule.COLLAPSE)
        findings += _collapsed(points, policy)
    return Verdict(tuple(findings), frozenset(judged))


def _beaten(point: Point, policy: str) -> Iterator[Finding]:
    for other in point.runs:
        if other == policy:
            continue
        for figure, most in BEATEN_MAX.items():
            ratio = point.against(policy, other, figure)
            if ratio is not None and ratio.mean > most and ratio.is_surely_over_one:
                said = f"{other} {_times(ratio)} better in {_NAMES[figure]}"
                yield Finding(Rule.BEATEN, point.load, figure, said)


def _far(point: Point, policy: str) -> Iterator[Finding]:
    for figure in ("ttft_mean_s", "ttft_p99_s"):
        ratio = point.of_reference(policy, figure)
        name = _NAMES[figure]
        if ratio is None:
            yield Finding(Rule.REFERENCE, point.load, figure, f"{name}: nothing was measured")
            continue
        said = f"{name} {ratio.mean:.2f}x the reference's"
        if ratio.mean > TTFT_MAX:
            yield Finding(Rule.REFERENCE, point.load, figure, said)
        if ratio.mean > TTFT_GOAL:
            yield Finding(Rule.NEAR, point.load, figure, said)
    kept = point.of_reference(policy, "throughput")
    if kept is None or kept.mean < THROUGHPUT_MIN:
        said = "no throughput" if kept is None else f"throughput {kept.mean:.3f}x the reference's"
        yield Finding(Rule.REFERENCE, point.load, "throughput", said)
    lost = point.hit_points(policy)
    if lost is None or lost > HIT_POINTS_MAX:
        said = (
            "no hit ratio"
            if lost is None
            else f"hit ratio {lost * 100:.1f} points under the ceiling"
        )
        yield Finding(Rule.REFERENCE, point.load, "hit_ratio", said)


def spread_goal(point: Point) -> float:
    """The most that the in-flight variance over mean is to be at a point."""
    reference = point.mean(None, "inflight_var_to_mean")
    return max(SPREAD_GOAL, (reference or 0.0) + SPREAD_OVER_REFERENCE)


def _uneven(point: Point, policy: str) -> Iterator[Finding]:
    spread, most = point.mean(policy, "inflight_var_to_mean"), spread_goal(point)
    if spread is not None and spread > most:
        said = f"in-flight variance {spread:.2f} times the mean, over {most:.2f}"
        yield Finding(Rule.SPREAD, point.load, "inflight_var_to_mean", said)


def _collapsed(points: Sequence[Point], policy: str) -> Iterator[Finding]:
    kept = {point.load: point.mean(policy, "throughput") or 0.0 for point in points}
    best = max(kept, key=kept.__getitem__)
    last = min(kept, key=lambda load: abs(load - COLLAPSE_LOAD))
    if kept[last] < KEPT_MIN * kept[best]:
        share = kept[last] / kept[best]
        said = f"throughput {share:.0%} of its own best, which it has at {best:.0%}"
        yield Finding(Rule.COLLAPSE, last, "throughput", said)


def _values(runs: Sequence[Run], figure: str) -> list[float | None]:
    return [getattr(run, figure) for run in runs]


def _times(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return f"{ratio.mean:.2f}x"
    return f"{ratio.mean:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"


_NAMES: Final = {"throughput": "throughput", "ttft_mean_s": "mean TTFT", "ttft_p99_s": "p99 TTFT"}
