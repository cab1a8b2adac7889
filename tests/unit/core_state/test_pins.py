"""Pins: homes, the live working set, and forgetting."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from router.state.sessions.pins import Pins


def test_a_pin_counts_at_its_home_and_moves_with_it() -> None:
    pins = Pins()
    pins.touch("s", "a", 0.0, tokens=100)
    assert (pins.totals("a").live_sessions, pins.totals("a").live_tokens) == (1, 100)
    pin = pins.touch("s", "b", 5.0, tokens=150)
    assert pin.homed_s == 5.0
    assert (pins.totals("a").live_sessions, pins.totals("a").live_tokens) == (0, 0)
    assert (pins.totals("b").live_sessions, pins.totals("b").live_tokens) == (1, 150)


def test_an_idle_session_leaves_the_working_set_but_keeps_its_home() -> None:
    pins = Pins(live_s=10.0, ttl_s=100.0)
    pins.touch("s", "a", 0.0, tokens=100)
    pins.expire(10.0)
    assert pins.live_count == 1
    pins.expire(10.1)
    assert pins.live_count == 0
    assert pins.totals("a").live_tokens == 0
    pin = pins.get("s")
    assert pin is not None
    assert pin.home_id == "a"
    pins.touch("s", "a", 50.0, tokens=120)
    assert pins.totals("a").live_tokens == 120
    pins.expire(61.0)
    pins.expire(150.1)
    assert pins.get("s") is None
    assert len(pins) == 0


def test_the_longest_idle_go_first_when_there_are_too_many() -> None:
    pins = Pins(pins_max=2, live_s=10.0)
    for n, key in enumerate("abc"):
        pins.touch(key, "r", float(n), tokens=1)
    assert pins.get("a") is None
    assert [pin.key for pin in pins.recent(9)] == ["c", "b"]
    assert pins.totals("r").live_sessions == 2


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 40)), max_size=60))
def test_totals_are_the_sum_over_live_pins(steps: list[tuple[int, int, int]]) -> None:
    pins = Pins(live_s=30.0, ttl_s=90.0, pins_max=4)
    now_s = 0.0
    for session, replica, wait_s in steps:
        now_s += wait_s
        pins.expire(now_s)
        pins.touch(f"s{session}", f"r{replica}", now_s, tokens=session * 10 + replica)
        live = [pin for pin in pins.recent(99) if pin.is_live]
        assert len(pins) <= 4
        for n in range(3):
            here = [pin for pin in live if pin.home_id == f"r{n}"]
            totals = pins.totals(f"r{n}")
            assert totals.live_sessions == len(here)
            assert totals.live_tokens == sum(pin.tokens for pin in here)
