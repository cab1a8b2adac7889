"""A replica as a router's watch sees it: what it is, its health, and an engine that hangs and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from router.clock import now_s
from router.control.observe.probes import Probes
from router.recording.records import Heard, Observed
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event, State
from tests.doubles.recordings import recorded
from tests.doubles.replica_calls import hung, session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from router.core import RouterCore
    from router.state.fleet.replica import Replica
    from tests.doubles.engines import Member
    from tests.doubles.recordings import Kept

WAIT_S_MAX = 50.0


@contextlib.asynccontextmanager
async def observed(member: Member) -> AsyncIterator[tuple[RouterCore, Replica, Kept]]:
    """A core that watches one replica and records what it is told."""
    core, journal = recorded()
    url = urlsplit(member.url)
    assert url.hostname
    assert url.port
    replica = core.members.join(ReplicaSpec("r", url.hostname, url.port), now_s())
    probes = Probes(core, interval_s=0.4, now_s=now_s, dice=random.Random(1), health_s=0.4)
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            await probes.start()
            yield core, replica, journal
    finally:
        await probes.stop()


async def until(holds: Callable[[], bool]) -> None:
    """Another task makes it true."""
    while not holds():  # noqa: ASYNC110  (the probes have no event to wait on)
        await asyncio.sleep(0.02)


def last(journal: Kept, *events: Event) -> Event | None:
    """Which of these was heard last."""
    heard = [r.event for r in journal.records if isinstance(r, Heard) and r.event in events]
    return heard[-1] if heard else None


async def test_an_engine_that_hangs_is_heard_of_and_its_return_too(plain: Member) -> None:
    health = Event.HEALTH_OK, Event.HEALTH_FAILED
    async with observed(plain) as (_, replica, journal), session(plain) as http:
        assert replica.state is State.READY
        await until(lambda: last(journal, *health) is Event.HEALTH_OK)
        async with hung(plain, http) as go_on:
            await until(lambda: last(journal, *health) is Event.HEALTH_FAILED)
            assert replica.observed is not None
            stamp, n_told = replica.observed.stamp, len(journal.records)
            # From here on it says itself that it is not ready, and its load report stands still.
            await until(lambda: replica.state is not State.READY)
            replica.load.inflight = 1
            await until(lambda: any(isinstance(r, Observed) for r in journal.records[n_told:]))
            replica.load.inflight = 0
            assert replica.observed.stamp == stamp
            await go_on()
            # It is asked for its health until that is good, without which it would stay so.
            await until(lambda: last(journal, *health) is Event.HEALTH_OK)
            await until(lambda: replica.state is State.READY)
