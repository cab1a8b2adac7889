"""The tables of a sweep's points, one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.page.charts.card import tabs
from sim.page.drawing.markup import Markup, element, joined
from sim.page.sweeping import titled
from sim.page.table import table

if TYPE_CHECKING:
    from sim.page.sweeping import Group

ABOUT: Final = "Distributions and curves along the run are drawn by a comparison at one point."


def point_tables(group: Group, index: int) -> Markup:
    """Each point's table of policies, chosen by the swept value."""
    panels = [
        (titled({group.key: p.at.get(group.key)}), "", table(p, titled(p.at))) for p in group.points
    ]
    title = joined(
        [
            element("h3", f"Policies side by side, by {group.name}"),
            element("p", ABOUT, class_="about"),
        ]
    )
    if len(panels) == 1:
        return element("div", title, panels[0][2], class_="card wide")
    return element(
        "div", title, tabs(f"points-{index}", "Point of the sweep", panels), class_="card wide"
    )
