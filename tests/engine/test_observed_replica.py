"""Watching a real replica: what it is told to be, its load, and its load feed."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from router.clock import now_s
from router.control.observe.probes import Probes
from router.control.observe.reports import description
from router.obs.probes import ProbeCounts
from router.recording.records import Described, Heard
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event, State
from tests.doubles.recordings import recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.doubles.engines import Member

pytestmark = pytest.mark.engine


async def until(holds: Callable[[], bool]) -> None:
    """Another task makes it true."""
    while not holds():  # noqa: ASYNC110  (the probes have no event to wait on)
        await asyncio.sleep(0.02)


async def test_a_real_replica_is_described_checked_and_its_feed_is_followed(
    engines: dict[str, Member],
) -> None:
    member = engines["first"]
    core, journal = recorded()
    url = urlsplit(member.url)
    assert url.hostname is not None
    assert url.port is not None
    replica = core.members.join(ReplicaSpec("r", url.hostname, url.port), now_s())
    counts = ProbeCounts()
    infos: list[Mapping[str, Any]] = []
    probes = Probes(
        core,
        interval_s=0.5,
        now_s=now_s,
        dice=random.Random(1),
        health_s=0.5,
        counts=counts,
        on_described=lambda _, info: infos.append(info),
    )
    try:
        async with asyncio.timeout(60):
            await probes.start()
            assert replica.state is State.READY
            # Readings come at least each second, and take the place of load reports.
            await until(lambda: counts.ended["feed", "ok"] >= 5)
            observed = replica.observed
            assert observed is not None
            assert len(observed.stamp) == len(observed.ranks) == 1
            await until(lambda: counts.ended["health", "ok"] >= 1)
            heard = {record.event for record in journal.records if isinstance(record, Heard)}
            assert heard == {Event.PROBE_OK, Event.HEALTH_OK}
    finally:
        await probes.stop()
    assert sum(isinstance(record, Described) for record in journal.records) == 1
    assert description(infos[0], {}).started
    assert counts.ended["loads", "ok"] <= 3
    assert all(outcome == "ok" for _, outcome in counts.ended)
