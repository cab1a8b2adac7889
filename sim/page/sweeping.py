"""The points of a sweep put in order: along one key, in groups of equal other keys, or crossed with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sim.page.document import Entry, Results, number
from sim.page.drawing.units import tick

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim.page.document import Report

CURVES_MAX: Final = 16
"""Values of the other keys that are told apart as curves of one chart."""
VARIANT: Final = "variant"
"""The key of a point that is one of the scenario's own variants."""


@dataclass(slots=True, frozen=True)
class Group:
    """Points that differ in the swept key alone, in its order.

    ``label`` says what the other keys are, empty where there are none.
    """

    key: str
    label: str
    points: tuple[Results, ...]

    @property
    def rest(self) -> dict[str, object]:
        """The other keys and their values."""
        return _rest(self.points[0], self.key)

    @property
    def short(self) -> str:
        """The other keys' values in words, a variant by its name alone."""
        return ", ".join(
            said(value) if key == VARIANT else f"{worded(key)} {said(value)}"
            for key, value in self.rest.items()
        )

    @property
    def name(self) -> str:
        """The swept key in words."""
        return worded(self.key)

    def value(self, point: Results) -> str:
        """The swept key's value at a point, short."""
        return said(point.at.get(self.key))

    def titled(self, title: str) -> str:
        """A title with what the other keys are."""
        return f"{title}, {self.label}" if self.label else title

    def places(self) -> list[float]:
        """Where the points lie along the key; numbered where its values are no numbers."""
        found = [number(point.at.get(self.key)) for point in self.points]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else [float(n) for n in range(len(found))]

    def runs(self, legend: Sequence[Entry]) -> list[tuple[Entry, list[tuple[str, Entry]]]]:
        """Each entry of the legend with its points: (value, what was measured)."""
        found: list[tuple[Entry, list[tuple[str, Entry]]]] = []
        for entry in legend:
            points = [
                (self.value(point), measured)
                for point in self.points
                for measured in point.all
                if measured.slot == entry.slot
            ]
            if points:
                found.append((entry, points))
        return found


def worded(key: str) -> str:
    """A key of a scenario in words, without its table: ``workload.sessions_per_replica``."""
    return key.rpartition(".")[2].replace("_", " ")


def said(value: object) -> str:
    """A swept value in words."""
    known = number(value)
    return str(value) if known is None else tick(known)


def titled(at: Mapping[str, object]) -> str:
    """A point's keys and values in words."""
    return ", ".join(f"{worded(key)} {said(value)}" for key, value in at.items())


def groups(report: Report) -> list[Group]:
    """The points by their keys other than the swept one: that with most values, numbers before words."""
    keys = sorted({key for point in report.points for key in point.at})
    if not keys:
        return []
    key = max(keys, key=lambda name: _weight(report, name))
    found: dict[str, list[Results]] = {}
    for point in report.points:
        found.setdefault(titled(_rest(point, key)), []).append(point)
    made = [
        Group(key, label, tuple(sorted(points, key=lambda point: number(point.at.get(key)) or 0.0)))
        for label, points in found.items()
    ]
    # A sort that keeps order: words stay as the scenario has them, numbers ascend.
    return sorted(made, key=lambda group: [number(value) or 0.0 for value in group.rest.values()])


def _rest(point: Results, key: str) -> dict[str, object]:
    return {name: value for name, value in point.at.items() if name != key}


def crossed(report: Report) -> Report:
    """A sweep of one policy over several keys, with the other keys' values as the entries of its points.

    So they are drawn as curves of one chart, in the order of the points, numbers in their own. A report of
    several policies, of one key or of more than `CURVES_MAX` such values is answered as it is.
    """
    policies = [entry for entry in report.legend if not entry.is_reference]
    found = groups(report)
    if len(policies) != 1 or not 1 < len(found) <= CURVES_MAX:
        return report
    key = found[0].key
    entries: dict[str, list[Entry]] = {}
    places: dict[str, object] = {}
    others = report.legend if any(point.reference for point in report.points) else ()
    # Curves of the same page never share a colour: the policy beside its reference keeps the first ones.
    curves = [
        Entry(g.short, slot, {}) for slot, g in enumerate(found, len(policies) if others else 0)
    ]
    for group, curve in zip(found, curves, strict=True):
        for point in group.points:
            place = group.value(point)
            places.setdefault(place, point.at.get(key))
            entries.setdefault(place, []).extend(
                replace(curve, figures=measured.figures) for measured in point.entries
            )
    points = tuple(Results(tuple(entries[at]), None, {key: places[at]}) for at in places)
    names = dict.fromkeys(name for point in report.points for name in point.at if name != key)
    noun = ", ".join(worded(name) for name in names)
    return replace(report, points=points, legend=(*curves, *others), noun=noun)


def placed(key: str, value: object) -> str:
    """A point's place on one key in a sentence: "24 sessions per replica", "order fcfs"."""
    known, words = number(value), worded(key)
    if known is None or not words.partition(" ")[0].endswith("s"):
        return titled({key: value})
    return f"{said(value)} {words}"


def _weight(report: Report, key: str) -> tuple[bool, int]:
    """What decides that a key is the swept one: that it is a number which changes, and how often."""
    values = [point.at.get(key) for point in report.points]
    n_values = len({said(value) for value in values})
    return n_values > 1 and all(number(value) is not None for value in values), n_values
