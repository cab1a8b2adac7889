"""Hit ratio, TTFT and requests in flight along the run, with what happened to the fleet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sim.page.charts.card import absent, card, tabs
from sim.page.charts.events import listed, marks, over
from sim.page.document import REFERENCE, Entry, number, series
from sim.page.drawing.markup import Markup, element, line_path
from sim.page.drawing.plot import Axis, Line, drawn, plot
from sim.page.drawing.scales import Scale, linear_scale, log_scale, minute_ticks, ratio_scale, ticks
from sim.page.drawing.units import (
    percent,
    plain,
    seconds,
    tick,
    tick_minutes,
    tick_percent,
    tick_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.page.document import Report

POINTS_MAX: Final = 150
TTFT_TITLE: Final = "TTFT along the run"
HIT_TITLE: Final = "Hit ratio along the run"
FLIGHT_TITLE: Final = "Load along the run"


@dataclass(slots=True, frozen=True)
class Curve:
    """One list of ``over_time`` and how its values read."""

    key: str
    title: str
    unit: str
    said: Callable[[float | None], str]
    ticked: Callable[[float], str]
    scaled: Callable[[Sequence[float]], Scale]
    height_px: int = 320


TTFT_MEAN: Final = Curve("ttft_mean_s", "mean", "s", seconds, tick_seconds, log_scale)
TTFT_P99: Final = Curve("ttft_p99_s", "p99", "s", seconds, tick_seconds, log_scale)
HIT: Final = Curve("cached_ratio", "hit ratio", "%", percent, tick_percent, ratio_scale)
FLIGHT_MEAN: Final = Curve("inflight_mean", "mean replica", "", plain, tick, linear_scale)
FLIGHT_MAX: Final = Curve("inflight_max", "fullest replica", "", plain, tick, linear_scale)
FLIGHT_MIN: Final = Curve("inflight_min", "emptiest replica", "", plain, tick, linear_scale)
REQUESTS: Final = Curve("requests", "requests sent", "", plain, tick, linear_scale)


def ttft_over_time(report: Report) -> Markup:
    """Mean and p99 TTFT by time, faults and scaling marked."""
    about = (
        "Logarithmic; requests by when they were sent. Shaded: warm-up, which no figure counts. Upright "
        "marks are faults and changes of the fleet."
    )
    drawing = _tabbed(report, "ttft", TTFT_TITLE, (TTFT_MEAN, TTFT_P99))
    if not drawing:
        return absent(
            TTFT_TITLE, "The results hold no TTFT over time (curves.over_time.ttft_mean_s)."
        )
    return card(TTFT_TITLE, about, drawing, listed(marks(report.results)), is_wide=True)


def hit_over_time(report: Report) -> Markup:
    """Hit ratio by time under its ceiling."""
    ceiling = _ceiling(report)
    drawing = _drawn(report, HIT, HIT_TITLE, [ceiling] if ceiling else [])
    if not drawing:
        return absent(
            HIT_TITLE, "The results hold no hit ratio over time (curves.over_time.cached_ratio)."
        )
    said = (
        f"The dotted line is the ceiling: what a cache that never forgets would have hit in {ceiling.entry.name}'s run."
        if ceiling
        else "The results hold no ceiling (curves.over_time.cached_ratio_ceiling)."
    )
    return card(
        HIT_TITLE,
        f"Cached share of prompt tokens by when requests were sent; stretched towards 100 %. {said}",
        drawing,
    )


def load_over_time(report: Report) -> Markup:
    """Requests in flight by time: the mean, the fullest and the emptiest replica, and requests sent."""
    curves = (FLIGHT_MAX, FLIGHT_MEAN, FLIGHT_MIN, REQUESTS)
    drawing = _tabbed(report, "load", FLIGHT_TITLE, curves)
    if not drawing:
        return absent(
            FLIGHT_TITLE, "The results hold no load over time (curves.over_time.inflight_mean)."
        )
    about = (
        "Requests in flight on a replica. Where the fullest replica climbs away from the mean, sessions are "
        "homed on one that cannot keep up."
    )
    return card(FLIGHT_TITLE, about, drawing)


def _tabbed(report: Report, name: str, title: str, curves: Sequence[Curve]) -> Markup:
    panels = [
        (curve.title, "", drawing)
        for curve in curves
        if (drawing := _drawn(report, curve, title, []))
    ]
    if len(panels) < 2:  # noqa: PLR2004
        return panels[0][2] if panels else Markup()
    return tabs(name, f"{title}: what is drawn", panels)


def _drawn(report: Report, curve: Curve, title: str, more: Sequence[Line]) -> Markup:
    """One curve of all entries; empty where nobody has it."""
    lines = [
        Line(entry, points)
        for entry in report.results.all
        if any(points := points_of(entry, curve.key))
    ]
    if not lines:
        return Markup()
    lines = [*lines, *more]
    x_scale = _span(report, lines)
    y_scale = curve.scaled([point[1] for line in lines for point in line.points if point])
    x = Axis(x_scale, minute_ticks(x_scale), tick_minutes, "virtual time", "min")
    y = Axis(y_scale, ticks(y_scale), curve.ticked, curve.title, curve.unit)
    dotted = [
        element("path", d=line_path(drawn(line.points, x, y)), class_="line ceiling")
        for line in more
    ]
    noted = [
        Line(line.entry, line.points, note=curve.said(line.last[1] if line.last else None))
        for line in lines
        if line not in more
    ]
    found = marks(report.results)
    return plot(
        noted,
        x,
        y,
        label=f"{title}, {curve.title}",
        under=[*_warmup(report, x_scale), *dotted],
        over=over(found, x_scale, is_wide=curve in (TTFT_MEAN, TTFT_P99)),
        height_px=curve.height_px,
    )


def points_of(entry: Entry, key: str) -> list[tuple[float, float] | None]:
    """(seconds, value) along the run, thinned; None where nothing was measured."""
    times = series(entry.figures, "curves", "over_time", "at_s")
    values = series(entry.figures, "curves", "over_time", key)
    both = [None if t is None or v is None else (t, v) for t, v in zip(times, values, strict=False)]
    step = max(1, -(-len(both) // POINTS_MAX))
    return both if step == 1 else [_average(both[n : n + step]) for n in range(0, len(both), step)]


def _average(points: Sequence[tuple[float, float] | None]) -> tuple[float, float] | None:
    found = [point for point in points if point is not None]
    return (found[0][0], sum(v for _, v in found) / len(found)) if found else None


def _ceiling(report: Report) -> Line | None:
    """The ceiling of the best policy that has one; it differs little from run to run."""
    for entry in report.results.entries:
        points = points_of(entry, "cached_ratio_ceiling")
        if any(points):
            return Line(Entry(entry.name, REFERENCE, entry.figures), points)
    return None


def _span(report: Report, lines: Sequence[Line]) -> Scale:
    times = [point[0] for line in lines for point in line.points if point]
    last = max([*times, number(report.scenario, "duration_s") or 0.0])
    first = min(times)
    return Scale(0.0 if first < last / 4 else first, max(last, first + 1.0))


def _warmup(report: Report, scale: Scale) -> list[Markup]:
    until = number(report.scenario, "warmup_s") or 0.0
    if until <= scale.low:
        return []
    width = round(scale.share(until) * 1000)
    return [element("rect", x=0, y=0, width=width, height=1000, class_="warmup")]
