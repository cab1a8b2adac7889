"""Throughput against interactivity, as the published charts of inference hardware show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.page.charts.card import absent, card
from sim.page.document import POLICY
from sim.page.drawing.markup import Markup, element
from sim.page.drawing.plot import Axis, Line, plot
from sim.page.drawing.scales import linear_scale, ticks
from sim.page.drawing.units import plain, tick, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.page.document import Entry

    Runs = Sequence[tuple[Entry, Sequence[tuple[str, Entry]]]]

TITLE: Final = "Throughput against interactivity"
X_KEY: Final = "tok_per_s_per_user"
Y_KEY: Final = "tokens_per_min_per_gpu"
WIDE: Final = 0.06
TALL: Final = 0.055
"""Room for a value beside its point, as shares of the plot."""


def frontier(
    runs: Runs,
    title: str = TITLE,
    *,
    swept: str = "",
    noun: str = POLICY,
    around: Sequence[Runs] = (),
) -> Markup:
    """A curve an entry through its points in the order given, each with the value it was measured at.

    ``swept`` names what the points differ in; without it each entry has one point. ``noun``: what an entry
    is. ``around``: the runs of all charts that are to have the same axes.
    """
    lines = _lines(runs, swept)
    if not lines:
        return absent(
            title, f"The results hold no throughput with interactivity ({Y_KEY}, {X_KEY})."
        )
    framed = [line for one in around for line in _lines(one, swept)] or lines
    xs = [dot[0] for line in framed for dot in line.dots]
    ys = [dot[1] for line in framed for dot in line.dots]
    x_scale, y_scale = linear_scale(xs, has_zero=False), linear_scale(ys, has_zero=bool(swept))
    x = Axis(x_scale, ticks(x_scale, 6), tick, "tokens/s a user while an answer streams", "")
    y = Axis(y_scale, ticks(y_scale, 5), tokens, "prompt and output tokens/min/GPU", "")
    about = (
        "Right: each user's answer streams faster. Up: each GPU does more. Better is right and up."
    )
    if swept:
        about += f" A curve joins the points of a {noun}; the numbers are {swept}."
    drawing = plot(
        lines,
        x,
        y,
        label=title,
        over=_values(runs, x, y) if swept else (),
        height_px=360,
        is_readable=False,
    )
    return card(title, about, drawing, is_wide=bool(swept) and len(around) < 2)  # noqa: PLR2004


def _lines(runs: Runs, swept: str) -> list[Line]:
    return [line for entry, points in runs if (line := _line(entry, points, swept)).dots]


def _line(entry: Entry, points: Sequence[tuple[str, Entry]], swept: str) -> Line:
    dots: list[tuple[float, float, str]] = []
    for value, measured in points:
        x, y = measured.number(X_KEY), measured.number(Y_KEY)
        if x is not None and y is not None:
            said = f"{plain(x)} tok/s/user, {tokens(y)} tok/min/GPU"
            dots.append((x, y, f"{swept} {value}: {said}" if swept else said))
    path = [dot[:2] for dot in dots]
    # Names are in the order of the peaks, so that a ladder is read from the bottom to the top.
    anchor = max(path, key=lambda place: (place[1], place[0]), default=None)
    return Line(entry, path if len(path) > 1 else [], dots, anchor=anchor)


def _values(runs: Runs, x: Axis, y: Axis) -> list[Markup]:
    """The swept values beside their points, where there is room for them; those of peaks first."""
    taken: list[tuple[float, float]] = []
    shown: list[Markup] = []
    for is_peak, left, up, value, entry in _places(runs, x, y):
        if any(abs(left - a) < WIDE and abs(up - b) < TALL for a, b in taken):
            continue
        taken.append((left, up))
        shown.append(
            element(
                "span",
                value,
                class_=f"value {entry.css}" + (" peak" if is_peak else ""),
                data_p=entry.key,
                style=f"left:{left * 100:.1f}%;bottom:{up * 100:.1f}%",
            )
        )
    return shown


def _places(runs: Runs, x: Axis, y: Axis) -> list[tuple[bool, float, float, str, Entry]]:
    """Every point: whether it is its curve's peak, where it is as shares, its value, whose it is."""
    found: list[tuple[bool, float, float, str, Entry]] = []
    for entry, points in runs:
        known = [
            (at_x, at_y, value)
            for value, measured in points
            if (at_x := measured.number(X_KEY)) is not None
            and (at_y := measured.number(Y_KEY)) is not None
        ]
        top = max((at_y for _, at_y, _ in known), default=0.0)
        for at_x, at_y, value in known:
            left, up = x.scale.share(at_x), y.scale.share(at_y)
            found.append((at_y == top, left, up, value, entry))
    return sorted(found, key=lambda place: not place[0])
