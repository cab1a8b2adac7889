"""The frame of a chart with one row a policy: name, drawing, note."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.page.drawing.markup import Markup, element

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.page.document import Entry
    from sim.page.drawing.plot import Axis


def row(entry: Entry, drawing: Markup, note: str) -> Markup:
    """One policy's row."""
    return element(
        "div",
        element("span", entry.name, class_="who", title=entry.name),
        element("div", drawing, class_="strip"),
        element("span", note, class_="note"),
        class_=f"row {entry.css}",
        data_p=entry.key,
    )


def rows(
    found: Sequence[Markup], axis: Axis | None = None, *, note: str = "", kind: str = ""
) -> Markup:
    """The rows over one common axis; ``note`` heads the column of notes."""
    head = element(
        "div",
        element("span", class_="who"),
        element("div", class_="strip"),
        element("span", note, class_="note"),
        class_="row head",
    )
    foot: list[Markup] = []
    if axis is not None:
        shown = [
            element("span", axis.reading(v), style=f"left:{axis.scale.share(v) * 100:.1f}%")
            for v in axis.ticks
        ]
        name = element("div", axis.name, class_="xn")
        foot = [
            element(
                "div",
                element("span", class_="who"),
                element("div", element("div", *shown, class_="xt"), name, class_="strip"),
                element("span", class_="note"),
                class_="row foot",
            )
        ]
    return element("div", head, *found, *foot, class_=f"rows {kind}".strip())


def grid_lines(axis: Axis, height: int) -> Markup:
    """Upright lines at an axis' ticks."""
    path = "".join(f"M{round(axis.scale.share(v) * 1000)} 0v{height}" for v in axis.ticks)
    return element("path", d=path, class_="grid")
