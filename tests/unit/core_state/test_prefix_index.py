"""The prefix index against a plain model: sets of held chain values, evicted from the cold end."""

from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.state.cache.prefix_index import Node, PrefixIndex

_SEGMENT_BYTES = 10


def _chain(values: list[int]) -> tuple[array[int], array[int]]:
    ends = [(i + 1) * _SEGMENT_BYTES for i in range(len(values))]
    return array("Q", values), array("I", ends)


def _index(capacity_segments: int, *ids: str) -> PrefixIndex:
    index = PrefixIndex()
    for replica_id in ids:
        index.set_capacity(replica_id, capacity_segments * _SEGMENT_BYTES)
    return index


def _match(index: PrefixIndex, values: list[int]) -> dict[str, int]:
    """What everybody holds, once it is asked for in every way."""
    match = index.match(array("Q", values))
    found = match.everyone()
    # The same from the root down, as far as it is held without a gap.
    downward: dict[str, int] = {}
    node, at = index._root.children.get(values[0]) if values else None, 0
    while node is not None:
        assert node.start == at
        n = sum(1 for mine, its in zip(values[at:], node.run, strict=False) if mine == its)
        for name, held in node.held.items():
            if downward.get(name, 0) == at:
                downward[name] = at + min(held, n)
        at += n
        is_through = n == len(node.run) and at < len(values)
        node = node.children.get(values[at]) if is_through else None
    assert found == downward
    assert found == {name: match.segments(name) for name in "abc" if match.segments(name)}
    levels = [(most, set(ids)) for most, ids in match.levels()]
    assert match.most == max([most for most, _ in levels], default=0)
    assert [most for most, _ in levels] == sorted([most for most, _ in levels], reverse=True)
    for least in range(len(values) + 1):
        # Who holds more than so many is found from the deepest level on, and nowhere below it.
        over = {name for most, ids in levels if most > least for name in ids}
        assert {name for name in over if found[name] > least} == {
            name for name, n in found.items() if n > least
        }
    return found


def test_a_growing_prompt_is_matched_to_where_it_was_held() -> None:
    index = _index(100, "a", "b")
    index.hold("a", *_chain([1, 2, 3]))
    assert _match(index, [1, 2, 3, 4, 5]) == {"a": 3}
    index.hold("a", *_chain([1, 2, 3, 4, 5]))
    index.hold("b", *_chain([1, 2, 9]))
    assert _match(index, [1, 2, 3, 4, 6]) == {"a": 4, "b": 2}
    assert _match(index, [7]) == {}
    assert index.held_bytes("a") == 50
    assert index.held_bytes("b") == 30


def test_the_coldest_end_makes_room_and_shared_heads_stay() -> None:
    index = _index(6, "a")
    index.hold("a", *_chain([1, 2, 10, 11]))
    index.hold("a", *_chain([1, 2, 20, 21, 22]))
    # Seven segments for six places: the end of the older branch goes, its start stays.
    assert _match(index, [1, 2, 10, 11]) == {"a": 3}
    assert _match(index, [1, 2, 20, 21, 22]) == {"a": 5}
    index.hold("a", *_chain([1, 2, 20, 21, 22, 23]))
    assert _match(index, [1, 2, 10, 11]) == {"a": 2}


def test_a_prompt_over_the_whole_capacity_is_held_from_its_start() -> None:
    index = _index(3, "a")
    index.hold("a", *_chain([1, 2, 3, 4, 5]))
    assert _match(index, [1, 2, 3, 4, 5]) == {"a": 3}
    assert index.held_bytes("a") == 30


def test_clearing_forgets_the_cache_and_keeps_the_capacity() -> None:
    index = _index(100, "a", "b")
    index.hold("a", *_chain([1, 2, 3]))
    index.hold("b", *_chain([1, 2]))
    index.clear("a")
    assert _match(index, [1, 2, 3]) == {"b": 2}
    index.hold("a", *_chain([1, 2]))
    assert _match(index, [1, 2, 3]) == {"a": 2, "b": 2}
    index.forget("a")
    index.hold("a", *_chain([1, 2]))
    assert _match(index, [1, 2]) == {"b": 2}


def test_what_was_lost_is_what_was_used_no_later() -> None:
    index = _index(100, "a", "b")
    index.hold("b", *_chain([1, 2, 3]))
    index.hold("b", *_chain([8, 9]))
    index.hold("a", *_chain([1, 2, 7]))  # splits the run of both
    holdings = index.set_capacity("b", 100 * _SEGMENT_BYTES)
    marks = index.match(array("Q", [1, 2, 3])).marks("b", holdings)
    assert [mark.start for mark in marks] == [2, 0]
    assert len({mark.used for mark in marks}) == 1
    used = marks[0].used
    assert index.lost("b", used - 1) == 0
    assert _match(index, [1, 2, 3]) == {"a": 2, "b": 3}
    assert index.lost("b", used) == 30
    assert _match(index, [1, 2, 3]) == {"a": 2}
    assert _match(index, [8, 9]) == {"b": 2}
    assert index.lost("nobody", used) == 0


def test_an_unknown_replica_and_an_empty_chain_hold_nothing() -> None:
    index = _index(100, "a")
    index.hold("nobody", *_chain([1]))
    index.hold("a", *_chain([]))
    assert _match(index, [1]) == {}
    assert index.held_bytes("nobody") == 0


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32), st.sampled_from([4, 9, 1000]))
def test_it_agrees_with_a_plain_model(seed: int, capacity: int) -> None:
    """Held values form prefixes, never exceed the capacity, and without pressure nothing is lost."""
    dice = random.Random(seed)
    index = _index(capacity, "a", "b", "c")
    chains: list[list[int]] = []
    seen: dict[str, set[int]] = {"a": set(), "b": set(), "c": set()}
    for _ in range(40):
        base = dice.choice(chains) if chains and dice.random() < 0.8 else []
        base = base[: dice.randint(0, len(base))]
        grown = base + [dice.getrandbits(60) for _ in range(dice.randint(1, 4))]
        chains.append(grown)
        replica_id = dice.choice("abc")
        if dice.random() < 0.05:
            index.clear(replica_id)
            seen[replica_id].clear()
        index.hold(replica_id, *_chain(grown))
        seen[replica_id].update(grown)
        newest = _match(index, grown)
        assert newest[replica_id] == min(len(grown), capacity)
        for probe in dice.sample(chains, min(5, len(chains))):
            match = _match(index, probe)
            for name, values in seen.items():
                known = next((i for i, v in enumerate(probe) if v not in values), len(probe))
                assert match.get(name, 0) <= known
                if capacity == 1000:
                    assert match.get(name, 0) == known
                assert index.held_bytes(name) <= capacity * _SEGMENT_BYTES
    for name in "abc":
        index.clear(name)
        assert index.held_bytes(name) == 0
    assert all(not _match(index, chain) for chain in chains)


@pytest.mark.parametrize("capacity", [0, 1])
def test_the_least_capacities(capacity: int) -> None:
    index = _index(capacity, "a")
    index.hold("a", *_chain([1, 2]))
    assert _match(index, [1, 2]).get("a", 0) == capacity


class _PlainIndex:
    """Every held prefix of every replica by itself."""

    def __init__(self, ids: str) -> None:
        self.held: dict[str, set[tuple[int, ...]]] = {name: set() for name in ids}

    def hold(self, name: str, values: list[int]) -> None:
        self.held[name] |= {tuple(values[:n]) for n in range(1, len(values) + 1)}

    def match(self, name: str, values: list[int]) -> int:
        held = self.held[name]
        return sum(tuple(values[:n]) in held for n in range(1, len(values) + 1))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32))
def test_on_demand_it_is_what_a_plain_index_says(seed: int) -> None:
    """Branches split nodes, replicas are cleared and forgotten; without pressure both say the same."""
    dice = random.Random(seed)
    index, plain = _index(10_000, "a", "b", "c"), _PlainIndex("abc")
    chains: list[list[int]] = [[1]]
    places: list[Node | None] = [None]
    for _ in range(50):
        base = dice.choice(chains)
        grown = base[: dice.randint(1, len(base))] + [
            dice.choice((2, 3, dice.getrandbits(60))) for _ in range(dice.randint(0, 4))
        ]
        chains.append(grown)
        name = dice.choice("abc")
        what = dice.random()
        if what < 0.06:
            index.clear(name)
            plain.held[name].clear()
        elif what < 0.1:
            index.forget(name)
            index.set_capacity(name, 10_000 * _SEGMENT_BYTES)
            plain.held[name].clear()
        # Places of any age, of other branches and of what was dropped, may be given.
        places.append(index.hold(name, *_chain(_unique(grown)), dice.choice(places)))
        plain.hold(name, _unique(grown))
        for probe in dice.sample(chains, min(4, len(chains))):
            found = _match(index, _unique(probe))
            near = index.match(array("Q", _unique(probe)), dice.choice(places))
            assert found == near.everyone()
            assert found == {name: n for name in "abc" if (n := plain.match(name, _unique(probe)))}


def _unique(values: list[int]) -> list[int]:
    """Values as a chain has them: each names all that come before it."""
    return [hash(tuple(values[: n + 1])) & (2**64 - 1) for n in range(len(values))]


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_is_trimmed_is_gone_with_all_that_goes_on_from_there(seed: int) -> None:
    dice = random.Random(seed)
    index = _index(10_000, "a", "b")
    held: dict[str, list[list[int]]] = {"a": [], "b": []}
    for _ in range(12):
        known = [values for rows in held.values() for values in rows] or [[1]]
        base = dice.choice(known)
        values = base[: dice.randint(0, len(base))] + [dice.getrandbits(60) for _ in range(3)]
        name = dice.choice("ab")
        index.hold(name, *_chain(values))
        held[name].append(values)
        if dice.random() < 0.5:
            trimmed = dice.choice(known)
            name, n = dice.choice("ab"), dice.randint(0, len(trimmed))
            index.trim(name, _chain(trimmed)[0], n)
            held[name] = [
                row[:n] if row[: n + 1] == trimmed[: n + 1] and n < len(trimmed) else row
                for row in held[name]
            ]
        for name, rows in held.items():
            distinct = {tuple(row[: n + 1]) for row in rows for n in range(len(row))}
            assert index.held_bytes(name) == len(distinct) * _SEGMENT_BYTES
            for values in known:
                longest = max(
                    (sum(tuple(values[: n + 1]) in distinct for n in range(len(values))),)
                )
                assert _match(index, values).get(name, 0) == longest
