"""Reading the results' document: whatever is absent or is not what it should be counts as absent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

REFERENCE: Final = -1
"""The slot of the reference."""
HUES: Final = 8
"""Policies with a colour of their own; the next eight repeat them, dotted and hollow."""
LARGEST: Final = 1e15
"""Numbers beyond it are nothing that was measured."""
POLICY: Final = "policy"
FIRST: Final = "home"
"""The policy that has the first colour on every page it is on."""


def at(value: object, *path: str) -> object:
    """What lies at the path through nested objects; None where it ends early."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def number(value: object, *path: str) -> float | None:
    """A number at the path that may have been measured."""
    found = at(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found) if abs(found) <= LARGEST else None


def text(value: object, *path: str) -> str:
    """Text at the path; empty where there is none."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def mapping(value: object, *path: str) -> Mapping[str, object]:
    """An object at the path; empty where there is none."""
    found = at(value, *path)
    return found if isinstance(found, Mapping) else {}


def items(value: object, *path: str) -> Sequence[object]:
    """A list at the path; empty where there is none."""
    found = at(value, *path)
    return found if isinstance(found, Sequence) and not isinstance(found, str | bytes) else ()


def series(value: object, *path: str) -> list[float | None]:
    """A list of numbers at the path, with gaps."""
    return [number(item) for item in items(value, *path)]


@dataclass(slots=True, frozen=True)
class Entry:
    """One policy, or the reference, and what it reached."""

    name: str
    slot: int
    figures: Mapping[str, object]

    @property
    def is_reference(self) -> bool:
        """Whether this is the clairvoyant reference."""
        return self.slot == REFERENCE

    @property
    def css(self) -> str:
        """Its classes: the colour, and the second look where colours repeat."""
        if self.is_reference:
            return "ref"
        return f"s{self.slot % HUES}" + (" alt" if self.slot // HUES % 2 else "")

    @property
    def key(self) -> str:
        """What the script knows it by."""
        return "ref" if self.is_reference else str(self.slot)

    def number(self, *path: str) -> float | None:
        """A number among its figures."""
        return number(self.figures, *path)


@dataclass(slots=True, frozen=True)
class Results:
    """The policies on one scenario, by mean TTFT, and their reference.

    ``at``: the swept keys with their values, for a point of a sweep. ``failures``: what a size does not
    meet of an SLO, by policy; empty where it meets all.
    """

    entries: tuple[Entry, ...]
    reference: Entry | None
    at: Mapping[str, object] = field(default_factory=dict)
    failures: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def all(self) -> tuple[Entry, ...]:
        """The policies, and the reference last."""
        return self.entries if self.reference is None else (*self.entries, self.reference)


@dataclass(slots=True, frozen=True)
class Report:
    """The whole document. ``noun``: what its entries are."""

    document: Mapping[str, object]
    scenario: Mapping[str, object]
    command: str
    results: Results
    points: tuple[Results, ...]
    legend: tuple[Entry, ...]
    noun: str = POLICY

    @property
    def has_requests(self) -> bool:
        """Whether any policy answered anything."""
        shown = [self.results, *self.points]
        return any((entry.number("requests") or 0) > 0 for one in shown for entry in one.entries)


def report(document: Mapping[str, object]) -> Report:
    """The document, read. Slots go by name, so that equal policies look alike on pages of one scenario."""
    points = _merged(point for point in items(document, "points") if isinstance(point, Mapping))
    found = {str(name) for one in (document, *points) for name in mapping(one, "policies")}
    order = sorted(found, key=lambda name: (name != FIRST, name))
    slots = {name: slot for slot, name in enumerate(order)}
    results = _results(document, slots)
    read = tuple(_results(point, slots) for point in points)
    legend = [Entry(name, slot, {}) for name, slot in slots.items()]
    if any(one.reference for one in (results, *read)):
        legend.append(Entry("reference", REFERENCE, {}))
    return Report(
        document=document,
        scenario=mapping(document, "scenario"),
        command=text(document, "command") or "run",
        results=results,
        points=read,
        legend=tuple(legend),
    )


def _results(value: Mapping[str, object], slots: Mapping[str, int]) -> Results:
    policies = mapping(value, "policies")
    entries = [Entry(str(name), slots[str(name)], mapping(policies, name)) for name in policies]
    entries.sort(key=_rank)
    figures = mapping(value, "reference")
    reference = Entry("reference", REFERENCE, figures) if figures else None
    failures = {
        str(name): tuple(word for word in items({"all": words}, "all") if isinstance(word, str))
        for name, words in mapping(value, "failures").items()
    }
    return Results(tuple(entries), reference, dict(sorted(mapping(value, "at").items())), failures)


def _merged(points: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    """Points at the same place as one, with the policies of all; ``failures`` by policy."""
    found: dict[str, dict[str, object]] = {}
    for point in points:
        place = mapping(point, "at")
        whole = found.setdefault(
            repr(sorted((str(key), str(value)) for key, value in place.items())),
            {"at": place, "policies": {}, "reference": None, "failures": {}},
        )
        policies = mapping(point, "policies")
        whole["policies"] = {**mapping(whole, "policies"), **policies}
        whole["reference"] = mapping(whole, "reference") or mapping(point, "reference")
        if "failures" in point:
            failures = dict.fromkeys(policies, items(point, "failures"))
            whole["failures"] = {**mapping(whole, "failures"), **failures}
    return list(found.values())


def _rank(entry: Entry) -> tuple[float, int]:
    mean_s = entry.number("ttft_s", "mean")
    return (math.inf if mean_s is None else mean_s, entry.slot)
