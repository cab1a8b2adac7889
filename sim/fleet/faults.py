"""What happens to a fleet in a run: each fault of a scenario at its time, several at once if so wanted.

- *crash*: the process is gone, with its cache and its connections. It is started again after
  ``duration_s`` and listens ``startup_s`` after that; until then connections are refused.
- *slow*: every step takes ``factor`` times as long; factors of faults that overlap multiply.
- *flush*: both cache tiers are dropped. As SGLang does it only while nothing runs, it is asked for again
  each second, for ten minutes at most.
- *scale-up*: replicas like the first group's start cold, and register ``startup_s`` later.
- *scale-down*: routers are told first; the replica leaves when its requests have ended, or cuts off what
  is left after ``drain_s``.
- *router-loss*: a router's connections break, on both sides, and what it knew is lost. After
  ``duration_s``, if given, an empty one takes its place, and asks every replica before it takes requests.
- *redis-loss*: the store between routers is gone, with all it knew; an empty one is there after ``duration_s``.
- *partition*: a router cannot reach the store for ``duration_s``; the others can.
- *clock-skew*: a router's clock is ``skew_s`` ahead of the others' from then on.
- *stale-loads*: replicas tell the report they told at that moment.

Slow, flush and stale-loads without ``replicas`` mean all there are then.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from sim.kernel import Rank
from sim.scenario.model import FaultKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.fleet.checks import Checks
    from sim.fleet.clients import Clients
    from sim.fleet.edge import Edge
    from sim.fleet.parts import Door, SimReplica
    from sim.fleet.sharing import SimStore
    from sim.kernel import Kernel
    from sim.measure.recording import Recording
    from sim.scenario.model import FaultSpec

FLUSH_TRIES_MAX: Final = 600
_AGAIN_S: Final = 1.0


class Faults:
    """Carries out the faults of one run; ``add`` makes a replica, ``open_door`` a router of a number."""

    def __init__(
        self,
        kernel: Kernel,
        recording: Recording,
        checks: Checks,
        *,
        replicas: Sequence[SimReplica],
        doors: list[Door],
        edge: Edge,
        clients: Clients,
        add: Callable[[], SimReplica],
        open_door: Callable[[int], Door],
        store: SimStore | None = None,
    ) -> None:
        self._kernel = kernel
        self._recording = recording
        self._checks = checks
        self._replicas = replicas
        self._doors = doors
        self._edge = edge
        self._clients = clients
        self._add = add
        self._open_door = open_door
        self._store = store
        self._factors: dict[int, list[float]] = {}
        self._acts: dict[FaultKind, Callable[[FaultSpec], None]] = {
            FaultKind.CRASH: self._crash,
            FaultKind.SLOW: self._slow,
            FaultKind.FLUSH: self._flush,
            FaultKind.SCALE_UP: self._scale_up,
            FaultKind.SCALE_DOWN: self._scale_down,
            FaultKind.ROUTER_LOSS: self._lose_router,
            FaultKind.REDIS_LOSS: self._lose_store,
            FaultKind.PARTITION: self._cut_off,
            FaultKind.CLOCK_SKEW: self._skew,
            FaultKind.STALE_LOADS: self._freeze,
        }

    def schedule(self, faults: Sequence[FaultSpec]) -> None:
        """Have each happen at its time, those of the same time in the order given."""
        for fault in faults:
            self._kernel.at(fault.at_s, Rank.FAULT, self._acts[fault.kind], fault)

    def _later(self, delay_s: float, do: Callable[[], None]) -> None:
        self._kernel.at(self._kernel.now_s + delay_s, Rank.FAULT, _call, do)

    def _told(self, what: str, replica: SimReplica | None = None) -> None:
        name = "" if replica is None else replica.replica_id
        self._recording.told(self._kernel.now_s, what, name)

    def _named(self, fault: FaultSpec) -> list[SimReplica]:
        """The replicas a fault is about, those that are there."""
        numbers = fault.replicas or range(len(self._replicas))
        found = [self._replicas[n] for n in numbers if n < len(self._replicas)]
        return [replica for replica in found if not replica.is_gone]

    # Processes

    def _crash(self, fault: FaultSpec) -> None:
        for replica in self._named(fault) if fault.replicas else []:
            if not replica.is_listening:
                continue
            self._told("crash", replica)
            self._end_process(replica)
            if fault.duration_s is not None:
                delay_s = fault.duration_s + fault.startup_s
                self._later(delay_s, partial(self._start_again, replica))

    def _end_process(self, replica: SimReplica) -> None:
        """A process is gone: what ran there fails."""
        now_s = self._kernel.now_s
        replica.is_listening = False
        replica.frozen = None
        self._recording.serves(replica.index, now_s, is_serving=False)
        replica.touch()
        self._edge.crash(replica)

    def _start_again(self, replica: SimReplica) -> None:
        if replica.is_gone or replica.is_listening:
            return
        now_s = self._kernel.now_s
        replica.start_again(now_s)
        self._told("ready", replica)
        self._recording.serves(replica.index, now_s, is_serving=replica.is_serving)
        replica.touch()

    def _scale_up(self, fault: FaultSpec) -> None:
        for _ in range(fault.count):
            replica = self._add()
            self._told("starting", replica)
            self._later(fault.startup_s, partial(self._join, replica))

    def _join(self, replica: SimReplica) -> None:
        if replica.is_gone:
            return
        now_s = self._kernel.now_s
        replica.is_listening = replica.has_joined = True
        self._told("joined", replica)
        self._recording.serves(replica.index, now_s, is_serving=True)
        for door in self._doors:
            if door.is_open:
                replica.watchers.append(door)
                door.joined(replica, now_s)

    def _scale_down(self, fault: FaultSpec) -> None:
        now_s = self._kernel.now_s
        for replica in self._named(fault) if fault.replicas else []:
            if replica.is_draining:
                continue
            replica.is_draining = True
            self._told("draining", replica)
            self._recording.serves(replica.index, now_s, is_serving=False)
            for door in replica.watchers:
                door.draining(replica, now_s)
            self._leave_when_idle(replica, now_s + fault.drain_s)

    def _leave_when_idle(self, replica: SimReplica, until_s: float) -> None:
        now_s = self._kernel.now_s
        if replica.exchanges and now_s < until_s:
            delay_s = min(_AGAIN_S, until_s - now_s)
            self._later(delay_s, lambda: self._leave_when_idle(replica, until_s))
            return
        replica.is_gone = True
        self._told("left", replica)
        if replica.is_listening:
            self._end_process(replica)
        for door in replica.watchers:
            door.left(replica, now_s)
        replica.watchers.clear()
        self._recording.left(replica.facts.tp, now_s)

    # What replicas do worse

    def _slow(self, fault: FaultSpec) -> None:
        for replica in self._named(fault):
            self._told("slow", replica)
            self._factors.setdefault(replica.index, []).append(fault.factor)
            self._set_pace(replica)
            if fault.duration_s is not None:
                self._later(
                    fault.duration_s,
                    partial(self._at_pace_again, replica, fault.factor),
                )

    def _at_pace_again(self, replica: SimReplica, factor: float) -> None:
        self._factors[replica.index].remove(factor)
        if not replica.is_gone:
            self._told("at-pace", replica)
            self._set_pace(replica)

    def _set_pace(self, replica: SimReplica) -> None:
        factor = 1.0
        for one in self._factors[replica.index]:
            factor *= one
        replica.slow(factor, self._kernel.now_s)
        if replica.is_listening:
            self._kernel.arm(replica.alarm, replica.model.next_at())

    def _flush(self, fault: FaultSpec) -> None:
        for replica in self._named(fault):
            self._try_to_flush(replica, FLUSH_TRIES_MAX)

    def _try_to_flush(self, replica: SimReplica, tries: int) -> None:
        if not replica.is_listening:
            return
        if replica.model.flush(self._kernel.now_s):
            self._told("flush", replica)
        elif tries > 1:
            self._later(_AGAIN_S, lambda: self._try_to_flush(replica, tries - 1))
        else:
            self._told("flush-given-up", replica)
        self._kernel.arm(replica.alarm, replica.model.next_at())

    def _freeze(self, fault: FaultSpec) -> None:
        for replica in self._named(fault):
            if not replica.is_listening:
                continue
            self._told("stale-loads", replica)
            replica.frozen = replica.model.report(self._kernel.now_s)
            replica.touch()
            if fault.duration_s is not None:
                self._later(fault.duration_s, partial(self._thaw, replica))

    def _thaw(self, replica: SimReplica) -> None:
        if replica.frozen is not None:
            replica.frozen = None
            self._told("fresh-loads", replica)
            replica.touch()

    # Routers

    def _lose_router(self, fault: FaultSpec) -> None:
        if fault.router >= len(self._doors) or not self._doors[fault.router].is_open:
            return
        door, now_s = self._doors[fault.router], self._kernel.now_s
        self._recording.told(now_s, f"router-loss {fault.router}")
        door.stop()
        for replica in self._replicas:
            if door in replica.watchers:
                replica.watchers.remove(door)
        self._clients.forget_routes()
        broken = [
            e for e in self._clients.unfinished.values() if e.door is door and (e.held or e.awaits)
        ]
        for exchange in broken:
            self._edge.cancel(exchange)
            self._checks.lost(exchange)
        for exchange in broken:
            self._clients.failed(exchange, now_s, retry_after_s=None)
        if fault.duration_s is not None:
            self._later(fault.duration_s, lambda: self._replace_router(fault.router))

    def _lose_store(self, fault: FaultSpec) -> None:
        store = self._store
        if store is None or store.is_away:
            return
        self._told("redis-loss")
        store.lose()
        if fault.duration_s is not None:
            self._later(fault.duration_s, partial(self._store_is_back, store))

    def _store_is_back(self, store: SimStore) -> None:
        self._told("redis-back")
        store.is_away = False

    def _cut_off(self, fault: FaultSpec) -> None:
        store = self._store
        if store is None or fault.router in store.cut:
            return
        self._told(f"partition {fault.router}")
        store.cut.add(fault.router)
        if fault.duration_s is not None:
            self._later(fault.duration_s, partial(self._reach_again, store, fault.router))

    def _reach_again(self, store: SimStore, router: int) -> None:
        self._told(f"partition-over {router}")
        store.cut.discard(router)

    def _skew(self, fault: FaultSpec) -> None:
        if self._store is not None:
            self._told(f"clock-skew {fault.router}")
            self._store.skews_s[fault.router] = fault.skew_s

    def _replace_router(self, number: int) -> None:
        self._recording.told(self._kernel.now_s, f"router-back {number}")
        self._doors[number] = self._open_door(number)
        self._clients.forget_routes()


def _call(do: Callable[[], None]) -> None:
    do()
