"""Clients that leave in unusual ways: HTTP/1.0, half a connection, in the midst of what is tried."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from router.clock import ManualClock
from router.edge.bounds.limits import EdgeLimits
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import chat, client_of, post
from tests.doubles.scripted_replica import (
    STREAM_HEAD,
    Call,
    ScriptedReplica,
    chunk,
    deaf_port,
    events,
    stream,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect

PHASES = {
    "queued": b"",
    "comment": STREAM_HEAD + chunk(b": queued\n\n"),
    "streaming": STREAM_HEAD + chunk(events("a", done=False)),
}


def old(body: bytes) -> bytes:
    """The request of a client of HTTP/1.0."""
    return post(body).replace(b"HTTP/1.1", b"HTTP/1.0", 1)


@pytest.mark.parametrize("sent", PHASES.values(), ids=PHASES)
@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_client_of_http_1_0_that_closes_its_side_is_gone(
    table: Mapping[str, Dialect], sent: bytes, *, is_stream: bool
) -> None:
    """There is no interim answer to find out with, and its kind closes as a whole."""
    reached, left = asyncio.Event(), asyncio.Event()

    async def script(call: Call) -> None:
        await call.send(sent)
        reached.set()
        await call.gone()
        left.set()

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(old(chat(stream=is_stream)))
        await reached.wait()
        client.writer.write_eof()
        await left.wait()
        assert (await rig.notes.wait_for(1)).outcome == "client-gone"


async def test_no_sign_of_life_to_a_client_of_http_1_0(table: Mapping[str, Dialect]) -> None:
    clock, waiting, go_on = ManualClock(), asyncio.Event(), asyncio.Event()

    async def script(call: Call) -> None:
        waiting.set()
        await go_on.wait()
        await call.send(stream(events("late")))

    limits = EdgeLimits(sweep_s=0.01)
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=limits, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(old(chat()))
        await waiting.wait()
        clock.advance(200.0)
        await asyncio.sleep(0.03)
        go_on.set()
        answer = await client.read_all()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"\r\n\r\n" + events("late"))


@pytest.mark.parametrize("is_stream", [True, False])
async def test_half_a_connection_is_answered_wherever_the_request_is(
    table: Mapping[str, Dialect], *, is_stream: bool
) -> None:
    """A client of HTTP/1.1 that has said all it will say, and listens."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def script(call: Call) -> None:
        reached.set()
        await go_on.wait()
        await call.send(stream(events("here")))

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat(stream=is_stream)))
        await reached.wait()
        client.writer.write_eof()
        await client.read_until(b"100 Continue\r\n\r\n")
        go_on.set()
        assert events("here") in await client.read_all()
        assert (await rig.notes.wait_for(1)).outcome == "done"


async def test_half_a_connection_whose_other_half_is_gone_too(
    table: Mapping[str, Dialect],
) -> None:
    reached, left = asyncio.Event(), asyncio.Event()

    async def script(call: Call) -> None:
        reached.set()
        await call.gone()
        left.set()

    async with ScriptedReplica(script) as replica, front_door(replica.port, dialects=table) as rig:
        async with client_of(rig.port) as client:
            await client.send(post(chat(stream=False)))
            await reached.wait()
            client.writer.write_eof()
            client.writer.close()
            await left.wait()
        assert (await rig.notes.wait_for(1)).outcome == "client-gone"


@pytest.mark.parametrize("is_old", [True, False], ids=["http-1.0", "http-1.1"])
async def test_while_the_router_connects(table: Mapping[str, Dialect], *, is_old: bool) -> None:
    request = old(chat()) if is_old else post(chat())
    with deaf_port() as port:
        async with front_door(port, dialects=table) as rig:
            async with client_of(rig.port) as client:
                await client.send(request)
                await rig.policy.asked.wait()
                if is_old:
                    client.writer.write_eof()
                    await rig.notes.wait_for(1)
            assert (await rig.notes.wait_for(1)).outcome == "client-gone"


async def test_the_next_request_on_a_connection_is_not_harmed(
    table: Mapping[str, Dialect],
) -> None:
    """What is sent ahead waits for its turn, and goes with the client if that leaves."""
    reached, left = asyncio.Event(), asyncio.Event()

    async def script(call: Call) -> None:
        if call.number == 0:
            await call.send(stream(events("one")))
            return
        await call.send(STREAM_HEAD + chunk(events("two", done=False)))
        reached.set()
        await call.gone()
        left.set()

    async with ScriptedReplica(script) as replica, front_door(replica.port, dialects=table) as rig:
        async with client_of(rig.port) as client:
            await client.send(post(chat()) * 3)
            await reached.wait()
        await left.wait()
        await rig.notes.wait_for(2)
        assert [record.outcome for record in rig.notes.records] == ["done", "client-gone"]
        assert len(replica.calls) == 2
