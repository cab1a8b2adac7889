"""Invariants of the engine model, numbered, as functions that raise ``AssertionError``.

1. Pool accounting sums: what requests hold is what the pool counts, and with what they reserved it
   fits the device.
2. Capacity is never exceeded, in either tier.
3. Pinned pages are held: every admitted request's stored prefix is in the tree, pinned.
4. No page is matched past an evicted one: runs hang together, so held pages are prefix-closed.
5. Every submitted request ends exactly once, after it began at most once, and its events' tokens
   add up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.engine.requests import Began, Ended, EndReason, Progress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.engine.cache import Node, PrefixTree
    from sim.engine.replica_model import ReplicaModel
    from sim.engine.requests import EngineRequest, Event


def check_state(model: ReplicaModel) -> None:
    """Invariants 1 to 4, at any moment between two calls."""
    pool = model.pool
    check_tree(pool.tree)
    check_tree(pool.host.tree)
    holdings = model.holdings()
    private = sum(holding.private for holding in holdings)
    reserved = sum(holding.reserved for holding in holdings)
    assert private == pool.private_pages, f"1: {private} private of {pool.private_pages} counted"
    assert reserved == pool.reserved_pages, f"1: {reserved} reserved, {pool.reserved_pages} counted"
    admitted = pool.used_pages + pool.reserved_pages
    assert admitted <= pool.capacity_pages, f"1: {admitted} pages admitted"
    held = pool.tree.n_pages + pool.private_pages
    assert held <= pool.capacity_pages, f"2: {held} pages of {pool.capacity_pages} on the device"
    host = pool.host
    assert host.tree.n_pages <= host.capacity_pages, f"2: {host.tree.n_pages} pages in host memory"
    assert not host.tree.pinned_pages, "3: the host tier stays unpinned between calls"
    pins: dict[int, int] = {}
    for holding in holdings:
        path = _path(holding.node)
        stored = sum(len(node.ids) for node in path)
        assert stored == holding.stored, f"3: {holding.stored} pages stored, {stored} in the tree"
        for node in path:
            pins[node.serial] = pins.get(node.serial, 0) + 1
    for node in pool.tree.nodes():
        assert node.pins == pins.pop(node.serial, 0), "3: pins differ from the requests that hold"
    assert not pins, "3: a request holds a node outside the tree"


def check_tree(tree: PrefixTree) -> None:
    """Invariant 4 and the counts of one tree."""
    pages = pinned = 0
    for node in tree.nodes():
        pages += len(node.ids)
        pinned += len(node.ids) if node.pins else 0
        assert len(node.ids), "4: an empty run breaks the chain of pages"
        edges = [0, *node.cuts, len(node.ids)]
        assert edges == sorted(set(edges)), f"4: runs of a node overlap: {edges}"
        assert node.parent is not None, "4: a node is cut off from the tree"
        assert node.parent.children[node.ids[0]] is node, "4: a run is not found by its first page"
        below = sum(child.pins for child in node.children.values())
        assert node.pins >= below, "3: a node above a pinned one is pinned as well"
        if not node.children and not node.pins:
            assert node.is_listed, "4: eviction does not know an evictable leaf"
    assert pages == tree.n_pages, f"1: {pages} pages in the tree, {tree.n_pages} counted"
    assert pinned == tree.pinned_pages, f"1: {pinned} pinned, {tree.pinned_pages} counted"


def check_events(requests: Iterable[EngineRequest], events: Iterable[Event]) -> None:
    """Invariant 5, over all requests of a run that were taken and all events of that run."""
    tokens: dict[str, int] = {}
    ended: dict[str, Ended] = {}
    before_s: float | None = None
    for event in events:
        rid = event.rid
        assert before_s is None or event.at_s >= before_s, f"5: {event} is out of order"
        before_s = event.at_s
        assert rid not in ended, f"5: {event} after the end"
        if isinstance(event, Began):
            assert rid not in tokens, f"5: {rid} began twice"
            assert 0 <= event.host_tokens <= event.cached_tokens, f"5: {event}"
            tokens[rid] = 1
        elif isinstance(event, Progress):
            assert rid in tokens, f"5: {event} before the beginning"
            assert event.n_tokens >= 1, f"5: {event} tells nothing"
            tokens[rid] += event.n_tokens
        else:
            ended[rid] = event
            total = tokens.get(rid, 0) + event.n_tokens
            assert total == event.output_tokens, f"5: {event}, but {total} tokens were told"
    for request in requests:
        end = ended.pop(request.rid, None)
        assert end is not None, f"5: {request.rid} never ended"
        assert end.output_tokens <= request.output_tokens, f"5: {end} of {request.output_tokens}"
        if end.reason is EndReason.STOP:
            assert end.output_tokens == request.output_tokens, f"5: {end} stopped early"
    assert not ended, f"5: {sorted(ended)} ended without being submitted"


def _path(node: Node) -> list[Node]:
    """The node and all above it but the root."""
    path: list[Node] = []
    at: Node | None = node
    while at is not None and at.parent is not None:
        path.append(at)
        at = at.parent
    return path
