"""The load feed: publishers of the test as SGLang's schedulers, followed in place of asking."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import zmq

from router.clock import now_s
from router.control.observe.feed import FeedAddress, Feeds, LoadFeed
from router.recording.records import Observed
from router.state.health.table import State
from tests.doubles.probed_engine import Engine, Watched, watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from router.state.fleet.replica import Replica


class Publishers:
    """The load sockets of an engine's ranks, on ports that follow each other."""

    def __init__(self, n_ranks: int = 1) -> None:
        self._context = zmq.Context()
        self.sockets: list[zmq.Socket[bytes]] = []
        self.port = 0
        self._sequence = 0
        while len(self.sockets) < n_ranks:
            self._bind(n_ranks)

    def _bind(self, n_ranks: int) -> None:
        """All on free neighbours, or none."""
        try:
            for rank in range(n_ranks):
                self.sockets.append(self._context.socket(zmq.PUB))
                self.sockets[-1].setsockopt(zmq.LINGER, 0)
                if rank:
                    self.sockets[-1].bind(f"tcp://127.0.0.1:{self.port + rank}")
                else:
                    self.port = self.sockets[0].bind_to_random_port("tcp://127.0.0.1")
        except zmq.ZMQError:
            for socket in self.sockets:
                socket.close()
            self.sockets.clear()

    def send(self, running: int, *, rank: int = 0, told_rank: int | None = None) -> None:
        """One reading, as SGLang packs it."""
        told = rank if told_rank is None else told_rank
        self.raw(
            msgspec.msgpack.encode(["LoadStat", running, 2, 50, 100, told, 700, 90, 16, 4_000, 9]),
            rank=rank,
        )

    def raw(self, *payload: bytes, rank: int = 0) -> None:
        """Whatever a test says, behind topic and sequence."""
        self._sequence += 1
        self.sockets[rank].send_multipart([b"load", struct.pack(">q", self._sequence), *payload])

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def publishers() -> Iterator[Publishers]:
    made = Publishers(2)
    yield made
    made.close()


class _Slow:
    """A clock on which each look takes so long."""

    def __init__(self) -> None:
        self.step_s = self._now_s = 0.0

    def __call__(self) -> float:
        self._now_s += self.step_s
        return self._now_s


def test_a_feed_is_not_live_until_what_waits_is_read(publishers: Publishers) -> None:
    context: zmq.Context[Any] = zmq.Context()
    slow, until_s = _Slow(), now_s() + 20.0
    feed = LoadFeed(context, FeedAddress("127.0.0.1", publishers.port, 2, "load"), slow)
    try:
        while len(feed.reports()) < 2:
            assert now_s() < until_s
            for rank in range(2):
                publishers.send(0, rank=rank)
            feed.read(0.0)
        slow.step_s = 0.04  # 63 messages take longer than a read may
        sent = 0
        while feed.is_live(0.0):
            assert now_s() < until_s
            for _ in range(200):
                sent += 1
                for rank in range(2):
                    publishers.send(sent, rank=rank)
            feed.read(0.0)
        told = [0, 0]
        while told != [sent, sent] or not feed.is_live(0.0):
            assert now_s() < until_s, (told, sent)
            feed.read(0.0)
            told = [report.num_running_reqs for report in feed.reports()]
    finally:
        feed.close()
        context.destroy(linger=0)


def test_feeds_for_which_no_socket_is_left_are_told_once(
    publishers: Publishers, caplog: pytest.LogCaptureFixture
) -> None:
    feeds = Feeds(sockets_max=1)
    address = FeedAddress("127.0.0.1", publishers.port, 1, "load")
    first = feeds.open(address)
    assert first is not None
    assert feeds.open(address) is None
    assert feeds.open(address) is None
    assert caplog.text.count("no-load-feed host='127.0.0.1'") == 1
    first.close()
    feeds.close()


def told(port: int, n_ranks: int) -> bytes:
    """An engine's facts with its load feed."""
    events: dict[str, Any] = {
        "endpoint_host": "*",
        "endpoint_port_base": 1,
        "dp_size": n_ranks,
        "load_endpoint_port_base": port,
        "load_topic": "load",
    }
    return json.dumps({"random_seed": 1, "kv_events": events}).encode()


def engine_with(publishers: Publishers, n_ranks: int = 1) -> Engine:
    engine = Engine()
    engine.answers["/server_info"] = told(publishers.port, n_ranks)
    return engine


async def published(seen: Watched, send: Callable[[], None], holds: Callable[[], bool]) -> None:
    """Publish until it is true: what is sent before the subscription is there is lost."""
    while not holds():
        send()
        await asyncio.sleep(0.01)  # a pace of its own, as a scheduler has
    assert seen.told(Observed)


def replica_of(seen: Watched) -> Replica:
    replica = seen.core.fleet.get("r")
    assert replica is not None
    return replica


async def test_a_feed_is_followed_in_place_of_asking_and_its_silence_noticed(
    publishers: Publishers,
) -> None:
    engine = engine_with(publishers)
    async with watched(engine) as seen:
        replica = replica_of(seen)
        await published(seen, lambda: publishers.send(31), lambda: replica.inflight == 33)
        observed = replica.observed
        assert observed is not None
        assert (observed.waiting_uncached_tokens, observed.used_ratio) == (700, 0.5)
        assert (observed.prefill_tokens, observed.prefill_busy_us) == (4_000, 9)
        asked, ready = engine.count("/v1/loads"), engine.count("/ready")
        await published(
            seen, lambda: publishers.send(32), lambda: engine.count("/ready") >= ready + 5
        )
        assert engine.count("/v1/loads") == asked
        assert replica.inflight == 34
        stamp = replica.observed and replica.observed.stamp
        # Nothing more is published: the load is asked for again, and the feed's stamp is not renewed.
        await engine.wait_for(lambda: engine.count("/v1/loads") > asked)
        await seen.until(lambda: replica.inflight == 1)
        assert replica.observed is not None
        assert replica.observed.stamp != stamp


async def test_a_scheduler_that_hangs_shows_by_a_feed_that_is_silent(
    publishers: Publishers,
) -> None:
    engine = engine_with(publishers)
    engine.moves = False  # its load report is old, and goes on being served
    async with watched(engine) as seen:
        replica = replica_of(seen)
        replica.load.inflight = 3
        ready = engine.count("/ready")
        # It stands still in its load reports, which count for nothing while its feed moves.
        await published(
            seen, lambda: publishers.send(1), lambda: engine.count("/ready") >= ready + 40
        )
        assert replica.state is State.READY
        await seen.until(lambda: replica.state is State.STALLED)
        await published(seen, lambda: publishers.send(1), lambda: replica.state is State.READY)


async def test_a_feed_counts_once_every_rank_is_heard(publishers: Publishers) -> None:
    engine = engine_with(publishers, n_ranks=2)
    async with watched(engine) as seen:
        replica = replica_of(seen)
        asked = engine.count("/v1/loads")

        def both() -> None:
            publishers.send(10)
            publishers.send(20, rank=1)

        await published(
            seen, lambda: publishers.send(10), lambda: engine.count("/v1/loads") >= asked + 3
        )
        assert replica.inflight == 1
        await published(seen, both, lambda: replica.inflight == 34)
        assert replica.observed is not None
        assert [load.running for load in replica.observed.ranks] == [10, 20]


async def test_odd_messages_are_passed_over(publishers: Publishers) -> None:
    engine = engine_with(publishers)
    odd = [
        b"",
        b"\xc1",
        b"\x91" * 2_000,
        msgspec.msgpack.encode(["LoadStat", 1, 2]),
        msgspec.msgpack.encode(["Other", 9, 9, 9, 9, 0]),
        msgspec.msgpack.encode({"LoadStat": 1}),
        msgspec.msgpack.encode(["LoadStat", "many", None, -5, 0, 99, 0]),
    ]
    async with watched(engine) as seen:
        replica = replica_of(seen)

        def send() -> None:
            for payload in odd:
                publishers.raw(payload)
            publishers.raw()
            publishers.raw(b"", b"")
            publishers.send(50, told_rank=7)
            publishers.send(40)

        await published(seen, send, lambda: replica.inflight == 42)


async def test_a_feed_that_is_lost_is_opened_again_with_the_next_description(
    publishers: Publishers,
) -> None:
    engine = engine_with(publishers)
    async with watched(engine) as seen:
        replica = replica_of(seen)
        await published(seen, lambda: publishers.send(5), lambda: replica.inflight == 7)
        asked = engine.count("/v1/loads")
        publishers.raw(bytes(1_000_000))
        await engine.wait_for(lambda: engine.count("/v1/loads") > asked)
        engine.answers["/ready"] = 503
        await engine.rounds(2)
        engine.answers["/ready"] = b""
        await published(seen, lambda: publishers.send(6), lambda: replica.inflight == 8)


async def test_a_flood_is_read_in_parts_and_the_newest_counts(publishers: Publishers) -> None:
    engine = engine_with(publishers)
    async with watched(engine) as seen:
        replica = replica_of(seen)
        await published(seen, lambda: publishers.send(5), lambda: replica.inflight == 7)
        for n in range(3_000):
            publishers.send(n)
        await engine.rounds(3)
        await published(seen, lambda: publishers.send(77), lambda: replica.inflight == 79)


async def test_a_feed_that_moves_is_followed_to_where_it_is(publishers: Publishers) -> None:
    engine = engine_with(publishers)
    other = Publishers()
    try:
        async with watched(engine) as seen:
            replica = replica_of(seen)
            await published(seen, lambda: publishers.send(5), lambda: replica.inflight == 7)
            engine.answers["/server_info"] = told(other.port, 1)
            engine.answers["/ready"] = 503
            await engine.rounds(2)
            engine.answers["/ready"] = b""
            await published(seen, lambda: other.send(8), lambda: replica.inflight == 10)
    finally:
        other.close()
