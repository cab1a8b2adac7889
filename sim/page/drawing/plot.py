"""The frame of a chart with two axes: text is HTML and keeps its size, only the drawing stretches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sim.page.drawing.markup import Markup, dot_path, element, joined, line_path, svg

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.page.document import Entry
    from sim.page.drawing.scales import Scale

LABEL_PX: Final = 16
"""Room that a label at a line's end takes."""
HEIGHT_PX: Final = 300
LEADER: Final = 100
"""Width of the drawing between the plot and its labels, in its own units."""


@dataclass(slots=True, frozen=True)
class Axis:
    """A scale, where its ticks are, how they read, what it counts, and the unit for the script's read-outs."""

    scale: Scale
    ticks: Sequence[float]
    reading: Callable[[float], str]
    name: str
    unit: str


@dataclass(slots=True, frozen=True)
class Line:
    """An entry's points, None between parts that do not belong together, and marks on some.

    ``dots``: x, y and what a pointer reads there. ``note``: said after the name at the line's end.
    """

    entry: Entry
    points: Sequence[tuple[float, float] | None]
    dots: Sequence[tuple[float, float, str]] = ()
    note: str = ""
    anchor: tuple[float, float] | None = None

    @property
    def last(self) -> tuple[float, float] | None:
        """Where its name is led to: its end, unless it says otherwise."""
        if self.anchor is not None:
            return self.anchor
        if self.dots:
            return self.dots[-1][:2]
        return next((point for point in reversed(self.points) if point is not None), None)


def drawn(
    points: Sequence[tuple[float, float] | None], x: Axis, y: Axis
) -> list[tuple[float, float] | None]:
    """The points as shares of the two axes."""
    return [p and (x.scale.share(p[0]), y.scale.share(p[1])) for p in points]


def spread(wanted: Sequence[float], gap: float, room: float) -> list[float]:
    """Places in ascending order, at least ``gap`` apart inside 0..``room``, near the wanted ones.

    Groups that would touch are put around their common middle (pool of adjacent violators).
    """
    groups: list[tuple[float, int]] = []
    for index, place in enumerate(wanted):
        middle, size = place - index * gap, 1
        while groups and groups[-1][0] > middle:
            other, members = groups.pop()
            middle = (middle * size + other * members) / (size + members)
            size += members
        groups.append((middle, size))
    top = max(0.0, room - gap * (len(wanted) - 1))
    starts = [min(top, max(0.0, middle)) for middle, size in groups for _ in range(size)]
    return [start + index * gap for index, start in enumerate(starts)]


def plot(
    lines: Sequence[Line],
    x: Axis,
    y: Axis,
    *,
    label: str,
    under: Sequence[str] = (),
    over: Sequence[str] = (),
    height_px: int = HEIGHT_PX,
    is_readable: bool = True,
) -> Markup:
    """A chart of lines with their names at the right.

    ``under``: drawn below the lines; ``over``: HTML laid over the plot. ``is_readable``: x runs one way
    along every line, so a pointer may read all of them at one x.
    """
    ends = [line for line in lines if line.last is not None]
    height = max(height_px, LABEL_PX * len(ends) + 8)
    tops = _tops(ends, y, height)
    led = [
        _led(line, x, y, (top + LABEL_PX / 2) / height)
        for line, top in zip(ends, tops, strict=True)
        if not is_readable
    ]
    shapes = [*_grid(x, y), *under, *led, *(_shape(line, x, y) for line in lines)]
    area = element("div", svg(*shapes, label=label), *over, class_="area")
    return element(
        "div",
        element("div", y.name, class_="yn"),
        element("div", *(_tick(y, value, "bottom") for value in y.ticks), class_="yt"),
        area,
        _ends(ends, tops, y, height, has_starts=is_readable),
        element("div", *(_tick(x, value, "left") for value in x.ticks), class_="xt"),
        element("div", x.name, class_="xn"),
        class_="plot",
        style=f"--h:{height}px",
        tabindex=0 if is_readable else None,
        role="group" if is_readable else None,
        aria_label=f"{label}. Arrow keys read values." if is_readable else None,
        data_x=f"{x.scale.spec} {x.unit}" if is_readable else None,
        data_y=f"{y.scale.spec} {y.unit}" if is_readable else None,
    )


def _grid(x: Axis, y: Axis) -> list[Markup]:
    across = "".join(f"M0 {round((1 - y.scale.share(v)) * 1000)}h1000" for v in y.ticks)
    down = "".join(f"M{round(x.scale.share(v) * 1000)} 0v1000" for v in x.ticks)
    return [element("path", d=across + down, class_="grid")]


def _tick(axis: Axis, value: float, side: str) -> Markup:
    return element(
        "span", axis.reading(value), style=f"{side}:{axis.scale.share(value) * 100:.1f}%"
    )


def _shape(line: Line, x: Axis, y: Axis) -> Markup:
    path = line_path(drawn(line.points, x, y))
    parts = [element("path", d=path, class_="line")] if path else []
    for at_x, at_y, said in line.dots:
        place = dot_path(x.scale.share(at_x), y.scale.share(at_y))
        parts.append(
            element(
                "g",
                element("title", f"{line.entry.name}: {said}"),
                element("path", d=place, class_="dot"),
                element("path", d=place, class_="pip"),
            )
        )
    return element(
        "g", *parts, class_=line.entry.css, data_p=line.entry.key, data_n=line.entry.name
    )


def _tops(lines: Sequence[Line], y: Axis, height: int) -> list[float]:
    """Where each line's name is, in pixels from the top, beside its last point as far as there is room."""
    wanted = [_depth(line, y) * height - LABEL_PX / 2 for line in lines]
    order = sorted(range(len(lines)), key=lambda index: (wanted[index], index))
    placed = spread([wanted[index] for index in order], LABEL_PX, height - LABEL_PX)
    return [top for _, top in sorted(zip(order, placed, strict=True))]


def _depth(line: Line, y: Axis) -> float:
    """How far down its last point is, as a share."""
    return 1 - y.scale.share(line.last[1]) if line.last else 0.0


def _led(line: Line, x: Axis, y: Axis, top: float) -> Markup:
    """A thin line from a line's last point to the edge where its name is."""
    start = x.scale.share(line.last[0]) if line.last else 1.0
    path = f"M{start * 1000:.0f} {_depth(line, y) * 1000:.0f}L1000 {top * 1000:.0f}"
    return element("path", d=path, class_=f"leader {line.entry.css}", data_p=line.entry.key)


def _ends(
    lines: Sequence[Line], tops: Sequence[float], y: Axis, height: int, *, has_starts: bool
) -> Markup:
    """Names at the right, apart from each other, each led to from the plot's edge."""
    leads: list[Markup] = []
    names: list[Markup] = []
    for line, top in zip(lines, tops, strict=True):
        entry = line.entry
        start = _depth(line, y) * height if has_starts else top + LABEL_PX / 2
        path = f"M0 {start:.0f}L{LEADER} {top + LABEL_PX / 2:.0f}"
        leads.append(element("path", d=path, class_=entry.css, data_p=entry.key))
        names.append(
            element(
                "span",
                element("b", entry.name),
                element("i", line.note) if line.note else "",
                class_=entry.css,
                data_p=entry.key,
                title=entry.name,
                style=f"top:{top:.0f}px",
            )
        )
    drawing = element(
        "svg",
        *leads,
        viewbox=f"0 0 {LEADER} {height}",
        preserveaspectratio="none",
        aria_hidden="true",
        class_="leads",
    )
    return element("div", drawing, joined(names), class_="ends")
