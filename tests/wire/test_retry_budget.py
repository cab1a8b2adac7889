"""How much is tried again: a share of all requests, and where a retry is no retry."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from router.clock import ManualClock
from router.edge.bounds.limits import EdgeLimits, RetryLimits
from router.edge.bounds.tries import RetryBudget
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import chat, client_of, post
from tests.doubles.scripted_replica import Call, ScriptedReplica, events, stream, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect

FINE = events("fine")


async def reset(call: Call) -> None:
    call.reset()


async def full(call: Call) -> None:
    await call.send(whole(b"{}", status=b"503 Busy"))


async def good(call: Call) -> None:
    await call.send(stream(FINE))


def test_a_share_of_the_last_minutes_requests_and_a_floor() -> None:
    budget = RetryBudget(RetryLimits(share=0.2, floor=3))
    budget.turn(0.0)
    budget.n_asked += 50
    assert [budget.take(5.0) for _ in range(14)] == [True] * 13 + [False]
    assert not budget.take(60.0)
    assert budget.take(66.0)  # those retries are a minute old; so are the requests
    assert [budget.take(67.0) for _ in range(3)] == [True, True, False]
    budget.turn(100.0)
    budget.n_asked += 10
    assert [budget.take(110.0) for _ in range(3)] == [True, True, False]
    assert [budget.take(1e6) for _ in range(4)] == [True, True, True, False]


def test_no_budget_at_all() -> None:
    budget = RetryBudget(RetryLimits(share=0.0, floor=0))
    budget.n_asked += 1
    assert not budget.take(0.0)


@pytest.mark.parametrize("failure", [reset, full])
async def test_a_spent_budget_tells_the_failure_at_once(
    table: Mapping[str, Dialect], failure: object
) -> None:
    limits = EdgeLimits(sweep_s=0.01, drain_s=2.0, retry=RetryLimits(share=0.0, floor=1))
    async with (
        ScriptedReplica(failure) as bad,  # type: ignore[arg-type]
        ScriptedReplica(good) as other,
        front_door(bad.port, other.port, dialects=table, limits=limits) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat(), extra="User-Agent: OpenAI/Python 2.8.0\r\n"))
        assert (await client.read()).body == FINE
        rig.ready()
        await client.send(post(chat(), extra="User-Agent: OpenAI/Python 2.8.0\r\n"))
        answer = await client.read()
        assert answer.status == (503 if failure is full else 502)
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["x-should-retry"] == "true"
        assert len(other.calls) == 1
        assert rig.notes.pressure == {"retry-denied": 1}
        failures = [r.counters.failures for r in rig.core.fleet.replicas()]
        assert failures == [2, 0]  # the replica is blamed all the same


async def test_who_could_not_be_reached_costs_nothing(table: Mapping[str, Dialect]) -> None:
    limits = EdgeLimits(sweep_s=0.01, drain_s=2.0, retry=RetryLimits(share=0.0, floor=0))
    async with ScriptedReplica(good) as gone:
        port = gone.port
    async with (
        ScriptedReplica(good) as other,
        front_door(port, other.port, dialects=table, limits=limits) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        assert (await client.read()).body == FINE
        assert rig.notes.pressure == {}


async def test_the_keep_alive_race_costs_nothing(table: Mapping[str, Dialect]) -> None:
    async def script(call: Call) -> None:
        if call.is_reused:
            call.reset()
        else:
            await call.send(stream(FINE))

    limits = EdgeLimits(sweep_s=0.01, drain_s=2.0, retry=RetryLimits(share=0.0, floor=0))
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=limits) as rig,
        client_of(rig.port) as client,
    ):
        for _ in range(3):
            await client.send(post(chat()))
            assert (await client.read()).body == FINE
        assert [call.is_reused for call in replica.calls] == [False, True, False, True, False]
        assert rig.notes.pressure == {}
        assert [r.state for r in rig.core.fleet.replicas()] == ["ready"]


async def test_the_only_replica_gets_it_once_more_after_a_pause(
    table: Mapping[str, Dialect],
) -> None:
    clock, n_resets = ManualClock(), 0

    async def script(call: Call) -> None:
        nonlocal n_resets
        if n_resets == 0:
            n_resets += 1
            call.reset()
        else:
            await call.send(stream(FINE))

    limits = EdgeLimits(sweep_s=0.01, drain_s=2.0, retry=RetryLimits(backoff_s=5.0))
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=limits, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        await rig.notes.until("repeated")
        clock.advance(4.9)
        await asyncio.sleep(0.03)
        assert len(replica.calls) == 1
        clock.advance(0.2)
        answer = await client.read()
        assert (answer.status, answer.body) == (200, FINE)
        assert len(replica.calls) == 2
        record = await rig.notes.wait_for(1)
        assert (record.outcome, record.n_tries) == ("done", 1)


async def test_it_gets_it_no_third_time(table: Mapping[str, Dialect]) -> None:
    limits = EdgeLimits(sweep_s=0.01, drain_s=2.0, retry=RetryLimits(backoff_s=0.0))
    async with (
        ScriptedReplica(reset) as replica,
        front_door(replica.port, dialects=table, limits=limits) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        answer = await client.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (502, "bad-upstream-response")
        assert len(replica.calls) == 2


async def test_a_client_that_leaves_during_the_pause(table: Mapping[str, Dialect]) -> None:
    limits = EdgeLimits(sweep_s=0.01, drain_s=2.0, retry=RetryLimits(backoff_s=1000.0))
    async with (
        ScriptedReplica(reset) as replica,
        front_door(replica.port, dialects=table, limits=limits) as rig,
    ):
        async with client_of(rig.port) as client:
            await client.send(post(chat()))
            await rig.notes.until("repeated")
        assert (await rig.notes.wait_for(1)).outcome == "client-gone"
        assert len(replica.calls) == 1


async def test_a_client_that_leaves_while_it_is_tried_elsewhere(
    table: Mapping[str, Dialect],
) -> None:
    reached, left = asyncio.Event(), asyncio.Event()

    async def silent(call: Call) -> None:
        reached.set()
        await call.gone()
        left.set()

    async with (
        ScriptedReplica(full) as busy,
        ScriptedReplica(silent) as other,
        front_door(busy.port, other.port, dialects=table) as rig,
    ):
        async with client_of(rig.port) as client:
            await client.send(post(chat()))
            await reached.wait()
        await left.wait()
        record = await rig.notes.wait_for(1)
        assert (record.outcome, record.n_tries) == ("client-gone", 2)
