"""The tree of prefixes: two prompts share on it exactly what their ids share."""

from __future__ import annotations

from array import array
from itertools import takewhile

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.workload.traces.tree import Path, PrefixTree, Scope, TreeBuilder, common_run

BLOCK = 8
DEPTHS = range(0, 1 << 40, BLOCK)


def common(one: list[int], other: list[int]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def shared(tree: PrefixTree, one: tuple[int, int], other: tuple[int, int]) -> int:
    depths = {run.branch: run.end for run in tree.runs(*one)}
    return max(
        (min(r.end, depths[r.branch]) for r in tree.runs(*other) if r.branch in depths), default=0
    )


prompts = st.lists(st.lists(st.integers(0, 3), max_size=9), min_size=1, max_size=14)


@given(rows=prompts, follows=st.booleans())
@settings(deadline=None)
def test_prompts_share_what_their_ids_share(rows: list[list[int]], *, follows: bool) -> None:
    builder = TreeBuilder()
    scope = Scope(builder)
    places: list[tuple[int, int]] = []
    before, path = array("Q"), Path()
    for row in rows:
        ids = array("Q", row)
        kept = common_run(before, ids) if follows else 0
        path = scope.place(path.cut(kept) if follows else Path(), ids[kept:], DEPTHS)
        assert path.n_blocks == len(row)
        places.append((path.branch, path.n_blocks * BLOCK))
        before = ids
    tree = builder.tree()
    for i, one in enumerate(rows):
        for j, other in enumerate(rows):
            assert shared(tree, places[i], places[j]) == BLOCK * common(one, other)
    for number in range(1, len(tree)):
        assert tree.parents[number] < number
        assert tree.fork_tokens[number] < tree.end_tokens[number]


@given(rows=prompts)
@settings(deadline=None)
def test_scopes_share_nothing(rows: list[list[int]]) -> None:
    builder = TreeBuilder()
    paths = [Scope(builder).place(Path(), array("Q", row), DEPTHS) for row in rows]
    branches = [path.branch for path in paths if path.n_blocks]
    assert len(set(branches)) == len(branches)


def test_a_session_that_only_appends_is_one_branch() -> None:
    builder = TreeBuilder()
    scope, path = Scope(builder), Path()
    for n in range(100):
        path = scope.place(path, array("Q", [n]), DEPTHS)
    tree = builder.tree(0.5)
    assert len(tree) == 2
    assert tree.end_tokens[1] == 400
    assert tree.at(1, 0) == 0
    assert tree.at(1, 1) == 1


def test_a_path_is_cut_where_it_forked() -> None:
    scope = Scope(TreeBuilder())
    scope.place(Path(), array("Q", [1, 2, 3, 4]), DEPTHS)
    path = scope.place(Path(), array("Q", [1, 2, 7, 8]), DEPTHS)
    assert path.ends == (2, 4)
    assert path.cut(9) is path
    assert path.cut(3).branch == path.branch
    assert path.cut(2).branch != path.branch
    assert path.cut(0) == Path()
