"""A core with a roster, as sources see them, and a way to wait for what they make of it.

``found = Discovered()``; give a source ``found.outlet``; ``await found.until(a=State.STARTING, ...)``
waits until exactly these replicas are in the fleet in these states.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from router.clock import now_s
from router.control.discovery.feed import Outlet
from router.core import RouterCore
from router.obs.sources import SourceCounts
from router.policy import registry
from router.state.members.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.state.fleet.replica import Replica

WAIT_S_MAX = 8.0


async def until(holds: Callable[[], bool]) -> None:
    """Poll a condition that a task or another process makes true."""
    async with asyncio.timeout(WAIT_S_MAX):
        while not holds():  # noqa: ASYNC110  (what is waited for has no event in common)
            await asyncio.sleep(0.005)


class Discovered:
    """What sources have found."""

    def __init__(self, *, leave_drain_s: float = 300.0) -> None:
        self.core = RouterCore(registry.make("home"), random.Random(0))
        self.roster = Roster(self.core.members, self.core.fleet, leave_drain_s=leave_drain_s)
        self.counts = SourceCounts(self.roster.counts, now_s)
        self.n_joins = 0
        self.outlet = Outlet(self.roster, self.counts, now_s, self._joined, random.Random(0))

    def _joined(self) -> None:
        self.n_joins += 1

    def states(self) -> dict[str, str]:
        """Replica -> its state."""
        return {r.replica_id: r.state.value for r in self.core.fleet.replicas()}

    def replica(self, replica_id: str) -> Replica:
        """A replica that is in the fleet."""
        found = self.core.fleet.get(replica_id)
        assert found is not None, self.states()
        return found

    def urls(self) -> dict[str, str]:
        """Replica -> its URL."""
        return {r.replica_id: r.spec.url for r in self.core.fleet.replicas()}

    @property
    def failures(self) -> int:
        """Tries that failed."""
        return sum(health.failures for health in self.counts.healths)

    async def until(self, **states: str) -> None:
        """Wait until exactly these replicas are in the fleet, in these states."""
        await until(lambda: self.states() == states)

    async def until_named(self, *names: str) -> None:
        """Wait until exactly these replicas are in the fleet and do not drain."""
        await until(
            lambda: (
                {key for key, state in self.states().items() if state != "draining"} == set(names)
            )
        )

    async def until_failed(self, n: int = 1) -> None:
        """Wait until so many tries have failed."""
        await until(lambda: self.failures >= n)
