"""A session that is not known here is asked for in a real Redis, for a moment; then its request goes on."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from typing import TYPE_CHECKING

import pytest

from router.clock import now_s
from router.control.sharing.link import Link, LinkParameters
from router.obs.sharing import Reading, SharingCounts
from router.state.health.table import Event
from router.state.sessions.pins import Pin
from router.state.shared.desk import Row
from router.state.shared.values import packed, pin_key
from router.stores.access import access_of
from router.stores.redis_store import RedisStore
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import chat, client_of, post
from tests.doubles.redis_server import RedisServer, running_redis
from tests.doubles.scripted_replica import Call, ScriptedReplica, events, stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from router.dialect.base import Dialect
    from tests.doubles.door_rig import Rig

ASK = post(chat(), extra="x-session-id: known\r\n")
WAIT_S = 0.02


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with running_redis() as found:
        yield found


async def good(call: Call) -> None:
    await call.send(stream(events("fine")))


@contextlib.asynccontextmanager
async def linked(
    rig: Rig, server: RedisServer, *, wait_s: float = WAIT_S
) -> AsyncIterator[SharingCounts]:
    """The rig's door with a link to the store; one session is stored there, fixed to the second replica."""
    counts, dice = SharingCounts(), random.Random(1)
    store = RedisStore(access_of(server.url), dice)
    pin = Pin("known", "r1", homed_s=0.0, used_s=0.0, fixed_id="r1")
    row = Row("known", pin_key("known"), packed(pin, now_s=0.0, wall_s=1_790_000_000.0), 0, 0)
    await store.write([row], ttl_s=60.0)
    parameters = LinkParameters(read_s=wait_s)
    link = Link(rig.core, store, counts, router="me", now_s=now_s, dice=dice, parameters=parameters)
    rig.door._door.sharing = link
    await link.start()
    try:
        yield counts
    finally:
        await link.stop()


async def test_it_goes_where_another_router_had_it(
    table: Mapping[str, Dialect], server: RedisServer
) -> None:
    async with (
        ScriptedReplica(good) as one,
        ScriptedReplica(good) as two,
        front_door(one.port, two.port, dialects=table) as rig,
        linked(rig, server) as counts,
        client_of(rig.port) as client,
    ):
        for _ in range(2):
            await client.send(ASK)
            answer = await client.read()
            assert (answer.status, answer.headers["x-homeport-replica"]) == (200, "r1")
        assert counts.readings == {Reading.FOUND: 1}


async def test_one_that_nobody_knows_is_placed_here(
    table: Mapping[str, Dialect], server: RedisServer
) -> None:
    async with (
        ScriptedReplica(good) as one,
        front_door(one.port, dialects=table) as rig,
        linked(rig, server) as counts,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat(), extra="x-session-id: unknown\r\n"))
        assert (await client.read()).status == 200
        assert counts.readings == {Reading.NOTHING: 1}


async def test_a_store_that_hangs_is_waited_for_three_times(
    table: Mapping[str, Dialect], server: RedisServer
) -> None:
    async with (
        ScriptedReplica(good) as one,
        front_door(one.port, dialects=table) as rig,
        linked(rig, server) as counts,
        client_of(rig.port) as client,
    ):
        server.send(signal.SIGSTOP)
        try:
            for n in range(6):
                await client.send(post(chat(), extra=f"x-session-id: new-{n}\r\n"))
                assert (await client.read()).status == 200
        finally:
            server.send(signal.SIGCONT)
        assert counts.readings[Reading.LATE] == 3
        assert counts.readings[Reading.SKIPPED] == 3


async def test_a_client_that_leaves_meanwhile_is_not_served(
    table: Mapping[str, Dialect], server: RedisServer
) -> None:
    async with (
        front_door(1, dialects=table) as rig,
        linked(rig, server, wait_s=0.5) as counts,
    ):
        server.send(signal.SIGSTOP)
        try:
            async with client_of(rig.port) as client:
                await client.send(post(chat(), extra="x-session-id: leaves\r\n"))
                client.writer.transport.abort()
            async with asyncio.timeout(10):
                while not counts.readings:  # noqa: ASYNC110  (it is nobody's event)
                    await asyncio.sleep(0.01)
        finally:
            server.send(signal.SIGCONT)
        assert rig.notes.records == []


async def test_a_request_that_nobody_can_take_is_refused_after_it_was_asked_for(
    table: Mapping[str, Dialect], server: RedisServer
) -> None:
    async with (
        front_door(1, dialects=table) as rig,
        linked(rig, server),
        client_of(rig.port) as client,
    ):
        rig.core.members.heard("r0", Event.CONNECT_FAILED, now_s())
        await client.send(post(chat(), extra="x-session-id: refused\r\n"))
        answer = await client.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (503, "no-replica-ready")


async def test_a_fault_of_the_router_is_answered_after_it_was_asked_for(
    table: Mapping[str, Dialect], server: RedisServer
) -> None:
    async with (
        front_door(1, dialects=table) as rig,
        linked(rig, server),
        client_of(rig.port) as client,
    ):
        rig.policy.is_broken = True
        await client.send(post(chat(), extra="x-session-id: broken\r\n"))
        answer = await client.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (500, "internal")
