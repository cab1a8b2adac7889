"""The KV memory of one replica: device pool with its prefix tree, and the host tier behind it.

Device pages are in one of three states: in the tree and pinned by a request, in the tree and
evictable, or private to a request (allocated, not yet a full computed page of the tree). Beyond
those, an admitted request has *reserved* what it will still allocate, so it can always go on:
``pinned + private + reserved <= capacity``.

The host tier is written through: what enters the device tree enters it as well. It has its own
capacity and its own order of eviction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.engine.cache import Node, PrefixTree

if TYPE_CHECKING:
    from array import array


class HostTier:
    """Pages kept in host memory; nothing there is pinned for longer than a call."""

    def __init__(self, capacity_pages: int) -> None:
        self.capacity_pages = capacity_pages
        self.tree = PrefixTree()

    def match(self, pages: array[int], limit: int) -> int:
        """Pages held of ``pages[:limit]`` from the start."""
        return self.tree.match(pages, limit)[0] if self.capacity_pages else 0

    def put(self, pages: array[int], count: int) -> None:
        """Hold ``pages[:count]``, or as many of them from the start as fit, and count it as use."""
        count = min(count, self.capacity_pages)
        tree = self.tree
        have, _ = tree.match(pages, count)
        if have == count:
            tree.touch(pages, count)
            return
        node = tree.lock(pages, have)
        shortage = tree.n_pages + count - have - self.capacity_pages
        if shortage > 0:
            evicted = tree.evict(shortage)
            assert evicted >= shortage, "all but the locked prefix can be evicted"
        node, _ = tree.extend(node, pages, have, count)
        tree.unlock(node)


class Holding:
    """What one admitted request holds of the pool.

    ``stored`` leading pages of its sequence are in the tree, pinned, and end at ``node``.
    ``device_pages`` and ``host_pages`` are what was found in each tier at admission.
    """

    __slots__ = ("device_pages", "host_pages", "node", "private", "reserved", "stored")

    def __init__(self, node: Node, *, device_pages: int, reserved: int) -> None:
        self.node = node
        self.device_pages = device_pages
        self.host_pages = 0
        self.stored = device_pages
        self.private = 0
        self.reserved = reserved


class KvPool:
    """Device pool and host tier of one replica, counted in pages."""

    def __init__(self, *, capacity_pages: int, host_pages: int) -> None:
        self.capacity_pages = capacity_pages
        self.tree = PrefixTree()
        self.host = HostTier(host_pages)
        self.private_pages = 0
        self.reserved_pages = 0

    @property
    def used_pages(self) -> int:
        """Device pages that admitted requests hold."""
        return self.tree.pinned_pages + self.private_pages

    def match(self, pages: array[int], limit: int) -> int:
        """Pages of ``pages[:limit]`` found from the start in either tier. Changes nothing."""
        device, _ = self.tree.match(pages, limit)
        return max(device, self.host.match(pages, limit))

    def admit(self, pages: array[int], limit: int, total_pages: int) -> Holding | None:
        """Take a request that will need ``total_pages``, at most ``limit`` of them cached.

        Pages found only in the host tier are allocated and stored at once; the caller accounts for
        the time of the load. Answers None, without a change, if it does not fit beside what is
        admitted already.
        """
        device, unpinned = self.tree.match(pages, limit)
        needed = total_pages - device
        admitted = self.tree.pinned_pages + self.private_pages + self.reserved_pages
        if admitted + unpinned + needed > self.capacity_pages:
            return None
        self.reserved_pages += needed
        holding = Holding(self.tree.lock(pages, device), device_pages=device, reserved=needed)
        host = self.host.match(pages, limit)
        if host > device:
            holding.host_pages = host - device
            self.allocate(holding, host - device)
            self.store(holding, pages, host)
        else:
            self.host.tree.touch(pages, device)
        return holding

    def allocate(self, holding: Holding, n_pages: int) -> None:
        """Turn reserved pages into private ones; evicts whole runs until nothing is missing."""
        assert 0 <= n_pages <= holding.reserved, f"{n_pages} pages of {holding.reserved} reserved"
        holding.reserved -= n_pages
        holding.private += n_pages
        self.reserved_pages -= n_pages
        self.private_pages += n_pages
        shortage = self.tree.n_pages + self.private_pages - self.capacity_pages
        if shortage > 0:
            evicted = self.tree.evict(shortage)
            assert evicted >= shortage, f"pool overcommitted: {evicted} of {shortage} pages evicted"

    def store(self, holding: Holding, pages: array[int], count: int) -> None:
        """Move the request's computed pages up to ``count`` into the tree and the host tier.

        Pages that another request stored meanwhile are shared, and the request's own freed.
        """
        moved = count - holding.stored
        if moved <= 0:
            return
        assert moved <= holding.private, f"{moved} pages stored of {holding.private} allocated"
        holding.node, _ = self.tree.extend(holding.node, pages, holding.stored, count)
        holding.stored = count
        holding.private -= moved
        self.private_pages -= moved
        self.host.put(pages, count)

    def release(self, holding: Holding) -> None:
        """Free what the request held; its stored pages stay until they are evicted."""
        self.private_pages -= holding.private
        self.reserved_pages -= holding.reserved
        holding.private = holding.reserved = 0
        self.tree.unlock(holding.node)

    def clear(self) -> None:
        """Forget both tiers; no request may be admitted."""
        self.tree.clear()
        self.host.tree.clear()
