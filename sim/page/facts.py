"""What was simulated: the scenario's facts and the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from sim.page.document import items, mapping, number, text
from sim.page.drawing.markup import Markup, element
from sim.page.drawing.units import count, duration, tokens

if TYPE_CHECKING:
    from sim.page.document import Report

OWN_PLACE: Final = frozenset({"name", "about", "seed", "duration_s", "warmup_s", "policies"})
"""Keys of a scenario that are told elsewhere or in words of their own."""
VARIANT: Final = "variant"
"""The key of a point that is one of the scenario's own variants."""
DEPTH_MAX: Final = 4
THOUSAND: Final = 1000


def facts(report: Report) -> Markup:
    """The scenario as a list of terms and values."""
    told: list[tuple[str, str]] = []
    scenario = report.scenario
    span, warmup = number(scenario, "duration_s"), number(scenario, "warmup_s")
    if span is not None:
        tail = f", {duration(warmup)} of them warm-up" if warmup else ""
        told.append(("duration", f"{duration(span)} of virtual time{tail}"))
    told += _window(report)
    seed = number(report.document, "seed")
    seed = number(scenario, "seed") if seed is None else seed
    if seed is not None:
        told.append(("seed", f"{seed:.0f}"))
    told += [
        (str(key).replace("_", " "), said)
        for key, value in scenario.items()
        if key not in OWN_PLACE and (said := _said(value, DEPTH_MAX))
    ]
    told.append(("version", f"homeport {text(report.document, 'homeport') or 'unknown'}"))
    command = _command(report)
    listed = [element("div", element("dt", name), element("dd", value)) for name, value in told]
    again = element(
        "div", element("dt", "to repeat"), element("dd", element("code", command)), class_="again"
    )
    return element("dl", *listed, again, class_="facts")


def _window(report: Report) -> list[tuple[str, str]]:
    """From when to when requests are measured, as the runs say it."""
    for one in (report.results, *report.points):
        for entry in one.all:
            ends = [
                value
                for item in items(entry.figures, "window_s")
                if (value := number(item)) is not None
            ]
            if len(ends) == 2:  # noqa: PLR2004
                return [("measured", f"from {duration(ends[0])} to {duration(ends[1])}")]
    return []


def _said(value: object, depth: int) -> str:
    """A value in words; what is None, empty or false is left out."""
    known = number(value)
    if known is not None:
        return count(known) if known == int(known) and abs(known) >= THOUSAND else f"{known:g}"
    if isinstance(value, str):
        return value
    if depth > 0 and isinstance(value, Mapping):
        return ", ".join(
            part for key, item in value.items() if (part := _part(str(key), item, depth))
        )
    if depth > 0 and isinstance(value, Sequence) and not isinstance(value, bytes):
        parts = [said for item in value if (said := _said(item, depth - 1))]
        return ("; " if any(isinstance(item, Mapping) for item in value) else ", ").join(parts)
    return "yes" if value is True else ""


def _part(key: str, value: object, depth: int) -> str:
    """A key with its value, units after the number: ``gap_s_max`` 300 is "gap max 300 s"."""
    words = key.split("_")
    known = number(value)
    if known is not None and "s" in words:
        return f"{' '.join(word for word in words if word != 's')} {known:g} s"
    if known is not None and "tokens" in words:
        return f"{' '.join(words)} {tokens(known)}"
    said = _said(value, depth - 1)
    if isinstance(value, bool):
        return " ".join(words[1:] if words[0] in {"is", "has"} else words) if value else ""
    if not said or key == "kind":
        return said
    return f"{' '.join(words)} {said}"


def _command(report: Report) -> str:
    """The command line that gives these results again: as it was, where the results hold it."""
    given = [part for part in items(report.document, "arguments") if isinstance(part, str)]
    if given:
        return f"homeport sim {shlex.join(given)}"
    seed = number(report.document, "seed")
    parts = [
        "homeport sim",
        report.command,
        shlex.quote(text(report.scenario, "name") or "SCENARIO"),
    ]
    parts += _axes(report) if report.command == "sweep" else []
    parts += _limits(report) if report.command == "size" else []
    names = [name for name in items(report.scenario, "policies") if isinstance(name, str)]
    if names:
        parts.append(f"--policies {','.join(names)}")
    if seed is not None:
        parts.append(f"--seed {seed:.0f}")
    return " ".join(parts)


def _axes(report: Report) -> list[str]:
    """The options that say what a sweep goes over; variants are the scenario's own."""
    keys: dict[str, dict[str, None]] = {}
    for point in report.points:
        for key, value in point.at.items():
            keys.setdefault(str(key), {})[_said(value, 1).replace(",", "")] = None
    found = [
        f"--over {shlex.quote(k + '=' + ','.join(v))}" for k, v in keys.items() if k != VARIANT
    ]
    return [*found, *(["--reference"] if any(point.reference for point in report.points) else [])]


def _limits(report: Report) -> list[str]:
    """The options that say what a size must meet."""
    limits = ((str(key), number(value)) for key, value in mapping(report.scenario, "slo").items())
    return [f"--{key.removesuffix('_s').replace('_', '-')} {v:g}" for key, v in limits if v]
