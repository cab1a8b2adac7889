"""What changes along a sweep: a small chart a figure and group of points, a line an entry."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from sim.page.charts.card import absent, card
from sim.page.drawing.plot import Axis, Line, plot
from sim.page.drawing.scales import Scale, apart, linear_scale, log_scale, ratio_scale, ticks
from sim.page.drawing.units import percent, plain, seconds, tick, tick_percent, tick_seconds, tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sim.page.document import Entry
    from sim.page.drawing.markup import Markup
    from sim.page.sweeping import Group


@dataclass(slots=True, frozen=True)
class Figure:
    """A figure along a sweep and how it reads."""

    path: tuple[str, ...]
    title: str
    about: str
    unit: str
    said: Callable[[float | None], str]
    ticked: Callable[[float], str]
    scaled: Callable[[Sequence[float]], Scale]


LOWER: Final = "Lower is better; logarithmic."
FIGURES: Final = (
    Figure(("ttft_s", "mean"), "Mean TTFT", LOWER, "s", seconds, tick_seconds, log_scale),
    Figure(("ttft_s", "p99"), "p99 TTFT", LOWER, "s", seconds, tick_seconds, log_scale),
    Figure(
        ("tokens_per_min_per_gpu",),
        "Throughput",
        "Prompt and output tokens a minute and GPU. Where a line turns down, the fleet thrashes.",
        "",
        tokens,
        tokens,
        linear_scale,
    ),
    Figure(
        ("cached_ratio",),
        "Hit ratio",
        "Cached share of prompt tokens; the scale is stretched towards 100 %.",
        "%",
        percent,
        tick_percent,
        ratio_scale,
    ),
    Figure(
        ("tok_per_s_per_user",),
        "Interactivity",
        "Tokens a second that a user sees while an answer streams.",
        "",
        plain,
        tick,
        linear_scale,
    ),
    Figure(
        ("inflight_var_to_mean",),
        "Unevenness in flight",
        "Variance over mean of requests in flight on a replica; random placement is near 1.",
        "",
        plain,
        tick,
        log_scale,
    ),
)


def swept(groups: Sequence[Group], legend: Sequence[Entry]) -> list[Markup]:
    """The charts of all groups of points, those of one figure beside each other and with equal axes."""
    return [
        chart
        for figure in FIGURES
        for chart in _charts(figure, [(group, _lines(group, legend, figure)) for group in groups])
    ]


def _charts(figure: Figure, drawn: Sequence[tuple[Group, Sequence[Line]]]) -> list[Markup]:
    title = f"{figure.title} over {drawn[0][0].name}"
    values = [dot[1] for _, lines in drawn for line in lines for dot in line.dots]
    if not values:
        return [absent(title, f"The points hold no {'.'.join(figure.path)}.")]
    if not any(values):
        return [absent(title, "It is 0 at all points.")]
    places = [place for group, _ in drawn for place in group.places()]
    low, high = min(places), max(places)
    x_scale, y_scale = Scale(low, high if high > low else low + 1.0), figure.scaled(values)
    charts: list[Markup] = []
    for group, lines in drawn:
        names = dict(zip(group.places(), map(group.value, group.points), strict=True))
        shown = apart(sorted(names), x_scale)
        x = Axis(x_scale, shown, partial(_named, names), group.name, "")
        y = Axis(y_scale, ticks(y_scale), figure.ticked, figure.title, figure.unit)
        drawing = plot(lines, x, y, label=group.titled(title))
        charts.append(card(group.titled(title), figure.about, drawing))
    return charts


def _named(names: Mapping[float, str], place: float) -> str:
    return names.get(place, "")


def _lines(group: Group, legend: Sequence[Entry], figure: Figure) -> list[Line]:
    lines: list[Line] = []
    for entry in legend:
        dots = [
            (place, value, f"{group.name} {group.value(point)}: {figure.said(value)}")
            for place, point in zip(group.places(), group.points, strict=True)
            for measured in point.all
            if measured.slot == entry.slot and (value := measured.number(*figure.path)) is not None
        ]
        if dots:
            lines.append(Line(entry, [dot[:2] for dot in dots], dots, figure.said(dots[-1][1])))
    return lines
