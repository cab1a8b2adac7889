"""The device pool with its host tier: admission, allocation, storing, releasing."""

from __future__ import annotations

from array import array

import pytest

from sim.engine.checks import check_tree
from sim.engine.pool import Holding, HostTier, KvPool


def run_of(name: int, count: int) -> array[int]:
    return array("Q", [(name << 32) + i for i in range(count)])


def serve(pool: KvPool, pages: array[int], *, private: int = 1) -> Holding:
    """Admit a request of these pages, compute and release it."""
    holding = pool.admit(pages, len(pages) - 1, len(pages) + private)
    assert holding is not None
    pool.allocate(holding, holding.reserved)
    pool.store(holding, pages, len(pages))
    pool.release(holding)
    return holding


def test_what_is_admitted_fits_the_pool() -> None:
    pool = KvPool(capacity_pages=10, host_pages=0)
    first = pool.admit(run_of(1, 5), 4, 6)
    assert first is not None
    assert pool.admit(run_of(2, 5), 4, 5) is None
    assert pool.reserved_pages == 6
    second = pool.admit(run_of(2, 4), 3, 4)
    assert second is not None
    pool.release(first)
    pool.release(second)
    assert (pool.reserved_pages, pool.used_pages) == (0, 0)


def test_shared_pages_count_once() -> None:
    pool = KvPool(capacity_pages=10, host_pages=0)
    serve(pool, run_of(1, 6))
    holdings = [pool.admit(run_of(1, 6), 5, 7) for _ in range(3)]
    assert [holding is not None for holding in holdings] == [True, True, False]
    assert pool.used_pages == 5
    assert pool.reserved_pages == 4


def test_cached_runs_make_room_only_as_far_as_needed() -> None:
    pool = KvPool(capacity_pages=10, host_pages=0)
    for n_pages in (4, 6, 8):
        serve(pool, run_of(1, n_pages))
    holding = pool.admit(run_of(2, 3), 2, 4)
    assert holding is not None
    pool.allocate(holding, 2)
    assert pool.match(run_of(1, 8), 8) == 8
    pool.allocate(holding, 1)
    assert pool.match(run_of(1, 8), 8) == 6
    pool.allocate(holding, 1)
    assert pool.match(run_of(1, 8), 8) == 6


def test_a_prefix_evicted_from_the_device_comes_back_from_the_host() -> None:
    pool = KvPool(capacity_pages=10, host_pages=100)
    serve(pool, run_of(1, 8))
    serve(pool, run_of(2, 8))
    assert pool.tree.match(run_of(1, 8), 8)[0] < 8
    device = pool.tree.match(run_of(1, 8), 8)[0]
    assert pool.match(run_of(1, 8), 8) == 8
    holding = serve(pool, run_of(1, 8))
    assert (holding.device_pages, holding.host_pages) == (device, 7 - device)


def test_without_a_host_tier_it_does_not() -> None:
    pool = KvPool(capacity_pages=10, host_pages=0)
    serve(pool, run_of(1, 8))
    serve(pool, run_of(2, 8))
    assert serve(pool, run_of(1, 8)).host_pages == 0
    assert pool.host.tree.n_pages == 0


def test_pages_that_another_stored_meanwhile_are_freed() -> None:
    pool = KvPool(capacity_pages=20, host_pages=0)
    slow = pool.admit(run_of(1, 5), 4, 6)
    assert slow is not None
    pool.allocate(slow, 6)
    serve(pool, run_of(1, 5))
    assert pool.used_pages == 6
    pool.store(slow, run_of(1, 5), 5)
    assert (pool.used_pages, pool.private_pages, pool.tree.n_pages) == (6, 1, 5)


def test_more_than_was_reserved_is_not_allocated() -> None:
    pool = KvPool(capacity_pages=20, host_pages=0)
    holding = pool.admit(run_of(1, 5), 4, 6)
    assert holding is not None
    with pytest.raises(AssertionError, match="7 pages of 6 reserved"):
        pool.allocate(holding, 7)


def test_the_host_tier_evicts_for_itself() -> None:
    host = HostTier(10)
    for name in (1, 2):
        host.put(run_of(name, 5), 5)
    host.put(run_of(1, 5), 5)
    host.put(run_of(3, 3), 3)
    assert [host.match(run_of(name, 5), 5) for name in (1, 2, 3)] == [5, 0, 3]
    check_tree(host.tree)


def test_the_host_tier_keeps_what_fits_of_a_long_prompt() -> None:
    host = HostTier(10)
    host.put(run_of(1, 30), 30)
    assert host.match(run_of(1, 30), 30) == 10
    host.put(run_of(2, 4), 4)
    assert host.match(run_of(1, 30), 30) == 0


def test_clear_forgets_both_tiers() -> None:
    pool = KvPool(capacity_pages=10, host_pages=100)
    serve(pool, run_of(1, 8))
    pool.clear()
    assert pool.match(run_of(1, 8), 8) == 0
