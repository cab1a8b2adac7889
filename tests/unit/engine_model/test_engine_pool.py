"""The device pool with its host tier: pinning, loading, allocation, storing, releasing."""

from __future__ import annotations

from array import array

import pytest

from sim.engine.checks import check_tree
from sim.engine.pool import Holding, HostTier, KvPool, SharedPrefixes


def run_of(name: int, count: int) -> array[int]:
    return array("Q", [(name << 32) + i for i in range(count)])


def pool_of(capacity_pages: int, host_pages: int = 0) -> KvPool:
    return KvPool(capacity_pages=capacity_pages, host=HostTier(host_pages))


def found(pool: KvPool, pages: array[int]) -> int:
    return pool.find(pages, len(pages)).matched


def admit(pool: KvPool, pages: array[int]) -> Holding:
    """Pin what is cached of all pages but the last, and load it."""
    holding = pool.pin(pool.find(pages, len(pages) - 1))
    pool.load(holding, pages)
    return holding


def serve(pool: KvPool, pages: array[int], *, private: int = 1) -> Holding:
    """Admit a request of these pages, compute and release it."""
    holding = admit(pool, pages)
    pool.allocate(holding, len(pages) + private - holding.pages)
    pool.store(holding, pages, len(pages))
    pool.release(holding)
    check_tree(pool.tree)
    return holding


def test_shared_pages_count_once() -> None:
    pool = pool_of(10)
    serve(pool, run_of(1, 6))
    holdings = [admit(pool, run_of(1, 6)) for _ in range(3)]
    assert [holding.device_pages for holding in holdings] == [5, 5, 5]
    assert (pool.used_pages, pool.room_pages) == (5, 5)
    for holding in holdings:
        pool.allocate(holding, 1)
    assert (pool.used_pages, pool.room_pages) == (8, 2)


def test_cached_runs_make_room_only_as_far_as_needed() -> None:
    pool = pool_of(10)
    for n_pages in (4, 6, 8):
        serve(pool, run_of(1, n_pages))
    holding = admit(pool, run_of(2, 3))
    pool.allocate(holding, 2)
    assert found(pool, run_of(1, 8)) == 8
    pool.allocate(holding, 1)
    assert found(pool, run_of(1, 8)) == 6
    pool.allocate(holding, 1)
    assert found(pool, run_of(1, 8)) == 6


def test_a_prefix_evicted_from_the_device_comes_back_from_the_host() -> None:
    pool = pool_of(10, 100)
    serve(pool, run_of(1, 8))
    serve(pool, run_of(2, 8))
    device = pool.tree.match(run_of(1, 8), 8)[1]
    assert device < found(pool, run_of(1, 8)) == 8
    holding = serve(pool, run_of(1, 8))
    assert (holding.device_pages, holding.host_pages) == (device, 7 - device)
    assert pool.loaded_pages == 7 - device


def test_without_a_host_tier_it_does_not() -> None:
    pool = pool_of(10)
    serve(pool, run_of(1, 8))
    serve(pool, run_of(2, 8))
    assert serve(pool, run_of(1, 8)).host_pages == 0
    assert pool.host.tree.n_pages == 0


def test_pages_that_another_stored_meanwhile_are_freed() -> None:
    pool = pool_of(20, 20)
    slow = admit(pool, run_of(1, 5))
    pool.allocate(slow, 6)
    serve(pool, run_of(1, 5))
    assert pool.used_pages == 6
    pool.store(slow, run_of(1, 5), 5)
    assert (pool.used_pages, pool.private_pages, pool.tree.n_pages) == (6, 1, 5)
    assert slow.host_stored == 5


def test_more_than_the_pool_is_not_allocated() -> None:
    pool = pool_of(20)
    holding = admit(pool, run_of(1, 5))
    with pytest.raises(AssertionError, match="2: pool overcommitted: 0 of 1 evicted"):
        pool.allocate(holding, 21)


def test_more_than_was_allocated_is_not_stored() -> None:
    pool = pool_of(20)
    holding = admit(pool, run_of(1, 5))
    pool.allocate(holding, 4)
    with pytest.raises(AssertionError, match="1: 5 pages stored of 4 allocated"):
        pool.store(holding, run_of(1, 5), 5)


def test_the_host_tier_evicts_for_itself() -> None:
    pool = pool_of(4, 10)
    for name, count in ((1, 4), (2, 4), (1, 4), (3, 3)):
        serve(pool, run_of(name, count), private=0)
    host = pool.host.tree
    assert [host.match(run_of(name, 4), 4)[1] for name in (1, 2, 3)] == [4, 0, 3]
    check_tree(host)


def test_what_a_request_uses_stays_in_the_host_tier() -> None:
    pool = pool_of(30, 10)
    holding = admit(pool, run_of(1, 6))
    pool.allocate(holding, 6)
    pool.store(holding, run_of(1, 6), 6)
    serve(pool, run_of(2, 8))
    host = pool.host.tree
    assert [host.match(run_of(name, 8), 8)[1] for name in (1, 2)] == [6, 4]
    pool.release(holding)
    serve(pool, run_of(3, 10))
    assert [host.match(run_of(name, 10), 10)[1] for name in (1, 2, 3)] == [0, 0, 10]


def test_output_goes_on_where_the_prompt_ended() -> None:
    pool = pool_of(20, 20)
    holding = admit(pool, run_of(1, 5))
    pool.allocate(holding, 8)
    pool.store(holding, run_of(1, 5), 5)
    output = run_of(1, 9)[5:]
    pool.store(holding, output, 7, shift=5)
    pool.store(holding, output, 8, shift=5)
    pool.release(holding)
    assert pool.tree.match(run_of(1, 9), 9)[1] == pool.host.tree.match(run_of(1, 9), 9)[1] == 8


def test_what_is_warm_is_held_by_nobody_and_no_more_than_finds_room() -> None:
    pool = pool_of(10, 100)
    held = admit(pool, run_of(1, 6))
    pool.allocate(held, 6)
    pool.warm(run_of(2, 8), 8)
    assert (pool.used_pages, pool.tree.n_pages) == (6, 4)
    assert found(pool, run_of(2, 8)) == pool.host.tree.n_pages == 8
    small = pool_of(10, 5)
    small.warm(run_of(3, 8), 8)
    assert (small.tree.n_pages, small.host.tree.n_pages) == (8, 5)
    pool.release(held)
    pool.warm(run_of(2, 8), 8)
    assert found(pool, run_of(2, 8)) == 8
    assert pool.used_pages == 0


def test_clear_forgets_both_tiers() -> None:
    pool = pool_of(10, 100)
    serve(pool, run_of(1, 8))
    pool.clear()
    assert found(pool, run_of(1, 8)) == 0


def test_shared_prefixes_are_everybodys_at_no_cost() -> None:
    shared = SharedPrefixes()
    first, second = (KvPool(capacity_pages=10, host=shared) for _ in range(2))
    serve(first, run_of(1, 8))
    serve(first, run_of(2, 8))
    holding = admit(second, run_of(1, 8))
    assert (holding.device_pages, holding.host_pages, second.loaded_pages) == (7, 0, 0)
    assert second.used_pages == 7
    second.release(holding)
    first.clear()
    assert found(first, run_of(2, 8)) == 8
    assert shared.tree.n_pages == 16


def test_a_look_up_follows_what_happens() -> None:
    pool = pool_of(10, 30)
    lookup = pool.find(run_of(1, 8), 8)
    assert lookup.matched == 0
    serve(pool, run_of(1, 6))
    assert pool.look(lookup) == 6
    serve(pool, run_of(2, 8))
    assert (pool.look(lookup), lookup.device_pages, lookup.host_pages) == (6, 0, 6)
    serve(pool, run_of(1, 8))
    assert (pool.look(lookup), lookup.device_pages) == (8, 8)


@pytest.mark.parametrize("neighbour", [0, 3, 9, 16])
@pytest.mark.parametrize(("capacity", "host_pages"), [(24, 0), (24, 15), (24, 30), (100, 100)])
def test_chunks_at_once_leave_what_they_leave_one_by_one(
    neighbour: int, capacity: int, host_pages: int
) -> None:
    pages, chunk = run_of(1, 16), 4
    kept = []
    for batches in ([1, 1, 1], [3], [2, 1]):
        pool = pool_of(capacity, host_pages)
        serve(pool, run_of(2, 5))
        mine = admit(pool, pages)
        pool.allocate(mine, chunk)
        for name, count in ((3, 4), (1, neighbour), (4, 3)):
            serve(pool, run_of(name, count)) if count else None
        start = 0
        for n_chunks in batches:
            pool.go_on(mine, pages, start, n_chunks, chunk)
            start += n_chunks * chunk
        pool.release(mine)
        check_tree(pool.tree)
        check_tree(pool.host.tree)
        kept.append(
            [
                sorted((node.start, node.stop, node.cuts, node.id_at(node.start)) for node in each)
                for each in (pool.tree.nodes(), pool.host.tree.nodes())
            ]
        )
    assert kept[0] == kept[1] == kept[2]
