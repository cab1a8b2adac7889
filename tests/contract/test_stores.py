"""The contract of a store, held against every member: in memory, and in real Redis servers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest

from router.clock import now_s
from router.stores.access import access_of
from router.stores.memory_store import Hub, MemoryStore
from router.stores.redis_store import RedisStore
from tests.doubles.redis_server import WHEEL, newest, running_redis

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from router.stores.base import Store, StoreError

WAIT_S = 10.0


class Stored(NamedTuple):
    """A session as the store sees it."""

    key: str
    version: int
    turn: int
    text: str = ""
    form: int = 1

    @property
    def value(self) -> bytes:
        return msgspec.msgpack.encode([self.form, self.version, self.turn, self.text])


class Ears:
    """Hears what is said, and wakes who waits for it."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.n_listening = 0
        self.deaf: list[StoreError] = []
        self._news = asyncio.Event()

    def on_message(self, data: bytes) -> None:
        self.heard.append(data)
        self._news.set()

    def on_listening(self) -> None:
        self.n_listening += 1
        self._news.set()

    def on_deaf(self, error: StoreError) -> None:
        self.deaf.append(error)
        self._news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not holds():
                self._news.clear()
                await self._news.wait()


@pytest.fixture(scope="module", params=["memory", "redis-6.2", "redis-7"])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[[], Store]]:
    """Makes stores that share what they store."""
    if request.param == "memory":
        hub = Hub(now_s)
        yield lambda: MemoryStore(hub)
        return
    program = WHEEL if request.param == "redis-6.2" else newest()
    with running_redis(program=program) as server:
        yield lambda: RedisStore(access_of(server.url), random.Random(1))


async def until(ask: Callable[[], Awaitable[object]], expected: object) -> None:
    """Ask a store again and again, until it answers so: its own clock decides when."""
    async with asyncio.timeout(WAIT_S):
        while await ask() != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def listening(make: Callable[[], Store]) -> AsyncIterator[tuple[Store, Ears]]:
    store, ears = make(), Ears()
    await store.start(ears)
    try:
        await ears.until(lambda: ears.n_listening > 0)
        yield store, ears
    finally:
        await store.stop()


async def test_what_one_writes_another_reads(make: Callable[[], Store]) -> None:
    async with listening(make) as (one, _), listening(make) as (other, _):
        rows = [Stored(f"a{n}", 0, n) for n in range(70)]
        assert await one.write(rows, ttl_s=60.0) == [None] * 70
        found = await other.read([*(row.key for row in rows), "nobody"])
        assert found == [*(row.value for row in rows), None]
        assert await other.read([]) == []


async def test_nothing_is_written_over_what_is_newer(make: Callable[[], Store]) -> None:
    async with listening(make) as (store, _):
        stands = Stored("b", 2, 7, "stands")
        assert await store.write([stands], ttl_s=60.0) == [None]
        older = [Stored("b", 1, 9), Stored("b", 2, 6)]
        assert await store.write(older, ttl_s=60.0) == [stands.value, stands.value]
        assert await store.read(["b"]) == [stands.value]
        newer = [Stored("b", 2, 7, "again"), Stored("b", 2, 8), Stored("b", 3, 1, "last")]
        assert await store.write(newer, ttl_s=60.0) == [None] * 3
        assert await store.read(["b"]) == [newer[-1].value]


async def test_a_value_of_another_form_keeps_its_rank(make: Callable[[], Store]) -> None:
    """What a newer router wrote is not written over by an older one that cannot read it."""
    async with listening(make) as (store, _):
        later = Stored("c", 5, 1, form=2)
        await store.write([later], ttl_s=60.0)
        assert await store.write([Stored("c", 4, 9)], ttl_s=60.0) == [later.value]
        assert await store.swap(Stored("d", 0, 0), expected=None, ttl_s=60.0) is None


async def test_a_value_is_forgotten_when_its_time_is_over(make: Callable[[], Store]) -> None:
    async with listening(make) as (store, _):
        await store.write([Stored("e", 0, 1)], ttl_s=0.05)
        await until(lambda: store.read(["e"]), [None])


async def test_a_swap_needs_the_version_that_was_seen(make: Callable[[], Store]) -> None:
    async with listening(make) as (store, _):
        first, second = Stored("f", 1, 1), Stored("f", 2, 1)
        assert await store.swap(first, expected=3, ttl_s=60.0) == b""
        assert await store.swap(first, expected=None, ttl_s=60.0) is None
        assert await store.swap(second, expected=None, ttl_s=60.0) == first.value
        assert await store.swap(second, expected=1, ttl_s=60.0) is None
        assert await store.swap(first, expected=1, ttl_s=60.0) == second.value


async def test_of_many_who_swap_at_once_one_succeeds(make: Callable[[], Store]) -> None:
    async with listening(make) as (one, _), listening(make) as (other, _):
        tries = [
            store.swap(Stored("g", 1, n), expected=None, ttl_s=60.0)
            for n, store in enumerate([one, other] * 6)
        ]
        assert [*await asyncio.gather(*tries)].count(None) == 1


async def test_what_is_said_is_heard_by_all_in_order(make: Callable[[], Store]) -> None:
    async with listening(make) as (one, at_one), listening(make) as (_, at_other):
        words = [b"%d" % n for n in range(20)]
        for word in words:
            await one.say("r1", b"v", word, ttl_s=5.0)
        for ears in (at_one, at_other):
            await ears.until(lambda ears=ears: len(ears.heard) >= 20)  # type: ignore[misc]
            assert ears.heard == words


async def test_a_router_learns_that_its_last_word_is_gone(make: Callable[[], Store]) -> None:
    async with listening(make) as (store, _):
        assert await store.say("r9", b"v", b"m", ttl_s=0.2) is False
        assert await store.say("r9", b"v", b"m", ttl_s=0.05) is True
        await until(lambda: store.say("r9", b"v", b"m", ttl_s=0.05), expected=False)


async def test_a_named_value_is_held_by_who_saw_the_last_one(make: Callable[[], Store]) -> None:
    async with listening(make) as (one, _), listening(make) as (other, _):
        assert await one.hold("lease:x", b"1", expected=None, ttl_s=60.0)
        assert not await other.hold("lease:x", b"2", expected=None, ttl_s=60.0)
        assert await other.hold("lease:x", b"2", expected=b"1", ttl_s=60.0)
        assert await one.hold("drain:y", b"d", expected=None, ttl_s=0.05)
        found = {lease.name: lease for lease in await one.held()}
        assert found["lease:x"].value == b"2"
        assert 50.0 < found["lease:x"].left_s <= 60.0
        assert await one.hold("lease:x", b"", expected=b"2", ttl_s=60.0)
        await until(one.held, [])
