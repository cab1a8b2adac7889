"""Names of replicas: one that hangs holds up nothing but itself, and no name is looked up twice at once."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from router.clock import ManualClock, now_s
from router.control.observe.client import NoAnswer, ReplicaClient, Trouble
from router.edge.bounds.limits import EdgeLimits
from router.edge.replicas.upstream import UpstreamPool
from router.lookup import Lookups
from router.state.fleet.replica import ReplicaSpec
from tests.doubles.scripted_replica import Call, ScriptedReplica, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from router.edge.replicas.upstream import UpstreamConnection
    from router.errors import UpstreamError
    from router.framing.events import ResponseEvent


class Names:
    """A resolver: ``hangs`` waits until the test ends, ``none`` is unknown, all else is this machine."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.over = threading.Event()

    def look_up(self, host: str) -> list[str]:
        self.asked[host] += 1
        if host.startswith("hangs"):
            assert self.over.wait(30)
        if host == "none":
            raise OSError("unknown")
        return ["127.0.0.1"]


@pytest.fixture
def names() -> Iterator[Names]:
    names = Names()
    yield names
    names.over.set()


async def trouble(client: ReplicaClient) -> str:
    with pytest.raises(NoAnswer) as caught:
        await client.ask(client.request("/ready"), timeout_s=0.05)
    return caught.value.trouble


async def says_ok(call: Call) -> None:
    await call.send(whole(b"ok"))


async def test_a_name_that_hangs_delays_no_other_and_no_thread_of_the_loop(names: Names) -> None:
    lookups = Lookups(names.look_up, threads_max=2)
    async with ScriptedReplica(says_ok) as replica, asyncio.timeout(20):
        hanging = ReplicaClient("hangs", replica.port, now_s=now_s, lookups=lookups)
        for _ in range(40):  # more than any pool has threads
            assert await trouble(hanging) == Trouble.TIMEOUT
        assert names.asked["hangs"] == 1
        good = ReplicaClient("good", replica.port, now_s=now_s, lookups=lookups)
        answer = await good.ask(good.request("/ready"), timeout_s=10.0)
        assert answer.body == b"ok"
        good.close()
        assert await asyncio.to_thread(lambda: 7) == 7
        unknown = ReplicaClient("none", replica.port, now_s=now_s, lookups=lookups)
        with pytest.raises(NoAnswer) as caught:
            await unknown.ask(unknown.request("/ready"), timeout_s=10.0)
        assert caught.value.trouble == Trouble.REFUSED
    names.over.set()
    lookups.close()


class Waiting:
    """Who asked for a connection to a replica."""

    def __init__(self) -> None:
        self.said: asyncio.Future[UpstreamConnection | UpstreamError] = asyncio.Future()

    def connected(self, connection: UpstreamConnection) -> None:
        self.said.set_result(connection)

    def connect_failed(self, error: UpstreamError) -> None:
        self.said.set_result(error)

    def on_read(self, events: list[ResponseEvent]) -> None:
        raise AssertionError(events)

    def on_lost(self) -> None:
        raise AssertionError


async def test_the_front_door_waits_for_a_name_no_longer_than_for_a_connection(
    names: Names,
) -> None:
    lookups = Lookups(names.look_up, threads_max=2)
    pool = UpstreamPool(EdgeLimits(connect_s=0.05), None, lookups)
    async with ScriptedReplica(says_ok) as replica, asyncio.timeout(20):
        for _ in range(4):
            waiting = Waiting()
            pool.connect(ReplicaSpec("h", "hangs", replica.port), waiting)
            assert "within 0.05 s" in str(await waiting.said)
        waiting = Waiting()
        pool = UpstreamPool(EdgeLimits(connect_s=10.0), None, lookups)
        pool.connect(ReplicaSpec("g", "good", replica.port), waiting)
        connection = await waiting.said
        assert not isinstance(connection, Exception)
        connection.abort()
    assert names.asked == {"hangs": 1, "good": 1}
    names.over.set()
    lookups.close()


async def test_what_was_found_counts_for_a_second_and_an_address_is_not_looked_up(
    names: Names,
) -> None:
    clock = ManualClock()
    lookups = Lookups(names.look_up, now_s=clock, names_max=1)
    assert await asyncio.gather(*(lookups.addresses("a") for _ in range(9))) == [["127.0.0.1"]] * 9
    assert names.asked["a"] == 1
    clock.advance(0.9)
    await lookups.addresses("a")
    assert names.asked["a"] == 1
    clock.advance(0.2)
    await lookups.addresses("a")
    assert names.asked["a"] == 2
    for address in ("10.0.0.1", "fd00::1"):
        assert await lookups.addresses(address) == [address]
    for _ in range(2):  # what failed is asked for again
        with pytest.raises(OSError, match="unknown"):
            await lookups.addresses("none")
    assert names.asked == {"a": 2, "none": 2}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await lookups.addresses("hangs")
    with pytest.raises(OSError, match="too many names"):
        await lookups.addresses("b")
    names.over.set()
    lookups.close()
