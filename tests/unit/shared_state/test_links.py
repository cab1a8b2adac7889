"""Links over the store in memory: routers of one process share as those of several do."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from typing_extensions import override

from router.clock import now_s
from router.control.sharing.breaker import Breaker
from router.control.sharing.link import Link, LinkParameters
from router.obs.sharing import SharingCounts
from router.state.fleet.replica import PeerLoad
from router.stores.base import StoreError, Trouble
from router.stores.memory_store import Hub, MemoryStore
from tests.unit.shared_state.test_peer_words import a_core, prompt, served

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.core import RouterCore

WAIT_S = 10.0


class Gated(MemoryStore):
    """A store that answers no question before ``answers`` is set, and then fails if ``is_away``."""

    def __init__(self, hub: Hub, *, is_away: bool = False) -> None:
        super().__init__(hub)
        self.answers = asyncio.Event()
        self.is_away = is_away

    @override
    async def read(self, keys: Sequence[str]) -> list[bytes | None]:
        await self.answers.wait()
        if self.is_away:
            raise StoreError(Trouble.UNREACHABLE, "nobody listens")
        return await super().read(keys)


def a_link(
    hub: Hub, name: str, *, store: MemoryStore | None = None, publish_s: float = 0.01
) -> tuple[RouterCore, Link]:
    core = a_core()
    parameters = LinkParameters(publish_s=publish_s, read_s=1.0)
    link = Link(
        core, store or MemoryStore(hub), SharingCounts(), router=name, now_s=now_s, dice=random.Random(1),
        parameters=parameters,
    )  # fmt: skip
    return core, link


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what two loops of words bring about."""
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_what_one_serves_the_others_know() -> None:
    hub = Hub(now_s)
    (one, its_link), (two, other_link) = a_link(hub, "one"), a_link(hub, "two")
    for link in (its_link, other_link):
        await link.start()
    await until(lambda: one.peers.n == two.peers.n == 1)
    home = served(one, prompt("s", 9), now_s())
    ticket = one.arrive(prompt("t", 9, first=7), now_s())
    await until(lambda: two.pins.get("t") is not None)
    pin, replica = two.pins.get("s"), two.fleet.get(ticket.replica_id)
    assert pin is not None
    assert pin.home_id == home
    assert replica is not None
    assert replica.peers != PeerLoad()
    await its_link.stop()
    await until(lambda: replica.peers.inflight == 1)  # its last word says that one is not over
    await other_link.stop()
    assert hub.listeners == []


async def test_a_router_that_starts_later_asks_for_what_it_does_not_know() -> None:
    hub = Hub(now_s)
    one, its_link = a_link(hub, "one")
    await its_link.start()
    home = served(one, prompt("s", 9), now_s())
    await until(lambda: any(key.startswith("pin:") for key in hub.values))
    two, link = a_link(hub, "two")
    await link.start()
    known = asyncio.Event()
    assert link.ask(prompt("s", 11), known.set)
    async with asyncio.timeout(WAIT_S):
        await known.wait()
    assert two.arrive(prompt("s", 11), now_s()).replica_id == home
    assert not link.ask(prompt("s", 12), known.set)
    for each in (its_link, link):
        await each.stop()


async def test_a_router_is_apart_until_its_first_question_is_answered() -> None:
    hub = Hub(now_s)
    store = Gated(hub)
    core, link = a_link(hub, "one", store=store, publish_s=60.0)
    await link.start()
    assert core.peers.is_apart
    store.answers.set()
    await until(lambda: not core.peers.is_apart)
    assert not link.is_away
    await link.stop()


async def test_a_store_that_does_not_answer_the_first_question_is_away_at_once() -> None:
    hub = Hub(now_s)
    store = Gated(hub, is_away=True)
    store.answers.set()
    core, link = a_link(hub, "one", store=store, publish_s=60.0)
    await link.start()
    await until(lambda: link.is_away)
    assert core.peers.is_apart
    await link.stop()


async def test_routers_are_apart_while_an_emptied_store_is_filled_again() -> None:
    hub = Hub(now_s)
    (one, its_link), (two, other_link) = a_link(hub, "one"), a_link(hub, "two")
    for link in (its_link, other_link):
        await link.start()
    await until(lambda: one.peers.n == two.peers.n == 1)
    assert not one.peers.is_apart
    hub.values.clear()
    for n in range(2):  # so that there is something to say
        served((one, two)[n], prompt(f"s{n}", 9, first=3 + n), now_s())
    await until(lambda: one.peers.is_apart and two.peers.is_apart)
    for link in (its_link, other_link):
        await link.stop()


async def test_an_operators_change_counts_over_what_the_store_knows() -> None:
    hub = Hub(now_s)
    (one, its_link), (two, other_link) = a_link(hub, "one"), a_link(hub, "two")
    for link in (its_link, other_link):
        await link.start()
    served(one, prompt("s", 9), now_s())
    await until(lambda: two.pins.get("s") is not None)
    changes = [
        link.changed("s", lambda core=core, to=to: core.operating.move("s", to, now_s()))  # type: ignore[misc]
        for core, link, to in ((one, its_link, "r0"), (two, other_link, "r1"))
    ]
    assert await asyncio.gather(*changes) == [True, True]

    def agree() -> bool:
        pins = [core.pins.get("s") for core in (one, two)]
        return len({(pin.home_id, pin.version) for pin in pins if pin is not None}) == 1

    await until(agree)
    for link in (its_link, other_link):
        await link.stop()


def test_after_three_late_answers_one_request_in_a_while_waits() -> None:
    breaker = Breaker(random.Random(1))
    for _ in range(3):
        assert breaker.may_wait(0.0)
        breaker.late(0.0)
    assert not breaker.may_wait(0.4)
    assert breaker.may_wait(1.6)
    assert not breaker.may_wait(1.7)
    assert breaker.may_wait(3.3)
    breaker.came()
    assert breaker.may_wait(3.3)
    assert breaker.may_wait(3.3)
