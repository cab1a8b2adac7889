"""One figure over a whole sweep: a row an entry, a column a point, the best of each point marked."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sim.page.charts.card import card
from sim.page.document import Entry
from sim.page.drawing.markup import Markup, element
from sim.page.tables.side_by_side import COLUMNS, cell, heading, keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.page.document import Results
    from sim.page.sweeping import Group
    from sim.page.tables.side_by_side import Column

MEAN: Final = ("ttft_s", "mean")
FIGURES: Final = (
    ("Mean TTFT", MEAN),
    ("p99 TTFT", ("ttft_s", "p99")),
    ("Hit ratio", ("cached_ratio",)),
    ("Throughput, tokens/min/GPU", ("tokens_per_min_per_gpu",)),
)
DENSE: Final = 10
"""Columns beyond which the text is smaller."""
NARROW: Final = 5
"""Columns up to which two matrices are side by side."""


def matrices(
    groups: Sequence[Group], legend: Sequence[Entry], *, noun: str, is_ranked: bool
) -> list[Markup]:
    """A matrix a figure, mean TTFT first; figures that no point holds are left out.

    The rows are alike in all: the reference last, the others by how far their mean TTFT is from the best
    of each point where ``is_ranked``, as the legend has them where not. ``noun``: what a row is.
    """
    points = [point for group in groups for point in group.points]
    present = {entry.slot for point in points for entry in point.all}
    rows = [entry for entry in legend if entry.slot in present]
    if is_ranked:
        rows.sort(key=lambda entry: (entry.is_reference, _distance(entry, points), entry.slot))
    by_path = {column.path: replace(column, has_bar=False) for column in COLUMNS}
    return [
        _matrix(title, groups, rows, by_path[path], noun)
        for title, path in FIGURES
        if any(entry.number(*path) is not None for point in points for entry in point.all)
    ]


def _distance(entry: Entry, points: Sequence[Results]) -> float:
    """How many times the least mean TTFT its own is, as the mean of logarithms over the points."""
    found: list[float] = []
    for point in points:
        known = {e.slot: v for e in point.entries if (v := e.number(*MEAN)) is not None and v > 0}
        if entry.slot in known:
            found.append(math.log(known[entry.slot]) - math.log(min(known.values())))
    return math.fsum(found) / len(found) if found else math.inf


def _matrix(
    title: str, groups: Sequence[Group], rows: Sequence[Entry], column: Column, noun: str
) -> Markup:
    name = f"{title}, by {groups[0].name}"
    head = [element("tr", element("th", noun, scope="col", class_="name"), *_values(groups))]
    if any(group.label for group in groups):
        spans = [
            element("th", group.label, colspan=len(group.points), scope="colgroup")
            for group in groups
        ]
        head.insert(0, element("tr", element("td"), *spans, class_="groups"))
    body = [
        element(
            "tr", heading(row.name), *_cells(row, groups, column), class_=row.css, data_p=row.key
        )
        for row in rows
    ]
    drawn = element(
        "table",
        element("caption", name),
        element("thead", *head),
        element("tbody", *body),
    )
    box = element("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=name)
    key = keys(
        has_best=sum(not row.is_reference for row in rows) > 1,
        has_far=column.is_compared and any(row.is_reference for row in rows),
    )
    width = sum(len(group.points) for group in groups)
    looks = "table matrix dense" if width > DENSE else "table matrix"
    return card(name, "", element("div", box, key, class_=looks), is_wide=width > NARROW)


def _values(groups: Sequence[Group]) -> list[Markup]:
    return [
        element("th", group.value(point), scope="col", class_=None if index else "first")
        for group in groups
        for index, point in enumerate(group.points)
    ]


def _cells(row: Entry, groups: Sequence[Group], column: Column) -> list[Markup]:
    cells: list[Markup] = []
    for group in groups:
        for index, point in enumerate(group.points):
            measured = next(
                (entry for entry in point.all if entry.slot == row.slot),
                Entry(row.name, row.slot, {}),
            )
            cells.append(cell(measured, point, column, is_first=index == 0))
    return cells
