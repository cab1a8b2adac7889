"""Bytes that two readers could read differently go no further than the front door, either way."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from router.clock import ManualClock
from router.edge.bounds.limits import EdgeLimits
from tests.doubles.desync import (
    ANSWERS,
    BODY,
    CUT_ANSWERS,
    REQUESTS,
    SMUGGLED,
    UNFINISHED,
    answer,
    request,
)
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import chat, client_of, post
from tests.doubles.scripted_replica import STREAM_HEAD, Call, ScriptedReplica, chunk, events, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect

LIMITS = EdgeLimits(sweep_s=0.01, close_s=0.2, drain_s=0.2)


async def good(call: Call) -> None:
    await call.send(whole(b'{"choices":[]}'))


@pytest.mark.parametrize("vector", REQUESTS.values(), ids=REQUESTS)
async def test_an_ambiguous_request_is_refused_with_all_behind_it(
    table: Mapping[str, Dialect], vector: bytes
) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(vector + SMUGGLED)
        got = await client.read()
        assert got.status == 400
        assert got.headers["connection"] == "close"
        assert json.loads(got.body)["error"]["code"] in {"bad-request", "upgrade-refused"}
        assert await client.is_closed()
        assert replica.n_connections == 0
        assert rig.notes.records == []


@pytest.mark.parametrize("vector", UNFINISHED.values(), ids=UNFINISHED)
async def test_a_request_without_its_end_is_never_forwarded(
    table: Mapping[str, Dialect], vector: bytes
) -> None:
    clock = ManualClock()
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS, clock=clock) as rig,
        client_of(rig.port) as client,
        client_of(rig.port) as leaving,
    ):
        await leaving.send(vector)
        leaving.writer.write_eof()
        assert await leaving.is_closed()
        await client.send(vector)
        while not rig.notes.turned:
            clock.advance(61.0)
            await asyncio.sleep(0.005)
        assert (await client.read()).status == 408
        assert await client.is_closed()
        assert replica.n_connections == 0


async def test_garbage_behind_a_request_ends_the_connection(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(request() + b"G" + SMUGGLED)
        assert (await client.read()).status == 200
        assert (await client.read()).status == 400
        assert await client.is_closed()
        assert [call.body for call in replica.calls] == [BODY]


async def test_what_is_well_formed_is_taken_and_framed_anew(table: Mapping[str, Dialect]) -> None:
    """Rare forms that are within the RFC; none of their framing reaches the replica."""
    chunks = b'1c;a=b;c="d;e"\r\n%b\r\n0001D\r\n%b\r\n000\r\nX-Late: 1\r\nHost: z\r\n\r\n'
    forms = (
        request(b"Transfer-Encoding: \tcHuNked \r\n", chunks % (BODY[:28], BODY[28:])),
        request(b"Content-Length:\t57 \r\nX-Empty:\r\nX-High: \xe9\r\n"),
        b"\r\n" + request(line=b"POST http://A/v1/chat/completions HTTP/1.1"),
        request(host=b"Host:\r\n"),
        request(host=b"Host: [::1]:8000\r\n"),
    )
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        for number, form in enumerate(forms):
            await client.send(form)
            assert (await client.read()).status == 200
            call = replica.calls[number]
            assert call.body == BODY
            assert call.head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
            assert call.head.lower().count(b"\r\nhost: ") == 1
            assert call.header("host") == f"127.0.0.1:{replica.port}"
            assert call.header("content-length") == "57"
            assert call.header("transfer-encoding") is None
            assert call.header("x-late") is None


@pytest.mark.parametrize("vector", ANSWERS.values(), ids=ANSWERS)
async def test_a_malformed_answer_is_no_answer(table: Mapping[str, Dialect], vector: bytes) -> None:
    async def script(call: Call) -> None:
        await call.send(vector)
        await call.gone()

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat(stream=False)))
        got = await client.read()
        assert (got.status, got.headers["x-homeport-error"]) == (502, "bad-upstream-response")
        assert got.is_whole
        assert (await rig.notes.wait_for(1)).outcome == "failed"


@pytest.mark.parametrize("vector", CUT_ANSWERS.values(), ids=CUT_ANSWERS)
async def test_an_answer_without_its_end_is_no_answer(
    table: Mapping[str, Dialect], vector: bytes
) -> None:
    async def script(call: Call) -> None:
        if vector:
            await call.send(vector)
        call.close()

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat(stream=False)))
        got = await client.read()
        assert (got.status, got.headers["x-homeport-error"]) == (502, "bad-upstream-response")


async def test_what_follows_an_answer_is_nobodys(table: Mapping[str, Dialect]) -> None:
    """A replica that sends two answers for one request: the second is not the next client's."""

    async def script(call: Call) -> None:
        first = answer(b"Content-Length: 15\r\n", b'{"choices":[%d]}' % (call.number % 10))
        await call.send(first + answer(b"Content-Length: 15\r\n", b'{"choices":[9]}'))

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        for number in range(4):
            await client.send(post(chat(stream=False)))
            assert (await client.read()).body == b'{"choices":[%d]}' % number
        assert replica.n_connections == 4


async def test_a_stream_with_a_malformed_chunk_ends_with_an_error(
    table: Mapping[str, Dialect],
) -> None:
    go_on = asyncio.Event()

    async def script(call: Call) -> None:
        await call.send(STREAM_HEAD + chunk(events("a", done=False)))
        await go_on.wait()
        await call.send(b"zz\r\nLEAK\r\n")
        await call.gone()

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        await client.read_until(b'"}}]}')
        go_on.set()
        rest = await client.read_until(b"0\r\n\r\n")
        assert b"stream-cut" in rest
        assert rest.endswith(b"0\r\n\r\n")
        assert b"LEAK" not in rest


async def test_trailers_of_an_answer_are_no_headers(table: Mapping[str, Dialect]) -> None:
    late = b"0\r\nX-Late: 1\r\nSet-Cookie: a=b\r\n\r\n"

    async def script(call: Call) -> None:
        body = events("a")
        await call.send(STREAM_HEAD + chunk(body) + late)

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        for _ in range(2):
            await client.send(post(chat()))
            got = await client.read()
            assert (got.is_whole, got.body) == (True, events("a"))
            assert "x-late" not in got.headers
            assert "set-cookie" not in got.headers
        assert replica.n_connections == 1
