"""``/v1/responses`` through the front door: bytes, failures, and responses that a replica keeps."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from router.edge.bounds.limits import EdgeLimits, HoldLimits
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import Answer, RawClient, client_of, post
from tests.doubles.responses_bytes import (
    RESPONSE_ID,
    RESPONSES,
    document,
    ending,
    failed,
    opening,
    responses_body,
    words,
)
from tests.doubles.scripted_replica import (
    END,
    STREAM_HEAD,
    Call,
    ScriptedReplica,
    chunk,
    stream,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect

AT_ONCE = EdgeLimits(sweep_s=0.01, drain_s=2.0, hold=HoldLimits(unretried_s=0.0))
"""Nobody waits at the door."""
SSE = opening() + words("he", "llo") + ending()
JSON = json.dumps(document()).encode()
KEPT = f"{RESPONSES}/{RESPONSE_ID}"
BUSY = opening() + failed("The request queue is full.")
SWALLOWED = (
    b'{"error":{"message":"503: The request queue is full.","type":"invalid_request_error",'
    b'"param":null,"code":400}}'
)


async def good(call: Call) -> None:
    await call.send(stream(SSE))


def asked(method: str, path: str) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: door\r\n\r\n".encode()


async def ask(client: RawClient, request: bytes) -> Answer:
    await client.send(request)
    return await client.read()


def posted(**more: object) -> bytes:
    return post(responses_body(**more), path=RESPONSES)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_stream", [True, False])
async def test_requests_cut_at_every_boundary(
    table: Mapping[str, Dialect], *, is_stream: bool
) -> None:
    async def script(call: Call) -> None:
        await call.send(stream(SSE) if is_stream else whole(JSON))

    body = responses_body(stream=is_stream)
    request = post(body, path=RESPONSES)
    async with ScriptedReplica(script) as replica, front_door(replica.port, dialects=table) as rig:
        async with client_of(rig.port) as client:
            for at in range(1, len(request)):
                await client.send(request[:at])
                await asyncio.sleep(0)
                await client.send(request[at:])
                assert (await client.read()).body == (SSE if is_stream else JSON), at
                assert replica.calls[-1].body == body, at
        record = rig.notes.records[-1]
        assert (record.dialect, record.outcome) == ("openai-responses", "done")
        reported = (record.reported_prompt_tokens, record.reported_cached_tokens)
        assert (*reported, record.output_tokens) == (100, 64, 5)


@pytest.mark.parametrize(
    ("answer", "body"),
    [(stream(SSE), SSE), (whole(JSON), JSON)],
    ids=["stream", "whole"],
)
async def test_answers_cut_at_every_boundary(
    table: Mapping[str, Dialect], answer: bytes, body: bytes
) -> None:
    at = 0

    async def script(call: Call) -> None:
        await call.send(answer[:at])
        for _ in range(3):
            await asyncio.sleep(0)
        await call.send(answer[at:])

    async with ScriptedReplica(script) as replica, front_door(replica.port, dialects=table) as rig:
        async with client_of(rig.port) as client:
            for at in range(1, len(answer), 3):
                got = await ask(client, posted())
                assert (got.status, got.body, got.is_whole) == (200, body, True), at
        assert {record.outcome for record in rig.notes.records} == {"done"}
        assert {record.reported_cached_tokens for record in rig.notes.records} == {64}


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_full_queue_is_tried_elsewhere(
    table: Mapping[str, Dialect], *, is_stream: bool
) -> None:
    async def full(call: Call) -> None:
        bad = whole(SWALLOWED, status=b"400 Bad Request")
        await call.send(stream(BUSY) if is_stream else bad)

    async def other(call: Call) -> None:
        await call.send(stream(SSE) if is_stream else whole(JSON))

    async with (
        ScriptedReplica(full) as first,
        ScriptedReplica(other) as second,
        front_door(first.port, second.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        answer = await ask(client, posted(stream=is_stream))
        assert answer.body == (SSE if is_stream else JSON)
        assert answer.headers["x-homeport-replica"] == "r1"
        assert rig.notes.records[0].n_tries == 2


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_full_queue_and_nobody_else(
    table: Mapping[str, Dialect], *, is_stream: bool
) -> None:
    async def full(call: Call) -> None:
        bad = whole(SWALLOWED, status=b"400 Bad Request")
        await call.send(stream(BUSY) if is_stream else bad)

    async with (
        ScriptedReplica(full) as replica,
        front_door(replica.port, dialects=table, limits=AT_ONCE) as rig,
        client_of(rig.port) as client,
    ):
        answer = await ask(client, posted(stream=is_stream))
        assert answer.status == 503
        assert "queue is full" in json.loads(answer.body)["error"]["message"]
        assert int(answer.headers["retry-after"]) >= 1


async def test_a_prompt_that_is_too_long_is_the_clients_fault(table: Mapping[str, Dialect]) -> None:
    text = "The input (9 tokens) is longer than the model's context length (8 tokens)."

    async def script(call: Call) -> None:
        await call.send(stream(opening() + failed(text)))

    async with (
        ScriptedReplica(script) as replica,
        ScriptedReplica(good) as other,
        front_door(replica.port, other.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        answer = await ask(client, posted())
        assert answer.status == 400
        assert text in json.loads(answer.body)["error"]["message"]
        assert (await rig.notes.wait_for(1)).outcome == "rejected"


@pytest.mark.parametrize("tail", [b"", b"event: response.out"], ids=["whole-event", "half-event"])
async def test_a_cut_stream_ends_with_a_failed_response(
    table: Mapping[str, Dialect], tail: bytes
) -> None:
    begun = opening() + words("he")
    is_relayed = asyncio.Event()

    async def script(call: Call) -> None:
        await call.send(STREAM_HEAD + chunk(begun + tail))
        await is_relayed.wait()
        await call.send(END)

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(posted())
        raw = await client.read_until(begun[-20:])
        is_relayed.set()
        raw += await client.read_until(b"0\r\n\r\n")
        assert begun in raw
        name, _, data = raw.rpartition(b"event: ")[2].partition(b"\r\n")[0].partition(b"\n")
        assert name == b"response.failed"
        event = json.loads(data.removeprefix(b"data: "))
        assert event["type"] == "response.failed"
        assert event["response"]["status"] == "failed"
        assert event["response"]["error"]["code"] == "server_error"
        assert (await rig.notes.wait_for(1)).error_code == "stream-cut"


async def test_a_failure_of_the_engine_after_the_first_word_is_passed_on(
    table: Mapping[str, Dialect],
) -> None:
    sse = opening() + words("he") + failed("Generation aborted")

    async def script(call: Call) -> None:
        await call.send(stream(sse))

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        assert (await ask(client, posted())).body == sse
        assert (await rig.notes.wait_for(1)).error_code == "upstream-status"


async def test_nobody_there_is_said_in_a_body(table: Mapping[str, Dialect]) -> None:
    async with front_door(dialects=table, limits=AT_ONCE) as rig, client_of(rig.port) as client:
        answer = await ask(client, posted())
    assert answer.status == 503
    error = json.loads(answer.body)["error"]
    assert (error["code"], error["type"]) == ("no-replica-ready", "overloaded_error")


def kept(**more: object) -> bytes:
    """A whole response that its replica keeps."""
    return whole(json.dumps(document(store=True, **more)).encode())


@pytest.mark.parametrize("is_stream", [True, False])
async def test_what_is_kept_is_asked_of_its_replica(
    table: Mapping[str, Dialect], *, is_stream: bool
) -> None:
    sse = opening(store=True) + words("a") + ending(store=True)

    async def second(call: Call) -> None:
        if call.head.startswith(b"POST /v1/responses HTTP"):
            await call.send(stream(sse) if is_stream else kept())
        else:
            await call.send(whole(b'{"shown":1}'))

    async def first(call: Call) -> None:
        await call.send(whole(b"{}", status=b"503 Service Unavailable"))

    async with (
        ScriptedReplica(first) as other,
        ScriptedReplica(second) as holder,
        front_door(other.port, holder.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await ask(client, posted(stream=is_stream, store=True))
        n_before = len(other.calls)
        for request in (
            asked("GET", KEPT),
            asked("GET", f"{KEPT}?include=x"),
            asked("GET", f"{KEPT}/input_items"),
            asked("DELETE", KEPT),
            post(b"", path=f"{KEPT}/cancel"),
            post(b"{}", path=f"{KEPT}/cancel"),
        ):
            answer = await ask(client, request)
            assert (answer.status, answer.body) == (200, b'{"shown":1}')
            assert answer.headers["x-homeport-replica"] == "r1"
            assert answer.headers["x-homeport-reason"] == "holder"
            assert holder.calls[-1].head.split(b"\r\n")[0] == request.split(b"\r\n")[0]
        await ask(client, posted(stream=is_stream, previous_response_id=RESPONSE_ID))
        assert json.loads(holder.calls[-1].body)["previous_response_id"] == RESPONSE_ID
        assert len(other.calls) == n_before
        sessions = {record.session_key for record in rig.notes.records}
        assert len(sessions) == 1  # what goes on from a response is one session with it


@pytest.mark.parametrize(
    "request_bytes",
    [
        asked("GET", KEPT),
        post(b"{}", path=f"{KEPT}/cancel"),
        posted(previous_response_id=RESPONSE_ID),
        asked("GET", f"{RESPONSES}/%00%FF"),
    ],
    ids=["get", "cancel", "previous", "bytes"],
)
async def test_what_nobody_keeps_is_not_found(
    table: Mapping[str, Dialect], request_bytes: bytes
) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await ask(client, posted())  # it says `store: false`, and is forgotten
        answer = await ask(client, request_bytes)
        assert answer.status == 404
        assert answer.headers["x-homeport-error"] == "unknown-response"
        error = json.loads(answer.body)["error"]
        assert (error["code"], error["type"]) == ("unknown-response", "not_found_error")
        assert len(replica.calls) == 1
        assert rig.notes.turned[0][0] == "unknown-response"


async def test_what_is_kept_goes_with_its_replica(table: Mapping[str, Dialect]) -> None:
    async def script(call: Call) -> None:
        await call.send(kept())

    async with (
        ScriptedReplica(script) as holder,
        ScriptedReplica(script) as other,
        front_door(holder.port, other.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        await ask(client, posted(stream=False, store=True))
        assert (await ask(client, asked("GET", KEPT))).status == 200
        rig.core.members.leave("r0")
        assert (await ask(client, asked("GET", KEPT))).status == 404
        assert not other.calls


@pytest.mark.parametrize("method", ["HEAD", "PUT", "PATCH"])
async def test_other_methods(table: Mapping[str, Dialect], method: str) -> None:
    async with front_door(dialects=table) as rig, client_of(rig.port) as client:
        await client.send(asked(method, KEPT))
        head = await client.read_until(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nallow: GET, " in head


async def test_a_holder_that_fails_is_not_replaced(table: Mapping[str, Dialect]) -> None:
    async def script(call: Call) -> None:
        if call.number == 0:
            await call.send(kept())
        else:
            await call.send(whole(b'{"busy":1}', status=b"503 Service Unavailable"))

    async with (
        ScriptedReplica(script) as holder,
        ScriptedReplica(good) as other,
        front_door(holder.port, other.port, dialects=table, limits=AT_ONCE) as rig,
        client_of(rig.port) as client,
    ):
        await ask(client, posted(stream=False, store=True))
        answer = await ask(client, posted(previous_response_id=RESPONSE_ID))
        assert (answer.status, answer.body) == (503, b'{"busy":1}')
        assert not other.calls
