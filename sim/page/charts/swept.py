"""What changes along a sweep: one small chart a figure, a line a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sim.page.charts.card import absent, card
from sim.page.drawing.plot import Axis, Line, plot
from sim.page.drawing.scales import Scale, apart, linear_scale, log_scale, ratio_scale, ticks
from sim.page.drawing.units import percent, plain, seconds, tick, tick_percent, tick_seconds, tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


def swept(group: Group, legend: Sequence[Entry]) -> list[Markup]:
    """The charts of one group of points."""
    return [_chart(group, legend, figure) for figure in FIGURES]


def _chart(group: Group, legend: Sequence[Entry], figure: Figure) -> Markup:
    title = f"{figure.title} over {group.name}"
    places = group.places()
    lines: list[Line] = []
    for entry in legend:
        dots = [
            (place, value, f"{group.name} {group.value(point)}: {figure.said(value)}")
            for place, point in zip(places, group.points, strict=True)
            for measured in point.all
            if measured.slot == entry.slot and (value := measured.number(*figure.path)) is not None
        ]
        if dots:
            lines.append(Line(entry, [dot[:2] for dot in dots], dots, figure.said(dots[-1][1])))
    if not lines:
        return absent(title, f"The points hold no {'.'.join(figure.path)}.")
    low, high = min(places), max(places)
    x_scale = Scale(low, high if high > low else low + 1.0)
    y_scale = figure.scaled([dot[1] for line in lines for dot in line.dots])
    names = {place: group.value(point) for place, point in zip(places, group.points, strict=True)}
    x = Axis(
        x_scale, apart(sorted(names), x_scale), lambda place: names.get(place, ""), group.name, ""
    )
    y = Axis(y_scale, ticks(y_scale), figure.ticked, figure.title, figure.unit)
    return card(title, figure.about, plot(lines, x, y, label=title))
