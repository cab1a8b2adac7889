"""From the document of a scenario to typed values; everything unknown or impossible is refused.

A document is what TOML says: tables of plain values. :class:`Reader` knows where it came from, so
that a message can name file and key, or the flag that set it.
"""

from __future__ import annotations

from difflib import get_close_matches
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from sim.scenario.errors import ScenarioError
from sim.scenario.facts import facts_of
from sim.scenario.keys import FAULT, FAULT_KEYS, FLEET, MIX, TABLES, Key, Kind
from sim.scenario.model import (
    EngineSpec,
    FaultKind,
    FaultSpec,
    FleetSpec,
    RouterSpec,
    Scenario,
    Slo,
    Start,
    WorkloadPace,
    WorkloadSpec,
)
from sim.workload.fitted.mix import mixed
from sim.workload.traces.errors import clean, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_EXTRAS: Final = ("sweep", "variant")
_WORDS: Final = {"mix": "a table of numbers"}
_REPLICAS_MAX: Final = 4_096
_LANES_MAX: Final = 1_000_000
_FAULTS_MAX: Final = 1_000
_ENUMS: Final = {"pace": WorkloadPace, "start": Start, "kind": FaultKind}
_NAMES_MAX: Final = 25
_MIX_MAX: Final = 1e300  # what is more, or no number, is no float
_PRESET: Final = WorkloadSpec().preset
_ABSENT: Final = "it is missing"
_OF_STORE: Final = (FaultKind.REDIS_LOSS, FaultKind.PARTITION, FaultKind.CLOCK_SKEW)
_OF_ROUTER: Final = (FaultKind.ROUTER_LOSS, FaultKind.PARTITION, FaultKind.CLOCK_SKEW)


class Reader:
    """Reads one document. ``origin`` is the file; ``set_by`` says which flag set a key, by its path."""

    def __init__(self, origin: str, set_by: Mapping[str, str]) -> None:
        self._origin = clean(origin)
        self._set_by = set_by

    def scenario(self, document: Mapping[str, object], *, name: str) -> Scenario:
        """The typed scenario; ``name`` where the document does not say one.

        Raises:
            ScenarioError: something in it is unknown or impossible.
        """
        self._known(document, "", [*TABLES[""], *filter(None, TABLES), *_EXTRAS])
        top = self._values({key: document[key] for key in TABLES[""] if key in document}, "")
        workload = self._workload(self._table(document, "workload"))
        scenario = Scenario(
            **{"name": name, **top},
            workload=workload,
            fleet=tuple(self._groups(document)),
            engine=EngineSpec(**self._values(self._table(document, "engine"), "engine")),
            routers=RouterSpec(**self._values(self._table(document, "routers"), "routers")),
            faults=tuple(self._faults(document)),
            slo=Slo(**self._values(self._table(document, "slo"), "slo")),
        )
        self._check(scenario)
        return scenario

    def error(self, path: str, value: object, allowed: str) -> ScenarioError:
        """The error of a value that is not allowed."""
        said = _ABSENT if value is None else f"{shown(value)} is not allowed"
        return ScenarioError(f"{self._place(path)}: {said}: {allowed}")

    def unknown(self, path: str, name: str, known: Iterable[str], what: str) -> ScenarioError:
        """The error of a name that there is not, with the nearest one and all there are."""
        names = list(known)
        near = get_close_matches(name, names, 1)
        guess = f"did you mean {near[0]!r}? " if near else ""
        listed = f"{what}: {', '.join(names) or 'none'}"
        if len(names) > _NAMES_MAX:
            listed = "`homeport sim keys` lists them"
        return ScenarioError(f"{self._place(path)}: {shown(name)} is not known; {guess}{listed}")

    def _place(self, path: str) -> str:
        by = self._set_by.get(path)
        if by is not None:
            return clean(by)
        return f"{self._origin}: {path}" if path else self._origin

    def _known(self, table: Mapping[str, object], path: str, names: list[str]) -> None:
        for name in table:
            if name not in names:
                inner = f"{path}.{name}" if path else name
                place = inner if inner in self._set_by else path
                raise self.unknown(place, name, names, "the keys here")

    def _table(self, document: Mapping[str, object], name: str) -> dict[str, object]:
        table = document.get(name, {})
        if not isinstance(table, dict):
            raise self.error(name, table, f"a table [{name}]")
        return table

    def _list(
        self, document: Mapping[str, object], name: str, most: int
    ) -> list[dict[str, object]]:
        tables = document.get(name, [])
        if isinstance(tables, dict):
            tables = [tables]
        if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
            raise self.error(name, tables, f"tables [[{name}]]")
        if len(tables) > most:
            raise ScenarioError(f"{self._place(name)}: {len(tables)} tables; at most {most:,}")
        return tables

    def _values(self, table: Mapping[str, object], name: str, path: str = "") -> dict[str, Any]:
        """The fields that a table fills, by their names in the model."""
        keys = TABLES[name]
        path = path or name
        self._known(table, path, list(keys))
        return {
            keys[key].field: self._value(keys[key], f"{path}.{key}" if path else key, value)
            for key, value in table.items()
        }

    def _value(self, key: Key, path: str, value: object) -> object:
        match key.kind:
            case Kind.NUMBER | Kind.COUNT:
                return self._number(key, path, value)
            case Kind.CHOICE:
                name = self._chosen(key, path, value)
                enum = _ENUMS.get(key.name)
                return name if enum is None else enum(name)
            case Kind.CHOICES:
                return self._choices(key, path, value)
            case Kind.COUNTS if isinstance(value, list):
                return tuple(self._number(key, path, one) for one in value)
        wanted = bool if key.kind is Kind.FLAG else str
        if not isinstance(value, wanted) or key.kind is Kind.COUNTS:
            raise self.error(path, value, key.allowed)
        return value

    def _number(self, key: Key, path: str, value: object) -> float:
        whole = key.kind is not Kind.NUMBER
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            raise self.error(path, value, key.allowed)
        is_low = value <= key.low if key.is_above else value < key.low
        if is_low or value > key.high or not isfinite(value):
            raise self.error(path, value, key.allowed)
        return value if whole else float(value)

    def _chosen(self, key: Key, path: str, value: object) -> str:
        if not isinstance(value, str):
            raise self.error(path, value, key.allowed)
        if value not in key.choices:
            raise self.unknown(path, value, key.choices, "there are")
        return value

    def _choices(self, key: Key, path: str, value: object) -> tuple[str, ...]:
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, list) or not names:
            raise self.error(path, value, key.allowed)
        chosen = tuple(
            self._chosen(key, path, name.strip() if isinstance(name, str) else name)
            for name in names
        )
        if len(set(chosen)) < len(chosen):
            raise self.error(path, value, "each name once")
        return chosen

    def _workload(self, table: dict[str, object]) -> WorkloadSpec:
        rest = dict(table)
        mix = rest.pop("mix", {})
        if not isinstance(mix, dict):
            raise self.error("workload.mix", mix, _WORDS["mix"])
        values = self._values(rest, "workload")
        spec = WorkloadSpec(**values, mix=self._mix(mix, values.get("preset", _PRESET)))
        if "sessions" in table and "sessions_in_all" in table:
            raise ScenarioError(
                f"{self._place('workload.sessions')}: {spec.sessions_per_replica:g} and "
                f"workload.sessions_in_all: {spec.sessions_in_all} are both given: give one"
            )
        if spec.trace is None:
            for key, needs in (
                ("trace_format", spec.trace_format is not None),
                ("pace", spec.pace is WorkloadPace.OPEN),
            ):
                if needs:
                    raise self.error(
                        f"workload.{key}", table[key], "without recorded traffic: give --trace PATH"
                    )
        elif fitted := [key for key in ("preset", "mix") if table.get(key)]:
            raise self._of_no_effect(fitted[0], mix)
        return spec

    def _of_no_effect(self, key: str, mix: Iterable[str]) -> ScenarioError:
        """The error of fitted traffic's parameters beside recorded traffic."""
        path = f"workload.{key}"
        names = [name for name in mix if f"{path}.{name}" in self._set_by]
        place = self._place(f"{path}.{names[0]}" if names else path)
        trace = self._place("workload.trace")
        return ScenarioError(f"{place}: is for fitted traffic, and {trace} is recorded: give one")

    def _mix(self, table: dict[str, object], preset: str) -> dict[str, float]:
        numbers: dict[str, float] = {}
        for name, value in table.items():
            path = f"workload.mix.{name}"
            if name not in MIX:
                raise self.unknown(path, name, MIX, "parameters")
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise self.error(path, value, "a number")
            if not -_MIX_MAX <= value <= _MIX_MAX:
                raise self.error(path, value, "a number")
            numbers[name] = float(value)
        try:
            mixed(numbers, preset)
        except ValueError as failure:
            words = str(failure).removeprefix("mix: ")
            path = f"workload.mix.{words.partition(' ')[0]}"
            raise ScenarioError(f"{self._place(path)}: {words}") from failure
        return numbers

    def _groups(self, document: Mapping[str, object]) -> Iterable[FleetSpec]:
        tables = self._list(document, "fleet", len(FLEET) * 8)
        if not tables:
            yield FleetSpec()
        for number, table in enumerate(tables, 1):
            path = f"[[fleet]][{number}]"
            group = FleetSpec(**self._values(table, "fleet", path))
            try:
                facts_of(group)
            except ValueError as failure:
                key = str(failure).partition(":")[0]
                words = str(failure).partition(": ")[2]
                raise ScenarioError(f"{self._place(f'{path}.{key}')}: {words}") from failure
            yield group

    def _faults(self, document: Mapping[str, object]) -> Iterable[FaultSpec]:
        for number, table in enumerate(self._list(document, "fault", _FAULTS_MAX), 1):
            path = f"[[fault]][{number}]"
            self._known(table, path, list(FAULT))
            for needed in ("kind", "at_s"):
                if needed not in table:
                    raise self.error(f"{path}.{needed}", None, FAULT[needed].allowed)
            values = self._values(table, "fault", path)
            first, *rest = FAULT_KEYS[values["kind"]]
            for key in table:
                if key not in ("kind", "at_s", first, *rest):
                    raise self.unknown(
                        f"{path}.{key}", key, (first, *rest), f"a {values['kind']} may say"
                    )
            if table.get(first) in (None, []) and first != "router":
                raise self.error(f"{path}.{first}", table.get(first), FAULT[first].allowed)
            yield FaultSpec(**values)

    def _check(self, scenario: Scenario) -> None:
        """What holds between the values."""
        if scenario.warmup_s >= scenario.duration_s:
            limit = f"less than duration_s, {scenario.duration_s:g}"
            raise self.error("warmup_s", scenario.warmup_s, limit)
        if scenario.n_replicas > _REPLICAS_MAX:
            limit = f"{_REPLICAS_MAX:,} replicas in all at most"
            raise self.error("fleet", scenario.n_replicas, limit)
        lanes = scenario.workload.sessions_per_replica * scenario.n_replicas
        if scenario.workload.sessions_in_all is None and lanes > _LANES_MAX:
            limit = f"{_LANES_MAX:,} sessions in all at most"
            path = "workload.sessions"
            raise self.error(path, scenario.workload.sessions_per_replica, limit)
        self._check_faults(scenario)

    def _check_faults(self, scenario: Scenario) -> None:
        in_order = sorted(enumerate(scenario.faults, 1), key=lambda one: (one[1].at_s, one[0]))
        n_replicas = scenario.n_replicas
        gone: set[int] = set()
        for number, fault in in_order:
            path = f"[[fault]][{number}]"
            if not scenario.workload.is_once and fault.at_s >= scenario.duration_s:
                limit = f"before the run ends, {scenario.duration_s:g}"
                raise self.error(f"{path}.at_s", fault.at_s, limit)
            for replica in fault.replicas:
                if replica >= n_replicas or replica in gone:
                    limit = f"a replica that there is at {fault.at_s:g} s, 0 to {n_replicas - 1}"
                    raise self.error(f"{path}.replicas", replica, limit)
            self._check_router(scenario, fault, path)
            if fault.kind is FaultKind.SCALE_UP:
                n_replicas += fault.count
            elif fault.kind is FaultKind.SCALE_DOWN:
                gone.update(fault.replicas)
                if len(gone) >= n_replicas:
                    raise self.error(f"{path}.replicas", list(fault.replicas), "one must stay")

    def _check_router(self, scenario: Scenario, fault: FaultSpec, path: str) -> None:
        n_routers = scenario.routers.count
        if fault.kind in _OF_STORE and not (scenario.routers.is_shared and n_routers > 1):
            limit = "a fault of routers that share (routers.shared), 2 or more"
            raise self.error(f"{path}.kind", fault.kind.value, limit)
        if fault.kind in _OF_ROUTER and (fault.router >= n_routers or n_routers == 1):
            limit = f"one of routers.count {n_routers}, which must be 2 or more"
            raise self.error(f"{path}.router", fault.router, limit)
