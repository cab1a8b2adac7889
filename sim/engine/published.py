"""A prefix cache that tells of every page it takes in and gives up, as SGLang's KV events do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from sim.engine.cache import PrefixTree

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from sim.engine.cache import Node
    from sim.engine.pool import KvPool


class Listener(Protocol):
    """Told of one tier's pages, in the order of what happens to them."""

    def stored(self, parent: int | None, pages: array[int]) -> None:
        """These pages were taken in, behind another one (None: they are a prompt's first)."""

    def removed(self, pages: Sequence[int]) -> None:
        """These pages were given up."""

    def cleared(self) -> None:
        """All were."""


class PublishedTree(PrefixTree):
    """A prefix tree that tells a listener."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener

    @override
    def extend(
        self,
        node: Node,
        pages: array[int],
        stop: int,
        shift: int = 0,
        ends: Sequence[int] = (),
    ) -> Node:
        """Move the caller's pin, and tell what was added."""
        before, begun = self.n_pages, node.stop
        last = node.id_at(begun - 1) if begun else None
        node = super().extend(node, pages, stop, shift, ends)
        added = self.n_pages - before
        if added:
            start = stop - added
            parent = last if start == begun else pages[start - 1 - shift]
            self._listener.stored(parent, pages[start - shift : stop - shift])
        return node

    @override
    def clear(self) -> None:
        """Drop everything, and tell."""
        super().clear()
        self._listener.cleared()

    @override
    def _drop(self, leaf: Node) -> None:
        self._listener.removed([leaf.id_at(depth) for depth in range(leaf.start, leaf.stop)])
        super()._drop(leaf)

    @override
    def _cut(self, node: Node, depth: int) -> None:
        self._listener.removed([node.id_at(at) for at in range(depth, node.stop)])
        super()._cut(node, depth)


def publish(pool: KvPool, device: Listener, host: Listener) -> None:
    """Let an unused pool tell of its pages: of those on the device, and of those in the host tier."""
    pool.tree = PublishedTree(device)
    pool.host.tree = PublishedTree(host)
