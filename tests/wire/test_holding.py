"""Requests that wait at the door: who, for how long, in what order, and what ends the wait."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from router.clock import ManualClock
from router.core import RouterCore
from router.edge.bounds.limits import EdgeLimits, HoldLimits
from router.errors import Refused
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event
from tests.doubles.door_rig import Rig, front_door
from tests.doubles.raw_client import RawClient, chat, client_of, post
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
    from collections.abc import AsyncIterator, Mapping

    from router.dialect.base import Dialect, PromptFacts
    from router.ticket import Ticket

CODEX: Final = "User-Agent: codex_cli_rs/0.99.0\r\n"
CLAUDE: Final = "User-Agent: claude-cli/2.1.99 (external, cli)\r\n"
LIMITS: Final = EdgeLimits(sweep_s=0.01, drain_s=5.0)
FINE: Final = events("fine")
MESSAGE: Final = (
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":5}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)


class Gated:
    """A replica whose answers a test lets go one by one; ``texts`` are the prompts in order."""

    def __init__(self) -> None:
        self.n_allowed = 0
        self.texts: list[str] = []
        self.reached = asyncio.Event()
        self._news = asyncio.Event()

    def allow(self, n: int = 1) -> None:
        """Let so many more answers go."""
        self.n_allowed += n
        self._news.set()

    async def __call__(self, call: Call) -> None:
        """The script."""
        number = len(self.texts)
        self.texts.append(json.loads(call.body)["messages"][0]["content"])
        self.reached.set()
        while self.n_allowed <= number:
            self._news.clear()
            await self._news.wait()
        await call.send(stream(MESSAGE if b"/v1/messages" in call.head else FINE))


def one_at_a_time(rig: Rig, port: int) -> None:
    """The replica takes a single request."""
    rig.core.members.join(ReplicaSpec("r0", "127.0.0.1", port, inflight_max=1), 0.0)
    rig.ready()


@contextlib.asynccontextmanager
async def busy_door(
    table: Mapping[str, Dialect], clock: ManualClock | None = None, limits: EdgeLimits = LIMITS
) -> AsyncIterator[tuple[Rig, Gated]]:
    """A door whose only replica is at its limit, with a request that will answer when allowed."""
    script = Gated()
    async with ScriptedReplica(script) as replica:
        more: dict[str, Any] = {} if clock is None else {"clock": clock}
        async with front_door(replica.port, dialects=table, limits=limits, **more) as rig:
            one_at_a_time(rig, replica.port)
            async with client_of(rig.port) as first:
                await first.send(post(chat(text="first")))
                await script.reached.wait()
                yield rig, script
                script.allow(100)
                await first.read()


async def ask(client: RawClient, text: str, *, agent: str = CODEX, is_stream: bool = True) -> None:
    await client.send(post(chat(text=text, stream=is_stream), extra=agent))


async def test_codex_waits_for_room_and_others_do_not(table: Mapping[str, Dialect]) -> None:
    async with (
        busy_door(table) as (rig, script),
        client_of(rig.port) as codex,
        client_of(rig.port) as claude,
    ):
        await ask(codex, "second")
        await rig.notes.until("held")
        await ask(claude, "third", agent=CLAUDE)
        answer = await claude.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (529, "saturated")
        script.allow(2)
        answer = await codex.read()
        assert (answer.status, answer.body) == (200, FINE)
        assert script.texts == ["first", "second"]
        assert rig.notes.pressure == {"held": 1, "held-placed": 1}
        record = await rig.notes.wait_for(2)
        assert (record.outcome, record.n_tries) == ("done", 1)


async def test_who_waits_longest_goes_first(table: Mapping[str, Dialect]) -> None:
    async with (
        busy_door(table) as (rig, script),
        client_of(rig.port) as second,
        client_of(rig.port) as third,
        client_of(rig.port) as fourth,
    ):
        for number, client in enumerate((second, third, fourth), 2):
            await ask(client, str(number))
            await rig.notes.until("held", number - 1)
        script.allow(4)
        for client in (second, third, fourth):
            assert (await client.read()).body == FINE
        assert script.texts == ["first", "2", "3", "4"]


async def test_settings_let_everybody_wait(table: Mapping[str, Dialect]) -> None:
    limits = EdgeLimits(sweep_s=0.01, drain_s=5.0, hold=HoldLimits(saturated_s=30.0))
    async with busy_door(table, limits=limits) as (rig, script), client_of(rig.port) as client:
        await ask(client, "second", agent="", is_stream=False)
        await rig.notes.until("held")
        script.allow(2)
        assert (await client.read()).status == 200


async def test_the_wait_ends_with_the_refusal(table: Mapping[str, Dialect]) -> None:
    clock = ManualClock()
    limits = EdgeLimits(sweep_s=0.01, drain_s=5.0, head_hold_s=1e6)
    async with (
        busy_door(table, clock, limits) as (rig, script),
        client_of(rig.port) as client,
    ):
        await ask(client, "second")
        await rig.notes.until("held")
        clock.advance(121.0)
        answer = await client.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (503, "saturated")
        assert int(answer.headers["retry-after"]) >= 1
        assert json.loads(answer.body)["error"]["code"] == "saturated"
        assert rig.notes.turned == [("saturated", "openai-chat", "/v1/chat/completions")]
        assert rig.notes.pressure == {"held": 1, "held-given-up": 1}
        # The connection lives on, and the next request waits its own time.
        await ask(client, "third")
        await rig.notes.until("held", 2)
        script.allow(2)
        assert (await client.read()).body == FINE


async def test_signs_of_life_while_it_waits(table: Mapping[str, Dialect]) -> None:
    clock = ManualClock()
    limits = EdgeLimits(sweep_s=0.01, drain_s=5.0, hold=HoldLimits(saturated_s=500.0))
    async with (
        busy_door(table, clock, limits) as (rig, script),
        client_of(rig.port) as client,
        client_of(rig.port) as claude,
        client_of(rig.port) as old,
    ):
        await ask(client, "second")
        await rig.notes.until("held", 1)
        await claude.send(post(chat(text="third"), path="/v1/messages", extra=CLAUDE))
        await rig.notes.until("held", 2)
        request = post(chat(text="fourth")).replace(b"HTTP/1.1", b"HTTP/1.0")
        await old.send(request)
        await rig.notes.until("held", 3)
        clock.advance(61.0)
        head = await client.read_until(b"\n\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"content-type: text/event-stream" in head
        assert b"\n: " in head
        head = await claude.read_until(b"\n\n\r\n")
        assert b'event: ping\ndata: {"type": "ping"}\n\n' in head
        clock.advance(16.0)
        assert b": " in await client.read_until(b"\n\n\r\n")
        assert b"event: ping" in await claude.read_until(b"\n\n\r\n")
        script.allow(4)
        assert FINE in await client.read_until(END)
        assert MESSAGE in await claude.read_until(END)
        answer = await old.read_all()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"\r\n\r\n" + FINE)  # no sign of life was sent to it


async def test_a_refusal_after_a_sign_of_life_is_an_event(table: Mapping[str, Dialect]) -> None:
    clock = ManualClock()
    async with busy_door(table, clock) as (rig, _), client_of(rig.port) as client:
        await ask(client, "second")
        await rig.notes.until("held")
        clock.advance(61.0)
        await client.read_until(b"\n\n\r\n")
        clock.advance(60.0)
        rest = await client.read_until(END)
        assert b'"code":"saturated"' in rest
        assert b"[DONE]" in rest


async def test_a_replica_that_becomes_ready_takes_who_waits(table: Mapping[str, Dialect]) -> None:
    async def good(call: Call) -> None:
        await call.send(stream(FINE))

    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        rig.core.members.heard("r0", Event.CONNECT_FAILED, 0.0)
        await ask(client, "first")
        await rig.notes.until("held")
        rig.ready()
        assert (await client.read()).body == FINE


@pytest.mark.parametrize("is_reset", [True, False], ids=["reset", "close"])
async def test_a_client_that_leaves_waits_no_more(
    table: Mapping[str, Dialect], *, is_reset: bool
) -> None:
    async with busy_door(table) as (rig, script):
        async with client_of(rig.port) as client:
            await ask(client, "second")
            await rig.notes.until("held")
            if not is_reset:
                client.writer.close()
                await rig.notes.until("held-client-gone")
        await rig.notes.until("held-client-gone")
        script.allow(2)
        async with client_of(rig.port) as other:
            await rig.notes.wait_for(1)
            await ask(other, "third", agent="")
            assert (await other.read()).body == FINE
        assert script.texts == ["first", "third"]


async def test_a_client_that_closes_its_side_still_waits(table: Mapping[str, Dialect]) -> None:
    async with busy_door(table) as (rig, script), client_of(rig.port) as client:
        await ask(client, "second")
        await rig.notes.until("held")
        client.writer.write_eof()
        await client.read_until(b"100 Continue\r\n\r\n")  # whether it still listens
        script.allow(2)
        assert FINE in await client.read_all()


@pytest.mark.parametrize(
    "bounds", [HoldLimits(requests_max=1), HoldLimits(bytes_max=150)], ids=["number", "bytes"]
)
async def test_who_waits_is_bounded(table: Mapping[str, Dialect], bounds: HoldLimits) -> None:
    limits = EdgeLimits(sweep_s=0.01, drain_s=5.0, hold=bounds)
    async with (
        busy_door(table, limits=limits) as (rig, script),
        client_of(rig.port) as second,
        client_of(rig.port) as third,
    ):
        await ask(second, "second")
        await rig.notes.until("held")
        await ask(third, "third")
        answer = await third.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (503, "saturated")
        script.allow(2)
        assert (await second.read()).body == FINE
        assert rig.notes.pressure["held"] == 1


async def test_a_shutdown_sends_them_away(table: Mapping[str, Dialect]) -> None:
    async with busy_door(table) as (rig, script), client_of(rig.port) as client:
        await ask(client, "second")
        await rig.notes.until("held")
        stopping = asyncio.get_running_loop().create_task(rig.door.stop())
        answer = await client.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (503, "shutting-down")
        assert answer.headers["connection"] == "close"
        script.allow(1)
        await stopping


async def test_engines_that_are_full_are_asked_again(table: Mapping[str, Dialect]) -> None:
    """The router has no limit of its own: what it is told by them sends a request back."""
    clock, n_full = ManualClock(), 0

    async def script(call: Call) -> None:
        nonlocal n_full
        if n_full < 3:
            n_full += 1
            await call.send(whole(b'{"message":"full","code":503}', status=b"503 Busy"))
        else:
            await call.send(stream(FINE))

    limits = EdgeLimits(sweep_s=0.01, drain_s=5.0, head_hold_s=1e6)
    async with (
        ScriptedReplica(script) as a,
        ScriptedReplica(script) as b,
        front_door(a.port, b.port, dialects=table, limits=limits, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        await ask(client, "first")
        await rig.notes.until("held")
        record = await rig.notes.wait_for(1)
        assert (record.outcome, record.error_code, record.n_tries) == ("held", "upstream-status", 2)
        clock.advance(0.9)
        await asyncio.sleep(0.03)
        assert n_full == 2  # not before its pause is over
        clock.advance(0.2)
        answer = await client.read()
        assert (answer.status, answer.body) == (200, FINE)
        record = await rig.notes.wait_for(2)
        assert (record.outcome, record.n_tries) == ("done", 2)
        assert {r.state for r in rig.core.fleet.replicas()} <= {"ready", "full"}
        assert not any(r.standing.falls(0.0) for r in rig.core.fleet.replicas())
        assert rig.notes.pressure == {"held": 1, "held-placed": 1}


async def test_engines_that_stay_full_are_told_in_the_end(table: Mapping[str, Dialect]) -> None:
    clock = ManualClock()

    async def script(call: Call) -> None:
        await call.send(whole(b'{"message":"full"}', status=b"429 Too Many Requests"))

    limits = EdgeLimits(sweep_s=0.01, drain_s=5.0, head_hold_s=1e6)
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=limits, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        await ask(client, "first")
        for number in range(1, 8):
            record = await rig.notes.wait_for(number)
            clock.advance(20.0)
        assert record.outcome in ("held", "failed")
        answer = await client.read()
        assert (answer.status, answer.body) == (503, b'{"message":"full"}')
        assert rig.notes.pressure["held"] == 1
        assert rig.notes.pressure["held-given-up"] + rig.notes.pressure["held-placed"] == 1


class Metered(RouterCore):
    """A core that lets in only as many requests as a tenant has left."""

    n_left = 0

    def arrive(self, facts: PromptFacts, now_s: float, *, may_wait: bool = False) -> Ticket:
        """Place a request, if the tenant may send one."""
        if not self.n_left:
            raise Refused("tenant-limit", "Too many.", http_status=429, retry_after_s=3.0)
        self.n_left -= 1
        return super().arrive(facts, now_s, may_wait=may_wait)


async def test_a_tenant_over_its_limit(table: Mapping[str, Dialect]) -> None:
    clock = ManualClock()

    async def good(call: Call) -> None:
        await call.send(stream(FINE))

    async with (
        ScriptedReplica(good) as replica,
        front_door(
            replica.port, dialects=table, limits=LIMITS, clock=clock, make_core=Metered
        ) as rig,
        client_of(rig.port) as client,
        client_of(rig.port) as claude,
    ):
        await ask(client, "first")
        await rig.notes.until("held")
        await ask(claude, "second", agent=CLAUDE)
        answer = await claude.read()
        assert (answer.status, answer.headers["retry-after"]) == (429, "3")
        assert isinstance(rig.core, Metered)
        rig.core.n_left = 1
        clock.advance(1.5)
        assert (await client.read()).body == FINE


async def test_a_fault_of_the_router_while_it_waits(table: Mapping[str, Dialect]) -> None:
    async with (
        busy_door(table) as (rig, script),
        client_of(rig.port) as client,
        client_of(rig.port) as other,
    ):
        await ask(client, "second")
        await rig.notes.until("held", 1)
        await ask(other, "third")
        await rig.notes.until("held", 2)
        rig.policy.is_broken = True
        script.allow(1)
        answer = await client.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (500, "internal")
        assert (await other.read()).status == 500
        rig.policy.is_broken = False


async def test_the_head_is_not_sent_twice(table: Mapping[str, Dialect]) -> None:
    """A stream that waited with signs of life goes on as one answer."""
    clock = ManualClock()

    async def script(call: Call) -> None:
        await call.send(STREAM_HEAD + chunk(FINE) + END)

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=LIMITS, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        rig.core.members.heard("r0", Event.CONNECT_FAILED, 0.0)
        await ask(client, "first")
        await rig.notes.until("held")
        clock.advance(61.0)
        begun = await client.read_until(b"\n\n\r\n")
        rig.ready()
        rest = await client.read_until(END)
        assert (begun + rest).count(b"HTTP/1.1 ") == 1
        assert FINE in rest
