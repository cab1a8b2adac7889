"""The prefix tree: matching, pinning, splitting, eviction from the coldest end."""

from __future__ import annotations

from array import array

import pytest

from sim.engine.cache import Node, PrefixTree
from sim.engine.checks import check_tree


def run_of(name: int, count: int, *, shared: int = 0) -> array[int]:
    """``count`` page ids, the first ``shared`` of them common to all names."""
    return array("Q", [i if i < shared else (name << 32) + i for i in range(count)])


def add(tree: PrefixTree, pages: array[int]) -> None:
    found = tree.match(pages, len(pages))
    before = tree.n_pages
    node = tree.extend(tree.lock(*found), pages, len(pages))
    assert tree.n_pages - before == len(pages) - found[1]
    tree.unlock(node)
    check_tree(tree)


def held(tree: PrefixTree, pages: array[int]) -> int:
    return tree.match(pages, len(pages))[1]


def pin(tree: PrefixTree, pages: array[int], count: int) -> Node:
    """Lock the first ``count`` of these pages, all of which are held."""
    found = tree.match(pages, count)
    assert found[1] == count
    return tree.lock(*found)


def test_an_empty_tree_holds_nothing() -> None:
    tree = PrefixTree()
    assert held(tree, run_of(1, 5)) == 0
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
    assert tree.match(run_of(1, 8), 7)[1] == 7
    assert tree.match(run_of(1, 20), 20)[1] == 8


def test_a_session_that_grows_stays_one_run() -> None:
    tree = PrefixTree()
    for turn in range(1, 30):
        add(tree, run_of(1, 10 * turn))
    assert len(list(tree.nodes())) == 1
    assert tree.n_pages == 290


def test_a_run_that_another_holds_is_not_grown_in_place() -> None:
    tree = PrefixTree()
    add(tree, run_of(1, 4))
    first = pin(tree, run_of(1, 4), 4)
    second = tree.extend(pin(tree, run_of(1, 4), 4), run_of(1, 6), 6)
    assert tree.n_pages == 6
    assert second is not first
    tree.unlock(second)
    check_tree(tree)
    assert tree.pinned_pages == 4
    assert tree.evict(100) == 2
    tree.unlock(first)
    assert tree.evict(100) == 4


def test_pages_found_on_the_way_are_shared() -> None:
    tree = PrefixTree()
    mine = pin(tree, run_of(1, 6), 0)
    add(tree, run_of(1, 4))
    mine = tree.extend(mine, run_of(1, 6), 6)
    assert (tree.n_pages, tree.pinned_pages) == (6, 6)
    tree.unlock(mine)
    assert tree.pinned_pages == 0


def test_eviction_takes_whole_runs_from_the_coldest_end() -> None:
    tree = PrefixTree()
    names = (1, 2, 3)
    for name in names:
        add(tree, run_of(name, 10, shared=4))
    tree.unlock(pin(tree, run_of(1, 10, shared=4), 10))
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
    tree.unlock(pin(tree, run_of(1, 20), 12))
    assert tree.evict(1) == 2
    assert tree.evict(1) == 2
    assert held(tree, run_of(1, 20)) == 10
    check_tree(tree)


def test_pinned_pages_survive_eviction_with_all_above_them() -> None:
    tree = PrefixTree()
    add(tree, run_of(1, 10, shared=4))
    add(tree, run_of(2, 10, shared=4))
    node = pin(tree, run_of(1, 10, shared=4), 7)
    assert tree.pinned_pages == 7
    assert held(tree, run_of(1, 10, shared=4)) == 10
    assert tree.evict(100) == 9
    assert held(tree, run_of(1, 10, shared=4)) == 7
    tree.unlock(node)
    check_tree(tree)
    assert tree.evict(100) == 7
    assert tree.n_pages == 0


def test_unlocking_too_often_is_noticed() -> None:
    tree = PrefixTree()
    add(tree, run_of(1, 4))
    node = pin(tree, run_of(1, 4), 4)
    tree.unlock(node)
    with pytest.raises(AssertionError, match="unlocked more often"):
        tree.unlock(node)


def test_clear_forgets_all_but_refuses_while_pinned() -> None:
    tree = PrefixTree()
    add(tree, run_of(1, 4))
    node = pin(tree, run_of(1, 4), 2)
    with pytest.raises(AssertionError, match="2 pages are pinned"):
        tree.clear()
    tree.unlock(node)
    tree.clear()
    check_tree(tree)
    assert held(tree, run_of(1, 4)) == 0
    assert tree.evict(1) == 0


def read_in(tree: PrefixTree) -> int:
    """Length of all arrays in which the tree reads its ids."""
    arrays = {id(ids): len(ids) for node in tree.nodes() for ids in (node.source, node.tail)}
    return sum(arrays.values())


def test_prompts_that_are_held_are_not_copied() -> None:
    tree = PrefixTree()
    for turn in range(1, 9):
        pages = run_of(1, 100 * turn)
        add(tree, pages)
        (node,) = tree.nodes()
        assert node.source is pages


def test_arrays_of_which_little_is_held_are_let_go() -> None:
    """Forks from a long prompt, each with an output, and then most of it evicted."""
    tree = PrefixTree()
    for name in range(1, 40):
        whole = run_of(name, 1_004, shared=970)
        prompt = whole[:1_000]
        found = tree.match(prompt, 999)
        node = tree.extend(tree.lock(*found), prompt, 1_000)
        node = tree.extend(node, whole[1_000:], 1_004, shift=1_000)
        tree.unlock(node)
        check_tree(tree)
        assert read_in(tree) <= 2 * tree.n_pages
    assert held(tree, run_of(1, 1_004, shared=970)) == 1_004
    for name in range(1, 40):
        add(tree, run_of(100 + name, 20 * name))
    while tree.evict(50):
        check_tree(tree)
        assert read_in(tree) <= 2 * tree.n_pages


def test_a_match_is_current_until_its_end_changes() -> None:
    tree = PrefixTree()
    add(tree, run_of(1, 10))
    pages = run_of(1, 20)
    node, _ = tree.match(pages, 20)
    version = node.version
    add(tree, run_of(2, 10))
    assert node.version == version
    add(tree, run_of(1, 12))
    assert node.version > version
    node, _ = tree.match(pages, 20)
    version = node.version
    tree.unlock(pin(tree, pages, 5))
    assert node.version > version
    node, depth = tree.match(pages, 20)
    version = node.version
    assert depth == 12
    tree.evict(1)
    tree.evict(1)
    assert node.version > version


def test_a_match_of_nothing_is_current_until_something_comes() -> None:
    tree = PrefixTree()
    node, _ = tree.match(run_of(1, 20), 20)
    version = node.version
    add(tree, run_of(1, 1))
    assert node.version > version
    node, _ = tree.match(run_of(2, 20), 20)
    version = node.version
    tree.clear()
    assert node.version > version


def test_a_stale_match_is_not_locked() -> None:
    tree = PrefixTree()
    add(tree, run_of(1, 4))
    found = tree.match(run_of(1, 4), 4)
    tree.evict(4)
    with pytest.raises(AssertionError, match="4: a match goes past an evicted page"):
        tree.lock(*found)


def test_a_touch_counts_as_a_use() -> None:
    tree = PrefixTree()
    add(tree, run_of(1, 4, shared=2))
    add(tree, run_of(2, 4))
    tree.touch(*tree.match(run_of(1, 2, shared=2), 2))  # not what follows the two
    check_tree(tree)
    assert tree.pinned_pages == 0
    assert tree.evict(2) == 2
    assert held(tree, run_of(1, 4, shared=2)) == 2
    tree.evict(1)
    assert (held(tree, run_of(1, 2, shared=2)), held(tree, run_of(2, 4))) == (2, 0)


def test_pages_added_as_several_runs_are_evicted_run_by_run() -> None:
    tree = PrefixTree()
    pages = run_of(1, 9)
    found = tree.match(pages, 9)
    node = tree.extend(tree.lock(*found), pages, 9, ends=[3, 6, 9])
    tree.unlock(node)
    check_tree(tree)
    assert tree.evict(2) == 3
    assert tree.evict(4) == 6


def test_a_node_that_was_cut_and_grew_by_an_output_goes_on_in_its_first_prompt_again() -> None:
    prompt = run_of(1, 10)
    node = Node(prompt, 0, None, start=0, stop=10, used_at=0, serial=0)
    node.cut_at(6)
    node.grow(prompt[6:8], 6, 8)
    node.grow(prompt, 0, 10)
    assert [node.id_at(depth) for depth in range(10)] == list(prompt)
