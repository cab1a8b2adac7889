"""What the figures of one point say, in sentences made from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.page.drawing.markup import Markup, element, joined
from sim.page.drawing.units import count, percent, seconds, times, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.page.document import Entry, Report, Results

MEAN: Final = ("ttft_s", "mean")
P99: Final = ("ttft_s", "p99")
RATE: Final = ("tokens_per_min_per_gpu",)
COLLAPSED_RATE: Final = 0.85
COLLAPSED_TTFT: Final = 4.0
LEAST_POINTS: Final = 0.0005
"""Difference of hit ratios that shows at one decimal."""
CLOSE: Final = 1.05
"""Within this factor two times are called equal."""
NAMED: Final = 4
"""Policies that a sentence lists by name."""


def summary(report: Report) -> list[Markup]:
    """The findings, the most important first; one that says why where there are none."""
    if not report.has_requests:
        return [
            Markup(
                "No request was measured: there is nothing to compare. Was the run longer than its warm-up?"
            )
        ]
    return _compared(report.results)


def policy(entry: Entry) -> Markup:
    """A policy's name in a sentence."""
    return element("b", entry.name, class_=f"name {entry.css}")


def best(results: Results, path: tuple[str, ...], *, most: bool = False) -> Entry | None:
    """The policy with the least value, or the most."""
    known = [(v, e) for e in results.entries if (v := e.number(*path)) is not None]
    if not known:
        return None
    order = sorted(known, key=lambda pair: (-pair[0] if most else pair[0], pair[1].slot))
    return order[0][1]


def collapsed(results: Results) -> list[Entry]:
    """Policies that lose throughput and answer far later than the best one."""
    leader, fullest = best(results, MEAN), best(results, RATE, most=True)
    if leader is None or fullest is None:
        return []
    slow = (leader.number(*MEAN) or 0.0) * COLLAPSED_TTFT
    low = (fullest.number(*RATE) or 0.0) * COLLAPSED_RATE
    return [
        entry
        for entry in results.entries
        if (entry.number(*MEAN) or 0.0) > slow and (entry.number(*RATE) or 0.0) < low
    ]


def _compared(results: Results) -> list[Markup]:
    leader = best(results, MEAN)
    if leader is None:
        return [Markup("The results hold no TTFT.")]
    found = [_leads(results, leader), _costs(results, leader), _falls(results), _fails(results)]
    return [sentence for sentence in found if sentence]


def _leads(results: Results, leader: Entry) -> Markup:
    """Who is best by mean and by p99, and how far from the reference."""
    mean_s, p99_s = leader.number(*MEAN), leader.number(*P99)
    parts: list[str] = [policy(leader)]
    tail = best(results, P99)
    if len(results.entries) == 1:
        parts.append(f" answers after {seconds(mean_s)} in the mean and {seconds(p99_s)} at p99")
    elif tail is None or tail is leader or ratio(leader, tail, P99) <= CLOSE:
        parts.append(
            f" answers soonest: TTFT {seconds(mean_s)} in the mean, {seconds(p99_s)} at p99"
        )
    else:
        parts += [
            f" has the least mean TTFT, {seconds(mean_s)} (p99 {seconds(p99_s)}); ",
            policy(tail),
        ]
        parts.append(f" the least p99, {seconds(tail.number(*P99))}")
    parts.append(_distance(results, leader))
    return joined([*parts, "."])


def _distance(results: Results, leader: Entry) -> str:
    if results.reference is None:
        return ""
    near, far = (ratio(leader, results.reference, path) for path in (MEAN, P99))
    if not near:
        return ""
    tail = f" and {times(far)}" if far else ""
    return f", {times(near)}{tail} the clairvoyant reference's" + (
        " mean and p99" if far else " mean"
    )


def _costs(results: Results, leader: Entry) -> Markup:
    """What the leader's hit ratio is, and what the highest one costs."""
    hit, ceiling = leader.number("cached_ratio"), leader.number("cached_ratio_ceiling")
    if hit is None:
        return Markup()
    parts: list[str] = [f"Its hit ratio is {percent(hit)}"]
    if ceiling is not None:
        gap = (ceiling - hit) * 100
        parts.append(
            f", {gap:.1f} points under the ceiling"
            if gap >= LEAST_POINTS * 100
            else ", at the ceiling"
        )
    top = best(results, ("cached_ratio",), most=True)
    if (
        top is not None
        and top is not leader
        and (top.number("cached_ratio") or 0.0) - hit >= LEAST_POINTS
    ):
        parts += ["; the highest, ", percent(top.number("cached_ratio")), " of ", policy(top)]
        parts.append(f", comes with {times(ratio(top, leader, MEAN))} its mean TTFT")
    rate = leader.number(*RATE)
    if rate is not None:
        parts.append(f". Throughput is {tokens(rate)} tokens a minute and GPU")
        base = results.reference.number(*RATE) if results.reference else None
        parts.append(f", {rate / base * 100:.0f} % of the reference's" if base else "")
    return joined([*parts, "."])


def _falls(results: Results) -> Markup:
    fallen = collapsed(results)
    if not fallen:
        return Markup()
    worst = max(fallen, key=lambda entry: entry.number(*MEAN) or 0.0)
    verb = "collapses" if len(fallen) == 1 else "collapse"
    most = f"{seconds(worst.number(*MEAN))} in the mean and {tokens(worst.number(*RATE))} tokens a minute and GPU"
    return joined(
        [listed(fallen), f" {verb} here: ", "" if len(fallen) == 1 else "up to ", most, "."]
    )


def _fails(results: Results) -> Markup:
    failing = [entry for entry in results.entries if (entry.number("errors") or 0.0) > 0]
    if not failing:
        return Markup()
    worst = max(failing, key=lambda entry: entry.number("errors") or 0.0)
    who = f"{len(failing)} of {len(results.entries)} policies" if len(results.entries) > 1 else "It"
    most = f"at most {count(worst.number('errors'))} of {count(worst.number('requests'))} with "
    ending = [most, policy(worst)] if len(results.entries) > 1 else [count(worst.number("errors"))]
    return joined([who, " had requests that failed, ", *ending, "."])


def listed(entries: Sequence[Entry]) -> Markup:
    """Their names in a sentence, of many the first."""
    names = [policy(entry) for entry in entries[:NAMED]]
    if len(entries) > NAMED:
        return joined([joined(names, ", "), f" and {len(entries) - NAMED} more"])
    return (
        joined([joined(names[:-1], ", "), " and ", names[-1]]) if len(names) > 1 else joined(names)
    )


def ratio(entry: Entry, base: Entry, path: tuple[str, ...]) -> float:
    """How many times the base's; 0 where it is not known."""
    value, other = entry.number(*path), base.number(*path)
    return value / other if value is not None and other else 0.0


def tiles(report: Report) -> Markup:
    """The figures to remember of the best policy, each against the reference."""
    leader = best(report.results, MEAN)
    if leader is None:
        return Markup()
    reference = report.results.reference
    shown = (
        ("Best mean TTFT", MEAN, seconds),
        ("its p99 TTFT", P99, seconds),
        ("its hit ratio", ("cached_ratio",), percent),
        ("its tokens/min/GPU", RATE, tokens),
    )
    cells: list[Markup] = []
    for title, path, said in shown:
        value = leader.number(*path)
        base = reference.number(*path) if reference else None
        if path == ("cached_ratio",):
            under = f"ceiling {percent(leader.number('cached_ratio_ceiling'))}"
        else:
            under = f"reference {said(base)}" if base is not None else "no reference"
        cells.append(
            element(
                "div",
                element("dt", title),
                element("dd", element("strong", said(value)), element("span", under)),
                class_=leader.css,
            )
        )
    name = (
        element("p", policy(leader), " is the best by mean TTFT")
        if len(report.results.entries) > 1
        else ""
    )
    return element("div", name, element("dl", *cells, class_="tiles"))
