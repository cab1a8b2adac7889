"""Requests and answers of each API without messages, cut in two at every byte."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from router.dialect import DialectOptions, dialects
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import client_of, post
from tests.doubles.scripted_replica import END, STREAM_HEAD, Call, ScriptedReplica, chunk, whole

if TYPE_CHECKING:
    from collections.abc import Iterable

ASKED = b'"stream_options":{"include_usage":true}'
COUNTS = b'{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":8}}'
PIECE = b'data: {"id":"c","choices":[{"index":0,"text":"\xc3\xa4"}],"usage":null}\n\n'
USAGE = b'data: {"id":"c","choices":[],"usage":%b}\n\n' % COUNTS
META = b'"prompt_tokens":9,"completion_tokens":1,"cached_tokens":8'
NATIVE = (
    b'data: {"text":"\xc3\xa4","meta_info":{"finish_reason":null,%b}}\n\n'
    b'data: {"text":"\xc3\xa4b","meta_info":{"finish_reason":{"type":"stop"},%b}}\n\n'
) % (META, META)
DONE = b"data: [DONE]\n\n"

STREAMS = {
    "/v1/completions": (
        b'{"prompt":"p\\u00e4","stream":true}',
        b'{"prompt":"p\\u00e4","stream":true,%b}' % ASKED,
        PIECE + USAGE + DONE,
        PIECE + DONE,
    ),
    "/generate": (
        b'{"text":"p\xc3\xa4","stream":true}',
        b'{"text":"p\xc3\xa4","stream":true}',
        NATIVE + DONE,
        NATIVE + DONE,
    ),
}
WHOLES = {
    "/v1/completions": (b'{"prompt":[1,2]}', b'{"choices":[],"usage":%b}' % COUNTS),
    "/generate": (b'{"input_ids":[[1],[2]]}', b'[{"text":"a","meta_info":{%b}}]' % META),
    "/v1/embeddings": (b'{"input":"x"}', b'{"object":"list","data":[]}'),
    "/v1/messages/count_tokens": (b'{"messages":[]}', b'{"input_tokens":3}'),
}


async def seen() -> None:
    """Let the front door, on the same loop, read what was sent."""
    for _ in range(3):
        await asyncio.sleep(0)


def cuts(data: bytes) -> Iterable[tuple[bytes, bytes]]:
    """The data in two parts, in every way but the trivial ones."""
    return ((data[:at], data[at:]) for at in range(1, len(data)))


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_whose_bytes_are_cut_anywhere(path: str) -> None:
    sent, forwarded, answered, relayed = STREAMS[path]
    parts: list[bytes] = []

    async def script(call: Call) -> None:
        assert call.body == forwarded
        await call.send(STREAM_HEAD)
        for part in parts:
            await call.send(chunk(part))
            await seen()
        await call.send(END)

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=dialects(DialectOptions())) as rig,
        client_of(rig.port) as client,
    ):
        for first, second in cuts(answered):
            parts[:] = first, second
            await client.send(post(sent, path=path))
            answer = await client.read()
            assert (answer.status, answer.body, answer.is_whole) == (200, relayed, True)
        record = rig.notes.records[-1]
        assert (record.reported_prompt_tokens, record.reported_cached_tokens) == (9, 8)
        assert {record.outcome for record in rig.notes.records} == {"done"}


@pytest.mark.parametrize("path", WHOLES)
async def test_a_request_whose_bytes_are_cut_anywhere(path: str) -> None:
    sent, answered = WHOLES[path]

    async def script(call: Call) -> None:
        assert call.body == sent
        await call.send(whole(answered))

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=dialects(DialectOptions())) as rig,
        client_of(rig.port) as client,
    ):
        for first, second in cuts(post(sent, path=path)):
            await client.send(first)
            await seen()
            await client.send(second)
            answer = await client.read()
            assert (answer.status, answer.body, answer.is_whole) == (200, answered, True)


@pytest.mark.parametrize("path", WHOLES)
async def test_an_answer_whose_bytes_are_cut_anywhere(path: str) -> None:
    sent, answered = WHOLES[path]
    parts: list[bytes] = []

    async def script(call: Call) -> None:
        for part in parts:
            await call.send(part)
            await seen()

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=dialects(DialectOptions())) as rig,
        client_of(rig.port) as client,
    ):
        for first, second in cuts(whole(answered)):
            parts[:] = first, second
            await client.send(post(sent, path=path))
            answer = await client.read()
            assert (answer.status, answer.body, answer.is_whole) == (200, answered, True)


async def test_a_full_queue_of_the_native_api_is_tried_elsewhere() -> None:
    finish = {"type": "abort", "status_code": 503, "message": "The request queue is full."}
    full = json.dumps({"text": "", "meta_info": {"finish_reason": finish, "prompt_tokens": 0}})

    async def busy(call: Call) -> None:
        await call.send(STREAM_HEAD + chunk(b"data: %b\n\n" % full.encode() + DONE) + END)

    async def free(call: Call) -> None:
        await call.send(STREAM_HEAD + chunk(NATIVE + DONE) + END)

    async with (
        ScriptedReplica(busy) as first,
        ScriptedReplica(free) as second,
        front_door(first.port, second.port, dialects=dialects(DialectOptions())) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(b'{"text":"x","stream":true}', path="/generate"))
        answer = await client.read()
        assert (answer.status, answer.body) == (200, NATIVE + DONE)
        assert answer.headers["x-homeport-replica"] == "r1"
