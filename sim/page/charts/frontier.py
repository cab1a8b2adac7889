"""Throughput against interactivity, as the published charts of inference hardware show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.page.charts.card import absent, card
from sim.page.drawing.markup import Markup, element
from sim.page.drawing.plot import Axis, Line, plot
from sim.page.drawing.scales import linear_scale, ticks
from sim.page.drawing.units import plain, tick, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.page.document import Entry

TITLE: Final = "Throughput against interactivity"
X_KEY: Final = "tok_per_s_per_user"
Y_KEY: Final = "tokens_per_min_per_gpu"
WIDE: Final = 0.06
TALL: Final = 0.055
"""Room for a value beside its point, as shares of the plot."""


def frontier(
    runs: Sequence[tuple[Entry, Sequence[tuple[str, Entry]]]], title: str = TITLE, swept: str = ""
) -> Markup:
    """A curve an entry through its points in the order given, each with the value it was measured at.

    ``swept`` names what the points differ in; without it each entry has one point.
    """
    lines = [line for entry, points in runs if (line := _line(entry, points, swept)).dots]
    if not lines:
        return absent(
            title, f"The results hold no throughput with interactivity ({Y_KEY}, {X_KEY})."
        )
    xs = [dot[0] for line in lines for dot in line.dots]
    ys = [dot[1] for line in lines for dot in line.dots]
    x_scale, y_scale = linear_scale(xs, has_zero=False), linear_scale(ys, has_zero=bool(swept))
    x = Axis(x_scale, ticks(x_scale, 6), tick, "tokens/s a user while an answer streams", "")
    y = Axis(y_scale, ticks(y_scale, 5), tokens, "prompt and output tokens/min/GPU", "")
    about = (
        "Right: each user's answer streams faster. Up: each GPU does more. Better is right and up."
    )
    if swept:
        about += f" A curve joins a policy's points; the numbers are {swept}."
    drawing = plot(
        lines,
        x,
        y,
        label=title,
        over=_values(runs, x, y) if swept else (),
        height_px=360,
        is_readable=False,
    )
    return card(title, about, drawing, is_wide=bool(swept))


def _line(entry: Entry, points: Sequence[tuple[str, Entry]], swept: str) -> Line:
    dots: list[tuple[float, float, str]] = []
    for value, measured in points:
        x, y = measured.number(X_KEY), measured.number(Y_KEY)
        if x is not None and y is not None:
            said = f"{plain(x)} tok/s/user, {tokens(y)} tok/min/GPU"
            dots.append((x, y, f"{swept} {value}: {said}" if swept else said))
    path = [dot[:2] for dot in dots]
    return Line(entry, path if len(path) > 1 else [], dots, anchor=max(path, default=None))


def _values(
    runs: Sequence[tuple[Entry, Sequence[tuple[str, Entry]]]], x: Axis, y: Axis
) -> list[Markup]:
    """The swept values beside their points, where there is room for them."""
    taken: list[tuple[float, float]] = []
    shown: list[Markup] = []
    for entry, points in runs:
        for value, measured in points:
            at_x, at_y = measured.number(X_KEY), measured.number(Y_KEY)
            if at_x is None or at_y is None:
                continue
            left, up = x.scale.share(at_x), y.scale.share(at_y)
            if any(abs(left - a) < WIDE and abs(up - b) < TALL for a, b in taken):
                continue
            taken.append((left, up))
            shown.append(
                element(
                    "span",
                    value,
                    class_=f"value {entry.css}",
                    data_p=entry.key,
                    style=f"left:{left * 100:.1f}%;bottom:{up * 100:.1f}%",
                )
            )
    return shown
