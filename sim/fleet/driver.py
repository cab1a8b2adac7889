"""One scenario played with one policy: the router's own core in virtual time, over engine models.

>>> result = simulate(scenario, "home", play, seed=1)  # doctest: +SKIP

Replicas, routers, clients and faults are put together here; the parts beside this module say what each
does. A run is a function of its arguments: equal ones give an equal result, to the byte.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from router.state.history import Outcome
from sim.engine.replica_model import ReplicaModel
from sim.engine.rules import PRIORITY, EngineRules
from sim.fleet.checks import SAMPLES, Checks
from sim.fleet.clients import Clients
from sim.fleet.edge import Edge
from sim.fleet.faults import Faults
from sim.fleet.parts import SimReplica
from sim.fleet.routers import SimRouter, plain_core
from sim.fleet.sharing import SimStore
from sim.kernel import Kernel, Rank, TimeWentBackError
from sim.measure.figures import result_of
from sim.measure.recording import Recording
from sim.rng import stream
from sim.scenario.facts import facts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.hardware.profiles import EngineFacts
    from sim.engine.pool import SharedPrefixes
    from sim.fleet.parts import Door
    from sim.fleet.routers import CoreMaker, RouterMaker
    from sim.measure.result import RunResult
    from sim.scenario.model import FaultSpec, Scenario
    from sim.workload.play.turns import Play

    DoorMaker = Callable[[int, "FleetRun"], Door]

GRACE_S: Final = 120.0
"""How long a run goes on after its end for measured requests that still wait for their first token."""

BUCKETS: Final = 100
"""Buckets of time in a run of ``duration_s``."""


def simulate(
    scenario: Scenario,
    policy: str,
    play: Play,
    *,
    seed: int,
    make_core: CoreMaker = plain_core,
    can_sleep: bool = True,
) -> RunResult:
    """Play a workload through routers with this policy.

    ``make_core`` makes the core of each router, for who wants to look at it. ``can_sleep`` False has
    routers poll also where that cannot change anything; the result is the same.

    Raises:
        ConfigError: there is no such policy.
        ValueError: the scenario's fleet cannot be; the message says what.
        InvariantBrokenError: the run did what must not be; the message says how to repeat it.
    """
    run = routed(scenario, policy, play, seed=seed, make_core=make_core, can_sleep=can_sleep)
    return run.result(policy)


def routed(
    scenario: Scenario,
    policy: str,
    play: Play,
    *,
    seed: int,
    make_core: CoreMaker = plain_core,
    can_sleep: bool = True,
    make_router: RouterMaker = SimRouter,
) -> FleetRun:
    """The run of :func:`simulate`, put together and not begun. ``make_router`` makes each router around its core.

    Raises:
        ConfigError: there is no such policy.
        ValueError: the scenario's fleet cannot be; the message says what.
    """
    routers = scenario.routers
    store = SimStore() if routers.is_shared and routers.count > 1 else None

    def open_door(number: int, run: FleetRun) -> Door:
        return make_router(
            number,
            make_core(policy, seed, number, routers),
            run.kernel,
            routers,
            seed=seed,
            fleet=run.replicas,
            edge=run.edge,
            can_sleep=can_sleep,
            store=store,
        )

    return FleetRun(
        scenario,
        play,
        open_door,
        seed=seed,
        policy=policy,
        n_doors=routers.count,
        faults=scenario.faults,
        store=store,
    )


class FleetRun:
    """One run, from its beginning to its figures."""

    def __init__(
        self,
        scenario: Scenario,
        play: Play,
        open_door: DoorMaker,
        *,
        seed: int,
        policy: str,
        n_doors: int,
        faults: tuple[FaultSpec, ...],
        shared: SharedPrefixes | None = None,
        store: SimStore | None = None,
    ) -> None:
        self.scenario = scenario
        self.kernel = Kernel()
        self.replicas: list[SimReplica] = []
        self.doors: list[Door] = []
        self._lost_moves = 0
        self._seed = seed
        self._shared = shared
        self._store = store
        self._open = open_door
        self._until_s = inf if scenario.workload.is_once else scenario.duration_s
        self.recording = Recording(scenario.duration_s / BUCKETS, self._used_ratio)
        self.checks = Checks(
            self.kernel,
            self.recording,
            self.replicas,
            repeat=f"homeport sim run {scenario.name} --policies {policy} --seed {seed}",
        )
        self.clients = Clients(
            self.kernel,
            play,
            self.recording,
            self.checks,
            self.doors,
            dice=stream(seed, "clients"),
            measured_s=(scenario.warmup_s, self._until_s),
            is_spread_by_session=scenario.routers.is_spread_by_session,
        )
        self.edge = Edge(
            self.kernel,
            self.recording,
            self.checks,
            self.clients,
            asked_tokens=scenario.workload.output_tokens_asked,
            has_priorities=scenario.engine.order == PRIORITY,
        )
        self._groups = [(facts_of(group), group.replicas) for group in scenario.fleet]
        self._sample_s = scenario.duration_s / SAMPLES
        self._n_samples = 0
        self._begin_with(n_doors)
        self.faults = self._make_faults()
        self.faults.schedule(faults)

    def _begin_with(self, n_doors: int) -> None:
        """The fleet and the doors of the beginning."""
        for facts, n in self._groups:
            for _ in range(n):
                self._add(facts, is_listening=True)
        for number in range(n_doors):
            self.doors.append(self.open_door(number))

    def _make_faults(self) -> Faults:
        return Faults(
            self.kernel,
            self.recording,
            self.checks,
            replicas=self.replicas,
            doors=self.doors,
            edge=self.edge,
            clients=self.clients,
            add=lambda: self._add(self._groups[0][0], is_listening=False),
            open_door=self.open_door,
            store=self._store,
        )

    def open_door(self, number: int) -> Door:
        """A door that knows every replica that listens, and has asked it."""
        if number < len(self.doors):
            self._lost_moves += self.doors[number].moves
        door = self._open(number, self)
        for replica in self.replicas:
            if not replica.is_gone and replica.has_joined:
                replica.watchers.append(door)
                door.joined(replica, self.kernel.now_s, is_first=True)
        return door

    def result(self, policy: str, *, rule: str | None = None) -> RunResult:
        """Run it to its end, check it, and answer its figures.

        Raises:
            InvariantBrokenError: the run did what must not be.
        """
        scenario = self.scenario
        try:
            self._run()
        except TimeWentBackError as failure:
            self.checks.fail(20, str(failure))
        return result_of(
            self.recording,
            policy=policy,
            scenario=scenario.name,
            seed=self._seed,
            measured_s=(scenario.warmup_s, self._until_s),
            replica_ids=[replica.replica_id for replica in self.replicas],
            rule=rule,
        )

    def _run(self) -> None:
        kernel, clients, until_s = self.kernel, self.clients, self._until_s
        kernel.at(self.scenario.warmup_s, Rank.SAMPLE, self._begin, None)
        kernel.at(self._sample_s, Rank.SAMPLE, self._sample, None)
        clients.start(self.edge)
        if clients.open:
            kernel.run(until_s)
        self.recording.close(kernel.now_s, self._moves())
        if clients.waiting:
            kernel.run(kernel.now_s + GRACE_S)
        self._end()

    def _begin(self, _: None) -> None:
        self.recording.begin(self.kernel.now_s, self._moves())

    def _sample(self, _: None) -> None:
        """Check a part of the state; rarer as the run goes on, so that long ones cost no more."""
        self.checks.sample(self.doors)
        self._n_samples += 1
        if self._n_samples % SAMPLES == 0:
            self._sample_s *= 2
        self.kernel.at(self.kernel.now_s + self._sample_s, Rank.SAMPLE, self._sample, None)

    def _end(self) -> None:
        """Note what waits, and break off all that is not over."""
        now_s, clients = self.kernel.now_s, self.clients
        unfinished = list(clients.unfinished.values())
        for exchange in unfinished:
            if not exchange.has_token:
                self.recording.rows.ttft_s[exchange.row] = exchange.waited_s(now_s)
            if exchange.held is not None and exchange.door is not None:
                self.edge.cancel(exchange)
                exchange.door.finish(exchange, Outcome.CLIENT_GONE, now_s)
                self.checks.finished(exchange)
        self.checks.at_end(self.doors, len(unfinished))

    def _moves(self) -> int:
        return self._lost_moves + sum(door.moves for door in self.doors)

    def _used_ratio(self, index: int) -> float | None:
        return self.replicas[index].used_ratio()

    def _add(self, facts: EngineFacts, *, is_listening: bool) -> SimReplica:
        """One more replica, whose process runs or starts."""
        now_s = self.kernel.now_s
        index = self.recording.joined(facts.tp, now_s)
        replica = SimReplica(
            index, facts, self._make_model, self.edge.wake, is_listening=is_listening
        )
        self.replicas.append(replica)
        if is_listening:
            self.recording.serves(index, now_s, is_serving=True)
        return replica

    def _make_model(self, facts: EngineFacts, index: int) -> ReplicaModel:
        engine = self.scenario.engine
        return ReplicaModel(
            facts,
            rules=EngineRules(
                order=engine.order,
                is_chunk_mixed=engine.is_chunk_mixed,
                min_free_slots=None,
                prefill_decode_interval=engine.prefill_decode_interval,
            ),
            max_queued_requests=engine.max_queued_requests,
            dice=stream(self._seed, f"engine/{index}"),
            shared=self._shared,
        )
