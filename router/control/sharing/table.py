"""Registrations and operators' words on replicas, held in the store and followed by every router.

A change is compared and set there before its caller is answered. The others are told that there is one and read
the whole table, as they do when they begin to listen. Heartbeats go round with the words that go round
anyway. While the store is away nobody's lease ends for want of them: whether a replica is there, probes tell.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from router.state.members.roster import Source
from router.state.shared.orders import Wish, lease_of, order_after, order_in, spec_in
from router.stores.base import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.core import RouterCore
    from router.state.fleet.replica import ReplicaSpec
    from router.state.members.roster import Roster
    from router.state.shared.desk import Desk
    from router.state.shared.orders import OrderValue
    from router.stores.base import Store

_log = logging.getLogger("homeport.sharing")

_DAY_S: Final = 86_400.0
"""A drain lasts no longer than that without being held again, and a registration without a lease."""

_HOLD_AGAIN_S: Final = 3_600.0
_TRIES: Final = 4
_LEASE: Final = "lease:"
_ORDER: Final = "order:"


class FleetTable:
    """One router's part in the table; ``on_membership`` is called when a replica joined or left by it."""

    def __init__(
        self,
        core: RouterCore,
        roster: Roster,
        store: Store,
        desk: Desk,
        *,
        now_s: Callable[[], float],
        wall_s: Callable[[], float],
        on_membership: Callable[[], None],
    ) -> None:
        self._core = core
        self._roster = roster
        self._store = store
        self._desk = desk
        self._now_s = now_s
        self._wall_s = wall_s
        self._on_membership = on_membership
        self._held: dict[str, tuple[bytes, float]] = {}  # what this router holds, and for how long
        self._told: dict[str, float | None] = {}  # replicas by others' words, with their lease
        self._numbers: dict[str, int] = {}  # of the orders that were followed
        self._due: dict[str, None] = {}  # leases to be held again
        self._held_s = 0.0
        self.is_stale = True

    # What this router was told by a replica or an operator

    async def registered(self, spec: ReplicaSpec) -> bool:
        """A replica registered here: let the others know. False if they do not, and will not by this.

        One with a key of its own is not told of: the store is no place for it.
        """
        if spec.api_key is not None:
            return False
        name, value = _LEASE + spec.replica_id, lease_of(spec)
        self._told.pop(spec.replica_id, None)
        ttl_s = _DAY_S if spec.lease_s is None else spec.lease_s
        self._held[name] = value, ttl_s
        is_held = await self._set(name, lambda _: value, ttl_s)
        if self._numbers.get(spec.replica_id):  # it ends what an operator wanted of it before
            is_held = await self.ordered(spec.replica_id, Wish.UNDRAIN) and is_held
        return is_held

    def renewed(self, replica_id: str) -> None:
        """A replica's heartbeat came here; its lease is held again with the next word."""
        self._desk.renewed[replica_id] = None
        if _LEASE + replica_id in self._held:
            self._due[_LEASE + replica_id] = None

    async def ordered(
        self,
        replica_id: str,
        wish: Wish,
        *,
        leaves: bool = False,
        deadline_s: float | None = None,
    ) -> bool:
        """An operator told this router what to do with a replica: all are to. False if they do not know."""
        until_s = 0.0 if deadline_s is None else self._wall_s() + deadline_s
        name = _ORDER + replica_id

        def next_word(before: bytes | None) -> bytes:
            value = order_after(before, wish, leaves=leaves, until_s=until_s)
            order = order_in(value)
            assert order is not None, "it was just made"
            self._numbers[replica_id] = order.number
            self._held[name] = value, _DAY_S
            return value

        if wish is Wish.REMOVE:
            self._told.pop(replica_id, None)
            self._held.pop(_LEASE + replica_id, None)
        return await self._set(name, next_word, _DAY_S)

    async def _set(self, name: str, make: Callable[[bytes | None], bytes], ttl_s: float) -> bool:
        """Compare and set one value, however many others do so at the same time."""
        try:
            for _ in range(_TRIES):
                there = {lease.name: lease.value for lease in await self._store.held()}
                before = there.get(name)
                if await self._store.hold(name, make(before), expected=before, ttl_s=ttl_s):
                    self._desk.has_orders = True
                    return True
        except StoreError as error:
            make(None)
            _log.warning(
                "not-shared what=%s why=%s (it counts at this router)", name, error.trouble
            )
        return False

    # What time brings

    def hears_nobody(self) -> None:
        """The store is away: that no heartbeat is told of does not mean that there was none."""
        now_s = self._now_s()
        for replica_id, lease_s in self._told.items():
            if lease_s is not None:
                self._roster.renew(replica_id, now_s)

    def heard(self, renewed: list[str], has_orders: bool) -> None:  # noqa: FBT001
        """Another router told of heartbeats, or that the table has changed."""
        now_s = self._now_s()
        for replica_id in renewed:
            if replica_id in self._told:
                self._roster.renew(replica_id, now_s)
        self.is_stale = self.is_stale or has_orders

    async def follow(self, *, is_whole: bool) -> None:
        """Hold again what is due, all of it if the store lost what it knew, and read what is new.

        Raises:
            StoreError: the store does not answer; it is tried again with the next word.
        """
        now_s = self._now_s()
        if not is_whole or now_s - self._held_s > _HOLD_AGAIN_S:
            self._held_s = now_s
            self._due = dict.fromkeys(self._held)
        if self._due:
            due, self._due = self._due, {}
            for name in due:
                value, ttl_s = self._held[name]
                if not await self._store.hold(name, value, expected=value, ttl_s=ttl_s):
                    await self._store.hold(name, value, expected=None, ttl_s=ttl_s)
        if self.is_stale:
            self.is_stale = False
            await self._read()

    async def _read(self) -> None:
        try:
            rows = await self._store.held()
        except StoreError:
            self.is_stale = True
            raise
        has_changed = False
        for row in rows:
            if row.name.startswith(_LEASE):
                has_changed = self._learn(row.value) or has_changed
        for row in rows:
            order = order_in(row.value) if row.name.startswith(_ORDER) else None
            if order is not None:
                has_changed = self._obey(row.name.removeprefix(_ORDER), order) or has_changed
        if has_changed:
            self._on_membership()

    def _learn(self, value: bytes) -> bool:
        """Take a registration with another router; True if the replica is new here."""
        spec = spec_in(value)
        if spec is None:
            return False
        known = self._core.fleet.get(spec.replica_id)
        is_named = Source.REGISTERED.value in self._roster.sources(spec.replica_id)
        if known is not None and is_named:
            return False
        self._roster.offer(Source.REGISTERED, spec, self._now_s())
        self._told[spec.replica_id] = spec.lease_s
        _log.info(
            "registered replica=%s url=%s new=%d by=another router", spec.replica_id, spec.url, 1
        )
        return known is None

    def _obey(self, replica_id: str, order: OrderValue) -> bool:
        """Follow an operator's word to another router; True if the replica left by it."""
        if order.number <= self._numbers.get(replica_id, 0):
            return False
        self._numbers[replica_id] = order.number
        now_s = self._now_s()
        if order.wish is Wish.UNDRAIN:
            self._roster.undrain(replica_id, now_s)
            return False
        if order.wish is Wish.REMOVE:
            self._told.pop(replica_id, None)
            return self._roster.remove(replica_id)
        deadline_s = None if not order.until_s else max(0.0, order.until_s - self._wall_s())
        self._roster.drain(replica_id, now_s, deadline_s=deadline_s, leaves=order.leaves)
        return False
