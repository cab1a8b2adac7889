"""A front door on loopback over the real core, with replicas tried in the order they are given."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from router.clock import now_s
from router.core import RouterCore
from router.edge.bounds.limits import EdgeLimits
from router.edge.server import FrontDoor
from router.policy.view import Price, Ranking
from router.state.fleet.names import ModelNames
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from router.dialect.base import Dialect
    from router.edge.entry.credentials import EdgeSecurity
    from router.framing.forwarding import ForwardingRules
    from router.policy.view import FleetView, Policy, RouteRequest
    from router.state.history import RequestRecord


_TEST_S = 30.0


class InOrder:
    """A policy: the candidates by id, whatever they cost; ``is_broken`` makes it name nobody.

    ``takes_turns`` has long prompts wait for each other.
    """

    def __init__(self) -> None:
        self.is_broken = False
        self.takes_turns = False
        self.asked = asyncio.Event()

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:  # noqa: ARG002
        """Answer the candidates in order of their ids."""
        self.asked.set()
        ranked = () if self.is_broken else tuple(r.replica_id for r in fleet.candidates)
        prices = {ranked[0]: Price(prefill_s=0.1044)}
        return Ranking(ranked, "in-order", prices, takes_turns=self.takes_turns)


class Notes:
    """An observer that keeps what it is told, and wakes those who wait for it."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []
        self.turned: list[tuple[str, str, str]] = []
        self.pressure: Counter[str] = Counter()
        self._news = asyncio.Event()

    def finished(self, record: RequestRecord) -> None:
        """A placed request has ended."""
        self.records.append(record)
        self._news.set()

    def turned_away(self, *, code: str, dialect: str, target: str, tenant: str = "") -> None:  # noqa: ARG002
        """The router answered a request itself."""
        self.turned.append((code, dialect, target))
        self._news.set()

    def noted(self, event: str) -> None:
        """A request could not be served at once."""
        self.pressure[str(event)] += 1
        self._news.set()

    async def until(self, event: str, n: int = 1) -> None:
        """Wait until this was noted so often."""
        while self.pressure[event] < n:
            self._news.clear()
            await self._news.wait()

    async def wait_for(self, n_records: int) -> RequestRecord:
        """Wait until this many requests are over; answers the last."""
        while len(self.records) < n_records:
            self._news.clear()
            await self._news.wait()
        return self.records[n_records - 1]


class Rig:
    """The front door under test and what it did."""

    def __init__(
        self,
        ports: list[int],
        dialects: Mapping[str, Dialect],
        limits: EdgeLimits,
        clock: Callable[[], float],
        *,
        forwarding: ForwardingRules | None,
        security: EdgeSecurity | None,
        make_core: Callable[[Policy, random.Random], RouterCore] = RouterCore,
        names: Mapping[str, Any],
        engine_paths: Sequence[str],
    ) -> None:
        self.policy = InOrder()
        self.core = make_core(self.policy, random.Random(0))
        for number, port in enumerate(ports):
            spec = ReplicaSpec(replica_id=f"r{number}", host="127.0.0.1", port=port)
            self.core.members.join(spec, 0.0)
        self.ready()
        self.notes = Notes()
        self.limits = limits
        self.door = FrontDoor(
            core=self.core,
            dialects=dialects,
            limits=limits,
            observer=self.notes,
            now_s=clock,
            security=security,
            forwarding=forwarding,
            names=ModelNames(self.core.fleet, **names),
            engine_paths=engine_paths,
        )
        self.port = 0

    def ready(self) -> None:
        """Every replica is found ready (again)."""
        for replica in self.core.fleet.replicas():
            self.core.members.heard(replica.replica_id, Event.PROBE_OK, 0.0)

    def lead_to(self, port: int) -> None:
        """The first replica is now at another port."""
        self.core.members.join(ReplicaSpec(replica_id="r0", host="127.0.0.1", port=port), 0.0)
        self.ready()

    @property
    def inflight(self) -> int:
        """Requests the ledger still counts."""
        return sum(replica.inflight for replica in self.core.fleet.replicas())


@contextlib.asynccontextmanager
async def front_door(
    *ports: int,
    dialects: Mapping[str, Dialect],
    limits: EdgeLimits | None = None,
    clock: Callable[[], float] = now_s,
    forwarding: ForwardingRules | None = None,
    security: EdgeSecurity | None = None,
    make_core: Callable[[Policy, random.Random], RouterCore] = RouterCore,
    names: Mapping[str, Any] | None = None,
    engine_paths: Sequence[str] = (),
) -> AsyncIterator[Rig]:
    """A listening front door over replicas at these ports; nothing may be in flight at its end.

    ``names`` are the arguments of its :class:`ModelNames`.
    """
    limits = limits or EdgeLimits(sweep_s=0.01, drain_s=2.0)
    rig = Rig(
        list(ports),
        dialects,
        limits,
        clock,
        forwarding=forwarding,
        security=security,
        make_core=make_core,
        names=names or {},
        engine_paths=engine_paths,
    )
    rig.port = await rig.door.start("127.0.0.1", 0)
    try:
        # uvloop swallows what a signal's handler raises, so the test runner's own limit is lost.
        async with asyncio.timeout(_TEST_S):
            yield rig
    finally:
        await rig.door.stop()
    assert rig.inflight == 0
