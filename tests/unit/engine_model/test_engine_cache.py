"""The prefix tree: matching, pinning, splitting, eviction from the coldest end."""

from __future__ import annotations

from array import array

import pytest

from sim.engine.cache import PrefixTree
from sim.engine.checks import check_tree


def run_of(name: int, count: int, *, shared: int = 0) -> array[int]:
    """``count`` page ids, the first ``shared`` of them common to all names."""
    return array("Q", [i if i < shared else (name << 32) + i for i in range(count)])


def add(tree: PrefixTree, pages: array[int]) -> None:
    have, _ = tree.match(pages, len(pages))
    node, added = tree.extend(tree.lock(pages, have), pages, have, len(pages))
    assert added == len(pages) - have
    tree.unlock(node)
    check_tree(tree)


def held(tree: PrefixTree, pages: array[int]) -> int:
    return tree.match(pages, len(pages))[0]


def test_an_empty_tree_holds_nothing() -> None:
    tree = PrefixTree()
    assert tree.match(run_of(1, 5), 5) == (0, 0)
    assert tree.evict(3) == 0


@pytest.mark.parametrize("shared", range(9))
def test_a_match_ends_where_the_prompts_part(shared: int) -> None:
    tree = PrefixTree()
    add(tree, run_of(1, 8, shared=shared))
    other = run_of(2, 8, shared=shared)
    assert held(tree, other) == shared
    add(tree, other)
    assert tree.n_pages == 16 - shared
    assert held(tree, run_of(3, 8, shared=shared)) == shared


def test_a_match_stops_at_its_limit() -> None:
    tree = PrefixTree()
    add(tree, run_of(1, 8))
    assert tree.match(run_of(1, 8), 7) == (7, 7)
    assert tree.match(run_of(1, 20), 20) == (8, 8)


def test_a_session_that_grows_stays_one_run() -> None:
    tree = PrefixTree()
    for turn in range(1, 30):
        add(tree, run_of(1, 10 * turn))
    assert len(list(tree.nodes())) == 1
    assert tree.n_pages == 290


def test_a_run_that_another_holds_is_not_grown_in_place() -> None:
    tree = PrefixTree()
    add(tree, run_of(1, 4))
    first = tree.lock(run_of(1, 4), 4)
    second, added = tree.extend(tree.lock(run_of(1, 4), 4), run_of(1, 6), 4, 6)
    assert added == 2
    assert second is not first
    tree.unlock(second)
    check_tree(tree)
    assert tree.pinned_pages == 4
    assert tree.evict(100) == 2
    tree.unlock(first)
    assert tree.evict(100) == 4


def test_pages_found_on_the_way_are_shared() -> None:
    tree = PrefixTree()
    mine = tree.lock(run_of(1, 6), 0)
    add(tree, run_of(1, 4))
    mine, added = tree.extend(mine, run_of(1, 6), 0, 6)
    assert added == 2
    assert (tree.n_pages, tree.pinned_pages) == (6, 6)
    tree.unlock(mine)
    assert tree.pinned_pages == 0


def test_eviction_takes_whole_runs_from_the_coldest_end() -> None:
    tree = PrefixTree()
    names = (1, 2, 3)
    for name in names:
        add(tree, run_of(name, 10, shared=4))
    tree.touch(run_of(1, 10, shared=4), 10)
    assert tree.evict(4) == 6
    assert [held(tree, run_of(name, 10, shared=4)) for name in names] == [10, 4, 10]
    assert tree.evict(6) == 6
    assert [held(tree, run_of(name, 10, shared=4)) for name in names] == [10, 4, 4]
    assert tree.evict(7) == 10
    assert [held(tree, run_of(name, 10, shared=4)) for name in names] == [0, 0, 0]
    check_tree(tree)


def test_what_was_added_at_once_is_dropped_at_once() -> None:
    """A session's turns are runs of their own, and where another session left it cuts one."""
    tree = PrefixTree()
    for n_pages in (10, 14, 20):
        add(tree, run_of(1, n_pages))
    assert tree.evict(1) == 6
    assert held(tree, run_of(1, 20)) == 14
    tree.unlock(tree.lock(run_of(1, 20), 12))
    assert tree.evict(1) == 2
    assert tree.evict(1) == 2
    assert held(tree, run_of(1, 20)) == 10
    check_tree(tree)


def test_pinned_pages_survive_eviction_with_all_above_them() -> None:
    tree = PrefixTree()
    add(tree, run_of(1, 10, shared=4))
    add(tree, run_of(2, 10, shared=4))
    node = tree.lock(run_of(1, 10, shared=4), 7)
    assert tree.pinned_pages == 7
    assert tree.match(run_of(1, 10, shared=4), 10) == (10, 3)
    assert tree.evict(100) == 9
    assert held(tree, run_of(1, 10, shared=4)) == 7
    tree.unlock(node)
    check_tree(tree)
    assert tree.evict(100) == 7
    assert tree.n_pages == 0


def test_unlocking_too_often_is_noticed() -> None:
    tree = PrefixTree()
    add(tree, run_of(1, 4))
    node = tree.lock(run_of(1, 4), 4)
    tree.unlock(node)
    with pytest.raises(AssertionError, match="unlocked more often"):
        tree.unlock(node)


def test_clear_forgets_all_but_refuses_while_pinned() -> None:
    tree = PrefixTree()
    add(tree, run_of(1, 4))
    node = tree.lock(run_of(1, 4), 2)
    with pytest.raises(AssertionError, match="2 pages are pinned"):
        tree.clear()
    tree.unlock(node)
    tree.clear()
    check_tree(tree)
    assert held(tree, run_of(1, 4)) == 0
    assert tree.evict(1) == 0
