"""Numbers as people read them: with their unit and no more digits than matter."""

from __future__ import annotations

from typing import Final

ABSENT: Final = "\N{EN DASH}"
MINUTE_S: Final = 60.0
HOUR_S: Final = 3_600.0
THOUSAND: Final = 1_000.0
MILLION: Final = 1_000_000.0


def three_digits(value: float) -> str:
    """At least three significant digits, at most two decimals, thousands apart."""
    size = abs(value)
    if size >= 99.95:  # noqa: PLR2004 (where one decimal would round to 100.0)
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"  # noqa: PLR2004


def seconds(value: float | None) -> str:
    """A time: milliseconds under a second."""
    if value is None:
        return ABSENT
    if abs(value) >= 0.9995:  # noqa: PLR2004 (what would be 1,000 ms)
        return f"{three_digits(value)} s"
    millis = value * THOUSAND
    return f"{millis:.0f} ms" if millis == 0 or abs(millis) >= 9.95 else f"{millis:.1f} ms"  # noqa: PLR2004


def duration(value: float | None) -> str:
    """A span of virtual time in minutes or hours."""
    if value is None:
        return ABSENT
    if value >= 2 * HOUR_S:
        return f"{value / HOUR_S:.3g} h"
    return f"{value / MINUTE_S:.3g} min" if value >= 2 * MINUTE_S else f"{value:.3g} s"


def percent(value: float | None) -> str:
    """A share of 0..1 in per cent with one decimal."""
    return ABSENT if value is None else f"{value * 100:.1f} %"


def tokens(value: float | None) -> str:
    """Tokens, in thousands or millions where there are many."""
    if value is None:
        return ABSENT
    if abs(value) >= MILLION:
        return f"{three_digits(value / MILLION)} M"
    return f"{three_digits(value / THOUSAND)} k" if abs(value) >= THOUSAND else f"{value:.0f}"


def count(value: float | None) -> str:
    """How many, thousands apart."""
    return ABSENT if value is None else f"{value:,.0f}"


def plain(value: float | None) -> str:
    """A number without unit."""
    return ABSENT if value is None else three_digits(value)


def times(value: float | None) -> str:
    """How many times as much."""
    if value is None:
        return ABSENT
    digits = 0 if value >= 10 else 1  # noqa: PLR2004
    return f"{value:,.{digits}f}\N{MULTIPLICATION SIGN}"


def tick(value: float) -> str:
    """A number at an axis, short."""
    if abs(value) >= MILLION:
        return f"{value / MILLION:g}M"
    return f"{value / THOUSAND:g}k" if abs(value) >= 10 * THOUSAND else f"{value:g}"


def tick_seconds(value: float) -> str:
    """A time at an axis."""
    return f"{value * THOUSAND:g} ms" if 0 < value < 1 else f"{value:g} s"


def tick_percent(value: float) -> str:
    """A share at an axis."""
    return f"{value * 100:g} %"


def tick_minutes(value: float) -> str:
    """A moment of the run at an axis."""
    return f"{value / MINUTE_S:g} min"
