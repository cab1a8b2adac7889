"""Before the first event of the model a failing replica is replaced by another."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING

import pytest

from router.clock import ManualClock
from router.edge.bounds.limits import EdgeLimits
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import chat, client_of, post
from tests.doubles.scripted_replica import (
    BUSY_EVENT,
    BUSY_MESSAGE,
    END,
    STREAM_HEAD,
    Call,
    ScriptedReplica,
    chunk,
    deaf_port,
    events,
    stream,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from router.dialect.base import Dialect

SSE = events("fine")
BUSY = whole(b'{"message":"The request queue is full.","code":503}', status=b"503 Busy")


async def good(call: Call) -> None:
    await call.send(stream(SSE))


def sends(data: bytes) -> Callable[[Call], Awaitable[None]]:
    async def script(call: Call) -> None:
        await call.send(data)

    return script


def sends_and_closes(data: bytes) -> Callable[[Call], Awaitable[None]]:
    async def script(call: Call) -> None:
        await call.send(data)
        call.close()

    return script


def sends_and_resets(data: bytes) -> Callable[[Call], Awaitable[None]]:
    async def script(call: Call) -> None:
        await call.send(data)
        call.reset()

    return script


FAILURES = {
    "reset": sends_and_resets(b""),
    "eof": sends_and_closes(b""),
    "cut-head": sends_and_closes(b"HTTP/1.1 200 OK\r\ncont"),
    "garbage": sends(b"SSH-2.0-OpenSSH_9.0\r\n"),
    "503": sends(BUSY),
    "502": sends(whole(b"", status=b"502 Bad Gateway")),
    "504": sends(whole(b"", status=b"504 Gateway Timeout")),
    "429": sends(whole(b"", status=b"429 Too Many")),
    "busy-event": sends(stream(BUSY_EVENT)),
    "comment-then-cut": sends_and_resets(STREAM_HEAD + chunk(b": hi\n\n")),
    "no-event": sends(STREAM_HEAD + END),
    "half-an-event": sends_and_closes(STREAM_HEAD + chunk(b'data: {"choices":')),
    "endless-comments": sends(STREAM_HEAD + chunk(b": hello\n\n" * 200_000)),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_another_replica_answers(
    table: Mapping[str, Dialect], failure: Callable[[Call], Awaitable[None]]
) -> None:
    async with (
        ScriptedReplica(failure) as bad,
        ScriptedReplica(good) as other,
        front_door(bad.port, other.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        for turn in range(2):
            await client.send(post(chat()))
            answer = await client.read()
            assert (answer.status, answer.body, answer.is_whole) == (200, SSE, True)
            assert answer.headers["x-homeport-replica"] == "r1"
            assert answer.headers["x-homeport-reason"] == "retry"
            record = await rig.notes.wait_for(turn + 1)
            assert (record.outcome, record.n_tries, record.replica_id) == ("done", 2, "r1")
            rig.ready()


MESSAGE = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_2","usage":'
    b'{"input_tokens":5,"output_tokens":0}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)


async def test_a_full_queue_behind_a_start_of_a_message(table: Mapping[str, Dialect]) -> None:
    """The start of the refused one never reaches the client; with nobody left it is a 503."""

    async def message(call: Call) -> None:
        await call.send(stream(MESSAGE))

    asked = post(chat(), path="/v1/messages")
    async with (
        ScriptedReplica(sends(stream(BUSY_MESSAGE))) as full,
        ScriptedReplica(message) as other,
        front_door(full.port, other.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(asked)
        answer = await client.read()
        assert (answer.status, answer.body, answer.is_whole) == (200, MESSAGE, True)
        assert answer.headers["x-homeport-reason"] == "retry"
    async with (
        ScriptedReplica(sends(stream(BUSY_MESSAGE))) as full,
        front_door(full.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(asked)
        answer = await client.read()
        assert answer.status == 503
        assert json.loads(answer.body)["error"]["type"] == "overloaded_error"
        assert int(answer.headers["retry-after"]) >= 1


async def test_a_refused_connection(table: Mapping[str, Dialect]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        async with (
            ScriptedReplica(good) as other,
            front_door(port, other.port, dialects=table) as rig,
            client_of(rig.port) as client,
        ):
            await client.send(post(chat()))
            assert (await client.read()).body == SSE
            assert rig.notes.records[0].n_tries == 2


async def test_a_connection_that_is_not_accepted_in_time(table: Mapping[str, Dialect]) -> None:
    limits = EdgeLimits(connect_s=0.1)
    with deaf_port() as port:
        async with (
            front_door(port, dialects=table, limits=limits) as rig,
            client_of(rig.port) as client,
        ):
            await client.send(post(chat()))
            answer = await client.read()
            assert (answer.status, answer.headers["x-homeport-error"]) == (504, "connect-timeout")


async def test_a_first_event_that_does_not_come(table: Mapping[str, Dialect]) -> None:
    waiting, clock = asyncio.Event(), ManualClock()

    async def silent(call: Call) -> None:
        waiting.set()
        await call.gone()

    limits = EdgeLimits(sweep_s=0.01, first_event_s=5.0)
    async with (
        ScriptedReplica(silent) as bad,
        ScriptedReplica(good) as other,
        front_door(bad.port, other.port, dialects=table, limits=limits, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        await waiting.wait()
        clock.advance(5.5)
        assert (await client.read()).headers["x-homeport-replica"] == "r1"


async def test_a_started_generation_is_not_repeated_where_that_is_off(
    table: Mapping[str, Dialect],
) -> None:
    limits = EdgeLimits(is_started_repeated=False)
    async with (
        ScriptedReplica(sends_and_resets(b"")) as bad,
        ScriptedReplica(good) as other,
        front_door(bad.port, other.port, dialects=table, limits=limits) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        answer = await client.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (502, "bad-upstream-response")
        assert other.calls == []
        bad.script = sends(BUSY)  # never started: still tried elsewhere
        rig.ready()
        await client.send(post(chat()))
        assert (await client.read()).body == SSE


@pytest.mark.parametrize("is_stream", [True, False])
async def test_the_last_answer_of_a_replica_is_relayed(
    table: Mapping[str, Dialect], *, is_stream: bool
) -> None:
    async with (
        ScriptedReplica(sends(BUSY)) as bad,
        ScriptedReplica(sends(BUSY)) as other,
        front_door(bad.port, other.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat(stream=is_stream)))
        answer = await client.read()
        assert (answer.status, answer.body) == (503, BUSY.partition(b"\r\n\r\n")[2])
        assert "x-homeport-error" not in answer.headers
        record = rig.notes.records[0]
        assert (record.outcome, record.error_code, record.n_tries) == (
            "failed",
            "upstream-status",
            2,
        )


async def test_the_last_error_event_becomes_a_status(table: Mapping[str, Dialect]) -> None:
    at = len(BUSY_EVENT) // 2

    async def in_two(call: Call) -> None:
        await call.send(STREAM_HEAD + chunk(BUSY_EVENT[:at]))
        await asyncio.sleep(0)
        await call.send(chunk(BUSY_EVENT[at:]) + END)

    async with (
        ScriptedReplica(in_two) as only,
        front_door(only.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        answer = await client.read()
        # Nothing was sent yet, so the client gets what it can act on.
        assert (answer.status, answer.is_whole) == (503, True)
        assert answer.headers["x-homeport-error"] == "upstream-status"
        assert int(answer.headers["retry-after"]) >= 1
        assert b"queue is full" in answer.body
        assert rig.notes.records[0].error_code == "upstream-status"


@pytest.mark.parametrize("status", [b"400 Bad", b"401 No", b"404 None", b"413 Large", b"500 Oops"])
async def test_other_statuses_are_relayed_at_once(
    table: Mapping[str, Dialect], status: bytes
) -> None:
    body = b'{"object":"error","message":"no"}'
    async with (
        ScriptedReplica(sends(whole(body, status=status, extra=b"x-engine: e\r\n"))) as only,
        ScriptedReplica(good) as other,
        front_door(only.port, other.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        answer = await client.read()
        assert (answer.status, answer.body) == (int(status[:3]), body)
        assert answer.headers["x-engine"] == "e"
        assert other.calls == []
        assert rig.notes.records[0].error_code == "upstream-status"


async def test_an_answer_that_is_not_streamed_is_retried_when_cut(
    table: Mapping[str, Dialect],
) -> None:
    cut = whole(b'{"object":"chat.completion"}')[:-5]
    fine = b'{"object":"chat.completion","choices":[]}'
    async with (
        ScriptedReplica(sends_and_closes(cut)) as bad,
        ScriptedReplica(sends(whole(fine))) as other,
        front_door(bad.port, other.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat(stream=False)))
        answer = await client.read()
        assert (answer.body, answer.headers["x-homeport-replica"]) == (fine, "r1")


async def test_nobody_is_left(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(sends_and_resets(b"")) as bad,
        front_door(bad.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        answer = await client.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (502, "bad-upstream-response")
        assert json.loads(answer.body)["error"]["code"] == "bad-upstream-response"
        record = rig.notes.records[0]
        assert (record.outcome, record.error_code) == ("failed", "bad-upstream-response")
        rig.ready()
        bad.script = good  # the client's connection lives on
        await client.send(post(chat()))
        assert (await client.read()).body == SSE


async def test_the_keep_alive_race_is_no_failure(table: Mapping[str, Dialect]) -> None:
    """A reused connection that is closed before any byte: the same replica, over a new one."""
    is_closing = False

    async def script(call: Call) -> None:
        if call.is_reused and is_closing:
            call.reset()
        else:
            await call.send(stream(SSE))

    async with (
        ScriptedReplica(script) as replica,
        ScriptedReplica(good) as other,
        front_door(replica.port, other.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        for is_closing in (False, False, True, True):  # noqa: B007
            await client.send(post(chat()))
            answer = await client.read()
            assert (answer.body, answer.headers["x-homeport-replica"]) == (SSE, "r0")
        assert [call.is_reused for call in replica.calls] == [False, True, True, False, True, False]
        assert {record.n_tries for record in rig.notes.records} == {1}
        assert other.calls == []


async def test_connections_are_not_reused_for_long(table: Mapping[str, Dialect]) -> None:
    clock = ManualClock()
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        for wait_s in (0.0, 2.9, 3.1):
            clock.advance(wait_s)
            await client.send(post(chat()))
            assert (await client.read()).body == SSE
        assert [call.is_reused for call in replica.calls] == [False, True, False]


async def test_an_early_answer_ends_the_connection(table: Mapping[str, Dialect]) -> None:
    """A replica that answers before the body is read: relayed, and the connection not kept."""
    gone = asyncio.Event()

    async def script(call: Call) -> None:
        await call.send(whole(b"{}", status=b"401 Unauthorized"))
        await gone.wait()
        await call.gone()

    async with (
        ScriptedReplica(script, reads_body=False) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat(text="x" * 30_000_000)))
        answer = await client.read()
        assert (answer.status, answer.body) == (401, b"{}")
        gone.set()
        await client.send(post(chat()))
        assert (await client.read()).status == 401
        assert replica.n_connections == 2
