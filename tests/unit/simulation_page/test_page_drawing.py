"""Scales, units, markup, places of labels, and the contrast of the colours."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sim.page
from sim.page.drawing import units
from sim.page.drawing.markup import Markup, element, joined, line_path
from sim.page.drawing.plot import spread
from sim.page.drawing.scales import (
    Kind,
    Scale,
    linear_scale,
    log_scale,
    minute_ticks,
    ratio_scale,
    ticks,
)

STYLE = (Path(sim.page.__file__).parent / "page.css").read_text()
TEXT_MIN = 4.5
GRAPHIC_MIN = 3.0


def colours(selector: str) -> dict[str, str]:
    """The custom properties of the first rule whose selector ends so."""
    found = re.search(re.escape(selector) + r"\s*\{([^}]*)\}", STYLE)
    assert found
    return {
        name: value if len(value) == 6 else "".join(2 * digit for digit in value)
        for name, value in re.findall(r"--([a-z]+\d*):#([0-9a-f]{3,6})\b", found[1])
    }


def light(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


THEMES = {"light": colours(":root"), "dark": colours(":root[data-theme=dark]")}


@pytest.mark.parametrize("theme", THEMES)
def test_text_stands_out_from_every_ground_it_is_on(theme: str) -> None:
    known = THEMES[theme]
    for ink in ("ink", "soft"):
        for ground in ("bg", "card", "mark"):
            assert contrast(known[ink], known[ground]) >= TEXT_MIN, (ink, ground)
    for ground in ("card", "badbg", "mark"):
        assert contrast(known["bad"], known[ground]) >= TEXT_MIN, ground
    assert contrast(known["accent"], known["card"]) >= GRAPHIC_MIN


@pytest.mark.parametrize("theme", THEMES)
def test_policies_and_the_reference_stand_out_from_what_they_are_drawn_on(theme: str) -> None:
    known = THEMES[theme]
    for name in (*(f"s{n}" for n in range(8)), "ref"):
        for ground in ("card", "bg", "mark"):
            assert contrast(known[name], known[ground]) >= GRAPHIC_MIN, (name, ground)


SIGHTS: dict[str, tuple[tuple[float, float, float], ...]] = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "deuteranopia": ((0.3673, 0.8606, -0.228), (0.2801, 0.6725, 0.0474), (-0.0118, 0.0429, 0.9689)),
    "protanopia": ((0.1523, 1.0526, -0.2049), (0.1145, 0.7863, 0.0992), (-0.0039, -0.0481, 1.052)),
    "tritanopia": ((1.2555, -0.0767, -0.1788), (-0.0784, 0.9308, 0.1476), (0.0047, 0.6914, 0.3039)),
}
"""How linear red, green and blue are seen (Machado, Oliveira, Fernandes 2009, severity 1)."""
APART_MIN = 13.0
"""CIE 1976 colour difference; 2.3 is just noticeable."""


def seen(colour: str, sight: str) -> tuple[float, float, float]:
    """The colour in CIE L*a*b* as that sight has it."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    r, g, b = (
        min(1.0, max(0.0, sum(k * part for k, part in zip(row, linear, strict=True))))
        for row in SIGHTS[sight]
    )
    x, y, z = (
        t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116
        for t in (
            (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047,
            0.2126 * r + 0.7152 * g + 0.0722 * b,
            (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883,
        )
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", THEMES)
def test_policies_can_be_told_apart_whatever_colours_one_sees(theme: str, sight: str) -> None:
    found = {
        name: seen(THEMES[theme][name], sight) for name in (*(f"s{n}" for n in range(8)), "ref")
    }
    for one, other in itertools.combinations(found, 2):
        assert math.dist(found[one], found[other]) >= APART_MIN, (one, other)


def test_the_dark_theme_is_the_same_by_choice_and_by_preference() -> None:
    assert colours(":root[data-theme=dark]") == colours(":root:not([data-theme=light])")
    assert THEMES["light"].keys() == THEMES["dark"].keys()


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "\N{EN DASH}"), (0.0, "0 ms"), (0.0043, "4.3 ms"), (0.83, "830 ms"), (0.9996, "1.00 s"),
     (1.356, "1.36 s"), (18.52, "18.5 s"), (203.4, "203 s"), (1287.0, "1,287 s")],
)  # fmt: skip
def test_a_time_has_three_digits_and_milliseconds_under_a_second(
    value: float | None, said: str
) -> None:
    assert units.seconds(value) == said


def test_tokens_and_shares_read_as_people_say_them() -> None:
    assert units.tokens(1_505_000.0) == "1.50 M"
    assert units.tokens(830_400.0) == "830 k"
    assert units.percent(0.9634) == "96.3 %"
    assert units.duration(1_800.0) == "30 min"
    assert units.duration(10_800.0) == "3 h"
    assert units.times(1.84) == "1.8\N{MULTIPLICATION SIGN}"


def test_only_markup_is_not_escaped() -> None:
    inner = element("b", "<&>")
    assert inner == "<b>&lt;&amp;&gt;</b>"
    assert element("p", inner, "'", class_='"', data_x=None, hidden="") == (
        '<p class="&quot;" hidden><b>&lt;&amp;&gt;</b>&#x27;</p>'
    )
    assert joined(["<", Markup("<i>")], " & ") == "&lt; &amp; <i>"


def test_a_path_breaks_where_nothing_was_measured() -> None:
    assert (
        line_path([(0.0, 0.0), (0.5, 1.0), None, (0.75, 0.5), (0.75, 0.5)])
        == "M0 1000l500 -1000M750 500"
    )


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=30),
    st.sampled_from(["log", "linear", "ratio"]),
)
def test_a_scale_holds_its_values_and_its_ticks_are_few_and_inside(
    values: list[float], kind: str
) -> None:
    scale = {"log": log_scale, "linear": linear_scale, "ratio": ratio_scale}[kind](values)
    assert scale.low < scale.high
    assert all(0 <= scale.share(value) <= 1 for value in values)
    if kind != "ratio":
        assert scale.low <= max(min(values), 1e-3) * 1.001
        assert scale.high >= max(*values, 0) * 0.999
    found = ticks(scale)
    assert 1 <= len(found) <= 14
    assert found == sorted(found)
    assert all(scale.low - 1e-9 <= value <= scale.high * 1.001 + 1e-9 for value in found)


def test_percentiles_and_minutes_are_ticked_where_people_look() -> None:
    tail = Scale(0.1, 0.999, Kind.NINES)
    shares = [tail.share(value) for value in (0.1, 0.9, 0.99, 0.999)]
    assert shares[0] == 0
    assert shares[3] == 1
    assert shares[2] - shares[1] == pytest.approx(shares[3] - shares[2])
    assert minute_ticks(Scale(0, 1_800)) == [0, 300, 600, 900, 1_200, 1_500, 1_800]
    assert minute_ticks(Scale(0, 60)) == [0, 10, 20, 30, 40, 50, 60]


@settings(deadline=None)
@given(st.lists(st.floats(-100, 500), max_size=20))
def test_labels_never_lie_on_one_another_and_stay_inside(wanted: list[float]) -> None:
    wanted = sorted(wanted)
    found = spread(wanted, 16, 400)
    assert len(found) == len(wanted)
    assert all(after - before >= 16 - 1e-9 for before, after in itertools.pairwise(found))
    assert all(-1e-9 <= place <= 400 + 1e-9 for place in found)


def test_labels_with_room_stay_where_they_are_wanted() -> None:
    assert spread([10, 100, 300], 16, 400) == [10, 100, 300]
    assert spread([100, 100], 16, 400) == [92, 108]
