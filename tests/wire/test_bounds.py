"""What one client or one request may cost the others: tries, memory, time, rounds."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from router.clock import ManualClock
from router.edge.bounds.limits import EdgeLimits
from router.state.health.table import State
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import RawClient, chat, client_of, post
from tests.doubles.scripted_replica import END, STREAM_HEAD, Call, ScriptedReplica, chunk, events
from tests.doubles.scripted_replica import stream as streamed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from router.dialect.base import Dialect

BEGUN = events("a", done=False)


async def reset(call: Call) -> None:
    call.reset()


async def good(call: Call) -> None:
    await call.send(streamed(events("good")))


async def test_a_prompt_that_kills_engines_does_not_go_round_the_fleet(
    table: Mapping[str, Dialect],
) -> None:
    async with (
        ScriptedReplica(reset) as a,
        ScriptedReplica(reset) as b,
        ScriptedReplica(reset) as c,
        ScriptedReplica(good) as d,
        front_door(a.port, b.port, c.port, d.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        answer = await client.read()
        assert answer.status == 502
        assert b"r1 (try 2) closed the connection" in answer.body
        assert [len(r.calls) for r in (a, b, c, d)] == [1, 1, 0, 0]
        assert rig.notes.records[0].n_tries == 2


async def test_refusals_are_tried_further_but_not_for_ever(table: Mapping[str, Dialect]) -> None:
    async def full(call: Call) -> None:
        await call.send(b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\nno")

    limits = EdgeLimits(sweep_s=0.01, drain_s=2.0, tries_max=3)
    async with (
        ScriptedReplica(full) as a,
        ScriptedReplica(full) as b,
        ScriptedReplica(full) as c,
        ScriptedReplica(good) as d,
        front_door(a.port, b.port, c.port, d.port, dialects=table, limits=limits) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        assert (await client.read()).status == 503
        assert [len(r.calls) for r in (a, b, c, d)] == [1, 1, 1, 0]
        assert rig.notes.records[0].n_tries == 3


async def test_a_drain_does_not_wait_for_connections_that_are_kept_alive(
    table: Mapping[str, Dialect],
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def script(call: Call) -> None:
        await call.send(STREAM_HEAD + chunk(BEGUN))
        begun.set()
        await go_on.wait()
        await call.send(chunk(events("end")) + END)

    limits = EdgeLimits(sweep_s=0.01, drain_s=20.0, client_idle_s=60.0)
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=limits) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        await begun.wait()
        await client.read_until(BEGUN)
        stopping = asyncio.get_running_loop().create_task(rig.door.stop())
        await asyncio.sleep(0)
        go_on.set()
        assert (await client.read_all()).endswith(END)
        async with asyncio.timeout(5):
            await stopping


async def test_a_drain_that_takes_too_long_ends_streams_with_an_event(
    table: Mapping[str, Dialect],
) -> None:
    async def script(call: Call) -> None:
        await call.send(STREAM_HEAD + chunk(BEGUN))
        await call.gone()

    limits = EdgeLimits(sweep_s=0.01, drain_s=0.1)
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=limits) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        await client.read_until(BEGUN)
        await rig.door.stop()
        rest = await client.read_all()
        assert b"shutting-down" in rest
        assert rest.endswith(END)
        record = await rig.notes.wait_for(1)
        assert (record.outcome, record.error_code) == ("failed", "shutting-down")


def get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: door\r\n\r\n".encode()


async def send_for_ever(client: RawClient, data: bytes) -> None:
    """Send until the connection is ended from the other side."""
    async with asyncio.timeout(10):
        while True:
            await client.send(data)


async def test_answers_to_a_client_that_never_reads_are_bounded(
    table: Mapping[str, Dialect],
) -> None:
    """Pipelined requests wait while the answers before them are unread."""
    limits = EdgeLimits(
        sweep_s=0.01,
        drain_s=0.1,
        write_high_bytes=4096,
        write_low_bytes=1024,
        pipelined_bytes_max=256 * 1024,
    )
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=limits) as rig,
        client_of(rig.port, limit=1024) as client,
    ):
        request = get("/v1/models/" + "x" * 8_000)
        with pytest.raises(ConnectionError):
            await send_for_ever(client, request * 8)
        async with client_of(rig.port) as other:
            await other.send(get("/health"))
            assert (await other.read()).status == 200


async def test_a_slow_reader_gets_the_end_of_a_closing_answer(
    table: Mapping[str, Dialect],
) -> None:
    clock = ManualClock()
    text = events("x" * 60_000, *["y" * 60_000] * 120)

    async def script(call: Call) -> None:
        await call.send(streamed(text))

    limits = EdgeLimits(sweep_s=0.01, drain_s=2.0, close_s=5.0, write_high_bytes=1 << 26)
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=limits, clock=clock) as rig,
        client_of(rig.port, limit=4096) as client,
    ):
        await client.send(post(chat(), extra="Connection: close\r\n"))
        await rig.notes.wait_for(1)
        got = 0
        while data := await client.reader.read(200_000):
            got += len(data)
            clock.advance(1.0)
            await asyncio.sleep(0.001)
        assert got > len(text)
        assert clock() > 10.0


async def test_many_tiny_messages_are_forwarded_unread(table: Mapping[str, Dialect]) -> None:
    messages = b",".join([b'{"role":"user","content":"a"}'] * 30_000)
    body = b'{"model":"m","stream":true,"messages":[' + messages + b"]}"
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(body))
        assert (await client.read()).status == 200
        assert replica.calls[0].body == body


async def test_a_body_in_tiny_chunks_costs_what_it_holds(table: Mapping[str, Dialect]) -> None:
    text = chat(text="z" * 400_000)
    head = post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    assert b"chunked" in head
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        gc.collect()
        tracemalloc.start()
        await client.send(head)
        for at in range(0, len(text), 20_000):
            part = text[at : at + 20_000]
            await client.send(b"".join(chunk(part[i : i + 2]) for i in range(0, len(part), 2)))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        await client.send(END)
        assert (await client.read()).status == 200
        assert replica.calls[0].body == text
        assert peak < 12 * len(text), peak


async def test_unfinished_bodies_are_bounded_together(table: Mapping[str, Dialect]) -> None:
    limits = EdgeLimits(sweep_s=0.01, drain_s=0.1, arriving_bytes_max=250_000)
    half = post(b"x" * 200_000)[:-50_000]
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=limits) as rig,
    ):
        async with client_of(rig.port) as first, client_of(rig.port) as second:
            await first.send(half)
            await second.send(half)
            reading = [asyncio.create_task(client.read()) for client in (first, second)]
            done, rest = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
            refused = done.pop().result()
            assert refused.status == 503
            assert refused.headers["x-homeport-error"] == "saturated"
            assert len(rest) == 1
            rest.pop().cancel()
        async with client_of(rig.port) as third:
            await third.send(post(chat()))
            assert (await third.read()).status == 200


async def test_a_request_that_comes_round_is_stopped(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(good) as spare,
        front_door(spare.port, dialects=table) as inner,
        front_door(inner.port, dialects=table) as outer,
        client_of(outer.port) as client,
    ):
        inner.lead_to(outer.port)
        await client.send(post(chat()))
        answer = await client.read()
        assert answer.status == 508
        assert b"loop-detected" in answer.body


async def test_an_http_1_0_client_that_leaves_is_noticed(table: Mapping[str, Dialect]) -> None:
    reached, gone = asyncio.Event(), asyncio.Event()

    async def script(call: Call) -> None:
        reached.set()
        await call.gone()
        gone.set()

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()).replace(b"HTTP/1.1", b"HTTP/1.0"))
        await reached.wait()
        client.writer.close()
        await gone.wait()
        assert (await rig.notes.wait_for(1)).outcome == "client-gone"


async def test_running_out_of_files_is_no_replicas_fault(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        with no_more_files():
            await client.send(post(chat()))
            answer = await client.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (503, "saturated")
        assert int(answer.headers["retry-after"]) >= 1
        assert rig.core.fleet.get("r0").state is State.READY  # type: ignore[union-attr]
        await client.send(post(chat()))
        assert (await client.read()).status == 200


@contextlib.contextmanager
def no_more_files() -> Iterator[None]:
    """Nothing can be opened in the block: the limit is lowered and what is below it filled up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    fillers: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                fillers.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)
