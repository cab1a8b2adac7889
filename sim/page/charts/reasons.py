"""Why each policy chose as it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.page.charts.card import absent, card
from sim.page.document import mapping, number
from sim.page.drawing.markup import Markup, element
from sim.page.drawing.rows import row, rows
from sim.page.drawing.units import count, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.page.document import Entry, Results

TITLE: Final = "Reasons for decisions"
SHOWN: Final = 7
"""Reasons with a colour; the others are counted together."""
OTHER: Final = "other"
WORTH_A_WORD: Final = 0.14


def reasons(results: Results) -> Markup:
    """Shares of the reasons that the router gave, stacked, a row a policy."""
    found = [(entry, totals) for entry in results.entries if (totals := _counts(entry))]
    if not found:
        return absent(TITLE, "The results hold no reasons of decisions.")
    everywhere: dict[str, float] = {}
    for _, totals in found:
        whole = sum(totals.values())
        for name, n in totals.items():
            everywhere[name] = everywhere.get(name, 0.0) + n / whole
    order = sorted(everywhere, key=lambda name: (-everywhere[name], name))
    names = order if len(order) <= SHOWN + 1 else [*order[:SHOWN], OTHER]
    legend = element(
        "ul",
        *(element("li", element("i", class_=f"r{n}"), name) for n, name in enumerate(names)),
        class_="keys",
    )
    about = "Each request's one reason, as shares of all requests: what the policy does most, and how often it moves a session."
    shown = [
        row(entry, _bar(entry, totals, names), count(sum(totals.values())))
        for entry, totals in found
    ]
    return card(TITLE, about, legend, rows(shown, note="requests", kind="reasons"))


def _counts(entry: Entry) -> dict[str, float]:
    read = ((str(name), number(value)) for name, value in mapping(entry.figures, "reasons").items())
    return {name: value for name, value in read if value is not None and value > 0}


def _bar(entry: Entry, totals: dict[str, float], names: Sequence[str]) -> Markup:
    whole = sum(totals.values())
    listed = {name: totals.get(name, 0.0) for name in names}
    if OTHER in listed and OTHER not in totals:
        listed[OTHER] = whole - sum(listed.values())
    pieces: list[Markup] = []
    said: list[str] = []
    for index, (name, value) in enumerate(listed.items()):
        share = value / whole
        if share <= 0:
            continue
        said.append(f"{name} {percent(share)}")
        word = f"{name} {share * 100:.0f} %" if share >= WORTH_A_WORD else ""
        pieces.append(
            element(
                "span",
                element("b", word) if word else "",
                class_=f"r{index}",
                style=f"width:{share * 100:.2f}%",
                title=f"{entry.name}: {name} {percent(share)} ({count(value)})",
            )
        )
    label = f"{entry.name}: {', '.join(said)}"
    return element("div", *pieces, class_="stack", role="img", aria_label=label)
