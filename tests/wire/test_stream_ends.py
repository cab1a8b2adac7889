"""Once a stream has begun it ends well, or with an error event, and the connection goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from router.clock import ManualClock
from router.edge.bounds.limits import EdgeLimits, RetryLimits
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import chat, client_of, post
from tests.doubles.scripted_replica import (
    BUSY_EVENT,
    END,
    STREAM_HEAD,
    Call,
    ScriptedReplica,
    chunk,
    events,
    stream,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect

BEGUN = events("a", done=False)


async def good(call: Call) -> None:
    await call.send(stream(events("other")))


@pytest.mark.parametrize("ending", ["reset", "close", "garbage", "no-mark"])
@pytest.mark.parametrize("half", [b"", b'data: {"half'], ids=["whole-event", "half-event"])
async def test_a_cut_stream_ends_with_an_error_event(
    table: Mapping[str, Dialect], ending: str, half: bytes
) -> None:
    begun = asyncio.Event()

    async def script(call: Call) -> None:
        await call.send(STREAM_HEAD + chunk(BEGUN + half))
        await begun.wait()
        if ending == "reset":
            call.reset()
        elif ending == "close":
            call.close()
        else:
            await call.send(b"zz\r\n" if ending == "garbage" else END)

    async with (
        ScriptedReplica(script) as replica,
        ScriptedReplica(good) as other,
        front_door(replica.port, other.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        head = await client.read_until(BEGUN)
        assert b"x-homeport-replica: r0" in head
        begun.set()
        rest = await client.read_until(END)
        assert rest.endswith(END)
        assert b"stream-cut" in rest
        assert b"data: [DONE]" in rest
        if half:
            assert b'"half\r\n' in rest
            assert b"\n\ndata: {" in rest
        record = await rig.notes.wait_for(1)
        assert (record.outcome, record.error_code, record.n_tries) == ("failed", "stream-cut", 1)
        assert other.calls == []
        # The client was told that it may go on: its next session is answered, elsewhere.
        await client.send(post(chat(text="another task")))
        assert b"x-homeport-replica: r1" in await client.read_until(END)


async def test_a_stalled_stream(table: Mapping[str, Dialect]) -> None:
    clock, gone = ManualClock(), asyncio.Event()

    async def script(call: Call) -> None:
        await call.send(STREAM_HEAD + chunk(BEGUN))
        await call.gone()
        gone.set()

    limits = EdgeLimits(sweep_s=0.01, stream_idle_s=30.0)
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=limits, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        await client.read_until(BEGUN)
        while not gone.is_set():
            clock.advance(16.0)
            await asyncio.sleep(0.02)
        rest = await client.read_until(END)
        assert b"stream-stalled" in rest
        assert rest.endswith(END)
        assert rig.notes.records[0].error_code == "stream-stalled"


async def test_an_error_in_the_middle_is_passed_on(table: Mapping[str, Dialect]) -> None:
    async def script(call: Call) -> None:
        await call.send(stream(BEGUN + BUSY_EVENT))

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        answer = await client.read()
        assert (answer.body, answer.is_whole) == (BEGUN + BUSY_EVENT, True)
        record = rig.notes.records[0]
        assert (record.outcome, record.error_code) == ("failed", "upstream-status")


async def test_heartbeats_while_nothing_comes(table: Mapping[str, Dialect]) -> None:
    """After a minute the head is sent, with comments; another replica may still answer."""
    clock, waiting, fail = ManualClock(), asyncio.Event(), asyncio.Event()

    async def silent(call: Call) -> None:
        waiting.set()
        await fail.wait()
        call.reset()

    limits = EdgeLimits(sweep_s=0.01)
    async with (
        ScriptedReplica(silent) as bad,
        ScriptedReplica(good) as other,
        front_door(bad.port, other.port, dialects=table, limits=limits, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        await waiting.wait()
        clock.advance(60.5)
        head = await client.read_until(b"\n\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
        assert b": waiting" in head
        for _ in range(2):
            clock.advance(15.5)
            assert b": waiting" in await client.read_until(b"\n\n\r\n")
        fail.set()
        assert events("other") in await client.read_until(b"\r\n" + END)
        assert (await rig.notes.wait_for(1)).replica_id == "r1"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (whole(b"no room", status=b"503 Busy"), b"upstream-status"),
        (whole(b"{}"), b"upstream-status"),
        (b"junk\r\n", b"bad-upstream-response"),
    ],
)
async def test_a_failure_after_heartbeats_is_an_event(
    table: Mapping[str, Dialect], answer: bytes, code: bytes
) -> None:
    clock, waiting, go_on = ManualClock(), asyncio.Event(), asyncio.Event()
    limits = EdgeLimits(sweep_s=0.01, retry=RetryLimits(backoff_s=0.0))

    async def script(call: Call) -> None:
        waiting.set()
        await go_on.wait()
        await call.send(answer)

    async with (
        ScriptedReplica(script) as only,
        front_door(only.port, dialects=table, limits=limits, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        await waiting.wait()
        clock.advance(61.0)
        await client.read_until(b"\n\n\r\n")
        go_on.set()
        rest = await client.read_until(END)
        assert code in rest
        assert rest.endswith(END)
        assert rig.notes.records[0].outcome == "failed"


async def test_no_heartbeats_for_an_answer_that_is_not_streamed(
    table: Mapping[str, Dialect],
) -> None:
    clock, waiting, go_on = ManualClock(), asyncio.Event(), asyncio.Event()

    async def script(call: Call) -> None:
        waiting.set()
        await go_on.wait()
        await call.send(whole(b'{"object":"chat.completion"}'))

    async with (
        ScriptedReplica(script) as only,
        front_door(only.port, dialects=table, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat(stream=False)))
        await waiting.wait()
        clock.advance(700.0)
        await asyncio.sleep(0.05)
        go_on.set()
        answer = await client.read()
        assert (answer.status, answer.body) == (200, b'{"object":"chat.completion"}')
