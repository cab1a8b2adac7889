"""The virtual clock: order, alarms, and no way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.kernel import Alarm, Kernel, Rank, TimeWentBackError

if TYPE_CHECKING:
    from collections.abc import Callable


def note(into: list[object]) -> Callable[[object], None]:
    return into.append


def test_time_then_rank_then_order_of_scheduling() -> None:
    kernel, seen = Kernel(), list[object]()
    kernel.at(2.0, Rank.ENGINE, note(seen), "later")
    kernel.at(1.0, Rank.FAULT, note(seen), "fault")
    kernel.at(1.0, Rank.ARRIVAL, note(seen), "first")
    kernel.at(1.0, Rank.ARRIVAL, note(seen), "second")
    kernel.at(1.0, Rank.ENGINE, note(seen), "engine")
    kernel.run(1.5)
    assert seen == ["engine", "first", "second", "fault"]
    assert kernel.now_s == 1.5
    kernel.run(3.0)
    assert seen[-1] == "later"


def test_the_past_is_refused() -> None:
    kernel = Kernel()
    kernel.run(5.0)
    with pytest.raises(TimeWentBackError, match=r"at 5\.0 s something was scheduled for 4\.0 s"):
        kernel.at(4.0, Rank.ARRIVAL, print, None)
    with pytest.raises(TimeWentBackError):
        kernel.at(float("nan"), Rank.ARRIVAL, print, None)
    with pytest.raises(TimeWentBackError):
        kernel.arm(Alarm(Rank.ENGINE, print, None), 4.0)


def test_halting_keeps_what_is_left() -> None:
    kernel, seen = Kernel(), list[object]()

    def stop(what: object) -> None:
        seen.append(what)
        kernel.halt()

    kernel.at(1.0, Rank.ARRIVAL, stop, "one")
    kernel.at(2.0, Rank.ARRIVAL, note(seen), "two")
    kernel.run(9.0)
    assert seen == ["one"]
    assert kernel.now_s == 1.0
    kernel.run(9.0)
    assert seen == ["one", "two"]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 40))), max_size=200)
)
def test_an_alarm_goes_off_when_it_was_set_last(steps: list[tuple[int, int | None]]) -> None:
    """Against a plain model: each alarm has one time, and goes off then, once."""
    kernel = Kernel()
    rung: list[tuple[float, int]] = []
    alarms = [
        Alarm(Rank.ENGINE, lambda n: rung.append((kernel.now_s, n)), n)  # type: ignore[arg-type]
        for n in range(4)
    ]
    wanted: dict[int, float] = {}
    expected: list[tuple[float, int]] = []
    now = 0.0
    for number, ahead in steps:
        now += 1.0
        due = sorted((at_s, n) for n, at_s in wanted.items() if at_s <= now)
        expected += due
        for _, n in due:
            del wanted[n]
        kernel.run(now)
        at_s = None if ahead is None else now + ahead
        kernel.arm(alarms[number], at_s)
        wanted.pop(number, None)
        if at_s is not None:
            wanted[number] = at_s
    kernel.run(now + 100.0)
    expected += sorted((at_s, n) for n, at_s in wanted.items())
    assert sorted(rung) == sorted(expected)
    assert [at_s for at_s, _ in rung] == sorted(at_s for at_s, _ in rung)


def test_alarms_brought_forward_again_and_again_do_not_fill_the_heap() -> None:
    kernel = Kernel()
    rung: list[object] = []
    alarms = [Alarm(Rank.ENGINE, rung.append, n) for n in range(8)]
    most = 0
    for step in range(20_000):
        kernel.arm(alarms[step % 8], 1e6 - step)
        most = max(most, len(kernel))
    assert most < 1_024
    kernel.run(2e6)
    assert rung == [7, 6, 5, 4, 3, 2, 1, 0]
    assert len(kernel) == 0
