"""Invariants of the engine model, numbered, as functions that raise ``AssertionError``.

1. Pool accounting sums: what requests hold is what the pool counts, page by page.
2. Capacity is never exceeded, in either tier, and what was admitted can always go on.
3. Pinned pages are held: every admitted request's prefix is in each tier's tree as far as it is
   counted there, pinned by it.
4. No page is matched past an evicted one: runs hang together, so held pages are prefix-closed.
5. Every submitted request ends exactly once, after it began at most once, and its events' tokens
   add up.
6. No generation step is run while a prefill-only step is due, but for those that come between two of these.
7. What came from the host tier counts as such: it was loaded, paid for, and is no device hit.
8. Every active request is in exactly one place: it waits, is in the prefill step, or generates.

The code of the model asserts parts of 1 to 4, 6 and 7 by itself, with the same numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.engine.requests import Began, Ended, EndReason, Progress
from sim.engine.stretch import Stretch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.engine.cache import Node, PrefixTree
    from sim.engine.replica_model import ReplicaModel
    from sim.engine.requests import EngineRequest, Event


def check_state(model: ReplicaModel) -> None:
    """Invariants 1 to 4 and 6 to 8, at any moment between two calls; the cost grows with the trees."""
    pool = model.pool
    check_tree(pool.tree)
    check_schedule(model)
    holdings = [job.holding for job in model.schedule.admitted() if job.holding is not None]
    _check_pins(pool.tree, [(holding.node, holding.stored) for holding in holdings])
    if not pool.host.is_shared:
        check_tree(pool.host.tree)
        held = [(holding.host_node, holding.host_stored) for holding in holdings]
        _check_pins(pool.host.tree, held)


def check_schedule(model: ReplicaModel) -> None:
    """Invariants 1, 2 and 6 to 8 in a few operations a request, whatever the trees hold."""
    schedule, pool = model.schedule, model.pool
    admitted = schedule.admitted()
    private = sum(job.holding.private for job in admitted if job.holding is not None)
    assert private == pool.private_pages, f"1: {private} private of {pool.private_pages} counted"
    held = pool.tree.n_pages + pool.private_pages
    assert held <= pool.capacity_pages, f"2: {held} pages of {pool.capacity_pages} on the device"
    host = pool.host
    assert host.tree.n_pages <= host.capacity_pages, f"2: {host.tree.n_pages} pages in host memory"
    waiting = schedule.waiting.jobs
    if isinstance(schedule.step, Stretch):
        between = schedule.rounds_left
        assert between or schedule.admission.partial is None, (
            "6: a prompt that was cut goes on first"
        )
        assert schedule.now_s is not None, "a step began at some time"
        left = schedule.step.n_steps - schedule.step.finished_by(schedule.now_s)
        is_due = bool(waiting) and not schedule.admission.is_full
        assert not is_due or left <= max(1, between), "6: a waiting request could be prefilled"
    loaded = pool.loaded_pages * model.facts.page_tokens
    told = schedule.totals.host_tokens
    assert told == loaded, f"7: {told} tokens told from the host tier, {loaded} loaded"
    places = [job.request.rid for job in waiting]
    places += [job.request.rid for job in admitted if job.ended_tokens is None]
    assert sorted(places) == sorted(schedule.jobs), f"8: active {sorted(schedule.jobs)}: {places}"
    assert all(job.holding is None for job in waiting), "8: a waiting request holds pages"
    assert all(job.holding is not None for job in admitted), "8: an admitted request holds nothing"


def _check_pins(tree: PrefixTree, held: list[tuple[Node, int]]) -> None:
    """Invariant 3 for one tree, given where each holder's pages end and how many they are."""
    pins: dict[int, int] = {}
    for end, pages in held:
        path = _path(end)
        stored = sum(node.stop - node.start for node in path)
        assert stored == pages, f"3: {pages} pages stored, {stored} in the tree"
        for node in path:
            pins[node.serial] = pins.get(node.serial, 0) + 1
    for node in tree.nodes():
        assert node.pins == pins.pop(node.serial, 0), "3: pins differ from the requests that hold"
    assert not pins, "3: a request holds a node outside the tree"


def check_tree(tree: PrefixTree) -> None:
    """Invariant 4 and the counts of one tree."""
    pages = pinned = 0
    for node in tree.nodes():
        count = node.stop - node.start
        pages += count
        pinned += count if node.pins else 0
        assert count > 0, "4: an empty run breaks the chain of pages"
        edges = [node.start, *node.cuts, node.stop]
        assert edges == sorted(set(edges)), f"4: runs of a node overlap: {edges}"
        assert node.parent is not None, "4: a node is cut off from the tree"
        assert node.parent.stop == node.start, "4: a run does not begin where the one before ends"
        assert node.parent.children[node.id_at(node.start)] is node, (
            "4: a run is not found by its first page"
        )
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
