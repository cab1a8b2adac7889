"""A scenario before it is typed: the document as written, and what the command line sets in it.

A key is named by its path (``workload.sessions``, ``fleet.replicas``, ``fleet.2.replicas``,
``fault.1.at_s``; groups and faults count from 1) or, where its last word is enough, by that.
"""

from __future__ import annotations

import re
import tomllib
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from sim.scenario.errors import ScenarioError
from sim.scenario.keys import ARRAYS, TABLES
from sim.scenario.reading import Reader
from sim.workload.traces.errors import clean, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sim.scenario.model import Scenario

VARIANT: Final = "variant"
"""The axis of a sweep whose values are the names of the scenario's variants."""

POINTS_MAX: Final = 2_000
_FILE_BYTES_MAX: Final = 1 << 20
_RIVALS: Final = {"sessions": "sessions_in_all", "sessions_in_all": "sessions"}
_MIX: Final = "mix"
_COMMA: Final = re.compile(r",(?![^\[]*\])")  # not within brackets


class Variant(NamedTuple):
    """A named change of a scenario: paths and values."""

    name: str
    about: str
    values: Mapping[str, object]


class Point(NamedTuple):
    """One point of a sweep: what was set where, and the scenario that it makes."""

    at: Mapping[str, object]
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class Draft:
    """A document that may still be changed. ``name`` is the scenario's where it does not say one."""

    document: Mapping[str, object]
    name: str
    origin: str
    folder: Path
    set_by: Mapping[str, str] = field(default_factory=dict)

    def scenario(self) -> Scenario:
        """The typed scenario, as it is set now; a trace's path is one from here.

        Raises:
            ScenarioError: something in it is unknown or impossible.
        """
        scenario = self._reader.scenario(self.document, name=self.name)
        if scenario.workload.trace is None:
            return scenario
        trace = str(self.folder / scenario.workload.trace)
        return replace(scenario, workload=replace(scenario.workload, trace=trace))

    def with_value(self, key: str, value: object, *, by: str) -> Draft:
        """The same with one key set; ``by`` is the flag or the place that does it, for messages.

        Raises:
            ScenarioError: there is no such key.
        """
        table, index, leaf = self._path(key, by)
        document = deepcopy(dict(self.document))
        target = _target(document, table, index)
        path = f"[[{table}]][{index + 1}]" if table in ARRAYS else table
        if leaf.startswith(f"{_MIX}."):
            mix = target.setdefault(_MIX, {})
            if isinstance(mix, dict):
                mix[leaf.partition(".")[2]] = value
        else:
            target[leaf] = value
            target.pop(_RIVALS.get(leaf, ""), None)
        where = f"{path}.{leaf}" if path else leaf
        return Draft(document, self.name, self.origin, self.folder, {**self.set_by, where: by})

    def variants(self) -> list[Variant]:
        """The scenario's ``[[variant]]`` tables.

        Raises:
            ScenarioError: one is not as it should be.
        """
        tables = self.document.get(VARIANT, [])
        allowed = "tables [[variant]] with a name of their own, perhaps about, and a table set"
        found: dict[str, Variant] = {}
        for number, table in enumerate(tables if isinstance(tables, list) else [None], 1):
            match table:
                case {"name": str(name), "set": dict(values), **rest} if name not in found and (
                    not rest or (set(rest) == {"about"} and isinstance(rest["about"], str))
                ):
                    found[name] = Variant(name, str(rest.get("about", "")), _flat(values))
                case _:
                    raise self._reader.error(f"[[variant]][{number}]", table or tables, allowed)
        return list(found.values())

    def axes(self, *, has_variants: bool = True) -> dict[str, list[object]]:
        """What ``[sweep]`` goes over, and the variants.

        Raises:
            ScenarioError: a value is no list.
        """
        table = self.document.get("sweep", {})
        if not isinstance(table, dict):
            raise self._reader.error("sweep", table, "a table [sweep] of keys and lists of values")
        axes: dict[str, list[object]] = {}
        variants = self.variants() if has_variants else []
        if variants:
            axes[VARIANT] = [variant.name for variant in variants]
        for key, values in _flat(table).items():
            if not isinstance(values, list) or not values:
                raise self._reader.error(f"sweep.{key}", values, "a list of values")
            axes[key] = values
        return axes

    def points(self, axes: Mapping[str, list[object]], *, by: str) -> list[Point]:
        """Every combination of the axes' values, the last axis fastest; ``by`` is for messages.

        Raises:
            ScenarioError: a key or value is impossible, or there are too many.
        """
        n_points = 1
        for values in axes.values():
            n_points *= len(values)
        if n_points > POINTS_MAX:
            raise ScenarioError(f"{by}: {n_points:,} points; at most {POINTS_MAX:,}")
        points: list[Point] = []
        for combination in product(*axes.values()):
            at = dict(zip(axes, combination, strict=True))
            draft = self
            for key, value in at.items():
                words = f"{by} {key}={_plain(value)}"
                if key == VARIANT:
                    draft = draft.varied(str(value), by=words)
                else:
                    draft = draft.with_value(key, value, by=words)
            points.append(Point(at, draft.scenario()))
        return points

    def varied(self, name: str, *, by: str) -> Draft:
        """The same as the variant of this name changes it.

        Raises:
            ScenarioError: there is none.
        """
        variants = {variant.name: variant for variant in self.variants()}
        if name not in variants:
            reader = Reader(self.origin, {VARIANT: by})
            raise reader.unknown(VARIANT, name, variants, "the variants are")
        draft = self
        for key, value in variants[name].values.items():
            draft = draft.with_value(key, value, by=f"{by}, {key} = {_plain(value)}")
        return draft

    @property
    def _reader(self) -> Reader:
        return Reader(self.origin, self.set_by)

    def _path(self, key: str, by: str) -> tuple[str, int, str]:
        """Table, index in an array of tables (0 for others) and last word of a key."""
        words = key.replace("[", ".").replace("]", "").split(".")
        if words[0] == "workload" and words[1:2] == [_MIX] and words[2:]:
            return "workload", 0, ".".join(words[1:])
        table, leaf = ".".join(words[:-1]), words[-1]
        index = 0
        if table.partition(".")[0] in ARRAYS:
            table, _, number = table.partition(".")
            index = self._index(table, number, by)
        elif not table and leaf not in TABLES[""]:
            table = ALIASES.get(leaf, "")
            index = self._index(table, "", by) if table in ARRAYS else 0
        if leaf not in TABLES.get(table, ()):
            reader = Reader(self.origin, {"": by})
            raise reader.unknown("", key, [*PATHS, *ALIASES], "paths and short names")
        return table, index, leaf

    def _index(self, table: str, number: str, by: str) -> int:
        tables = self.document.get(table, [])
        n_tables = len(tables) if isinstance(tables, list) else 1
        if not number and n_tables > 1:
            raise ScenarioError(
                f"{clean(by)}: there are {n_tables} [[{table}]]: say {table}.1. and so on"
            )
        index = int(number) if number.isdecimal() and len(number) < len("100000") else 1
        if (number and not number.isdecimal()) or not 1 <= index <= max(1, n_tables):
            raise ScenarioError(
                f"{clean(by)}: {table}.{clean(number)} is none of 1 to {max(1, n_tables)}"
            )
        return index - 1


def drafted(path: Path) -> Draft:
    """The scenario of a file.

    Raises:
        ScenarioError: it cannot be read, or is no TOML.
    """
    origin = clean(str(path))
    try:
        with path.open("rb") as opened:
            content = opened.read(_FILE_BYTES_MAX + 1)
    except OSError as failure:
        raise ScenarioError(f"{origin}: cannot be read: {failure.strerror}") from failure
    if len(content) > _FILE_BYTES_MAX:
        raise ScenarioError(f"{origin}: over {_FILE_BYTES_MAX} bytes: this is no scenario")
    try:
        document = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as failure:
        raise ScenarioError(f"{origin}: no TOML: {clean(str(failure))}") from failure
    return Draft(document, path.stem, path.name, path.parent)


def value_of(text: str) -> object:
    """A value from a command line: TOML where it is that, else the text itself."""
    try:
        return tomllib.loads(f"v = {text}")["v"] if "\n" not in text else text
    except (ValueError, RecursionError):
        return text


def axis_of(text: str) -> tuple[str, list[object]]:
    """A key and the values it goes over, of ``KEY=A,B``; a list is written in brackets.

    Raises:
        ScenarioError: it is not of this form.
    """
    key, _, values = text.partition("=")
    parts = [part.strip() for part in _COMMA.split(values)]
    if not key.strip() or not all(parts):
        raise ScenarioError(f"--over {shown(text)}: not KEY=VALUE,VALUE, as in replicas=8,12,16")
    return key.strip(), [value_of(part) for part in parts]


def _target(document: dict[str, object], table: str, index: int) -> dict[str, object]:
    if not table:
        return document
    found = document.setdefault(table, [{}] if table in ARRAYS else {})
    if isinstance(found, list):
        found = found[index] if index < len(found) else {}
    return cast("dict[str, object]", found) if isinstance(found, dict) else {}


def _flat(table: Mapping[str, object], above: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in table.items():
        path = f"{above}.{key}" if above else key
        if isinstance(value, dict):
            flat.update(_flat(value, path))
        else:
            flat[path] = value
    return flat


def _plain(value: object) -> str:
    return value if isinstance(value, str) else shown(value)


PATHS: Final = tuple(
    f"{table}.{leaf}" if table else leaf for table, keys in TABLES.items() for leaf in keys
)
"""Every key by its path."""

_LEAVES: Final = [
    (leaf, table) for table, keys in TABLES.items() if table not in ("", "fault") for leaf in keys
]
ALIASES: Final = {
    leaf: table
    for leaf, table in _LEAVES
    if leaf not in TABLES[""] and sum(leaf == other for other, _ in _LEAVES) == 1
}
"""Keys whose last word is enough, each with its table; those of faults need their path."""
