"""Long prompts take turns at a replica: who waits at the door for that, who passes, and what ends the wait."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from router.clock import ManualClock
from router.edge.bounds.limits import EdgeLimits, HoldLimits
from router.state.fleet.ledger import LONG_TOKENS
from router.state.fleet.replica import Description, ReplicaSpec
from tests.doubles.door_rig import Rig, front_door
from tests.doubles.raw_client import RawClient, chat, client_of, post
from tests.doubles.scripted_replica import END, Call, ScriptedReplica, events, stream, whole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from router.dialect.base import Dialect

LIMITS: Final = EdgeLimits(sweep_s=0.01, drain_s=5.0, head_hold_s=1e6)
FINE: Final = events("fine")
SAID: Final = b'{"content":"fine"}'
LONG: Final = " and so on" * LONG_TOKENS  # over twice as long, whatever a token is taken to be
FULL: Final = b'{"message":"full","code":503}'


class Engine:
    """A replica whose answers a test lets go by the prompt's first word; ``words`` are those that came.

    ``ends`` lets what has begun end; ``is_full`` turns away everybody.
    """

    def __init__(self) -> None:
        self.words: list[str] = []
        self.begins: set[str] = set()
        self.ends = asyncio.Event()
        self.is_full = False
        self._news = asyncio.Event()

    def begin(self, *words: str) -> None:
        """Let the answers to these begin."""
        self.begins.update(words)
        self._news.set()

    async def has(self, *words: str) -> None:
        """Wait until exactly these have come, in this order."""
        while self.words != list(words):
            self._news.clear()
            await self._news.wait()

    async def __call__(self, call: Call) -> None:
        """The script."""
        body = json.loads(call.body)
        word = body["messages"][0]["content"].split()[0]
        self.words.append(word)
        self._news.set()
        if self.is_full:
            await call.send(whole(FULL, status=b"503 Busy"))
            return
        while word not in self.begins:
            self._news.clear()
            await self._news.wait()
        if not body["stream"]:
            await call.send(whole(b"{}"))
            return
        answer = stream(FINE)
        first = answer.index(b"\n\n") + 2
        await call.send(answer[:first])
        await self.ends.wait()
        await call.send(answer[first:])


@contextlib.asynccontextmanager
async def door(
    table: Mapping[str, Dialect], limits: EdgeLimits = LIMITS, clock: ManualClock | None = None
) -> AsyncIterator[tuple[Rig, Engine]]:
    """A door with one replica, which computes the long prompt ``first``."""
    engine = Engine()
    more: dict[str, Any] = {} if clock is None else {"clock": clock}
    async with (
        ScriptedReplica(engine) as replica,
        front_door(replica.port, dialects=table, limits=limits, **more) as rig,
        client_of(rig.port) as first,
    ):
        rig.policy.takes_turns = True
        await ask(first, "first")
        await engine.has("first")
        yield rig, engine
        engine.begin("first")
        engine.ends.set()
        assert SAID in await first.read_until(END)


async def ask(client: RawClient, word: str, *, rest: str = LONG, is_stream: bool = True) -> None:
    await client.send(post(chat(text=word + rest, stream=is_stream)))


async def test_a_long_prompt_waits_until_the_other_begins(table: Mapping[str, Dialect]) -> None:
    async with (
        door(table) as (rig, engine),
        client_of(rig.port) as second,
        client_of(rig.port) as third,
        client_of(rig.port) as short,
    ):
        await ask(second, "second")
        await rig.notes.until("held")
        await ask(third, "third")
        await rig.notes.until("held", 2)
        await ask(short, "short", rest="")
        await engine.has("first", "short")
        engine.begin("short", "first")  # the first has begun, and goes on
        await engine.has("first", "short", "second")
        engine.begin("second")
        await engine.has("first", "short", "second", "third")
        engine.begin("third")
        engine.ends.set()
        for client in (short, second, third):
            assert SAID in await client.read_until(END)
        assert rig.notes.turned == []
        assert rig.notes.pressure == {"held": 2, "held-placed": 2}


async def test_the_next_one_does_not_wait_for_the_doors_timer(table: Mapping[str, Dialect]) -> None:
    limits = EdgeLimits(sweep_s=600.0, drain_s=5.0)
    async with door(table, limits) as (rig, engine), client_of(rig.port) as second:
        await ask(second, "second")
        await rig.notes.until("held")
        engine.begin("first")  # which goes on, so that nothing ends
        await engine.has("first", "second")
        engine.begin("second")
        engine.ends.set()
        assert SAID in await second.read_until(END)


async def test_a_turn_is_free_when_the_other_fails_or_leaves(table: Mapping[str, Dialect]) -> None:
    async with (
        door(table) as (rig, engine),
        client_of(rig.port) as second,
        client_of(rig.port) as third,
    ):
        engine.begin("first")
        async with client_of(rig.port) as gone:
            await ask(gone, "gone")
            await engine.has("first", "gone")
            await ask(second, "second")
            await rig.notes.until("held")
        await engine.has("first", "gone", "second")
        await ask(third, "third")
        await rig.notes.until("held", 2)
        second.writer.transport.abort()
        await engine.has("first", "gone", "second", "third")
        engine.begin("third")
        engine.ends.set()
        assert SAID in await third.read_until(END)


async def test_its_wait_is_part_of_its_time_to_the_first_token(
    table: Mapping[str, Dialect],
) -> None:
    clock = ManualClock()
    async with door(table, clock=clock) as (rig, engine), client_of(rig.port) as second:
        await ask(second, "second")
        await rig.notes.until("held")
        clock.advance(7.0)
        engine.begin("first")
        await engine.has("first", "second")
        clock.advance(2.0)
        engine.begin("second")
        engine.ends.set()
        assert SAID in await second.read_until(END)
        await rig.notes.wait_for(2)
        by_wait = sorted((record.held_s, record.ttft_s) for record in rig.notes.records)
        assert by_wait == [(0.0, 7.0), (7.0, 9.0)]


async def test_a_cheaper_replica_ends_the_wait(table: Mapping[str, Dialect]) -> None:
    """Where it goes is not settled while it waits."""
    clock = ManualClock()
    other = Engine()
    async with (
        ScriptedReplica(other) as joins,
        door(table, clock=clock) as (rig, engine),
        client_of(rig.port) as second,
    ):
        await ask(second, "second")
        await rig.notes.until("held")
        rig.core.members.join(ReplicaSpec("a0", "127.0.0.1", joins.port), 0.0)
        rig.ready()
        clock.advance(1.0)
        await other.has("second")
        other.begin("second")
        other.ends.set()
        assert SAID in await second.read_until(END)
        assert engine.words == ["first"]


@pytest.mark.parametrize(
    "limits",
    [HoldLimits(turn_s=0.0), HoldLimits(requests_max=0), HoldLimits(bytes_max=1_000)],
    ids=["off", "number", "bytes"],
)
async def test_who_may_not_wait_is_sent_at_once(
    table: Mapping[str, Dialect], limits: HoldLimits
) -> None:
    bounds = EdgeLimits(sweep_s=0.01, drain_s=5.0, hold=limits)
    async with door(table, bounds) as (rig, engine), client_of(rig.port) as second:
        await ask(second, "second")
        await engine.has("first", "second")
        assert not rig.notes.pressure


async def test_who_cannot_be_shown_a_sign_of_life_is_sent_at_once(
    table: Mapping[str, Dialect],
) -> None:
    async with door(table) as (rig, engine), client_of(rig.port) as second:
        await ask(second, "second", is_stream=False)
        await engine.has("first", "second")
        engine.begin("second")
        assert (await second.read()).status == 200
        assert not rig.notes.pressure


async def test_who_has_waited_long_enough_is_sent_all_the_same(
    table: Mapping[str, Dialect],
) -> None:
    clock = ManualClock()
    async with door(table, clock=clock) as (rig, engine), client_of(rig.port) as second:
        await ask(second, "second")
        await rig.notes.until("held")
        clock.advance(LIMITS.hold.turn_s - 1.0)
        assert engine.words == ["first"]
        clock.advance(1.0)
        await engine.has("first", "second")
        assert rig.notes.turned == []


@pytest.mark.parametrize("is_short_first", [True, False])
async def test_the_door_has_the_order_of_the_engine(
    table: Mapping[str, Dialect], *, is_short_first: bool
) -> None:
    async with (
        door(table) as (rig, engine),
        client_of(rig.port) as longer,
        client_of(rig.port) as shorter,
    ):
        says(rig, is_short_first=is_short_first)
        await ask(longer, "longer", rest=2 * LONG)
        await rig.notes.until("held")
        await ask(shorter, "shorter")
        await rig.notes.until("held", 2)
        engine.begin("first")
        next_two = ["shorter", "longer"] if is_short_first else ["longer", "shorter"]
        await engine.has("first", next_two[0])
        engine.begin(next_two[0])
        await engine.has("first", *next_two)
        engine.begin(next_two[1])
        engine.ends.set()
        for client in (longer, shorter):
            assert SAID in await client.read_until(END)


@pytest.mark.parametrize("turn_s", [LIMITS.hold.turn_s, 20.0])
async def test_where_short_prompts_pass_a_long_one_waits_for_less(
    table: Mapping[str, Dialect], turn_s: float
) -> None:
    clock = ManualClock()
    limits = replace(LIMITS, hold=HoldLimits(turn_s=turn_s))
    short_s = min(turn_s, limits.hold.turn_short_first_s)
    async with door(table, limits, clock) as (rig, engine), client_of(rig.port) as second:
        says(rig, is_short_first=True)
        await ask(second, "second")
        await rig.notes.until("held")
        clock.advance(short_s - 1.0)
        await passed(rig, engine, "passed")
        assert engine.words == ["first", "passed"]
        clock.advance(1.0)
        await engine.has("first", "passed", "second")


async def test_who_waits_at_another_engine_by_now_waits_as_long_as_there(
    table: Mapping[str, Dialect],
) -> None:
    clock = ManualClock()
    async with door(table, clock=clock) as (rig, engine), client_of(rig.port) as second:
        await ask(second, "second")
        await rig.notes.until("held")
        clock.advance(LIMITS.hold.turn_short_first_s + 5.0)
        await passed(rig, engine, "passed")
        assert engine.words == ["first", "passed"]
        says(rig, is_short_first=True)
        clock.advance(1.0)
        await engine.has("first", "passed", "second")


def says(rig: Rig, *, is_short_first: bool) -> None:
    """The replica tells in which order its engine takes prompts."""
    rig.core.members.described("r0", Description(models=("m",), is_short_first=is_short_first))


async def passed(rig: Rig, engine: Engine, word: str) -> None:
    """Let a short prompt pass: the door has looked at who waits since the clock was set."""
    engine.begin(word)
    async with client_of(rig.port) as short:
        await ask(short, word, rest="", is_stream=False)
        assert (await short.read()).status == 200


async def test_signs_of_life_while_it_waits_for_its_turn(table: Mapping[str, Dialect]) -> None:
    clock = ManualClock()
    limits = EdgeLimits(sweep_s=0.01, drain_s=5.0)
    async with door(table, limits, clock) as (rig, engine), client_of(rig.port) as second:
        await ask(second, "second")
        await rig.notes.until("held")
        clock.advance(61.0)
        head = await second.read_until(b"\n\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"\n: " in head
        engine.begin("first", "second")
        engine.ends.set()
        assert SAID in await second.read_until(END)


async def test_a_fleet_that_is_gone_is_told_at_once(table: Mapping[str, Dialect]) -> None:
    clock = ManualClock()
    async with door(table, clock=clock) as (rig, _), client_of(rig.port) as second:
        await ask(second, "second")
        await rig.notes.until("held")
        rig.core.members.leave("r0")
        answer = await second.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (503, "no-replica-ready")
        rig.core.members.join(ReplicaSpec("r1", "127.0.0.1", 1), 0.0)


async def test_an_engine_that_is_full_then_is_told_at_once(table: Mapping[str, Dialect]) -> None:
    """It may wait for its turn, and not, by the settings, for room."""
    async with door(table) as (rig, engine), client_of(rig.port) as second:
        await ask(second, "second")
        await rig.notes.until("held")
        engine.is_full = True
        engine.begin("first")
        answer = await second.read()
        assert (answer.status, answer.body) == (503, FULL)
        assert rig.notes.pressure["held"] == 1


async def test_a_shutdown_ends_the_wait(table: Mapping[str, Dialect]) -> None:
    async with door(table) as (rig, engine), client_of(rig.port) as second:
        await ask(second, "second")
        await rig.notes.until("held")
        stopping = asyncio.get_running_loop().create_task(rig.door.stop())
        answer = await second.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (503, "shutting-down")
        engine.begin("first")
        engine.ends.set()
        await stopping
