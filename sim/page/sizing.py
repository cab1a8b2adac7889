"""The answer of a sizing: how many replicas each policy needs, and which sizes were tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.page.document import number
from sim.page.drawing.markup import Markup, element, joined
from sim.page.drawing.units import count
from sim.page.words import policy

if TYPE_CHECKING:
    from sim.page.document import Entry, Report, Results

COMMAND: Final = "size"


def answers(report: Report) -> list[Markup]:
    """A sentence a policy; empty where the results are no sizing."""
    if report.command != COMMAND:
        return []
    return [_answer(entry, report) for entry in report.legend if not entry.is_reference]


def sizing(report: Report) -> Markup:
    """All sizes that were tried, with what each failed by; empty where the results are no sizing."""
    if report.command != COMMAND or not report.points:
        return Markup()
    policies = [entry for entry in report.legend if not entry.is_reference]
    head = [element("th", entry.name, scope="col", class_="words") for entry in policies]
    body = [
        element(
            "tr",
            element("th", count(_size(point)), scope="row", class_="name"),
            *(_verdict(point, entry) for entry in policies),
        )
        for point in sorted(report.points, key=_size)
    ]
    caption = "Sizes of fleet that were tried"
    drawn = element(
        "table",
        element("caption", caption),
        element(
            "thead", element("tr", element("th", "replicas", scope="col", class_="name"), *head)
        ),
        element("tbody", *body),
    )
    box = element("div", drawn, class_="scroll", tabindex=0, role="region", aria_label=caption)
    return element("div", box, class_="table")


def _size(point: Results) -> float:
    return number(point.at, "replicas") or 0.0


def _tried(entry: Entry, report: Report) -> list[tuple[float, tuple[str, ...]]]:
    """The policy's sizes in order, and what each failed by."""
    found = [(_size(point), point.failures.get(entry.name)) for point in report.points]
    return sorted((size, failed) for size, failed in found if failed is not None)


def _answer(entry: Entry, report: Report) -> Markup:
    tried = _tried(entry, report)
    enough = [size for size, failed in tried if not failed]
    if not tried:
        return joined([policy(entry), " was not tried at any size."])
    if not enough:
        size, failed = tried[-1]
        return joined(
            [policy(entry), f" has too few with {count(size)} replicas: {'; '.join(failed)}."]
        )
    least = min(enough)
    below = [(size, failed) for size, failed in tried if size < least]
    tail = f"; with {count(below[-1][0])}, {'; '.join(below[-1][1])}" if below else ""
    return joined([policy(entry), f" needs {count(least)} replicas{tail}."])


def _verdict(point: Results, entry: Entry) -> Markup:
    failed = point.failures.get(entry.name)
    if failed is None:
        return element("td", "not tried", class_="words soft")
    if failed:
        return element("td", element("span", "; ".join(failed)), class_="words far")
    return element("td", element("span", "enough"), class_="words best")
