"""Time to first token by percentile: the CDF on its side, with room for its tail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.page.charts.card import absent, card
from sim.page.document import items, series
from sim.page.drawing.plot import Axis, Line, plot
from sim.page.drawing.scales import Kind, Scale, log_scale, ticks
from sim.page.drawing.units import seconds, tick_percent, tick_seconds

if TYPE_CHECKING:
    from sim.page.document import Entry, Results
    from sim.page.drawing.markup import Markup

TITLE: Final = "Time to first token by percentile"
POINTS_MAX: Final = 140
FIRST: Final = 0.1
"""Where the drawing begins: below it a request was lucky, and a log axis would give it half the height."""
P99: Final = 0.99
LAST: Final = 0.999
PERCENTILES: Final = (0.5, 0.9, P99, LAST)


def percentiles(results: Results) -> Markup:
    """All policies' distribution of TTFT, the reference dashed."""
    last = LAST if all(_has_tail(entry) for entry in results.entries) else P99
    lines = [
        Line(entry, points, note=seconds(points[-1][1]))
        for entry in results.all
        if (points := _points(entry, last))
    ]
    if not lines:
        return absent(TITLE, "The results hold no distribution of TTFT (curves.ttft_cdf).")
    x_scale = Scale(FIRST, last, Kind.NINES)
    values = [point[1] for line in lines for point in line.points if point]
    y_scale = log_scale(values)
    about = (
        "The cumulative distribution on its side, its tail stretched: read upwards from 99 % what 1 of 100 "
        f"requests waited at least. Lower is better. At the right the time at {last * 100:g} %."
    )
    return card(
        TITLE,
        about,
        plot(
            lines,
            Axis(
                x_scale,
                [p for p in PERCENTILES if p <= last],
                tick_percent,
                "share of requests answered sooner",
                "%",
            ),
            Axis(y_scale, ticks(y_scale, 6), tick_seconds, "TTFT (logarithmic)", "s"),
            label=TITLE,
            height_px=400,
        ),
        is_wide=True,
    )


def _pairs(entry: Entry) -> list[tuple[float, float]]:
    """(seconds, share) of the curve, without what cannot be."""
    found: list[tuple[float, float]] = []
    for pair in items(entry.figures, "curves", "ttft_cdf"):
        both = series({"pair": pair}, "pair")
        at_s, share = both if len(both) == 2 else (None, None)  # noqa: PLR2004
        if at_s is not None and share is not None and at_s >= 0 and 0 <= share <= 1:
            found.append((at_s, share))
    return found


def _has_tail(entry: Entry) -> bool:
    """Whether the curve says anything between p99 and its end."""
    return any(P99 + 0.002 < share < 1 for _, share in _pairs(entry))


def _points(entry: Entry, last: float) -> list[tuple[float, float]]:
    """(share, seconds) along the curve up to the last percentile drawn."""
    found: list[tuple[float, float]] = []
    p99_s = entry.number("ttft_s", "p99")
    for at_s, share in _pairs(entry):
        if share > last:
            known = p99_s if last == P99 else None
            here = _between(found[-1], (share, at_s), last) if found else at_s
            found.append((last, here if known is None else known))
            break
        if share >= FIRST:
            found.append((share, at_s))
    if found and found[0][0] > FIRST:
        found.insert(0, (FIRST, found[0][1]))
    step = max(1, -(-len(found) // POINTS_MAX))
    return [p for n, p in enumerate(found) if n % step == 0 or n == len(found) - 1 or p[0] > 0.98]  # noqa: PLR2004


def _between(one: tuple[float, float], other: tuple[float, float], share: float) -> float:
    """Seconds at a share between two points."""
    width = other[0] - one[0]
    return other[1] if width <= 0 else one[1] + (other[1] - one[1]) * (share - one[0]) / width
