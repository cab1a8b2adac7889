"""Whatever happens to a supervised engine in whatever order, its life keeps these rules.

1. At most one engine runs: START is ordered only when none is there.
2. Once KILL or TERM was ordered, nothing is ordered of that engine but KILL, and routers only hear
   that it goes.
3. JOIN comes only after the engine answered and was warmed; after JOIN comes WITHDRAW or LEAVE before
   the next START.
4. Restarts within a window are no more than allowed.
5. After a stop no engine is started, and with time alone it ends: stopped or failed.
6. Every state but ready and the end has a deadline, or waits for an answer of preparing or preparing's own.
7. What is over stays over.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from replica.lifecycle import Fault, Lifecycle, Order, Rules, State

RULES = Rules(
    start_s_max=20.0,
    warm_s_max=10.0,
    drain_s_max=15.0,
    stop_s_max=3.0,
    kill_s_max=2.0,
    restarts_max=2,
    restart_window_s=50.0,
    backoff_s_min=1.0,
    backoff_s_max=4.0,
)
FAULTS = (
    Fault("crashed", "x"),
    Fault("hung", "x"),
    Fault("no-engine", "x", heals=False),
)
EVENTS = (
    "prepared",
    "answered",
    "warmed",
    "failed",
    "ended",
    "left",
    "stop",
    "stop_now",
    "tick",
    "wait",
)


@dataclass
class World:
    """What the orders came to: the rules above on plain facts."""

    life: Lifecycle
    now_s: float = 0.0
    has_engine: bool = False
    is_ending: bool = False
    is_joined: bool = False
    is_stopped: bool = False
    restarts_s: list[float] = field(default_factory=list)
    was_over: bool = False

    def carry_out(self, orders: list[Order]) -> None:
        assert not (self.was_over and orders)
        for order in orders:
            self.follow(order)
        if self.life.is_over:
            self.was_over = True
            assert not self.is_joined
            stuck = self.life.fault is not None and self.life.fault.code == "not-ended"
            assert not self.has_engine or stuck
        elif self.life.state is not State.READY:
            is_waited_for = self.life.next_s is not None
            assert is_waited_for or self.life.state is State.PREPARING

    def follow(self, order: Order) -> None:
        wanted = {
            Order.PREPARE: not (self.has_engine or self.is_stopped),
            Order.START: not (self.has_engine or self.is_joined or self.is_stopped),
            Order.WARM: self.has_engine and not self.is_ending,
            Order.JOIN: self.has_engine and not (self.is_ending or self.is_joined),
            Order.WITHDRAW: self.is_joined,
            Order.LEAVE: self.is_joined and self.is_stopped,
            Order.TERM: self.has_engine and not (self.is_ending or self.is_joined),
            Order.KILL: self.has_engine and not self.is_joined,
        }
        assert wanted[order], (order, self)
        match order:
            case Order.START:
                self.has_engine, self.is_ending = True, False
            case Order.JOIN:
                self.is_joined = True
            case Order.WITHDRAW | Order.LEAVE:
                self.is_joined = False
            case Order.TERM | Order.KILL:
                self.is_ending = True

    def happen(self, event: str, fault: Fault | None, pause_s: float) -> None:
        self.now_s += pause_s
        life, before = self.life, self.life.restarts_total
        match event:
            case "ended":
                if not self.has_engine:
                    return
                self.has_engine = False
                orders = life.ended(fault, self.now_s)
            case "failed":
                orders = life.failed(fault or FAULTS[0], self.now_s)
            case "stop" | "stop_now":
                self.is_stopped = True
                orders = getattr(life, event)(self.now_s)
            case "wait":
                self.now_s = max(self.now_s, life.next_s or 0.0)
                orders = life.tick(self.now_s)
            case _:
                orders = getattr(life, event)(self.now_s)
        if life.restarts_total > before:
            self.restarts_s.append(self.now_s)
            since_s = self.now_s - RULES.restart_window_s
            recent = [at_s for at_s in self.restarts_s if at_s > since_s]
            assert len(recent) <= RULES.restarts_max
        self.carry_out(orders)


@settings(deadline=None, max_examples=300)
@example(
    0,
    [
        ("prepared", None, 0.0),
        ("answered", None, 0.0),
        ("warmed", None, 0.0),
        ("stop_now", None, 0.0),
    ],
)
@given(
    seed=st.integers(0, 9),
    story=st.lists(
        st.tuples(
            st.sampled_from(EVENTS),
            st.sampled_from((None, *FAULTS)),
            st.sampled_from((0.0, 0.1, 1.0, 7.0, 60.0)),
        ),
        max_size=60,
    ),
)
def test_every_order_of_events_keeps_the_rules(
    seed: int, story: list[tuple[str, Fault | None, float]]
) -> None:
    world = World(Lifecycle(RULES, random.Random(seed)))
    world.carry_out(world.life.begin(0.0))
    for event, fault, pause_s in story:
        world.happen(event, fault, pause_s)
        if world.was_over:
            break
    # Rule 5: with nothing but time, a stop comes to its end.
    world.happen("stop", None, 0.0)
    for _ in range(10):
        if world.life.is_over:
            break
        assert world.life.next_s is not None
        world.happen("wait", None, 0.0)
    assert world.life.is_over
    assert world.life.next_s is None
