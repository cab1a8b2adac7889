"""Compressed request bodies: read as what they hold, and bounded whatever they hold."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import TYPE_CHECKING

import pytest

from router.edge.bounds.limits import EdgeLimits
from router.framing.decoding import is_read
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import chat, client_of, post
from tests.doubles.scripted_replica import Call, ScriptedReplica, events, stream, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from router.dialect.base import Dialect

LIMITS = EdgeLimits(sweep_s=0.01, close_s=0.2, drain_s=2.0, body_bytes_max=8_000_000)


def zstd(data: bytes) -> bytes:
    module = pytest.importorskip("backports.zstd")
    return bytes(module.compress(data))


def bare(data: bytes) -> bytes:
    return zlib.compress(data)[2:-4]


CODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "gzip-old": ("X-Gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "deflate-bare": ("deflate", bare),
    "zstd": ("zstd", zstd),
}


def packed(body: bytes, coding: str) -> bytes:
    return post(body, extra=f"Content-Encoding: {coding}\r\n")


async def good(call: Call) -> None:
    await call.send(whole(b"{}"))


@pytest.mark.parametrize(("coding", "pack"), CODINGS.values(), ids=CODINGS)
@pytest.mark.parametrize("size", [10, 400_000], ids=["small", "large"])
async def test_a_compressed_body_arrives_plain(
    table: Mapping[str, Dialect], coding: str, pack: Callable[[bytes], bytes], size: int
) -> None:
    words = " ".join(str(n * n) for n in range(size // 8 + 1))
    body = chat(stream=False, text=words)
    request = packed(pack(body), coding)
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        for cut in (0, 7):
            await client.send(request[: len(request) - cut])
            await client.send(request[len(request) - cut :])
            assert (await client.read()).status == 200
        for call in replica.calls:
            assert call.body == body
            assert call.header("content-encoding") is None
            assert call.header("content-length") == str(len(body))
        assert rig.door._door.arriving_bytes == 0


BOMB = chat(text="0" * 7_900_000)
BROKEN = {
    "bomb": ("gzip", gzip.compress(BOMB, 1), 413),
    "bomb-bare": ("deflate", bare(BOMB), 413),
    "too-large": ("gzip", gzip.compress(b"{" + chat() * 90_000, 1), 413),
    "empty": ("gzip", b"", 400),
    "not-gzip": ("gzip", chat(), 400),
    "not-deflate": ("deflate", b"\xff\xff\xff\xff", 400),
    "cut": ("gzip", gzip.compress(chat())[:-4], 400),
    "sum": ("gzip", gzip.compress(chat())[:-8] + b"\0" * 8, 400),
    "tail": ("gzip", gzip.compress(chat()) + b"tail", 400),
    "tail-deflate": ("deflate", zlib.compress(chat()) + b"tail", 400),
    "many-members": ("gzip", gzip.compress(b"") * 1025, 400),
    "not-json": ("gzip", gzip.compress(b"no"), 400),
}


@pytest.mark.parametrize(("coding", "body", "status"), BROKEN.values(), ids=BROKEN)
async def test_a_body_that_does_not_decode_is_answered(
    table: Mapping[str, Dialect], coding: str, body: bytes, status: int
) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(packed(body, coding))
        answer = await client.read()
        assert answer.status == status
        await client.send(post(chat(stream=False)))  # the body was read whole: it goes on
        assert (await client.read()).status == 200
        assert [call.header("content-encoding") for call in replica.calls] == [None]
        assert rig.door._door.arriving_bytes == 0


async def test_zstd_is_bounded_too(table: Mapping[str, Dialect]) -> None:
    module = pytest.importorskip("backports.zstd")
    wide = module.ZstdCompressor(options={module.CompressionParameter.window_log: 27})
    texts = {
        "bomb": (zstd(BOMB), 413),
        "wide": (wide.compress(chat()) + wide.flush(), 400),
        "cut": (zstd(chat())[:-1], 400),
        "tail": (zstd(chat()) + b"tail", 400),
    }
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        for name, (body, status) in texts.items():
            await client.send(packed(body, "zstd"))
            assert (await client.read()).status == status, name
        assert replica.n_connections == 0


@pytest.mark.parametrize("coding", ["br", "gzip, zstd", "compress", "\xff", "gzip, gzip"])
async def test_a_coding_that_is_not_read_is_named_with_those_that_are(
    table: Mapping[str, Dialect], coding: str
) -> None:
    async with front_door(1, dialects=table, limits=LIMITS) as rig, client_of(rig.port) as client:
        request = post(chat(), extra=f"Content-Encoding: {coding}\r\n")
        await client.send(request.replace("\xff".encode(), b"\xff"))
        answer = await client.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (415, "bad-content-type")
        listed = answer.headers["accept-encoding"].split(", ")
        assert listed[:2] == ["gzip", "deflate"]
        assert ("zstd" in listed) == is_read(b"zstd")


async def test_identity_is_no_coding(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(packed(chat(stream=False), "Identity"))
        assert (await client.read()).status == 200
        assert replica.calls[0].body == chat(stream=False)


async def test_requests_behind_a_compressed_one_wait_their_turn(
    table: Mapping[str, Dialect],
) -> None:
    async def script(call: Call) -> None:
        await call.send(whole(b'{"n":%d,"bytes":%d}' % (call.number, len(call.body))))

    first, second = chat(text="x" * 400_000), chat(text="y")
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(packed(gzip.compress(first), "gzip") + post(second))
        client.writer.write_eof()
        bodies = [(await client.read()).body for _ in range(2)]
        assert bodies == [
            b'{"n":%d,"bytes":%d}' % (n, len(b)) for n, b in enumerate((first, second))
        ]
        assert await client.is_closed()


async def test_a_client_that_leaves_while_its_body_is_decoded(
    table: Mapping[str, Dialect],
) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
    ):
        data = packed(gzip.compress(chat(stream=False, text="x" * 700_000)), "gzip")
        for _ in range(20):
            async with client_of(rig.port) as client:
                await client.send(data)
                await asyncio.sleep(0)
        async with client_of(rig.port) as client:
            await client.send(data)
            assert (await client.read()).status == 200
        await rig.door.stop()
        assert rig.door._door.arriving_bytes == 0
        assert rig.door._door.clients == {}
        assert {code for code, *_ in rig.notes.turned} <= {"shutting-down"}


async def test_the_loop_runs_on_while_a_large_body_is_decoded(
    table: Mapping[str, Dialect],
) -> None:
    """A stream of another client moves between the compressed request and its answer."""

    async def script(call: Call) -> None:
        await call.send(stream(events("s")) if b"other" in call.body else whole(b"{}"))

    large = packed(gzip.compress(chat(stream=False, text="1" * 30_000_000), 1), "gzip")
    limits = EdgeLimits(sweep_s=0.01, drain_s=2.0, decoded_ratio_max=10_000)
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=limits) as rig,
        client_of(rig.port) as slow,
        client_of(rig.port) as other,
    ):
        await slow.send(large)
        answer = asyncio.create_task(slow.read())
        n_answers = 0
        while not answer.done():
            await other.send(post(chat(text="other")))
            assert (await other.read()).status == 200
            n_answers += 1
        assert answer.result().status == 200
        assert n_answers > 3
