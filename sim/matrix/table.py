"""The verdict as text of at most 120 columns: a row a load, what is wrong in words, and all parts in short."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from sim.matrix.rules import BEATEN_MAX, GOALS, Rule
from sim.measure.text import aligned

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sim.matrix.plan import Part, Plan, Size
    from sim.matrix.rules import Finding, Point, Ratio, Verdict

WIDTH: Final = 120
_NONE: Final = "-"
_WRONG: Final = "!"
_MISSED: Final = "~"
_FEWER_DECIMALS: Final = (10.0, 100.0)
_HEADS: Final = (
    ("", "load"),
    ("TTFT:", "mean "),
    ("", "p99 "),
    ("through", "put "),
    ("hit", "ratio "),
    ("mean", "TTFT s"),
    ("p99", "TTFT s"),
    ("Mtok/", "m/GPU"),
    ("hit", "ratio"),
    ("infl", "mean"),
    ("var/", "mean "),
    ("through", "put "),
    ("TTFT:", "mean "),
    ("", "p99 "),
    ("  not", "met"),
)
_GROUPS: Final = (
    (1, 5, "of the reference"),
    (5, 11, "{policy}"),
    (11, 14, "the best baseline is better by"),
)
_RULES: Final = {
    Rule.BEATEN: ("(a) no baseline", "is better"),
    Rule.COLLAPSE: ("(b) no collapse", "above capacity"),
    Rule.REFERENCE: ("(c) near the", "reference"),
    Rule.NEAR: ("goal: TTFT", "within 2x"),
    Rule.SPREAD: ("goal: even", "in flight"),
}
_LEGEND: Final = (
    "! breaks a rule, ~ misses a goal. Hit ratio of the reference: points apart from a cache that never forgets. "
    "Above: the loads, in percent, at which a rule is broken or a goal missed; - where none can be judged."
)


@dataclass(frozen=True, slots=True)
class Judged:
    """One part, and how a policy stands in it. ``sessions`` a replica are its 100 %."""

    part: Part
    policy: str
    sessions: float
    baselines: Sequence[str]
    points: Sequence[Point]
    verdict: Verdict


def in_short(one: Judged) -> str:
    """A part's verdict in a line."""
    said = [
        f"({rule}) at {_where(one, one.verdict.of(rule))} %"
        for rule in Rule
        if rule not in GOALS and one.verdict.of(rule)
    ]
    return f"{one.part.words}: {one.policy} {'breaks ' + '; '.join(said) if said else 'holds'}"


def part_table(one: Judged, plan: Plan) -> list[str]:
    """A part: how its loads were run, their figures, and what is wrong with them."""
    size = one.part.size
    numbers = [f"{n} {name}" for n, name in enumerate(one.baselines, 1)]
    seeds = "one seed" if size.n_seeds == 1 else f"{size.n_seeds} seeds"
    lines = [
        f"{one.part.words}: 100 % is {one.sessions:g} sessions a replica",
        f"{seeds}; {_length(plan, size)}; {one.policy} against",
        f"{', '.join(numbers)}",
        "",
    ]
    body = [_row(one, point) for point in one.points]
    table = aligned(_HEADS, body)
    lines += [_grouped(body, one.policy), *table]
    for load in dict.fromkeys(finding.load for finding in one.verdict.findings):
        for rule in Rule:
            said = [f.words for f in one.verdict.of(rule) if f.load == load]
            if said and rule not in GOALS:
                lines += _wrapped(f"({rule}) at {load * 100:g} %: {'; '.join(said)}")
    return lines


def summary(parts: Sequence[Judged], *, has_trace: bool) -> list[str]:
    """All parts, a row each: which rules hold, and where they do not."""
    rows = []
    for one in parts:
        part = one.part
        cells = [f"{part.size.n_replicas}", str(part.traffic), part.order]
        for rule in Rule:
            if found := one.verdict.of(rule):
                cells.append(_where(one, found))
            elif rule in one.verdict.judged:
                cells.append("met" if rule in GOALS else "holds")
            else:
                cells.append(_NONE)
        rows.append(cells)
    heads = [("", "replicas"), ("", "workload"), ("", "order"), *_RULES.values()]
    lines = aligned(heads, rows, n_left=len(heads))
    n_failed = sum(not one.verdict.is_met for one in parts)
    verdict = (
        "every rule holds" if not n_failed else f"{n_failed} of {len(parts)} parts break a rule"
    )
    left_out = "" if has_trace else "; recorded traffic was left out: no --trace"
    return [*lines, "", *wrap(_LEGEND, WIDTH), f"{parts[0].policy}: {verdict}{left_out}"]


def _length(plan: Plan, size: Size) -> str:
    """The times of a part's runs, by load where these differ."""
    times: dict[tuple[float, float], list[str]] = {}
    for load in size.loads:
        times.setdefault(plan.times_s(load), []).append(f"{load * 100:g}")
    said = [
        f"{from_s:,.0f} to {until_s:,.0f} s"
        + (
            ""
            if len(times) == 1
            else f" at {loads[0]}" + (f"-{loads[-1]}" if loads[1:] else "") + " %"
        )
        for (from_s, until_s), loads in times.items()
    ]
    return f"measured from {', '.join(said)}"


def _row(one: Judged, point: Point) -> list[str]:
    policy = one.policy
    found = [finding for finding in one.verdict.findings if finding.load == point.load]
    by_reference: dict[str, Rule] = {}
    for rule in (Rule.NEAR, Rule.REFERENCE):
        by_reference.update((f.figure, rule) for f in found if f.rule is rule)
    cells = [f"{point.load * 100:g} %"]
    for figure in ("ttft_mean_s", "ttft_p99_s", "throughput"):
        ratio = point.of_reference(policy, figure)
        decimals = 3 if figure == "throughput" else 2
        cells.append(_times(ratio, decimals) + _mark(by_reference.get(figure)))
    lost = point.hit_points(policy)
    said = _NONE if lost is None else f"{-lost * 100:+.1f}"
    cells.append(said + _mark(by_reference.get("hit_ratio")))
    collapsed = any(finding.rule is Rule.COLLAPSE for finding in found)
    mtok = point.mean(policy, "throughput")
    cells += [
        _number(point.mean(policy, "ttft_mean_s"), 2),
        _number(point.mean(policy, "ttft_p99_s"), 1),
        _number(None if mtok is None else mtok * 1e-6, 3) + (_WRONG if collapsed else ""),
        _number(point.mean(policy, "hit_ratio"), 3),
        _number(point.mean(policy, "inflight_mean"), 1),
    ]
    spread = any(finding.rule is Rule.SPREAD for finding in found)
    cells.append(
        _number(point.mean(policy, "inflight_var_to_mean"), 2) + (_MISSED if spread else " ")
    )
    beaten = {f.figure for f in found if f.rule is Rule.BEATEN}
    cells += [_best(one, point, figure, is_beaten=figure in beaten) for figure in BEATEN_MAX]
    rules = [str(rule) for rule in Rule if rule not in GOALS and any(f.rule is rule for f in found)]
    return [*cells, ",".join(rules)]


def _best(one: Judged, point: Point, figure: str, *, is_beaten: bool) -> str:
    """By how many percent the baseline is better that is it most, and which; one that breaks the rule first."""
    ratios: list[tuple[bool, float, int]] = []
    for number, name in enumerate(one.baselines, 1):
        ratio = point.against(one.policy, name, figure)
        if ratio is not None:
            breaks = ratio.mean > BEATEN_MAX[figure] and ratio.is_surely_over_one
            ratios.append((breaks, ratio.mean, number))
    if not ratios:
        return _NONE + " "
    _, mean, number = max(ratios)
    return f"{(mean - 1.0) * 100:+.1f} ({number})" + (_WRONG if is_beaten else " ")


def _grouped(body: Sequence[Sequence[str]], policy: str) -> str:
    """The line above the heads: what columns have in common, in the middle of them."""
    columns = list(zip(*_HEADS, strict=True))
    widths = [max(len(row[index]) for row in [*columns, *body]) for index in range(len(_HEADS))]
    line = ""
    for first, end, words in _GROUPS:
        begin = sum(widths[:first]) + first
        width = sum(widths[first:end]) + end - first - 1
        line = line.ljust(begin) + words.format(policy=policy).center(width, "-")[:width]
    return line


def _where(one: Judged, findings: Iterable[Finding]) -> str:
    """The loads of findings in percent; of three and more in a row, the first and the last."""
    wrong = {finding.load for finding in findings}
    runs: list[list[str]] = [[]]
    for load in one.part.size.loads:
        if load in wrong:
            runs[-1].append(f"{load * 100:g}")
        elif runs[-1]:
            runs.append([])
    few = len(("first", "last"))
    return ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > few else ", ".join(run) for run in runs if run
    )


def _wrapped(words: str) -> list[str]:
    return wrap(words, WIDTH, initial_indent="  ", subsequent_indent="      ")


def _mark(rule: Rule | None) -> str:
    if rule is None:
        return " "
    return _MISSED if rule in GOALS else _WRONG


def _times(ratio: Ratio | None, decimals: int) -> str:
    if ratio is None:
        return _NONE
    fewer = sum(ratio.mean >= bound for bound in _FEWER_DECIMALS)
    return f"{ratio.mean:,.{max(0, decimals - fewer)}f}x"


def _number(value: float | None, decimals: int) -> str:
    return _NONE if value is None else f"{value:,.{decimals}f}"
