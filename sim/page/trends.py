"""What the points of a sweep say together, in sentences made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sim.page.document import POLICY
from sim.page.drawing.markup import Markup, joined
from sim.page.drawing.units import percent, plain, seconds, times, tokens
from sim.page.sweeping import groups, placed
from sim.page.words import COLLAPSED_RATE, MEAN, RATE, best, collapsed, listed, policy, ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.page.document import Entry, Report, Results
    from sim.page.sweeping import Group

USER: Final = ("tok_per_s_per_user",)
HIT: Final = ("cached_ratio",)


@dataclass(slots=True, frozen=True)
class Course:
    """One entry along the swept key: its figures at each point, with the reference there."""

    entry: Entry
    group: Group
    steps: tuple[tuple[Results, Entry], ...]

    @property
    def peak(self) -> int:
        """At which of its steps throughput is highest, the first of equal ones."""
        return max(range(len(self.steps)), key=lambda step: (self.rate(step), -step))

    @property
    def fall(self) -> int | None:
        """The first step after the peak that has lost as much as a collapse does."""
        least = self.rate(self.peak) * COLLAPSED_RATE
        after = range(self.peak + 1, len(self.steps))
        return next((step for step in after if self.rate(step) < least), None)

    def rate(self, step: int) -> float:
        """Its throughput there."""
        return self.steps[step][1].number(*RATE) or 0.0

    def where(self, step: int) -> str:
        """The point in words."""
        key = self.group.key
        return placed(key, self.steps[step][0].at.get(key))


def trends(report: Report) -> list[Markup]:
    """The findings of a sweep, the most important first; empty where the results are none.

    Of one policy they say where throughput peaks and collapses, of several which is the best one where.
    """
    if not report.points:
        return []
    is_alone = len({entry.slot for point in report.points for entry in point.entries}) == 1
    if is_alone or report.noun != POLICY:
        found = [course for group in groups(report) for course in _courses(group, report.legend)]
        said = [*_ladder(found), *(_course(course, found[0]) for course in found)]
    else:
        said = [_along(group) for group in groups(report)]
    said = [sentence for sentence in said if sentence]
    return said or [Markup("The sweep holds no measured point.")]


def _courses(group: Group, legend: Sequence[Entry]) -> list[Course]:
    found: list[Course] = []
    for entry in legend:
        steps = [
            (point, measured)
            for point in group.points
            for measured in point.entries
            if measured.slot == entry.slot and measured.number(*RATE) is not None
        ]
        if steps and any(measured.number(*RATE) for _, measured in steps):
            found.append(Course(entry, group, tuple(steps)))
    return found


def _name(course: Course) -> Markup:
    """The curve's name: its entry's, with what the other keys are where they are no entries."""
    label = course.group.label
    return joined([policy(course.entry), f" with {label}" if label else ""])


def _ladder(courses: Sequence[Course]) -> list[Markup]:
    """Which of several curves has the highest peak, and how far it is from the first one's."""
    if len(courses) < 2:  # noqa: PLR2004
        return []
    first = courses[0]
    top = max(courses, key=lambda course: course.rate(course.peak))
    most = f"{tokens(top.rate(top.peak))} tokens a minute and GPU at {top.where(top.peak)}"
    parts: list[str] = [_name(top), f" does most: {most}"]
    if top is not first:
        peak, base = top.steps[top.peak][1], first.steps[first.peak][1]
        parts += [f", {times(ratio(peak, base, RATE))} the peak of ", _name(first)]
        faster = ratio(peak, base, USER)
        parts.append(f" at {times(faster)} its tokens/s a user" if faster else "")
    return [joined([*parts, "."])]


def _course(course: Course, first: Course) -> Markup:
    """Where one curve peaks and where it collapses, each with its hit ratio."""
    peak, last = course.peak, len(course.steps) - 1
    point, measured = course.steps[peak]
    verb = "peaks" if peak < last else "is highest at the last point,"
    parts: list[str] = [_name(course), f" {verb} at {course.where(peak)}"]
    parts.append(f": {tokens(course.rate(peak))} tok/min/GPU")
    if course is not first:
        parts.append(f" ({times(ratio(measured, first.steps[first.peak][1], RATE))} the first's)")
    parts += [f", {said}" for said in _quality(measured, point)]
    fall = course.fall
    if fall is not None:
        hit = percent(course.steps[fall][1].number(*HIT))
        parts.append(f". By {course.where(fall)} it has collapsed to {tokens(course.rate(fall))}")
        parts.append(f" at a hit ratio of {hit}")
        if fall < last:
            parts.append(f"; it gives {tokens(course.rate(last))} at {course.where(last)}")
    elif peak < last:
        parts.append(f". It does not collapse up to {course.where(last)}")
    return joined([*parts, "."])


def _quality(measured: Entry, point: Results) -> list[str]:
    """What users have of a step: speed, waiting, cache."""
    found: list[str] = []
    if (speed := measured.number(*USER)) is not None:
        found.append(f"{plain(speed)} tok/s/user")
    if (mean_s := measured.number(*MEAN)) is not None:
        far = ratio(measured, point.reference, MEAN) if point.reference else 0.0
        tail = f" ({times(far)} the reference's)" if far else ""
        found.append(f"mean TTFT {seconds(mean_s)}{tail}")
    if (hit := measured.number(*HIT)) is not None:
        found.append(f"hit ratio {percent(hit)}")
    return found


def _along(group: Group) -> Markup:
    """Who leads at how many points of a group, the ends of its range, and where who falls."""
    measured = [point for point in group.points if best(point, MEAN) is not None]
    if not measured:
        return Markup()
    wins: dict[int, int] = {}
    leaders: dict[int, Entry] = {}
    for point in measured:
        leader = best(point, MEAN)
        if leader is not None:
            wins[leader.slot] = wins.get(leader.slot, 0) + 1
            leaders[leader.slot] = leader
    top = leaders[min(wins, key=lambda slot: (-wins[slot], slot))]
    parts: list[str] = [f"With {group.label}, "] if group.label else []
    parts += [
        policy(top),
        f" has the least mean TTFT at {wins[top.slot]} of {len(measured)} points",
    ]
    for point in (measured[0], measured[-1]):
        here = next((entry for entry in point.entries if entry.slot == top.slot), None)
        if here is not None:
            far = ratio(here, point.reference, MEAN) if point.reference else 0.0
            tail = f" ({times(far)} the reference's)" if far else ""
            parts.append(
                f"{':' if point is measured[0] else ','} {seconds(here.number(*MEAN))}{tail} at {placed(group.key, point.at.get(group.key))}"
            )
        if len(measured) == 1:
            break
    parts.append(".")
    falls = [(point, fallen) for point in measured if (fallen := collapsed(point))]
    if falls:
        point, fallen = falls[0]
        where = placed(group.key, point.at.get(group.key))
        parts += [
            " From ",
            where,
            " on ",
            listed(fallen),
            " collapses." if len(fallen) == 1 else " collapse.",
        ]
    return joined(parts)
