"""Every replica along the run, one policy at a time: in flight, pool in use, hit ratio."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sim.page.charts.card import absent, card, tabs
from sim.page.charts.events import marks, over
from sim.page.document import Entry, items, number
from sim.page.drawing.markup import Markup, element, svg
from sim.page.drawing.scales import Scale, minute_ticks
from sim.page.drawing.units import duration, tick_minutes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.page.document import Report

TITLE: Final = "Replicas along the run"
ROWS_MAX: Final = 64
COLUMNS_MAX: Final = 120
CELLS_MAX: Final = 60_000
"""Cells of the main map over all policies; the two small ones have a third of it each."""
COUNTS: Final = (0.25, 1.5, 2.5, 3.5, 4.5, 6.5, 8.5, 12.5, 16.5, 24.5, 32.5)
COUNTS_SAID: Final = (
    "0",
    "1",
    "2",
    "3",
    "4",
    "5-6",
    "7-8",
    "9-12",
    "13-16",
    "17-24",
    "25-32",
    "33+",
)
RATIOS: Final = (0.05, 0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)
RATIOS_SAID: Final = (
    "0-5 %", "5-20 %", "20-35 %", "35-50 %", "50-60 %", "60-70 %",
    "70-80 %", "80-85 %", "85-90 %", "90-95 %", "95-98 %", "98-100 %",
)  # fmt: skip
AWAY: Final = -1
"""The level of a replica that is not in service."""


@dataclass(slots=True, frozen=True)
class Map:
    """One matrix of the results and how its values are told apart."""

    key: str
    title: str
    edges: Sequence[float]
    said: Sequence[str]
    css: str


MAPS: Final = (
    Map("inflight", "Requests in flight", COUNTS, COUNTS_SAID, "count"),
    Map("used_ratio", "KV pool in use", RATIOS, RATIOS_SAID, "ratio"),
    Map("hit_ratio", "Hit ratio", RATIOS, RATIOS_SAID, "ratio"),
)


def replicas(report: Report) -> Markup:
    """Heat maps of replica by time, chosen by policy."""
    shown = [entry for entry in report.results.all if _matrix(entry, MAPS[0].key)]
    if not shown:
        return absent(
            TITLE, "The results hold no curves of single replicas (curves.replicas.inflight)."
        )
    cells = CELLS_MAX // len(shown)
    panels = [(entry.name, f"{entry.css} chip", _panel(report, entry, cells)) for entry in shown]
    about = (
        "A row is a replica, from left to right the run. A row that stays dark is a hot spot; a whole map that "
        "darkens is a fleet that cannot keep up. Blank: not in service."
    )
    told, whole = max(len(_matrix(entry, MAPS[0].key)) for entry in shown), _replicas(report)
    if told < whole:
        about += f" The results hold the first {told:,} of {whole:,} replicas."
    body = (
        panels[0][2]
        if len(panels) == 1
        else tabs("maps", "Policy whose replicas are shown", panels)
    )
    return card(TITLE, about, body, is_wide=True)


def _replicas(report: Report) -> int:
    """Replicas of the fleet as it begins."""
    return int(sum(number(group, "replicas") or 0.0 for group in items(report.scenario, "fleet")))


def _panel(report: Report, entry: Entry, cells: int) -> Markup:
    drawings = [
        _map(report, entry, kind, cells if kind is MAPS[0] else cells // 3)
        for kind in MAPS
        if _matrix(entry, kind.key)
    ]
    return element("div", *drawings, class_="maps")


def _matrix(entry: Entry, key: str) -> list[list[float | None]]:
    found = [
        [number(value) for value in items({"row": row}, "row")]
        for row in items(entry.figures, "curves", "replicas", key)
    ]
    return found if any(value is not None for row in found for value in row) else []


def _map(report: Report, entry: Entry, kind: Map, cells: int) -> Markup:
    matrix = _matrix(entry, kind.key)
    ids = [
        item if isinstance(item, str) else ""
        for item in items(entry.figures, "curves", "replicas", "ids")
    ]
    names = [ids[n] if n < len(ids) and ids[n] else str(n) for n in range(len(matrix))]
    bucket_s = max(number(entry.figures, "curves", "replicas", "bucket_s") or 1.0, 1e-3)
    length = max(len(row) for row in matrix)
    group = -(-len(matrix) // ROWS_MAX)
    rows = [_fullest(matrix[n : n + group], length) for n in range(0, len(matrix), group)]
    step = -(-length // max(12, min(COLUMNS_MAX, cells // len(rows))))
    levels = [_levels(row, step, kind.edges) for row in rows]
    columns = max(len(row) for row in levels)
    span = Scale(0.0, columns * step * bucket_s)
    label = f"{entry.name}: {kind.title.lower()} of {len(matrix)} replicas over {duration(length * bucket_s)}"
    drawing = svg(*_paths(levels, kind.css, columns), label=label, height=len(rows))
    # The drawing's units are cells: a box 1,000 wide would need every number twice as long.
    drawing = Markup(drawing.replace('viewBox="0 0 1000 ', f'viewBox="0 0 {columns} ', 1))
    ticks = [
        element("span", tick_minutes(v), style=f"left:{span.share(v) * 100:.1f}%")
        for v in minute_ticks(span)
    ]
    flags = over(marks(report.results), span, is_wide=True) if kind is MAPS[0] else []
    named = [
        names[n] if group == 1 else f"{names[n]} and {group - 1} more"
        for n in range(0, len(matrix), group)
    ]
    note = f", rows are the fullest of {group}" if group > 1 else ""
    return element(
        "div",
        element("h4", f"{kind.title}{note}{', %' if kind.css == 'ratio' else ''}"),
        element(
            "div",
            drawing,
            *flags,
            class_="area",
            data_rows="|".join(name.replace("|", "/") for name in named),
            data_step=f"{step * bucket_s:g}",
            data_said="|".join(kind.said),
            style=f"--h:{_height(len(rows), is_main=kind is MAPS[0])}px",
        ),
        element("div", *ticks, class_="xt"),
        _ramp(kind, max(level for row in levels for level in row)),
        class_=f"map {kind.key.replace('_', '-')}",
    )


def _height(rows: int, *, is_main: bool) -> int:
    each = 6 if rows > ROWS_MAX // 2 else 12
    height = max(rows * each, 28)
    return height if is_main else max(28, height // 2)


def _fullest(rows: Sequence[Sequence[float | None]], length: int) -> list[float | None]:
    """The highest value of several replicas in each bucket."""
    columns = ([row[n] for row in rows if n < len(row)] for n in range(length))
    return [max((v for v in column if v is not None), default=None) for column in columns]


def _levels(row: Sequence[float | None], step: int, edges: Sequence[float]) -> list[int]:
    found: list[int] = []
    for start in range(0, len(row), step):
        values = [value for value in row[start : start + step] if value is not None]
        found.append(bisect_right(edges, sum(values) / len(values)) if values else AWAY)
    return found


def _paths(levels: Sequence[Sequence[int]], css: str, columns: int) -> list[Markup]:
    """One path a level, a stroke for every run of equal cells."""
    written: dict[int, list[str]] = {}
    for y, row in enumerate(levels):
        start = 0
        for x in range(1, len(row) + 1):
            if x == len(row) or row[x] != row[start]:
                written.setdefault(row[start], []).append(f"M{start} {y}.5h{x - start}")
                start = x
    blank = element("path", d=f"M0 0h{columns}", class_="blank")
    shown = [
        element("path", d="".join(written[level]), class_=f"{css} v{level}", data_v=level)
        for level in sorted(written)
        if level != AWAY
    ]
    return [blank, *shown]


def _ramp(kind: Map, top: int) -> Markup:
    steps = [
        element(
            "li", element("i", class_=f"{kind.css} v{n}"), element("span", said.removesuffix(" %"))
        )
        for n, said in enumerate(kind.said[: max(top, 0) + 1])
    ]
    return element("ul", *steps, class_="ramp", aria_label="Scale")
