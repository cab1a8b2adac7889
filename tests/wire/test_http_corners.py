"""Corners of HTTP/1.1 that clients and replicas are free to use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from router.clock import ManualClock
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

LIMITS = EdgeLimits(sweep_s=0.01, close_s=0.2, drain_s=0.2)
JSON = b'{"choices":[]}'


def ask(method: str, target: str, extra: str = "") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: h\r\n{extra}\r\n".encode()


async def good(call: Call) -> None:
    await call.send(whole(JSON))


async def test_what_is_expected_but_continue_fails(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
    ):
        for expected in ("200-ok", "100-continue, other", "100-continue;a=b"):
            async with client_of(rig.port) as client:
                await client.send(post(chat(), extra=f"Expect: {expected}\r\n"))
                answer = await client.read()
                assert answer.status == 417
                assert answer.headers["x-homeport-error"] == "expectation-failed"
                assert await client.is_closed()
        assert replica.n_connections == 0
        async with client_of(rig.port) as client:  # HTTP/1.0 has no 100: the header is ignored
            request = post(chat(stream=False), extra="Expect: 100-continue\r\n")
            await client.send(request.replace(b"HTTP/1.1", b"HTTP/1.0"))
            assert (await client.read_all()).startswith(b"HTTP/1.1 200 ")


async def test_no_answer_to_head_has_a_body(table: Mapping[str, Dialect]) -> None:
    async with front_door(1, dialects=table, limits=LIMITS) as rig, client_of(rig.port) as client:
        for target in ("/health", "/v1/models", "/nowhere", "/v1/chat/completions"):
            await client.send(ask("HEAD", target))
            head = await client.read_until(b"\r\n\r\n")
            assert b"content-length: " in head
            assert b"content-length: 0" not in head
        await client.send(ask("OPTIONS", "*", "Connection: close\r\n"))
        answer = await client.read_all()
        assert answer.startswith(b"HTTP/1.1 204 ")
        assert b"allow: GET, HEAD, POST, OPTIONS\r\n" in answer
        assert answer.endswith(b"\r\n\r\n")


async def test_headers_named_by_connection_do_not_cross(table: Mapping[str, Dialect]) -> None:
    extra = b"Connection: X-Hop, close\r\nX-Hop: 1\r\nUpgrade: h2c\r\nProxy-Connection: a\r\n"

    async def script(call: Call) -> None:
        await call.send(whole(JSON, extra=extra + b"X-Kept: 1\r\n"))
        call.close()

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        named = "Connection: X-Hop, X-Forwarded-For, X-Homeport-Via, Traceparent\r\n"
        sent = "X-Hop: 1\r\nX-Kept: 1\r\nKeep-Alive: a\r\nTraceparent: x\r\nUpgrade: foo\r\n"
        await client.send(post(chat(stream=False), extra=named + sent))
        answer = await client.read()
        assert answer.status == 200
        assert answer.headers["x-kept"] == "1"
        assert not {"x-hop", "connection", "upgrade", "proxy-connection"} & set(answer.headers)
        call = replica.calls[0]
        for name in ("x-hop", "keep-alive", "traceparent", "upgrade", "connection"):
            assert call.header(name) is None, name
        assert call.header("x-kept") == "1"
        assert call.header("x-forwarded-for") == "127.0.0.1"
        assert call.header("x-homeport-via") is not None
        await client.send(post(chat(stream=False)))  # the replica's close is not the client's
        assert (await client.read()).status == 200


async def test_an_answer_before_the_body_was_sent(table: Mapping[str, Dialect]) -> None:
    """The replica refuses a large body by its head alone, and never reads it."""

    async def script(call: Call) -> None:
        await call.send(whole(b'{"error":{"message":"too long"}}', status=b"400 Bad Request"))
        await call.gone()

    async with (
        ScriptedReplica(script, reads_body=False) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        body = chat(text="x" * 20_000_000)
        for number in range(2):
            await client.send(post(body))
            answer = await client.read()
            assert (answer.status, b"too long" in answer.body) == (400, True)
            assert replica.n_connections == number + 1


async def test_interim_answers_are_not_passed_on(table: Mapping[str, Dialect]) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"

    async def script(call: Call) -> None:
        await call.send(hints + b"HTTP/1.1 100 Continue\r\n\r\n" + hints + whole(JSON))

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        for _ in range(2):
            await client.send(post(chat(stream=False)))
            raw = await client.read_until(JSON)
            assert raw.startswith(b"HTTP/1.1 200 ")
            assert b"Early Hints" not in raw
        assert replica.n_connections == 1


async def test_a_half_closed_client_gets_each_answer_it_asked_for(
    table: Mapping[str, Dialect],
) -> None:
    async def script(call: Call) -> None:
        await call.send(whole(b'{"n":%d}' % call.number))

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat(stream=False)) * 3)
        client.writer.write_eof()
        answers = [await client.read() for _ in range(3)]
        assert [answer.body for answer in answers] == [b'{"n":%d}' % n for n in range(3)]
        assert answers[-1].headers["connection"] == "close"
        assert await client.is_closed()


async def test_connections_of_one_address_are_bounded(table: Mapping[str, Dialect]) -> None:
    limits = EdgeLimits(sweep_s=0.01, close_s=0.2, connections_per_client_max=2)
    async with (
        front_door(1, dialects=table, limits=limits) as rig,
        client_of(rig.port) as first,
        client_of(rig.port) as second,
    ):
        for client in (first, second):
            await client.send(ask("GET", "/health"))
            assert (await client.read()).status == 200
        async with client_of(rig.port) as third:
            answer = await third.read()
            assert (answer.status, answer.headers["x-homeport-error"]) == (503, "saturated")
            assert b"127.0.0.1 has 2 connections" in answer.body
            assert await third.is_closed()
        await second.send(ask("GET", "/health", "Connection: close\r\n"))
        await second.read()
        assert await second.is_closed()
        async with client_of(rig.port) as fourth:
            await fourth.send(ask("GET", "/health"))
            assert (await fourth.read()).status == 200


async def test_header_lines_are_bounded_by_their_setting(table: Mapping[str, Dialect]) -> None:
    limits = EdgeLimits(sweep_s=0.01, close_s=0.2, headers_max=20, header_bytes_max=1000)
    async with front_door(1, dialects=table, limits=limits) as rig:
        for extra, status in (
            ("A: b\r\n" * 19, 200),
            ("A: b\r\n" * 20, 431),
            ("A: " + "b" * 999 + "\r\n", 431),
        ):
            async with client_of(rig.port) as client:
                await client.send(ask("GET", "/health", extra))
                assert (await client.read()).status == status


@pytest.mark.parametrize(
    "part", [b"POST /v1/cha", post(chat(text="x" * 9_000))[:-9_000]], ids=["head", "body"]
)
async def test_slow_senders_are_ended_and_hold_up_nobody(
    table: Mapping[str, Dialect], part: bytes
) -> None:
    clock = ManualClock()
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS, clock=clock) as rig,
        asyncio.TaskGroup() as group,
    ):

        async def drip() -> int:
            async with client_of(rig.port) as slow:
                await slow.send(part)
                answer = asyncio.create_task(slow.read())
                while not answer.done():
                    await slow.send(b"x" if b"\r\n\r\n" not in part else b" ")
                    await asyncio.sleep(0.002)
                return answer.result().status

        drips = [group.create_task(drip()) for _ in range(30)]
        async with client_of(rig.port) as client:
            while not all(task.done() for task in drips):
                clock.advance(5.0)
                await client.send(post(chat(stream=False)))
                assert (await client.read()).status == 200
        assert {task.result() for task in drips} == {408}


async def test_a_client_that_never_reads_is_ended_and_holds_up_nobody(
    table: Mapping[str, Dialect],
) -> None:
    clock = ManualClock()
    gone = asyncio.Event()

    async def script(call: Call) -> None:
        if b"endless" not in call.body:
            await call.send(stream(events("short")))
            return
        try:
            await call.send(STREAM_HEAD)
            while True:
                await call.send(chunk(events("x" * 60_000, done=False)))
        except ConnectionError:
            gone.set()

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS, clock=clock) as rig,
        client_of(rig.port, limit=1024) as stuck,
    ):
        await stuck.send(post(chat(text="endless")))
        await stuck.reader.readexactly(15)
        while not gone.is_set():
            clock.advance(20.0)
            async with client_of(rig.port) as client:
                await client.send(post(chat()))
                assert (await client.read()).body == events("short")
        outcomes = {record.outcome for record in rig.notes.records}
        assert outcomes == {"done", "client-gone"}
        assert clock() > LIMITS.stream_idle_s


async def test_an_upgrade_header_alone_asks_for_nothing(table: Mapping[str, Dialect]) -> None:
    """Without its name in Connection it is no request to switch (RFC 9110, 7.8)."""
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat(stream=False), extra="Upgrade: h2c\r\n"))
        assert (await client.read()).body == JSON
        assert replica.calls[0].header("upgrade") is None


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"this is HTTP/2"),
        (b"\x16\x03\x01\x00\xa5\x01\x00\x00", b"this is TLS"),
        (ask("GET", "/", "Connection: Upgrade\r\nUpgrade: websocket\r\n"), b"no WebSocket"),
    ],
    ids=["h2", "tls", "websocket"],
)
async def test_other_protocols_are_told_apart(
    table: Mapping[str, Dialect], first: bytes, words: bytes
) -> None:
    async with front_door(1, dialects=table, limits=LIMITS) as rig, client_of(rig.port) as client:
        await client.send(first)
        answer = await client.read()
        assert answer.status == 400
        assert words in answer.body


async def test_a_request_in_one_byte_reads_with_trailers(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        body = chat(stream=False)
        head = post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        late = b"0\r\nAuthorization: Bearer late\r\nX-Forwarded-For: 9.9.9.9\r\n\r\n"
        for byte in head + chunk(body) + late:
            client.writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.read()).status == 200
        call = replica.calls[0]
        assert (call.body, call.header("authorization")) == (body, None)
        assert call.header("x-forwarded-for") == "127.0.0.1"
        assert END not in call.body
