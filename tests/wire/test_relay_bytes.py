"""What passes through the front door passes unchanged, however it is cut."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from router.edge.bounds.limits import EdgeLimits
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
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect

SSE = events("he", "llo")
JSON = b'{"object":"chat.completion","choices":[],"usage":null}'


async def echo_whole(call: Call) -> None:
    await call.send(whole(JSON))


async def test_a_whole_answer(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(echo_whole) as replica,
        front_door(replica.port, dialects=table) as rig,
    ):
        async with client_of(rig.port) as client:
            body = chat(stream=False)
            await client.send(
                post(
                    body, extra="Authorization: Bearer k\r\nX-Api-Key: k\r\nX-Request-Id: my-id\r\n"
                )
            )
            answer = await client.read()
        assert (answer.status, answer.body, answer.is_whole) == (200, JSON, True)
        headers = answer.headers
        assert headers["x-homeport-replica"] == "r0"
        assert headers["x-homeport-reason"] == "in-order"
        assert headers["x-homeport-price"] == (
            "wait=0.000 prefill=0.104 interference=0.000 pressure=0.000"
        )
        assert headers["x-homeport-cached-tokens"] == "0"
        assert headers["x-request-id"] == "my-id"
        call = replica.calls[0]
        assert call.body == body
        assert call.header("host") == f"127.0.0.1:{replica.port}"
        assert call.header("authorization") is None
        assert call.header("x-api-key") is None
        assert call.header("x-request-id") == "my-id"
        record = rig.notes.records[0]
        assert (record.outcome, record.n_tries) == ("done", 1)


async def test_headers_that_do_not_cross(table: Mapping[str, Dialect]) -> None:
    async def script(call: Call) -> None:
        extra = b"x-homeport-replica: liar\r\nkeep-alive: 5\r\nx-engine: e\r\n"
        await call.send(whole(JSON, extra=extra))

    async with ScriptedReplica(script) as replica, front_door(replica.port, dialects=table) as rig:
        async with client_of(rig.port) as client:
            extra = (
                "Accept-Encoding: gzip\r\nConnection: x-secret\r\nX-Secret: 1\r\nTE: trailers\r\n"
                "anthropic-beta: b1\r\nanthropic-version: v\r\n"
            )
            await client.send(post(chat(stream=False), extra=extra))
            answer = await client.read()
        call = replica.calls[0]
        for name in ("accept-encoding", "connection", "x-secret", "te"):
            assert call.header(name) is None, name
        assert (call.header("anthropic-beta"), call.header("anthropic-version")) == ("b1", "v")
        made = call.header("x-request-id")
        assert made is not None
        assert len(made) == 32
        assert answer.headers["x-request-id"] == made
        assert answer.headers["x-homeport-replica"] == "r0"
        assert "keep-alive" not in answer.headers
        assert answer.headers["x-engine"] == "e"


@pytest.mark.parametrize("is_stream", [True, False])
async def test_requests_cut_at_every_boundary(
    table: Mapping[str, Dialect], *, is_stream: bool
) -> None:
    async def script(call: Call) -> None:
        await call.send(stream(SSE) if is_stream else whole(JSON))

    body = chat(stream=is_stream)
    request = post(body)
    async with ScriptedReplica(script) as replica, front_door(replica.port, dialects=table) as rig:
        async with client_of(rig.port) as client:
            for at in range(1, len(request)):
                await client.send(request[:at])
                await asyncio.sleep(0)
                await client.send(request[at:])
                answer = await client.read()
                assert answer.body == (SSE if is_stream else JSON), at
                assert replica.calls[-1].body == body, at
        assert replica.n_connections == 1


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (stream(SSE), SSE),
        (STREAM_HEAD + b"".join(chunk(bytes([b])) for b in SSE) + END, SSE),
        (whole(JSON), JSON),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + whole(JSON), JSON),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + SSE, SSE),
    ],
    ids=["stream", "bytewise", "whole", "interim", "until-eof"],
)
async def test_answers_cut_at_every_boundary(
    table: Mapping[str, Dialect], answer: bytes, body: bytes
) -> None:
    at = 0
    is_eof = b"chunked" not in answer and b"length" not in answer

    async def script(call: Call) -> None:
        await call.send(answer[:at])
        for _ in range(3):
            await asyncio.sleep(0)
        await call.send(answer[at:])
        if is_eof:
            call.close()

    async with ScriptedReplica(script) as replica, front_door(replica.port, dialects=table) as rig:
        async with client_of(rig.port) as client:
            for at in range(1, len(answer), 1 if len(answer) < 600 else 5):
                await client.send(post(chat()))
                got = await client.read()
                assert (got.status, got.body, got.is_whole) == (200, body, True), at
        assert {record.outcome for record in rig.notes.records} == {"done"}


async def test_a_large_body_and_a_long_stream(table: Mapping[str, Dialect]) -> None:
    data = events(*(f"word {n} " * 50 for n in range(500)))

    async def script(call: Call) -> None:
        await call.send(STREAM_HEAD)
        for at in range(0, len(data), 1000):
            await call.send(chunk(data[at : at + 1000]))
        await call.send(END)

    body = chat(text="x" * 400_000)
    async with ScriptedReplica(script) as replica, front_door(replica.port, dialects=table) as rig:
        async with client_of(rig.port) as client:
            await client.send(post(body))
            answer = await client.read()
        assert answer.body == data
        assert replica.calls[0].body == body


async def test_pipelined_requests_are_answered_in_order(table: Mapping[str, Dialect]) -> None:
    async def script(call: Call) -> None:
        await call.send(whole(b'{"n":%d}' % call.number))

    async with ScriptedReplica(script) as replica, front_door(replica.port, dialects=table) as rig:
        async with client_of(rig.port) as client:
            one = post(chat(stream=False))
            await client.send(one + b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n" + one * 3)
            bodies = [(await client.read()).body for _ in range(5)]
        assert bodies == [b'{"n":0}', b'{"status":"ok"}', b'{"n":1}', b'{"n":2}', b'{"n":3}']


async def test_many_pipelined_requests_do_not_recurse(table: Mapping[str, Dialect]) -> None:
    async with front_door(dialects=table) as rig, client_of(rig.port) as client:
        await client.send(b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n" * 3000)
        for _ in range(3000):
            assert (await client.read()).status == 200


async def test_expect_continue(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(echo_whole) as replica,
        front_door(replica.port, dialects=table) as rig,
    ):
        async with client_of(rig.port) as client:
            head, _, body = post(chat(stream=False), extra="Expect: 100-continue\r\n").partition(
                b"\r\n\r\n"
            )
            await client.send(head + b"\r\n\r\n")
            assert await client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await client.send(body)
            assert (await client.read()).body == JSON
        assert replica.calls[0].header("expect") is None


async def test_a_half_closed_client_is_answered(table: Mapping[str, Dialect]) -> None:
    go_on = asyncio.Event()

    async def script(call: Call) -> None:
        await go_on.wait()
        await call.send(whole(JSON))

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat(stream=False)))
        client.writer.write_eof()
        assert await client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        go_on.set()
        answer = await client.read()
        assert (answer.body, answer.headers["connection"]) == (JSON, "close")
        assert await client.is_closed()


async def test_http_1_0_gets_a_stream_without_chunks(table: Mapping[str, Dialect]) -> None:
    async def script(call: Call) -> None:
        await call.send(stream(SSE))

    async with ScriptedReplica(script) as replica, front_door(replica.port, dialects=table) as rig:
        async with client_of(rig.port) as client:
            await client.send(post(chat()).replace(b"HTTP/1.1", b"HTTP/1.0"))
            raw = await client.read_all()
        head, _, body = raw.partition(b"\r\n\r\n")
        assert body == SSE
        assert b"chunked" not in head
        assert b"connection: close" in head


async def test_http_1_0_may_keep_its_connection(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(echo_whole) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        request = post(chat(stream=False), extra="Connection: keep-alive\r\n")
        for _ in range(2):
            await client.send(request.replace(b"HTTP/1.1", b"HTTP/1.0"))
            answer = await client.read()
            assert answer.headers["connection"] == "keep-alive"
            assert answer.body == JSON


async def test_connection_close_is_respected(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(echo_whole) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat(stream=False), extra="Connection: close\r\n"))
        assert (await client.read()).headers["connection"] == "close"
        assert await client.is_closed()


async def test_an_answer_larger_than_what_is_held(table: Mapping[str, Dialect]) -> None:
    big = b'{"x":"' + b"y" * 50_000 + b'"}'

    async def script(call: Call) -> None:
        await call.send(whole(big))

    limits = EdgeLimits(body_hold_bytes_max=1000, sweep_s=0.01)
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=limits) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat(stream=False)))
        answer = await client.read()
        assert (answer.body, answer.is_whole) == (big, True)


async def test_exchanges_do_not_mix(table: Mapping[str, Dialect]) -> None:
    """Many clients at once, streams interleaved: each gets its own words and nothing else."""
    gate = asyncio.Barrier(20)

    async def script(call: Call) -> None:
        word = call.body.partition(b"word-")[2][:4].decode()
        await call.send(STREAM_HEAD + chunk(events(word, done=False)))
        await gate.wait()
        for _ in range(5):
            await call.send(chunk(events(word, done=False)))
            await asyncio.sleep(0)
        await call.send(chunk(events(word)) + END)

    async def ask(port: int, number: int) -> None:
        async with client_of(port) as client:
            for turn in range(3):
                word = f"{number:02d}{turn:02d}"
                await client.send(post(chat(text=f"word-{word}")))
                answer = await client.read()
                assert answer.body == events(*([word] * 7)), word

    async with ScriptedReplica(script) as replica, front_door(replica.port, dialects=table) as rig:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(ask(rig.port, number))
        assert len(rig.notes.records) == 60
