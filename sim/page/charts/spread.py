"""How many requests the replicas of a policy have in flight, and how unevenly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.page.charts.card import absent, card
from sim.page.document import series
from sim.page.drawing.markup import Markup, element, svg
from sim.page.drawing.plot import Axis
from sim.page.drawing.rows import grid_lines, row, rows
from sim.page.drawing.scales import Scale, ticks
from sim.page.drawing.units import percent, plain, tick

if TYPE_CHECKING:
    from sim.page.document import Entry, Results

TITLE: Final = "In flight on a replica"
WIDEST: Final = 40
REST: Final = 0.002
"""Share of replica-time that may lie beyond the drawing's right end."""


def spread(results: Results) -> Markup:
    """A histogram a policy on one axis, with mean and variance over mean."""
    shown = [(entry, shares) for entry in results.all if (shares := _shares(entry))]
    if not shown:
        return absent(
            TITLE,
            "The results hold no distribution of requests in flight (curves.inflight_spread).",
        )
    last = max(_width(shares) for _, shares in shown)
    scale = Scale(-0.5, last + 0.5)
    axis = Axis(
        scale,
        [v for v in ticks(scale, 8) if v == int(v)],
        lambda value: tick(value) + ("+" if value == last else ""),
        "requests in flight on one replica",
        "",
    )
    about = (
        "Share of replica-time at each count, each row to its own height; the upright line is the mean. Random "
        "placement spreads like Poisson, variance / mean 1; under 0.5 is even, far above 1 some replicas queue "
        "while others idle."
    )
    found = [row(entry, _strip(entry, shares, axis, last), _note(entry)) for entry, shares in shown]
    return card(TITLE, about, rows(found, axis, note="mean, var/mean", kind="spread"))


def _shares(entry: Entry) -> list[float]:
    found = [max(0.0, value or 0.0) for value in series(entry.figures, "curves", "inflight_spread")]
    return found if sum(found) > 0 else []


def _width(shares: list[float]) -> int:
    """The highest count that is drawn for these."""
    total, seen = sum(shares), 0.0
    for count, share in enumerate(shares):
        seen += share
        if seen >= total * (1 - REST) or count == WIDEST:
            return max(count, 4)
    return max(len(shares) - 1, 4)


def _folded(shares: list[float], last: int) -> list[float]:
    """Shares up to the last count, which takes what lies above it."""
    return [*shares[:last], sum(shares[last:])]


def _strip(entry: Entry, shares: list[float], axis: Axis, last: int) -> Markup:
    folded = _folded(shares, last)
    parts = [grid_lines(axis, 1000)]
    width = round(1000 / (last + 1) * 0.86)
    for count, share in enumerate(folded):
        height = round(share / max(folded) * 940)
        if height == 0:
            continue
        x = round(axis.scale.share(count) * 1000 - width / 2)
        said = f"{entry.name}: {count}{'+' if count == last else ''} in flight {percent(share)} of the time"
        bar = element(
            "rect", element("title", said), x=x, y=1000 - height, width=width, height=height
        )
        parts.append(bar)
    mean = entry.number("inflight_mean")
    if mean is not None:
        parts.append(
            element("path", d=f"M{round(axis.scale.share(mean) * 1000)} 0v1000", class_="mean")
        )
    return svg(*parts, label=f"{entry.name}: {_note(entry)} (mean in flight, variance over mean)")


def _note(entry: Entry) -> str:
    return f"{plain(entry.number('inflight_mean'))}, {plain(entry.number('inflight_var_to_mean'))}"
