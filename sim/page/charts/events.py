"""What happened during a run, as marks on an axis of time and as a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sim.page.document import items, number, text
from sim.page.drawing.markup import Markup, element
from sim.page.drawing.units import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.page.document import Results
    from sim.page.drawing.scales import Scale

NEAR: Final = 0.012
"""Events closer than this share of the axis are one mark."""
LANES: Final = 3
CHARACTER: Final = 0.0072
"""Width of a label's character as a share of a wide plot."""
NARROW: Final = 3.4
"""How many times narrower the other plots are."""
LISTED: Final = 60


@dataclass(slots=True, frozen=True)
class Mark:
    """One moment at which something happened, and to whom."""

    at_s: float
    what: str
    replicas: tuple[str, ...]

    @property
    def said(self) -> str:
        """In few words."""
        if not self.replicas:
            return self.what
        shown = self.replicas[0] if len(self.replicas) == 1 else f"{len(self.replicas)} replicas"
        return f"{self.what} {shown}"


def marks(results: Results) -> list[Mark]:
    """The events of all policies in order of time; the same one of several policies is one."""
    found: dict[tuple[float, str], dict[str, None]] = {}
    for entry in results.entries:
        for event in items(entry.figures, "events"):
            at_s, what = number(event, "at_s"), text(event, "what")
            if at_s is not None and what:
                replica = text(event, "replica")
                found.setdefault((at_s, what), {}).update({replica: None} if replica else {})
    return [Mark(at_s, what, tuple(sorted(who))) for (at_s, what), who in sorted(found.items())]


def over(found: Sequence[Mark], scale: Scale, *, is_wide: bool) -> list[Markup]:
    """Flags over a plot. Those that would lie on one another lose their words, not their line."""
    character = CHARACTER if is_wide else NARROW * CHARACTER
    free = [0.0] * LANES
    shown: list[Markup] = []
    groups: list[list[Mark]] = []
    for mark in found:
        if not scale.low <= mark.at_s <= scale.high:
            continue
        if groups and scale.share(mark.at_s) - scale.share(groups[-1][0].at_s) < NEAR:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    for group in groups:
        place = scale.share(group[0].at_s)
        said = group[0].said + (f" +{len(group) - 1}" if len(group) > 1 else "")
        wide = (len(said) + 2) * character
        is_left = place + wide > 1
        start = place - wide if is_left else place
        lane = next((n for n in range(LANES) if free[n] <= start), None)
        if lane is not None:
            free[lane] = start + wide + 0.01
        whole = "; ".join(f"{duration(mark.at_s)}: {mark.said}" for mark in group)
        shown.append(
            element(
                "div",
                element("span", said, style=f"top:{lane * 17}px") if lane is not None else "",
                class_="flag left" if is_left else "flag",
                style=f"left:{place * 100:.2f}%",
                title=whole,
            )
        )
    return shown


def listed(found: Sequence[Mark]) -> Markup:
    """All events in words, to unfold."""
    if not found:
        return Markup()
    rows = [
        element(
            "li",
            element("b", duration(mark.at_s)),
            f" {mark.what} {', '.join(mark.replicas)}".rstrip(),
        )
        for mark in found[:LISTED]
    ]
    if len(found) > LISTED:
        rows.append(element("li", f"and {len(found) - LISTED} more"))
    summary = element("summary", f"All events ({len(found)})")
    return element("details", summary, element("ol", *rows, class_="events"), class_="more")
