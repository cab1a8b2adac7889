"""A client that leaves ends the replica's work at once, in whatever phase the exchange is."""

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
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect

PHASES = {
    "queued": b"",
    "head": STREAM_HEAD,
    "comment": STREAM_HEAD + chunk(b": queued\n\n"),
    "streaming": STREAM_HEAD + chunk(events("a", done=False)),
    "body": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{",
}


@pytest.mark.parametrize("is_reset", [True, False], ids=["reset", "close"])
@pytest.mark.parametrize("sent", PHASES.values(), ids=PHASES)
async def test_the_replica_is_left_too(
    table: Mapping[str, Dialect], sent: bytes, *, is_reset: bool
) -> None:
    reached, left = asyncio.Event(), asyncio.Event()

    async def script(call: Call) -> None:
        await call.send(sent)
        reached.set()
        if sent.endswith(events("a", done=False) + b"\r\n"):
            # A stream that goes on: what is written is what tells that the client is gone.
            while not call.is_gone:
                await call.send(chunk(events("b", done=False)))
                await asyncio.sleep(0.01)
        await call.gone()
        left.set()

    async with ScriptedReplica(script) as replica, front_door(replica.port, dialects=table) as rig:
        async with client_of(rig.port) as client:
            await client.send(post(chat()))
            await reached.wait()
            if not is_reset:
                client.writer.close()
                await left.wait()
        await left.wait()
        record = await rig.notes.wait_for(1)
        assert record.outcome == "client-gone"
        assert rig.inflight == 0


async def test_a_client_that_closes_while_the_replica_stalls(table: Mapping[str, Dialect]) -> None:
    """Nothing is written to it for want of events: a comment between two of them finds out."""
    clock, left = ManualClock(), asyncio.Event()

    async def script(call: Call) -> None:
        await call.send(STREAM_HEAD + chunk(events("a", done=False)))
        await call.gone()
        left.set()

    limits = EdgeLimits(sweep_s=0.01, stream_idle_s=1e6)
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=limits, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        await client.read_until(events("a", done=False))
        client.writer.close()
        while not left.is_set():
            clock.advance(2.0)
            await asyncio.sleep(0.02)
        assert (await rig.notes.wait_for(1)).outcome == "client-gone"


async def test_a_client_that_listens_on_gets_a_stalled_stream_whole(
    table: Mapping[str, Dialect],
) -> None:
    """Also if it has closed its own side, and the stall is in the midst of an event."""
    clock, asked = ManualClock(), asyncio.Event()
    data = events("a", done=False) + events("b")

    async def script(call: Call) -> None:
        await call.send(STREAM_HEAD + chunk(data[:-20]))
        await asked.wait()
        await call.send(chunk(data[-20:]) + b"0\r\n\r\n")

    limits = EdgeLimits(sweep_s=0.01, stream_idle_s=1e6)
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=limits, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        client.writer.write_eof()
        for _ in range(20):  # past the first two probes
            clock.advance(2.0)
            await asyncio.sleep(0.02)
        asked.set()
        answer = await client.read()
        assert answer.is_whole
        assert answer.body == data


async def test_a_client_that_leaves_while_the_router_connects(table: Mapping[str, Dialect]) -> None:
    """The attempt to connect is given up, whether or not it succeeds."""
    with deaf_port() as port:
        async with front_door(port, dialects=table) as rig:
            async with client_of(rig.port) as client:
                await client.send(post(chat()))
                await rig.policy.asked.wait()
            assert (await rig.notes.wait_for(1)).outcome == "client-gone"


async def test_a_client_that_leaves_in_the_middle_of_its_request(
    table: Mapping[str, Dialect],
) -> None:
    async with front_door(dialects=table) as rig:
        async with client_of(rig.port) as client:
            await client.send(post(chat())[:-3])
            client.writer.write_eof()
            assert await client.is_closed()
        assert (rig.notes.records, rig.notes.turned) == ([], [])


async def test_a_client_that_sends_too_much_ahead(table: Mapping[str, Dialect]) -> None:
    reached, left = asyncio.Event(), asyncio.Event()

    async def script(call: Call) -> None:
        reached.set()
        await call.gone()
        left.set()

    limits = EdgeLimits(sweep_s=0.01, pipelined_bytes_max=10_000)
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=limits) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        await reached.wait()
        client.writer.write(post(chat(text="x" * 20_000)))
        await left.wait()
        assert (await rig.notes.wait_for(1)).outcome == "client-gone"


async def test_a_slow_reader_holds_the_replica_back(table: Mapping[str, Dialect]) -> None:
    """What is on its way to a client that does not read is bounded; nothing is lost."""
    data = events("x" * 1000, done=False) * 100
    n_chunks = 200
    sent = 0
    done = asyncio.Event()

    async def script(call: Call) -> None:
        nonlocal sent
        await call.send(STREAM_HEAD)
        for _ in range(n_chunks):
            await call.send(chunk(data))
            sent += len(data)
        await call.send(chunk(events("end")) + b"0\r\n\r\n")
        done.set()

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port, limit=1000) as client,
    ):
        await client.send(post(chat()))
        seen = -1
        while seen != sent:  # until the pipe between replica and client is full
            seen = sent
            await asyncio.sleep(0.1)
        assert not done.is_set()
        assert sent < len(data) * n_chunks
        answer = await client.read()
        assert answer.is_whole
        assert answer.body == data * n_chunks + events("end")


async def test_a_client_that_stopped_reading_is_left(table: Mapping[str, Dialect]) -> None:
    data, clock = events("x" * 1000, done=False) * 100, ManualClock()
    left = asyncio.Event()

    async def script(call: Call) -> None:
        await call.send(STREAM_HEAD)
        try:
            while True:
                await call.send(chunk(data))
                clock.advance(0.2)
        except ConnectionError:
            left.set()

    limits = EdgeLimits(sweep_s=0.01, stream_idle_s=20.0, client_idle_s=1e9)
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=limits, clock=clock) as rig,
        client_of(rig.port, limit=1000) as client,
    ):
        await client.send(post(chat()))
        while not rig.notes.records:
            clock.advance(5.0)
            await asyncio.sleep(0.05)
        assert rig.notes.records[0].outcome == "client-gone"
        await left.wait()
