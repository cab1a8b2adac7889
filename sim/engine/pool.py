"""The KV memory of one replica: device pool with its prefix tree, and the host tier behind it.

Device pages are in one of three states: in the tree and pinned by a request, in the tree and
evictable, or private to a request (allocated, not yet a full computed page of the tree). The first and
the last are *used*: ``used + evictable <= capacity``.

The host tier is written through (``--hicache-write-policy write_through``): what enters the device
tree enters it as well. It has its own capacity and its own order of eviction; what a request on the
device has there stays (``_evict_host_leaf`` of SGLang's unified cache takes only what has left the
device). :class:`SharedPrefixes` stands in its place for a clairvoyant reference.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sim.engine.cache import PrefixTree

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from sim.engine.cache import Match, Node


class HostTier:
    """Pages kept in host memory, up to ``capacity_pages``."""

    is_shared = False

    def __init__(self, capacity_pages: int) -> None:
        self.capacity_pages = capacity_pages
        self.tree = PrefixTree()


class SharedPrefixes(HostTier):
    """What all replicas together have computed, held by each of them at no cost.

    Given to several models, it replaces their host tiers: nothing is ever evicted from it, and what a
    replica takes from it counts as its own and loads in no time. Memory grows with the distinct pages.
    """

    is_shared = True

    def __init__(self) -> None:
        super().__init__(sys.maxsize)


class Lookup:
    """What one request finds cached of ``pages[:limit]``; :meth:`KvPool.look` keeps it current.

    ``version`` counts how often it was matched anew.
    """

    __slots__ = ("device", "host", "limit", "matched", "pages", "version")

    def __init__(self, pages: array[int], limit: int, device: Match, host: Match) -> None:
        self.pages = pages
        self.limit = limit
        self.device = device
        self.host = host
        self.matched = device.at if device.at > host.at else host.at
        self.version = 0


class Holding:
    """What one admitted request holds of the pool.

    ``stored`` leading pages of its sequence are in the device tree, pinned, and end at ``node``;
    ``host_stored`` are in the host tier, pinned, and end at ``host_node``. ``pages`` are all its device
    pages, shared ones with them. ``device_pages`` and ``host_pages`` are what was found in each tier at
    admission.
    """

    __slots__ = (
        "device_pages",
        "host_node",
        "host_pages",
        "host_stored",
        "node",
        "pages",
        "stored",
    )

    def __init__(self, node: Node, host_node: Node, *, device_pages: int, host_stored: int) -> None:
        self.node = node
        self.host_node = host_node
        self.device_pages = device_pages
        self.host_pages = 0
        self.stored = self.pages = device_pages
        self.host_stored = host_stored

    @property
    def private(self) -> int:
        """Device pages that are not in the tree."""
        return self.pages - self.stored


class KvPool:
    """Device pool and host tier of one replica, counted in pages.

    ``loaded_pages`` were taken from the host tier so far.
    """

    def __init__(self, *, capacity_pages: int, host: HostTier) -> None:
        self.capacity_pages = capacity_pages
        self.tree = PrefixTree()
        self.host = host
        self.private_pages = 0
        self.loaded_pages = 0

    @property
    def used_pages(self) -> int:
        """Device pages that admitted requests hold."""
        return self.tree.pinned_pages + self.private_pages

    @property
    def room_pages(self) -> int:
        """Device pages that are free or can be evicted."""
        return self.capacity_pages - self.tree.pinned_pages - self.private_pages

    def find(self, pages: array[int], limit: int) -> Lookup:
        """What a request finds cached of ``pages[:limit]``."""
        device, host = self.tree.match(pages, limit), self.host.tree.match(pages, limit)
        return Lookup(pages, limit, device, host)

    def look(self, lookup: Lookup) -> int:
        """Pages found from the start in either tier. Matches anew only where something changed."""
        device, host = lookup.device, lookup.host
        is_device_current = device.version == device.node.version
        is_host_current = host.version == host.node.version
        if not (is_device_current and is_host_current):
            if not is_device_current:
                device = lookup.device = self.tree.match(lookup.pages, lookup.limit)
            if not is_host_current:
                host = lookup.host = self.host.tree.match(lookup.pages, lookup.limit)
            lookup.matched = device.at if device.at > host.at else host.at
            lookup.version += 1
        return lookup.matched

    def pin(self, lookup: Lookup) -> Holding:
        """Hold what a current look-up found in each tier; :meth:`release` undoes it."""
        device, host = lookup.device, lookup.host
        return Holding(
            self.tree.lock(device),
            self.host.tree.lock(host),
            device_pages=device.at,
            host_stored=host.at,
        )

    def touch(self, lookup: Lookup) -> None:
        """Count what a current look-up found as used now: as if it was held for a moment."""
        self.tree.touch(lookup.device)
        self.host.tree.touch(lookup.host)

    def load(self, holding: Holding, pages: array[int]) -> int:
        """Take the pages found only in the host tier into the device tree; answers how many.

        The caller accounts for the time of the load. From shared prefixes it answers 0.
        """
        count = holding.host_stored - holding.stored
        if count <= 0:
            return 0
        self.allocate(holding, count)
        self.store(holding, pages, holding.host_stored)
        if self.host.is_shared:
            holding.device_pages += count
            return 0
        holding.host_pages = count
        self.loaded_pages += count
        return count

    def allocate(self, holding: Holding, n_pages: int) -> None:
        """Give the request private pages; evicts whole runs until nothing is missing."""
        assert n_pages >= 0, f"{n_pages} pages allocated"
        holding.pages += n_pages
        self.private_pages += n_pages
        if self.tree.n_pages + self.private_pages > self.capacity_pages:
            self.make_room()

    def make_room(self) -> None:
        """Evict what is too much now that requests were given private pages."""
        shortage = self.tree.n_pages + self.private_pages - self.capacity_pages
        if shortage > 0:
            evicted = self.tree.evict(shortage)
            assert evicted >= shortage, f"2: pool overcommitted: {evicted} of {shortage} evicted"

    def go_on(
        self, holding: Holding, pages: array[int], start: int, n_chunks: int, chunk_pages: int
    ) -> None:
        """Store chunks from ``start`` deep one by one, and allocate the next behind each.

        Where nothing is held behind the stored pages, that comes to the same when all are done at once.
        """
        while n_chunks:
            is_end = not holding.node.children and not holding.host_node.children
            n = n_chunks if is_end else 1
            if n > 1:
                self.allocate(holding, (n - 1) * chunk_pages)
            stop = start + n * chunk_pages
            ends = range(start + chunk_pages, stop, chunk_pages)
            self.store(holding, pages, min(len(pages), stop), ends=ends)
            start = stop
            self.allocate(holding, chunk_pages)
            n_chunks -= n

    def have(self, holding: Holding, n_pages: int) -> None:
        """Give the request private pages until it has that many of its sequence."""
        missing = n_pages - holding.pages
        if missing > 0:  # as allocate, without another call
            holding.pages = n_pages
            self.private_pages += missing
            if self.tree.n_pages + self.private_pages > self.capacity_pages:
                self.make_room()

    def store(
        self,
        holding: Holding,
        pages: array[int],
        stop: int,
        *,
        shift: int = 0,
        ends: Sequence[int] = (),
    ) -> None:
        """Move what is computed behind the stored pages, up to ``stop`` deep, into both tiers.

        Into the host tier only as much as finds room.

        The ids in ``pages`` begin ``shift`` deep, and must not change from now on. Pages that another
        request stored meanwhile are shared, and the request's own freed. ``ends`` are depths
        at which a run of them ends before the last.
        """
        start = holding.stored
        moved = stop - start
        if moved <= 0:
            return
        assert stop <= holding.pages, f"1: {moved} pages stored of {holding.private} allocated"
        holding.node = self.tree.extend(holding.node, pages, start, stop, shift=shift, ends=ends)
        holding.stored = stop
        self.private_pages -= moved
        start = holding.host_stored
        capacity_pages = self.host.capacity_pages
        if shift <= start < stop and capacity_pages:
            tree = self.host.tree
            room = capacity_pages - tree.n_pages
            count = stop - start
            if count > room:
                room += tree.evict(count - room)
                if room < count:
                    count = room
            if count > 0:
                stop = holding.host_stored = start + count
                holding.host_node = tree.extend(
                    holding.host_node, pages, start, stop, shift=shift, ends=ends
                )

    def release(self, holding: Holding) -> None:
        """Free what the request held; its stored pages stay until they are evicted."""
        self.private_pages -= holding.pages - holding.stored
        holding.pages = holding.stored
        self.tree.unlock(holding.node)
        self.host.tree.unlock(holding.host_node)

    def clear(self) -> None:
        """Forget what this replica holds; no request may be admitted."""
        self.tree.clear()
        if not self.host.is_shared:
            self.host.tree.clear()
