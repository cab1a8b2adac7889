"""Which runs the matrix takes: fleets, traffic, engine orders, loads and seeds, and how long each run is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from sim.scenario.errors import ScenarioError
from sim.workload.traces.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sim.matrix.rules import Run

BASE: Final = "steady"
"""The scenario that all runs are made of."""

ORDERS: Final = ("shortest-prefill-first", "fcfs")

INTERVALS: Final = {"shortest-prefill-first": 12, "fcfs": 0}
"""Generation steps between two prefill steps: the recipes' with the recipes' order, SGLang's own with SGLang's."""

_T = TypeVar("_T")

RANKED_LOADS: Final = (0.75, 1.0)
RANKED_MAX: Final = 4
_FIGURES: Final = (("throughput", -1.0), ("ttft_mean_s", 1.0), ("ttft_p99_s", 1.0))

LIGHT_LOAD: Final = 0.5
LIGHT_TIMES: Final = 2.0
HEAVY_LOAD: Final = 0.9


class Traffic(StrEnum):
    """``generator``: fitted; ``trace``: recorded sessions, which somebody has to give."""

    GENERATOR = "generator"
    TRACE = "trace"


class Size(NamedTuple):
    """A fleet, the loads it is judged at, and how many seeds each load has."""

    n_replicas: int
    loads: tuple[float, ...]
    n_seeds: int


SIZES: Final = (
    Size(16, (0.10, 0.25, 0.50, 0.75, 0.90, 1.00, 1.15, 1.30), 5),
    Size(64, (0.50, 0.90, 1.00, 1.30), 3),
    Size(200, (0.75, 0.90), 1),
)
"""Larger fleets have the loads at which most rules are judged."""


class Part(NamedTuple):
    """What is judged together: one fleet, traffic and engine order over its loads."""

    size: Size
    traffic: Traffic
    order: str

    @property
    def words(self) -> str:
        """Which part this is, for people."""
        return f"{self.size.n_replicas} replicas, {self.traffic}, {self.order}"


class Place(NamedTuple):
    """One scenario of a part: so many sessions over all replicas, and a seed. ``load`` None: a search's."""

    part: Part
    n_lanes: int
    seed: int
    load: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole matrix, or what was chosen of it.

    Fleets of ``ranked_replicas`` are those on which saturation and the best baselines are found: a larger fleet has
    as many sessions a replica. ``duration_s`` and ``warmup_s`` are a run's from half load on. Lighter ones are twice as
    long, since they have fewer requests. From :data:`HEAVY_LOAD` on queues and pools take for long to fill: ``duration_s``
    more goes by before anything counts.
    """

    trace: str | None = None
    sizes: tuple[Size, ...] = SIZES
    orders: tuple[str, ...] = ORDERS
    traffics: tuple[Traffic, ...] = tuple(Traffic)
    ranked_replicas: int = 16
    duration_s: float = 600.0
    warmup_s: float = 240.0
    start_lanes: int = 24

    def parts(self) -> list[Part]:
        """What is judged, the quickest fleets first; recorded traffic only where there is a recording."""
        traffics = [t for t in self.traffics if t is not Traffic.TRACE or self.trace is not None]
        return [
            Part(size, traffic, order)
            for size in sorted(self.sizes)
            for traffic in traffics
            for order in self.orders
        ]

    def ranked(self, part: Part) -> Part:
        """The part on which this one's saturation and baselines are found: one for all sizes."""
        return Part(Size(self.ranked_replicas, RANKED_LOADS, 1), part.traffic, part.order)

    def place(self, part: Part, load: float, seed: int, *, saturated_lanes: int) -> Place:
        """A load of a part, given the sessions that saturate the fleet on which that was found."""
        share = load * saturated_lanes * part.size.n_replicas / self.ranked_replicas
        return Place(part, max(1, round(share)), seed, load)

    def values(self, place: Place) -> dict[str, object]:
        """What makes the scenario :data:`BASE` that of a place, by key."""
        part = place.part
        warmup_s, duration_s = self.times_s(place.load)
        values: dict[str, object] = {
            "fleet.replicas": part.size.n_replicas,
            "engine.order": part.order,
            "engine.prefill_decode_interval": INTERVALS[part.order],
            "workload.start": "warm",
            "workload.sessions_in_all": place.n_lanes,
            "duration_s": duration_s,
            "warmup_s": warmup_s,
            "seed": place.seed,
        }
        if part.traffic is Traffic.TRACE:
            values["workload.trace"] = self.trace
        return values

    def times_s(self, load: float | None) -> tuple[float, float]:
        """From when on requests count at a load, and when a run ends; without a load, those of the search."""
        if load is not None and load < LIGHT_LOAD:
            return self.warmup_s, LIGHT_TIMES * self.duration_s
        if load is not None and load >= HEAVY_LOAD:
            return self.duration_s + self.warmup_s, 2 * self.duration_s
        return self.warmup_s, self.duration_s

    def on(self, n_replicas: int) -> Plan:
        """The same with one fleet of this size, judged as the smallest is."""
        size = min(self.sizes)._replace(n_replicas=n_replicas)
        return replace(self, sizes=(size,), ranked_replicas=n_replicas)

    def with_seeds(self, n_seeds: int) -> Plan:
        """The same with at most so many seeds a load."""
        sizes = tuple(size._replace(n_seeds=min(size.n_seeds, n_seeds)) for size in self.sizes)
        return replace(self, sizes=sizes)

    def only(self, words: Sequence[str]) -> Plan:
        """What ``KEY=A,B`` choose of it: sizes, traffic (``workload``), orders, loads in percent.

        Raises:
            ScenarioError: there is no such key or value.
        """
        plan = self
        for text in words:
            key, _, values = text.partition("=")
            chosen = [value.strip() for value in values.split(",")]
            plan = plan._only(key.strip(), chosen, text)
        return plan

    def _only(self, key: str, chosen: Sequence[str], text: str) -> Plan:
        match key:
            case "size":
                by_size = {str(size.n_replicas): size for size in self.sizes}
                return replace(self, sizes=tuple(_chosen(by_size, chosen, text)))
            case "workload":
                by_traffic = {str(traffic): traffic for traffic in self.traffics}
                return replace(self, traffics=tuple(_chosen(by_traffic, chosen, text)))
            case "order":
                by_order = {order: order for order in self.orders}
                return replace(self, orders=tuple(_chosen(by_order, chosen, text)))
            case "load":
                loads = {f"{load * 100:g}": load for size in self.sizes for load in size.loads}
                taken = set(_chosen(loads, chosen, text))
                return replace(self, sizes=tuple(_with_loads(self.sizes, taken)))
            case _:
                raise ScenarioError(f"--only {shown(text)}: no size=, workload=, order= or load=")


def _chosen(there: Mapping[str, _T], chosen: Sequence[str], text: str) -> list[_T]:
    for name in chosen:
        if name not in there:
            raise ScenarioError(f"--only {shown(text)}: there are {', '.join(there)}")
    return [there[name] for name in dict.fromkeys(chosen)]


def _with_loads(sizes: Sequence[Size], taken: set[float]) -> Iterator[Size]:
    for size in sizes:
        loads = tuple(load for load in size.loads if load in taken)
        if loads:
            yield size._replace(loads=loads)


def ranking(runs: Mapping[str, Sequence[Run]]) -> list[str]:
    """Baselines, the best first: the least sum of their places in throughput, mean and p99 TTFT, run by run.

    All have the same runs. One that has no figure comes last in it; equal sums go by name.
    """
    places = dict.fromkeys(sorted(runs), 0)
    for index in range(max(map(len, runs.values()), default=0)):
        for figure, sign in _FIGURES:
            found = {name: getattr(of_name[index], figure) for name, of_name in runs.items()}
            values = {
                name: float("inf") if value is None else sign * value
                for name, value in found.items()
            }
            for name, value in values.items():
                places[name] += sum(other < value for other in values.values())
    return sorted(places, key=lambda name: places[name])
