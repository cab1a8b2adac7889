"""Values as people write and read them: durations, limits, counts."""

from __future__ import annotations

import math
import re
from typing import Final

import typer

_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhd])")
_NAME: Final = re.compile(r"[A-Za-z0-9._:\[\]-]{1,128}")
_WEIGHTS: Final = (0.01, 100.0)
_LIMIT_MAX: Final = 100_000


def duration(text: str) -> float:
    """Seconds in ``30s``, ``5m``, ``1h30m`` or ``2d``.

    Raises:
        typer.BadParameter: it is none, or none of length.
    """
    parts = _PART.findall(text.strip())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        raise typer.BadParameter(f"{text!r} is no duration; write 30s, 5m, 1h30m or 2d")
    total_s = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    if not total_s:
        raise typer.BadParameter(f"{text!r} is no time at all; write 30s, 5m, 1h30m or 2d")
    return total_s


def _within(text: str, least: str, most: str) -> float:
    total_s = duration(text)
    if not duration(least) <= total_s <= duration(most):
        raise typer.BadParameter(f"{text!r} is not from {least} to {most}")
    return total_s


def deadline(text: str) -> float:
    """Seconds until a drain ends by removal.

    Raises:
        typer.BadParameter: it is no duration of a day at most.
    """
    return _within(text, "0.001s", "1d")


def pin_time(text: str) -> float:
    """Seconds for which a session is pinned.

    Raises:
        typer.BadParameter: it is no duration from a second to 30 days.
    """
    return _within(text, "1s", "30d")


def replica_name(text: str) -> str:
    """A replica's id.

    Raises:
        typer.BadParameter: it has other characters than ids have, or too many.
    """
    if not _NAME.fullmatch(text):
        raise typer.BadParameter(
            f"{text[:80]!r} is no id; use 1 to 128 letters, digits and . _ - : [ ]"
        )
    return text


def weight(text: str) -> float:
    """A weight.

    Raises:
        typer.BadParameter: it is no number from 0.01 to 100.
    """
    least, most = _WEIGHTS
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise typer.BadParameter(
            f"{text!r} is no number from {least:g} to {most:g} (1 is an even share)"
        )
    return value


def limit(text: str) -> int:
    """A limit of requests in flight, 0 for ``none``.

    Raises:
        typer.BadParameter: it is neither.
    """
    if text.strip().lower() == "none":
        return 0
    digits = text.strip()
    if not digits.isdecimal() or not 1 <= int(digits[:9]) <= _LIMIT_MAX:
        raise typer.BadParameter(f"{text!r} is neither a number from 1 to {_LIMIT_MAX:,} nor none")
    return int(digits[:9])


def in_words(seconds: float | None) -> str:
    """A duration to read: 0.4 s, 12 s, 5m 10s, 3h 02m, 2d 4h; ``-`` where there is none."""
    if seconds is None:
        return "-"
    if seconds < 10:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, left_s = divmod(whole, 60)
    hours, left_minutes = divmod(minutes, 60)
    days, left_hours = divmod(hours, 24)
    if days:
        return f"{days}d {left_hours}h"
    if hours:
        return f"{hours}h {left_minutes:02}m"
    return f"{minutes}m {left_s:02}s" if minutes else f"{whole} s"


def tokens(count: float | None) -> str:
    """A number of tokens to read: 950, 61.0k, 7.25M."""
    if count is None:
        return "-"
    if count < 1_000:  # noqa: PLR2004
        return f"{count:.0f}"
    return f"{count / 1e3:.1f}k" if count < 1e6 else f"{count / 1e6:.2f}M"  # noqa: PLR2004


def ratio(part: float, whole: float) -> str:
    """A share in percent; ``-`` of nothing."""
    return f"{100 * part / whole:.1f}%" if whole else "-"
