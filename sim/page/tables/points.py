"""The tables of a sweep's points: one a point, or one of all where each holds a single entry."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sim.page.charts.card import tabs
from sim.page.document import Results
from sim.page.drawing.markup import Markup, element, joined
from sim.page.sweeping import placed, titled
from sim.page.tables.side_by_side import table

if TYPE_CHECKING:
    from sim.page.sweeping import Group

ABOUT: Final = "Distributions and curves along the run are drawn by a comparison at one point."


def one_table(group: Group) -> Markup:
    """All figures of a group whose points hold one entry each: a row a point."""
    rows = tuple(
        replace(measured, name=placed(group.key, point.at.get(group.key)))
        for point in group.points
        for measured in point.entries
    )
    name = group.titled(f"All figures, by {group.name}")
    drawn = table(Results(rows, None), name, noun=group.name)
    return element("div", element("h3", name), drawn, class_="card wide")


def point_tables(group: Group, name: str, noun: str) -> Markup:
    """Each point's table of all figures, chosen by the swept value.

    ``name``: of the tables on the page; ``noun``: what a row is.
    """
    panels = [
        (titled({group.key: p.at.get(group.key)}), "", table(p, titled(p.at), noun=noun))
        for p in group.points
    ]
    title = joined(
        [
            element("h3", group.titled(f"All figures, by {group.name}")),
            element("p", ABOUT, class_="about"),
        ]
    )
    if len(panels) == 1:
        return element("div", title, panels[0][2], class_="card wide")
    return element(
        "div", title, tabs(f"points-{name}", "Point of the sweep", panels), class_="card wide"
    )
