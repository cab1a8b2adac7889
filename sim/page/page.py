"""The page put together: order of its parts, legend, style and script."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

from sim.page.charts.frontier import frontier
from sim.page.charts.over_time import hit_over_time, load_over_time, ttft_over_time
from sim.page.charts.percentiles import percentiles
from sim.page.charts.reasons import reasons
from sim.page.charts.replicas import replicas
from sim.page.charts.split import split
from sim.page.charts.spread import spread
from sim.page.charts.swept import swept
from sim.page.document import number, report, text
from sim.page.drawing.markup import Markup, element, joined
from sim.page.drawing.units import ABSENT, count, seconds
from sim.page.facts import facts
from sim.page.glossary import glossary
from sim.page.sizing import answers, sizing
from sim.page.sweeping import groups
from sim.page.table import table
from sim.page.tables import point_tables
from sim.page.words import summary, tiles

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        _legend(read),
        element("main", *_sections(read), id="results"),
        _footer(read),
        element("script", _asset("page.js")),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _asset(name: str) -> Markup:
    return Markup(files("sim.page").joinpath(name).read_text(encoding="utf-8"))


def _header(read: Report, name: str) -> Markup:
    about = text(read.scenario, "about")
    found = answers(read) or summary(read)
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
    """Every policy with its colour; with a script, buttons that hide and show it everywhere."""
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
    return element("nav", *chips, class_="legend", aria_label="Policies shown in all charts")


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
    found: list[Markup] = []
    for index, group in enumerate(groups(read)):
        runs = group.runs(read.legend)
        title = f"Over {group.name}" + (f", with {group.label}" if group.label else "")
        charts = [*swept(group, read.legend), frontier(runs, swept=group.name)]
        found.append(_section(f"sweep-{index}", title, _grid(*charts), point_tables(group, index)))
    return found


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
    took = [
        said for one in (read.results, *read.points) for entry in one.all if (said := _took(entry))
    ]
    version = text(read.document, "homeport")
    seed = number(read.document, "seed")
    parts = [f"homeport {version}" if version else "homeport"]
    if seed is not None:
        parts.append(f"seed {seed:.0f}")
    return element(
        "footer",
        element("p", joined(parts, ", ")),
        element("p", f"Wall time: {'; '.join(took)}.") if took else Markup(),
    )


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
