"""One run of one policy by the wall clock: load the traffic, simulate, put the times in."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from sim.fleet.driver import simulate
from sim.fleet.reference import simulate_reference, with_rule
from sim.scenario.errors import ScenarioError
from sim.scenario.facts import facts_of, lanes_of
from sim.workload.play.building import build, load, places_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.scenario.model import Scenario
    from sim.workload.play.content import Content
    from sim.workload.play.turns import Play
    from sim.workload.traces.model import RecordedWorkload

REFERENCE: Final = "reference"
"""The name of the clairvoyant reference among policies."""
_BY_RULE: Final = f"{REFERENCE}:"

_GC_THRESHOLDS: Final = (200_000, 20, 50)


@dataclass(frozen=True, slots=True)
class Job:
    """One run: a scenario, which has the seed, and a policy or :data:`REFERENCE`.

    ``repeat`` is the command that does the same run again, ``place`` the point of a sweep.
    """

    scenario: Scenario
    policy: str
    repeat: str = ""
    place: str = ""

    @property
    def words(self) -> str:
        """Which run this is, for messages."""
        place = f", {self.place}" if self.place else ""
        return f"{self.scenario.name}{place}, {self.policy}, seed {self.scenario.seed}"


class Done(NamedTuple):
    """What a run gave, as plain values, and the wall seconds of loading its traffic."""

    figures: dict[str, object]
    load_s: float


@dataclass(slots=True)
class _Loaded:
    key: str
    workload: RecordedWorkload
    content: Content | None = None


def reference_by(rule: object) -> str:
    """The name among policies of the reference by one of its rules, which is known to be its best: a third of the work."""
    return f"{_BY_RULE}{rule}"


_last: list[_Loaded] = []
"""The traffic loaded last: runs that follow each other mostly share it."""


def run_job(job: Job) -> Done:
    """Run it here and now.

    Raises:
        TraceError: the recorded traffic cannot be read.
        ScenarioError: the scenario asks for what its traffic does not have.
        AssertionError: an invariant was broken.
    """
    scenario = job.scenario
    began_s = time.perf_counter()
    content = loaded(scenario)
    load_s = time.perf_counter() - began_s

    def make_play() -> Play:
        return build(scenario.workload, content, n_lanes=lanes_of(scenario), seed=scenario.seed)

    with rare_collections():
        began_s = time.perf_counter()
        if job.policy == REFERENCE:
            result = simulate_reference(scenario, make_play, seed=scenario.seed)
        elif job.policy.startswith(_BY_RULE):
            rule = job.policy.removeprefix(_BY_RULE)
            result = with_rule(scenario, make_play(), rule, seed=scenario.seed)
        else:
            result = simulate(scenario, job.policy, make_play(), seed=scenario.seed)
        wall_s = time.perf_counter() - began_s
    return Done({**result.timed(wall_s).to_plain(), "load_s": load_s}, load_s)


def loaded(scenario: Scenario) -> Content:
    """The traffic of a scenario and its places; how many lanes play it does not matter to it."""
    spec, seed = scenario.workload, scenario.seed
    drawn_by = seed if spec.trace is None else None
    key = repr((replace(spec, sessions_in_all=None, sessions_per_replica=1.0), drawn_by))
    if not _last or _last[0].key != key:
        _last[:] = []
        _last[:] = [_Loaded(key, load(spec, seed))]
    last = _last[0]
    content, page_tokens = last.content, facts_of(scenario.fleet[0]).page_tokens
    if content is None or content.page_tokens != page_tokens:
        last.content = None
        try:
            content = places_of(spec, last.workload, page_tokens=page_tokens)
        except ValueError as failure:
            raise ScenarioError(f"{scenario.name}: workload: {failure}") from failure
        last.content = content
    return content


@contextmanager
def rare_collections() -> Iterator[None]:
    """Garbage is collected rarely, and what is there already is never looked at.

    What a caller has frozen stays so.
    """
    before, is_frozen = gc.get_threshold(), gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not is_frozen:
            gc.unfreeze()
