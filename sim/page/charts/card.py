"""The frame of a section's chart: heading, what to see in it, the drawing, or what is absent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.page.drawing.markup import Markup, element

if TYPE_CHECKING:
    from collections.abc import Sequence

TABS_MAX: Final = 24
"""Panels that page.css can show."""


def card(title: str, about: str, *content: str, is_wide: bool = False) -> Markup:
    """A chart under its heading with a sentence on how to read it."""
    return element(
        "section",
        element("h3", title),
        element("p", about, class_="about"),
        *content,
        class_="card wide" if is_wide else "card",
    )


def absent(title: str, what: str) -> Markup:
    """In place of a chart: what the results lack for it."""
    return element(
        "section", element("h3", title), element("p", what, class_="absent"), class_="card"
    )


def tabs(name: str, label: str, panels: Sequence[tuple[str, str, str]]) -> Markup:
    """Panels of which one is shown, chosen by radio buttons: (title, classes of the title, content).

    It needs no script: the page's style shows the panel of the button that is chosen. More panels than
    the style knows are left to be unfolded one by one.
    """
    if len(panels) > TABS_MAX:
        folded = [
            element("details", element("summary", title), content, class_="more")
            for title, _, content in panels
        ]
        return element("div", *folded, role="group", aria_label=label)
    chosen = [
        element(
            "input",
            type="radio",
            name=name,
            id=f"{name}-{index}",
            checked=None if index else "",
            aria_label=title,
        )
        for index, (title, _, _) in enumerate(panels)
    ]
    titles = [
        element("label", title, for_=f"{name}-{index}", class_=classes or None)
        for index, (title, classes, _) in enumerate(panels)
    ]
    shown = [element("div", content, class_="panel") for _, _, content in panels]
    return element(
        "div",
        *chosen,
        element("div", *titles, class_="choices"),
        element("div", *shown, class_="panels"),
        class_="tabs",
        role="group",
        aria_label=label,
    )
