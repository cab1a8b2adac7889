"""Which replicas are followed: those that say so, where they say so, and again after whatever broke."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from router.clock import now_s
from router.control.events import subscriber
from router.control.events.frames import endpoints_of
from router.control.events.subscriber import KvEvents
from router.obs.metrics import Counts
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event
from tests.doubles.core_rig import make_core
from tests.doubles.publisher import PAGE_TOKENS, Publisher, stored

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

WAIT_S_MAX = 20.0


def told(publisher: Publisher, **more: object) -> dict[str, Any]:
    """What a replica says of its publisher."""
    return {
        "publisher": "zmq",
        "endpoint_host": "*",
        "endpoint_port_base": publisher.ports[0],
        "replay_endpoint_port_base": publisher.ports[1],
        "topic": "kv-events",
        "block_size": PAGE_TOKENS,
        "dp_size": 1,
        **more,
    }


class Rig:
    def __init__(self) -> None:
        self.core = make_core(0)
        self.counts = Counts()
        self.events = KvEvents(self.core, self.counts, now_s=now_s)

    def say(self, kv_events: object) -> None:
        """The replica is asked what it is."""
        self.events.described("r", {"kv_events": kv_events})

    async def until(self, is_so: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                while not is_so():  # noqa: ASYNC110  (there is nothing that tells of every change)
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(dict(self.counts.events)) from None

    def known(self) -> int | None:
        """The pages that the replica is known to hold; None while it is not believed."""
        feed = self.core.beliefs.feeds.live("r")
        return None if feed is None else feed.n_pages


@asynccontextmanager
async def rig(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(subscriber, "_FOLLOW_S", 0.02)
    found = Rig()
    found.core.members.join(ReplicaSpec("r", "127.0.0.1", 30_000), 0.0)
    found.core.members.heard("r", Event.PROBE_OK, 0.0)
    await found.events.start()
    try:
        yield found
    finally:
        await found.events.stop()


async def test_a_replica_is_followed_where_it_says_and_left_when_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publisher, other = Publisher(), Publisher()
    try:
        publisher.publish(stored([1, 2]))
        other.publish(stored([3]))
        async with rig(monkeypatch) as it:
            it.say(None)  # it does not publish yet
            it.say(told(publisher))
            await it.until(lambda: it.known() == 2)
            assert it.counts.events["r", "pages-stored"] == 2
            it.say(told(other))  # it moved
            await it.until(lambda: it.known() == 1)
            it.core.members.leave("r")
            await it.until(lambda: not it.counts.events)
            assert it.events._endpoints == {}
    finally:
        publisher.stop()
        other.stop()


async def test_what_the_core_forgot_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = Publisher()
    try:
        publisher.publish(stored([1, 2]))
        async with rig(monkeypatch) as it:
            it.say(told(publisher))
            await it.until(lambda: it.known() == 2)
            it.core.members.heard("r", Event.CONNECT_FAILED, 1.0)
            assert it.known() is None
            it.core.members.heard("r", Event.PROBE_OK, 2.0)
            await it.until(lambda: it.known() == 2)
    finally:
        publisher.stop()


async def test_a_thread_that_fails_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = Publisher()
    try:
        publisher.publish(stored([1, 2]))
        async with rig(monkeypatch) as it:
            it.say(told(publisher))
            await it.until(lambda: it.known() == 2)
            follower = it.events._follower
            assert follower is not None

            def fail() -> None:
                raise RuntimeError("planned")

            follower._do(fail)
            await it.until(lambda: it.events._follower not in (None, follower) and it.known() == 2)
            assert not follower.is_alive
    finally:
        publisher.stop()


async def test_without_pyzmq_it_is_said_once_and_nobody_is_followed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in list(sys.modules):
        if name == "zmq" or name.startswith(("zmq.", "router.control.events.follower")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "zmq", None)
    asked = {"publisher": "zmq", "endpoint_port_base": 5_557, "block_size": 64}
    async with rig(monkeypatch) as it:
        it.say(asked)
        await it.until(lambda: "events-unsupported" in caplog.text)
        other = {**asked, "endpoint_port_base": 5_558}
        it.say(other)
        await it.until(lambda: it.events._endpoints["r"] == tuple(endpoints_of(other, "127.0.0.1")))
        assert caplog.text.count("events-unsupported") == 1
        assert it.known() is None


@pytest.mark.parametrize(
    "said",
    [
        None,
        7,
        [],
        {},
        {"publisher": "null", "endpoint_port_base": 1, "block_size": 64},
        {"publisher": "zmq", "endpoint_port_base": 70_000, "block_size": 64},
        {"publisher": "zmq", "endpoint_port_base": True, "block_size": 64},
        {"publisher": "zmq", "endpoint_port_base": 5_557, "block_size": 0},
        {"publisher": "zmq", "endpoint_port_base": 5_557, "block_size": 64, "dp_size": 10_000},
        {"publisher": "zmq", "endpoint_port_base": 65_535, "block_size": 64, "dp_size": 2},
    ],
)
def test_what_is_no_publisher_is_not_followed(said: object) -> None:
    assert list(endpoints_of(said, "h")) == []


def test_each_rank_has_ports_of_its_own() -> None:
    said = {
        "publisher": "zmq",
        "endpoint_host": "0.0.0.0",
        "endpoint_port_base": 5_557,
        "replay_endpoint_port_base": 6_000,
        "block_size": 64,
        "dp_size": 2,
    }
    first, second = endpoints_of(said, "fd00::1")
    assert (first.live, first.replay) == ("tcp://[fd00::1]:5557", "tcp://[fd00::1]:6000")
    assert (second.live, second.replay, second.rank) == (
        "tcp://[fd00::1]:5558",
        "tcp://[fd00::1]:6001",
        1,
    )
    for host in ("10.0.0.9", "x\n2026-01-05 ERROR forged", " "):
        (named,) = endpoints_of({**said, "endpoint_host": host, "dp_size": 1}, "h")
        assert (named.live, named.replay) == ("tcp://h:5557", "tcp://h:6000")
    (without,) = endpoints_of({**said, "dp_size": 1, "replay_endpoint_port_base": None}, "h")
    assert (without.replay, without.topic) == ("", b"")
