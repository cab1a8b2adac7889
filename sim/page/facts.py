"""What was simulated: the scenario's facts and the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from sim.page.document import items, mapping, number, text
from sim.page.drawing.markup import Markup, element, joined
from sim.page.drawing.units import count, duration, tokens
from sim.page.sweeping import VARIANT, worded

if TYPE_CHECKING:
    from sim.page.document import Report, Results

OWN_PLACE: Final = frozenset({"name", "about", "seed", "duration_s", "warmup_s", "policies"})
"""Keys of a scenario that are told elsewhere or in words of their own."""
DEPTH_MAX: Final = 4
FOLDED: Final = 12
"""Values from which a table inside a table of the scenario is folded away."""
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
        if key not in OWN_PLACE and (said := _folded(value))
    ]
    over = [f"{worded(key)} {', '.join(v)}" for key, v in _swept(report.points).items()]
    told += [("swept", "; ".join(over))] if over else []
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


def _folded(value: object) -> str:
    """A value in words, long tables inside it to unfold."""
    if not isinstance(value, Mapping):
        return _said(value, DEPTH_MAX)
    long = {
        key: item
        for key, item in value.items()
        if isinstance(item, Mapping) and len(item) >= FOLDED
    }
    short = _said({key: item for key, item in value.items() if key not in long}, DEPTH_MAX)
    details = [
        element(
            "details",
            element("summary", f"{str(key).replace('_', ' ')}: {len(item)} values"),
            _said(item, DEPTH_MAX - 1),
            class_="more",
        )
        for key, item in long.items()
    ]
    return joined([short, *details]) if details else short


def _swept(points: Sequence[Results]) -> dict[str, list[str]]:
    """The swept keys with their values in words, in the order of the points."""
    found: dict[str, dict[str, None]] = {}
    for point in points:
        for key, value in point.at.items():
            found.setdefault(str(key), {})[_said(value, 1)] = None
    return {key: list(values) for key, values in found.items()}


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
    found = [
        f"--over {shlex.quote(f'{key}=' + ','.join(value.replace(',', '') for value in values))}"
        for key, values in _swept(report.points).items()
        if key != VARIANT
    ]
    return [*found, *(["--reference"] if any(point.reference for point in report.points) else [])]


def _limits(report: Report) -> list[str]:
    """The options that say what a size must meet."""
    limits = ((str(key), number(value)) for key, value in mapping(report.scenario, "slo").items())
    return [f"--{key.removesuffix('_s').replace('_', '-')} {v:g}" for key, v in limits if v]
