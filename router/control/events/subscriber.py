"""Which caches are followed, and what they tell handed to the core, on the event loop.

Who asks the replicas what they are tells here what they say of their publishers (``/server_info``); each
cache is then followed by the one thread of :mod:`router.control.events.follower`.
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

from router.control.events.frames import endpoints_of
from router.control.events.tying import Tying
from router.state.cache.feeds import Feeding, Said
from router.state.cache.pages import Kind
from router.state.health.table import State
from router.tasks import spawn

if TYPE_CHECKING:
    import ssl
    from collections import defaultdict
    from collections.abc import Callable, Mapping, Sequence

    from router.control.events.follower import Follower
    from router.control.events.frames import Endpoint
    from router.control.events.line import Item, Key
    from router.control.events.story import What
    from router.core import RouterCore

_log = logging.getLogger("homeport.events")
_FOLLOW_S: Final = 1.0
_BEGIN_AGAIN_S: Final = 30.0
_READY: Final = (State.READY, State.SUSPECT, State.DRAINING)


class EventCounts(Protocol):
    """What is counted: of each replica's events by word, of ties by outcome."""

    events: defaultdict[tuple[str, str], int]
    ties: defaultdict[str, int]


class KvEvents:
    """Follows the caches of the whole fleet and tells the core; ``tying`` learns which pages prompts have."""

    def __init__(
        self,
        core: RouterCore,
        counts: EventCounts,
        *,
        now_s: Callable[[], float],
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._core = core
        self._counts = counts.events
        self.tying = Tying(core, counts=counts.ties, now_s=now_s, api_key=api_key, tls=tls)
        self._now_s = now_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._follower: Follower | None = None
        self._is_missing = False
        self._following: asyncio.Task[None] | None = None
        self._told: dict[str, tuple[str, tuple[Endpoint, ...]]] = {}
        self._is_told = asyncio.Event()
        self._endpoints: dict[str, tuple[Endpoint, ...]] = {}
        self._said: dict[Key, Said] = {}
        self._n_taken: dict[Key, int] = {}
        self._begun_s: dict[Key, float] = {}

    async def start(self) -> None:
        """Follow the fleet from now on."""
        self._loop = asyncio.get_running_loop()
        await self.tying.start()
        self._following = spawn(self._follow(), name="kv-events")

    async def stop(self) -> None:
        """Follow nothing more; the thread is ended."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self.tying.stop()
        if self._follower is not None:
            await asyncio.to_thread(self._follower.stop)
            self._follower = None

    def described(self, replica_id: str, info: Mapping[str, Any]) -> None:
        """A replica said what it is (``/server_info``), and with that where it publishes."""
        replica = self._core.fleet.get(replica_id)
        if replica is not None:
            host = replica.spec.host
            self._told[replica_id] = (
                replica.spec.url,
                tuple(endpoints_of(info.get("kv_events"), host)),
            )
            self._is_told.set()

    # Who is followed

    async def _follow(self) -> None:
        while True:
            try:
                await self._look()
            except Exception:  # noqa: BLE001  (what nobody thought of must not end the following)
                _log.exception("events-failed")
            try:
                async with asyncio.timeout(_FOLLOW_S):
                    await self._is_told.wait()
            except TimeoutError:
                continue
            self._is_told.clear()

    async def _look(self) -> None:
        """One look at the fleet: who is gone, who publishes elsewhere now, whose story broke off."""
        replicas = {replica.replica_id: replica for replica in self._core.fleet.replicas()}
        for replica_id in self._told.keys() - replicas.keys():
            self._leave(replica_id)
        if self._follower is not None and not self._follower.is_alive:
            await self._lost_thread()
        now_s = self._now_s()
        for replica_id, (url, endpoints) in list(self._told.items()):
            replica = replicas.get(replica_id)
            if replica is None or url != replica.spec.url:
                self._leave(replica_id)
            elif endpoints != self._endpoints.get(replica_id, ()):
                await self._settle(replica_id, endpoints)
            elif replica.state in _READY:
                self._begin_broken(replica_id, now_s)

    def _begin_broken(self, replica_id: str, now_s: float) -> None:
        """What the core has forgotten of a cache is told again: its replica was away, or it was too much."""
        feed = self._core.beliefs.feeds.get(replica_id)
        for endpoint in self._endpoints.get(replica_id, ()):
            key = (replica_id, endpoint.rank)
            is_told = self._said.get(key) in (Said.WHOLE, Said.PARTIAL)
            is_known = feed is not None and endpoint.rank in feed.begun
            is_due = now_s - self._begun_s.get(key, -inf) > _BEGIN_AGAIN_S
            if is_told and not is_known and is_due and self._follower is not None:
                self._begun_s[key] = now_s
                self._said[key] = Said.LOST
                self._follower.begin_anew(key)

    def _leave(self, replica_id: str) -> None:
        self._told.pop(replica_id, None)
        for endpoint in self._endpoints.pop(replica_id, ()):
            self._unfollow((replica_id, endpoint.rank))
        if self._core.fleet.get(replica_id) is None:
            for row in [row for row in list(self._counts) if row[0] == replica_id]:
                del self._counts[row]

    def _unfollow(self, key: Key) -> None:
        if self._follower is not None:
            self._follower.leave(key)
        self._said.pop(key, None)
        self._n_taken.pop(key, None)
        self._begun_s.pop(key, None)

    async def _lost_thread(self) -> None:
        """The thread has failed: nothing is followed until it runs again."""
        assert self._follower is not None
        follower, self._follower = self._follower, None
        await asyncio.to_thread(follower.stop)
        for replica_id, endpoints in list(self._endpoints.items()):
            for endpoint in endpoints:
                self._tell(replica_id, endpoint, Said.LOST)
                self._unfollow((replica_id, endpoint.rank))
            del self._endpoints[replica_id]

    # Where it publishes

    async def _settle(self, replica_id: str, found: tuple[Endpoint, ...]) -> None:
        """A replica publishes elsewhere than it did, or no more."""
        for endpoint in self._endpoints.get(replica_id, ()):
            self._tell(replica_id, endpoint, Said.LOST)
            self._unfollow((replica_id, endpoint.rank))
        self._endpoints[replica_id] = found
        if not found or not await self._has_follower():
            return
        assert self._follower is not None
        _log.info("events-followed replica=%s caches=%d", replica_id, len(found))
        for endpoint in found:
            self._n_taken[replica_id, endpoint.rank] = 0
            self._follower.follow((replica_id, endpoint.rank), endpoint)

    async def _has_follower(self) -> bool:
        """Whether caches can be followed; begins to, if need be."""
        if self._follower is not None:
            return True
        if self._is_missing:
            return False
        try:
            from router.control.events.follower import Follower  # noqa: PLC0415  (an extra)
        except ImportError:
            self._is_missing = True
            _log.warning(
                "events-unsupported (replicas publish KV events; install homeport[events] to follow"
                " them, until then beliefs rest on what answers report)"
            )
            return False
        follower = self._follower = Follower(self._deliver, self._count)
        await asyncio.to_thread(follower.start)
        return True

    # What they tell

    def _deliver(self, key: Key, items: list[Item]) -> None:
        """A batch came; called in the thread."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._take, key, items)
        except RuntimeError:
            return  # the loop has ended

    def _count(self, key: Key, what: What) -> None:
        """Something happened to a story; called in the thread, alone in writing these."""
        self._counts[key[0], what.value] += 1

    def _take(self, key: Key, items: Sequence[Item]) -> None:
        """Tell the core what a cache said."""
        n_taken = self._n_taken.get(key)
        if n_taken is None or self._follower is None:
            return
        self._n_taken[key] = n_taken + 1
        self._follower.taken(key, n_taken + 1)
        replica_id, rank = key
        endpoint = next((e for e in self._endpoints.get(replica_id, ()) if e.rank == rank), None)
        if endpoint is None or self._core.fleet.get(replica_id) is None:
            return
        for item in items:
            if isinstance(item, Said):
                self._tell(replica_id, endpoint, item)
                continue
            for change in item:
                self._counts[replica_id, f"pages-{change.kind.name.lower()}"] += (
                    1 if change.kind is Kind.CLEARED else len(change.pages)
                )
            self._core.members.paged(replica_id, rank, item, self._now_s())

    def _tell(self, replica_id: str, endpoint: Endpoint, said: Said) -> None:
        key = (replica_id, endpoint.rank)
        if said in (Said.LOST, Said.PARTIAL) and said is not self._said.get(key):
            _log.warning("events-%s replica=%s rank=%d", said.value, *key)
        self._said[key] = said
        told = Feeding(said, endpoint.page_tokens, endpoint.rank, endpoint.n_ranks)
        self._core.members.fed(replica_id, told, self._now_s())
