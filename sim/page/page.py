"""The page put together: order of its parts, legend, style and script."""

from __future__ import annotations

import math
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from sim.page.charts.frontier import TITLE, frontier
from sim.page.charts.over_time import hit_over_time, load_over_time, ttft_over_time
from sim.page.charts.percentiles import percentiles
from sim.page.charts.reasons import reasons
from sim.page.charts.replicas import replicas
from sim.page.charts.split import split
from sim.page.charts.spread import spread
from sim.page.charts.swept import swept
from sim.page.document import POLICY, number, report, text
from sim.page.drawing.markup import Markup, element, joined
from sim.page.drawing.units import ABSENT, count, seconds
from sim.page.facts import facts
from sim.page.glossary import glossary
from sim.page.sizing import answers, sizing
from sim.page.sweeping import crossed, groups
from sim.page.tables.matrix import matrices
from sim.page.tables.points import one_table, point_tables
from sim.page.tables.side_by_side import table
from sim.page.trends import trends
from sim.page.words import summary, tiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim.page.document import Entry, Report

LEGEND_FROM: Final = 2
"""Entries from which a legend is worth its place."""


def render(document: Mapping[str, object]) -> str:
    """One HTML page that shows the results of ``homeport sim run``, ``compare``, ``sweep`` or ``size``.

    The page needs no network and no script; equal documents give equal pages, whatever order their keys
    have. What the document lacks is named on the page; nothing in it is trusted to be well-formed, and all
    text of it is escaped.
    """
    read = report(document)
    name = text(read.scenario, "name") or "unnamed scenario"
    title = f"{name} {ABSENT} homeport sim {read.command}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", _asset("page.css")),
    )
    body = element(
        "body",
        element("a", "Skip to the results", href="#results", class_="skip"),
        _header(read, name),
        _legend(crossed(read)),
        element("main", *_sections(read), id="results"),
        _footer(read),
        element("script", _asset("page.js")),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _asset(name: str) -> Markup:
    return Markup(files("sim.page").joinpath(name).read_text(encoding="utf-8"))


def _header(read: Report, name: str) -> Markup:
    about = text(read.scenario, "about")
    found = answers(read) or trends(crossed(read)) or summary(read)
    switch = element(
        "button", "Light / dark", type="button", id="theme", class_="switch", hidden=""
    )
    rest = element("ul", *(element("li", said) for said in found[1:])) if found[1:] else Markup()
    return element(
        "header",
        element("p", f"homeport sim {read.command}", switch, class_="kicker"),
        element("h1", name),
        element("p", about, class_="about") if about else Markup(),
        element("div", element("p", found[0], class_="lead"), rest, class_="findings"),
        tiles(read),
    )


def _legend(read: Report) -> Markup:
    """Every entry with its colour; with a script, buttons that hide and show it everywhere."""
    if len(read.legend) < LEGEND_FROM:
        return Markup()
    chips = [
        element(
            "button",
            element("i", class_="swatch"),
            entry.name,
            type="button",
            class_=f"chip {entry.css}",
            aria_pressed="true",
            data_toggle=entry.key,
        )
        for entry in read.legend
    ]
    return element("nav", *chips, class_="legend", aria_label="Shown in all charts")


def _sections(read: Report) -> list[Markup]:
    found = [_section("scenario", "What was simulated", facts(read))]
    answer = sizing(read)
    if answer:
        found.insert(0, _section("size", "The fleet that is enough", answer))
    if read.results.entries:
        found += _compared(read)
    if read.points:
        found += _swept(read)
    if not read.results.entries and not read.points:
        found.append(element("p", "The results hold no policy.", class_="absent"))
    found.append(_section("glossary", "What the figures mean", glossary()))
    return found


def _compared(read: Report) -> list[Markup]:
    results = read.results
    everyone = [(entry, [("", entry)]) for entry in results.all]
    return [
        _section("policies", "Policies side by side", table(results, "Policies by mean TTFT")),
        _section(
            "latency", "How long users wait", _grid(percentiles(results), ttft_over_time(read))
        ),
        _section(
            "causes",
            "Where waiting comes from",
            _grid(
                split(results),
                spread(results),
                load_over_time(read),
                hit_over_time(read),
                replicas(read),
            ),
        ),
        _section("yield", "What the fleet yields", _grid(frontier(everyone), reasons(results))),
    ]


def _swept(read: Report) -> list[Markup]:
    """The points along the swept key; of one policy first as curves of the other keys' values."""
    shown = crossed(read)
    sections = [_over(shown, "sweep")] if groups(shown) else []
    if shown is not read and any(point.reference for point in read.points):
        sections.append(_over(read, "apart"))
    return sections


def _over(read: Report, name: str) -> Markup:
    found = groups(read)
    key = found[0].name
    is_policies = read.noun == POLICY
    runs = [group.runs(read.legend) for group in found]
    wide = [
        frontier(run, group.titled(TITLE), swept=key, noun=read.noun, around=runs)
        for group, run in zip(found, runs, strict=True)
    ]
    is_alone = all(len(point.all) == 1 for point in read.points)
    tables: list[Markup] = []
    if not is_alone:
        tables = matrices(found, read.legend, noun=read.noun, is_ranked=is_policies)
    lines = swept(found, read.legend)
    # Several policies are compared by their figures; one, and a ladder of variants, by its curves.
    is_compared = is_policies and not is_alone
    cards = [*tables, *lines, *wide] if is_compared else [*wide, *tables, *lines]
    details = [
        one_table(group) if is_alone else point_tables(group, f"{name}-{n}", read.noun)
        for n, group in enumerate(found)
    ]
    against = " and against the reference" if name == "apart" else ""
    by = f", by {read.noun}" if not is_policies else against
    return _section(name, f"Over {key}{by}", _grid(*cards), *details)


def _section(name: str, title: str, *content: str) -> Markup:
    return element(
        "section",
        element("h2", title, id=f"{name}-title"),
        *content,
        id=name,
        aria_labelledby=f"{name}-title",
    )


def _grid(*cards: Markup) -> Markup:
    return element("div", *cards, class_="grid")


def _footer(read: Report) -> Markup:
    """What depends on the machine is told here alone."""
    runs = [entry for one in (read.results, *read.points) for entry in one.all]
    took = [_all_took(runs)] if read.points else [said for entry in runs if (said := _took(entry))]
    version = text(read.document, "homeport")
    seed = number(read.document, "seed")
    parts = [f"homeport {version}" if version else "homeport"]
    if seed is not None:
        parts.append(f"seed {seed:.0f}")
    return element(
        "footer",
        element("p", joined(parts, ", ")),
        element("p", f"Wall time: {'; '.join(took)}.") if any(took) else Markup(),
    )


def _all_took(runs: Sequence[Entry]) -> str:
    """The wall time of many runs together; empty where nobody took it."""
    known = [wall_s for entry in runs if (wall_s := entry.number("wall_s")) is not None]
    total = sum(entry.number("requests_total") or 0.0 for entry in runs)
    if not known:
        return ""
    return f"{len(known)} runs {seconds(math.fsum(known))} for {count(total)} requests"


def _took(entry: Entry) -> str:
    """A run's wall time in words; empty where nobody took it."""
    wall_s, load_s = entry.number("wall_s"), entry.number("load_s")
    if wall_s is None:
        return ""
    parts = [f"{entry.name} {seconds(wall_s)}"]
    total, rate = entry.number("requests_total"), entry.number("requests_per_wall_s")
    if total is not None:
        parts.append(f" for {count(total)} requests")
    if rate is not None:
        parts.append(f", {count(rate)}/s")
    if load_s is not None:
        parts.append(f", loading {seconds(load_s)}")
    return "".join(parts)
