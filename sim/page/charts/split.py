"""TTFT of warm and of cold requests side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.page.charts.card import absent, card
from sim.page.drawing.markup import Markup, dot_path, element, svg
from sim.page.drawing.plot import Axis
from sim.page.drawing.rows import grid_lines, row, rows
from sim.page.drawing.scales import log_scale, ticks
from sim.page.drawing.units import seconds, tick_seconds

if TYPE_CHECKING:
    from sim.page.document import Entry, Results

TITLE: Final = "Warm turns and cold starts apart"
HALVES: Final = (("ttft_warm_s", "warm", 0.68), ("ttft_cold_s", "cold", 0.32))


def split(results: Results) -> Markup:
    """For each policy where warm and cold requests' TTFT lies, p50 to p99 with the mean."""
    shown = [entry for entry in results.all if any(_range(entry, key) for key, _, _ in HALVES)]
    values = [v for entry in shown for key, _, _ in HALVES for v in _range(entry, key)]
    if not values:
        return absent(
            TITLE, "The results do not tell warm from cold requests (ttft_warm_s, ttft_cold_s)."
        )
    scale = log_scale(values)
    axis = Axis(scale, ticks(scale, 5), tick_seconds, "TTFT (logarithmic)", "s")
    about = (
        "Filled: warm requests, hollow: cold ones, alike for all policies. A bar runs from p50 to "
        "p99, its dot is the mean. Warm turns that wait as long as cold ones are queued behind them."
    )
    found = [row(entry, _strip(entry, axis), _note(entry)) for entry in shown]
    return card(TITLE, about, rows(found, axis, note="mean warm / cold", kind="split"))


def _range(entry: Entry, key: str) -> list[float]:
    found = (entry.number(key, name) for name in ("p50", "mean", "p99"))
    return [value for value in found if value is not None]


def _strip(entry: Entry, axis: Axis) -> Markup:
    parts = [grid_lines(axis, 1000)]
    for key, kind, height in HALVES:
        low, mean, high = (entry.number(key, name) for name in ("p50", "mean", "p99"))
        pieces: list[Markup] = []
        if low is not None and high is not None:
            start, end = (round(axis.scale.share(v) * 1000) for v in (low, high))
            path = f"M{start} {round((1 - height) * 1000)}H{end}"
            pieces.append(element("path", d=path, class_="bar"))
        if mean is not None:
            place = dot_path(axis.scale.share(mean), height)
            pieces += [
                element("path", d=place, class_="dot"),
                element("path", d=place, class_="pip"),
            ]
        said = (
            f"{entry.name}, {kind}: p50 {seconds(low)}, mean {seconds(mean)}, p99 {seconds(high)}"
        )
        parts.append(element("g", element("title", said), *pieces, class_=kind))
    return svg(*parts, label=f"{entry.name}: {_note(entry)} (mean TTFT warm / cold)")


def _note(entry: Entry) -> str:
    return " / ".join(seconds(entry.number(key, "mean")) for key, _, _ in HALVES)
