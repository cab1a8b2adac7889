"""Mutated requests and answers: no crash, no hang, nothing of one client at another, nothing kept.

In memory for numbers, over sockets for a share. `pytest -m slow tests/wire/test_mutations.py` runs a
million requests and a hundred thousand answers in chunks by seed, each a test of its own: a chunk
that failed is run again by its name.
"""

from __future__ import annotations

import asyncio
import random
import resource
from typing import TYPE_CHECKING

import pytest

from router.edge.bounds.limits import EdgeLimits
from tests.doubles.door_rig import front_door
from tests.doubles.mutants import mark, marks, mutated, pieces, sound_answer, sound_request
from tests.doubles.mutation_run import MutationRun
from tests.doubles.raw_client import RawClient, chat, client_of, post
from tests.doubles.scripted_replica import Call, ScriptedReplica

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect

GROWTH_KIB_MAX = 16 * 1024
CHUNKS = [pytest.param(number, id=f"chunk-{number}") for number in range(100)]


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def test_mutated_requests(table: Mapping[str, Dialect]) -> None:
    await MutationRun(table, 1_000, answers=False).run(4_000)
    before_kib = peak_kib()
    for seed in range(1_001, 1_005):
        run = MutationRun(table, seed, answers=False)
        await run.run(4_000)
        assert run.seen["forwarded"] > 1_000
        assert run.seen["400"] > 1_000
    assert peak_kib() - before_kib < GROWTH_KIB_MAX


async def test_mutated_answers(table: Mapping[str, Dialect]) -> None:
    run = MutationRun(table, 2_000, answers=True)
    await run.run(2_000)
    assert run.seen["200"] > 500
    assert run.seen["502"] > 200


@pytest.mark.slow
@pytest.mark.parametrize("seed", CHUNKS)
async def test_a_million_mutated_requests(table: Mapping[str, Dialect], seed: int) -> None:
    before_kib = peak_kib()
    await MutationRun(table, seed, answers=False).run(10_000)
    assert seed == 0 or peak_kib() - before_kib < GROWTH_KIB_MAX


@pytest.mark.slow
@pytest.mark.parametrize("seed", CHUNKS)
async def test_a_hundred_thousand_mutated_answers(table: Mapping[str, Dialect], seed: int) -> None:
    before_kib = peak_kib()
    await MutationRun(table, seed, answers=True).run(1_000)
    assert seed == 0 or peak_kib() - before_kib < GROWTH_KIB_MAX


# Over sockets

LIMITS = EdgeLimits(sweep_s=0.02, close_s=0.1, drain_s=1.0, body_bytes_max=100_000)


async def send_in_pieces(client: RawClient, dice: random.Random, data: bytes) -> bytes:
    """Send, close the sending side, and read to the end."""
    try:
        for part in pieces(dice, data):
            await client.send(part)
            await asyncio.sleep(0)
        client.writer.write_eof()
    except (ConnectionError, RuntimeError):
        return b""
    return await client.read_all()


async def test_mutated_requests_over_sockets(table: Mapping[str, Dialect]) -> None:
    dice = random.Random(3)

    async def script(call: Call) -> None:
        found = marks(call.head + call.body)
        assert len(found) <= 1
        await call.send(sound_answer(dice, mark(min(found, default=0))))
        call.close()

    async def ask(port: int, number: int) -> None:
        data = mutated(dice, sound_request(dice, mark(number)))
        async with client_of(port) as client:
            got = await send_in_pieces(client, dice, data)
        assert marks(got) <= {number, 0}, data
        assert not got or got.startswith(b"HTTP/1.1 "), data

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
    ):
        for start in range(1, 401, 8):
            rig.ready()
            async with asyncio.TaskGroup() as group:
                for number in range(start, start + 8):
                    group.create_task(ask(rig.port, number))
        await rig.door.stop()
        assert rig.inflight == 0
        assert rig.door._door.arriving_bytes == 0


async def test_mutated_answers_over_sockets(table: Mapping[str, Dialect]) -> None:
    dice = random.Random(4)

    async def script(call: Call) -> None:
        own = mark(min(marks(call.body), default=0))
        for part in pieces(dice, mutated(dice, sound_answer(dice, own))):
            await call.send(part)
            await asyncio.sleep(0)
        call.close()

    async def ask(port: int, number: int) -> None:
        async with client_of(port) as client:
            await client.send(post(chat(stream=number % 2 == 0, text=mark(number).decode())))
            answer = await client.read()
            assert answer.is_whole
            assert marks(answer.body + repr(answer.headers).encode()) <= {number}

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
    ):
        for start in range(1, 101, 5):
            rig.ready()
            async with asyncio.TaskGroup() as group:
                for number in range(start, start + 5):
                    group.create_task(ask(rig.port, number))
        await rig.door.stop()
        assert rig.inflight == 0
