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

    from sim.engine.cache import Node


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

    On the device that is ``device_pages``, which end in ``device``, and likewise in the host tier. It
    is current as long as these nodes have the versions that they had. ``version`` counts how often it
    was matched anew.
    """

    __slots__ = (
        "device",
        "device_pages",
        "device_version",
        "host",
        "host_pages",
        "host_version",
        "limit",
        "matched",
        "pages",
        "version",
    )

    def __init__(
        self, pages: array[int], limit: int, device: tuple[Node, int], host: tuple[Node, int]
    ) -> None:
        self.pages = pages
        self.limit = limit
        node, on_device = device
        self.device = node
        self.device_pages = on_device
        self.device_version = node.version
        node, in_host = host
        self.host = node
        self.host_pages = in_host
        self.host_version = node.version
        self.matched = on_device if on_device > in_host else in_host
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
        tree, host = self.tree, self.host.tree
        return Lookup(pages, limit, tree.match(pages, limit), host.match(pages, limit))

    def look(self, lookup: Lookup) -> int:
        """Pages found from the start in either tier. Matches anew only where something changed."""
        is_device_current = lookup.device_version == lookup.device.version
        is_host_current = lookup.host_version == lookup.host.version
        if not (is_device_current and is_host_current):
            pages, limit = lookup.pages, lookup.limit
            if not is_device_current:
                node, lookup.device_pages = self.tree.match(pages, limit)
                lookup.device, lookup.device_version = node, node.version
            if not is_host_current:
                node, lookup.host_pages = self.host.tree.match(pages, limit)
                lookup.host, lookup.host_version = node, node.version
            on_device, in_host = lookup.device_pages, lookup.host_pages
            lookup.matched = on_device if on_device > in_host else in_host
            lookup.version += 1
        return lookup.matched

    def pin(self, lookup: Lookup) -> Holding:
        """Hold what a current look-up found in each tier; :meth:`release` undoes it."""
        on_device, in_host = lookup.device_pages, lookup.host_pages
        return Holding(
            self.tree.lock(lookup.device, on_device),
            self.host.tree.lock(lookup.host, in_host),
            device_pages=on_device,
            host_stored=in_host,
        )

    def touch(self, lookup: Lookup) -> None:
        """Count what a current look-up found as used now: as if it was held for a moment."""
        self.tree.touch(lookup.device, lookup.device_pages)
        self.host.tree.touch(lookup.host, lookup.host_pages)

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
        if stop <= start:
            return
        assert stop <= holding.pages, (
            f"1: {stop - start} pages stored of {holding.private} allocated"
        )
        holding.node = self.tree.extend(holding.node, pages, stop, shift, ends)
        holding.stored = stop
        self.private_pages -= stop - start
        if shift <= holding.host_stored < stop:
            self._store_in_host(holding, pages, stop, shift, ends)

    def release(self, holding: Holding) -> None:
        """Free what the request held; its stored pages stay until they are evicted."""
        self.private_pages -= holding.pages - holding.stored
        holding.pages = holding.stored
        self.tree.unlock(holding.node)
        self.host.tree.unlock(holding.host_node)

    def warm(self, pages: array[int], n_pages: int) -> None:
        """Hold the first ``n_pages`` as if a request had computed them and ended; in each tier as many as find room."""
        holding = self.pin(self.find(pages, n_pages))
        self.have(holding, min(n_pages, holding.pages + max(0, self.room_pages)))
        self.store(holding, pages, holding.pages)
        if holding.host_stored < n_pages:
            self._store_in_host(holding, pages, n_pages, 0, ())
        self.release(holding)

    def _store_in_host(
        self, holding: Holding, pages: array[int], stop: int, shift: int, ends: Sequence[int]
    ) -> None:
        host, start = self.host, holding.host_stored
        tree = host.tree
        lacking = tree.n_pages + stop - start - host.capacity_pages
        if lacking > 0:
            lacking -= tree.evict(lacking)
            if lacking > 0:
                stop -= lacking
                if stop <= start:
                    return
        holding.host_stored = stop
        holding.host_node = tree.extend(holding.host_node, pages, stop, shift, ends)

    def clear(self) -> None:
        """Forget what this replica holds; no request may be admitted."""
        self.tree.clear()
        if not self.host.is_shared:
            self.host.tree.clear()
