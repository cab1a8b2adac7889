"""The points of a sweep put in order: along one key, in groups of equal other keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.page.document import Entry, number
from sim.page.drawing.units import tick

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim.page.document import Report, Results


@dataclass(slots=True, frozen=True)
class Group:
    """Points that differ in the swept key alone, in its order.

    ``label`` says what the other keys are, empty where there are none.
    """

    key: str
    label: str
    points: tuple[Results, ...]

    @property
    def name(self) -> str:
        """The swept key in words."""
        return worded(self.key)

    def value(self, point: Results) -> str:
        """The swept key's value at a point, short."""
        return said(point.at.get(self.key))

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
        rest = {name: value for name, value in point.at.items() if name != key}
        found.setdefault(titled(rest), []).append(point)
    return [
        Group(key, label, tuple(sorted(points, key=lambda point: number(point.at.get(key)) or 0.0)))
        for label, points in found.items()
    ]


def _weight(report: Report, key: str) -> tuple[int, bool]:
    values = [point.at.get(key) for point in report.points]
    return len({said(value) for value in values}), all(
        number(value) is not None for value in values
    )
