"""A replica whose scheduler stands still: what has not begun goes elsewhere, what flows is left alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from router.clock import ManualClock
from router.edge.bounds.limits import EdgeLimits
from router.state.fleet.replica import Observation
from router.state.health.table import State
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import chat, client_of, post
from tests.doubles.scripted_replica import (
    END,
    STREAM_HEAD,
    Call,
    ScriptedReplica,
    chunk,
    events,
    stream,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect
    from tests.doubles.door_rig import Rig

LIMITS: Final = EdgeLimits(sweep_s=0.01, drain_s=5.0, head_hold_s=1e6)
FINE: Final = events("fine")
ASKED: Final = post(chat())


def report(rig: Rig, now_s: float, stamp: float) -> None:
    """The first replica's load report is read."""
    replica = rig.core.fleet.get("r0")
    assert replica is not None
    seen = Observation(
        replica.load.inflight, 0, 0, now_s, replica.load.inflight, 0.0,
        stamp=(stamp,), heard_s=replica.load.heard_s,
    )  # fmt: skip
    rig.core.members.observed("r0", seen)


def stand_still(rig: Rig, clock: ManualClock) -> None:
    """It tells its load, and then the same for longer than it can take."""
    report(rig, clock(), 1.0)
    clock.advance(20.0)
    report(rig, clock(), 1.0)
    replica = rig.core.fleet.get("r0")
    assert replica is not None
    assert replica.state is State.STALLED


async def test_what_has_not_begun_moves_and_the_replica_returns_by_itself(
    table: Mapping[str, Dialect],
) -> None:
    clock, asked, left = ManualClock(), asyncio.Event(), asyncio.Event()

    async def silent(call: Call) -> None:
        asked.set()
        await call.gone()
        left.set()

    async def fine(call: Call) -> None:
        await call.send(stream(FINE))

    async with (
        ScriptedReplica(silent) as a,
        ScriptedReplica(fine) as b,
        front_door(a.port, b.port, dialects=table, limits=LIMITS, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(ASKED)
        await asked.wait()
        stand_still(rig, clock)
        answer = await client.read()
        assert (answer.status, answer.body) == (200, FINE)
        record = await rig.notes.wait_for(1)
        assert (record.replica_id, record.reason, record.n_tries) == ("r1", "retry", 2)
        await left.wait()  # its work is cancelled
        await client.send(ASKED)
        assert (await client.read()).body == FINE
        report(rig, clock(), 2.0)
        replica = rig.core.fleet.get("r0")
        assert replica is not None
        assert replica.state is State.READY
        assert rig.inflight == 0


async def test_where_nobody_else_is_it_waits_for_the_replica(table: Mapping[str, Dialect]) -> None:
    clock, asked, go_on = ManualClock(), asyncio.Event(), asyncio.Event()

    async def slow(call: Call) -> None:
        asked.set()
        await go_on.wait()
        await call.send(stream(FINE))

    async with (
        ScriptedReplica(slow) as a,
        front_door(a.port, dialects=table, limits=LIMITS, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(ASKED)
        await asked.wait()
        stand_still(rig, clock)
        for _ in range(5):
            await asyncio.sleep(0)
        go_on.set()
        answer = await client.read()
        assert (answer.status, answer.body) == (200, FINE)
        record = await rig.notes.wait_for(1)
        assert (record.replica_id, record.n_tries) == ("r0", 1)


async def test_a_stream_that_has_begun_stays(table: Mapping[str, Dialect]) -> None:
    clock, begun, go_on = ManualClock(), asyncio.Event(), asyncio.Event()

    async def halting(call: Call) -> None:
        await call.send(STREAM_HEAD + chunk(events("fi", done=False)))
        begun.set()
        await go_on.wait()
        await call.send(chunk(events("ne")) + END)

    async def other(call: Call) -> None:
        raise AssertionError(f"nothing is asked of it: {call.head!r}")

    async with (
        ScriptedReplica(halting) as a,
        ScriptedReplica(other) as b,
        front_door(a.port, b.port, dialects=table, limits=LIMITS, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(ASKED)
        await begun.wait()
        await client.read_until(b"fi")
        stand_still(rig, clock)
        go_on.set()
        await client.read_until(END)
        record = await rig.notes.wait_for(1)
        assert (record.replica_id, record.outcome) == ("r0", "done")
