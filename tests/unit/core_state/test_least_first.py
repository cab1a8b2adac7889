"""The least of many by one number: what a sort would say, mended by what changed."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from router.policy.ring import spot_of
from router.state.fleet.least import LeastFirst


class Box:
    def __init__(self, value: int) -> None:
        self.value = value


def _order(boxes: dict[str, Box]) -> LeastFirst[Box]:
    return LeastFirst(boxes, lambda box: box.value)


@settings(deadline=None, max_examples=80)
@given(
    seed=st.integers(0, 2**32), n=st.sampled_from((0, 1, 3, 40)), largest=st.sampled_from((2, 99))
)
def test_it_is_what_sorting_all_says_after_any_changes(seed: int, n: int, largest: int) -> None:
    dice = random.Random(seed)
    boxes = {f"r{i}": Box(dice.randint(0, largest)) for i in range(n)}
    order = _order(boxes)
    for _ in range(12):
        names = dice.sample(sorted(boxes), dice.randint(0, min(n, dice.choice((2, 40)))))
        for name in names:
            boxes[name].value = dice.randint(0, largest)
        order.changed(dict.fromkeys([*names, "gone"]))
        values = sorted(box.value for box in boxes.values())
        spot = spot_of(f"s{dice.random()}")
        refused = set(dice.sample(sorted(boxes), n // 3))
        for k in (0, 1, 4, n, n + 1):
            assert [box.value for box in order.first(k, spot)] == values[:k]
            open_only = order.first(k, spot, [boxes[name] for name in refused].__contains__)
            rest = sorted(box.value for name, box in boxes.items() if name not in refused)
            assert [box.value for box in open_only] == rest[:k]
        everyone = order.first(n, spot)
        assert {id(box) for box in everyone} == {id(box) for box in boxes.values()}
        assert order.total == sum(values)
        assert order.most == (values[-1] if values else 0)


def test_equal_ones_come_first_for_different_keys_and_never_by_their_order() -> None:
    boxes = {f"r{i}": Box(0) for i in range(64)}
    names = {id(box): name for name, box in boxes.items()}
    order, backwards = _order(boxes), _order(dict(reversed(boxes.items())))
    firsts = set()
    for n in range(400):
        spot = spot_of(f"s{n}")
        found = [names[id(box)] for box in order.first(5, spot)]
        assert found == [names[id(box)] for box in backwards.first(5, spot)]
        firsts.add(found[0])
    assert len(firsts) > 50
