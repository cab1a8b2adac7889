"""How much a replica keeps and for how long, learned from what its answers report."""

from __future__ import annotations

import random
from collections import OrderedDict
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialect.base import Usage
from router.state.cache.keeping import Ages, Keeping
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event
from router.state.history import Outcome
from tests.doubles.core_rig import make_core
from tests.doubles.prompts import prompt

if TYPE_CHECKING:
    from router.state.fleet.replica import Replica

HEAD = [1, 2]


class Engine:
    """An LRU of segments, a thousand tokens each; what is idle for ``lifetime_s`` is given up."""

    def __init__(self, segments: int, lifetime_s: float = 1e9) -> None:
        self.segments = segments
        self.lifetime_s = lifetime_s
        self.used: OrderedDict[int, float] = OrderedDict()

    def ask(self, chain: list[int], now_s: float) -> int:
        """Cached segments of a prompt, which is then cached."""
        for value in [v for v, at_s in self.used.items() if now_s - at_s > self.lifetime_s]:
            del self.used[value]
        n = next((n for n, value in enumerate(chain) if value not in self.used), len(chain))
        for value in reversed(chain):
            self.used[value] = now_s
            self.used.move_to_end(value)
        while len(self.used) > self.segments:
            self.used.popitem(last=False)
        return n


def drive(engine: Engine, *, turns: int, sessions: int, gap_s: float, stated: int) -> Replica:
    """Sessions in random order; answers the replica as it is then believed to be."""
    core, dice = make_core(1), random.Random(3)
    core.members.leave("r0")
    replica = core.members.join(ReplicaSpec("r0", "127.0.0.1", 1, capacity_tokens=stated), 0.0)
    core.members.heard("r0", Event.PROBE_OK, 0.0)
    length = dict.fromkeys(range(sessions), 8)
    now_s = 0.0
    for _ in range(turns):
        now_s += gap_s
        core.tick(now_s)
        session = dice.randrange(sessions)
        length[session] = length[session] % 24 + 2
        chain = HEAD + [1_000 * (session + 1) + n for n in range(length[session])]
        ticket = core.arrive(prompt(chain, key=f"s{session}"), now_s)
        core.began(ticket, now_s)
        tokens = len(chain) * 1_000
        cached = min(engine.ask(chain, now_s) * 1_000, tokens - 1) // 64 * 64
        core.finish(ticket, Outcome.DONE, now_s, usage=Usage(tokens, 0, cached))
    return replica


@pytest.mark.parametrize("stated", [2_000_000, 150_000])
def test_the_room_that_shows_itself_is_found_from_above_and_from_below(stated: int) -> None:
    engine = Engine(500)
    replica = drive(engine, turns=900, sessions=60, gap_s=1.0, stated=stated)
    assert replica.capacity_tokens == pytest.approx(500_000, rel=0.3)
    assert replica.stated_tokens == stated


def test_an_engine_with_the_room_it_states_is_taken_at_its_word() -> None:
    replica = drive(Engine(1_000), turns=900, sessions=60, gap_s=1.0, stated=1_000_000)
    assert replica.capacity_tokens == pytest.approx(1_000_000, rel=0.15)


@pytest.mark.parametrize("share", [0.8, 1.0])
def test_what_an_engine_holds_a_fifth_over_its_word_is_not_given_up(share: float) -> None:
    engine = Engine(1_000)
    stated = int(1_000_000 * share)
    core = make_core(1)
    core.members.leave("r0")
    replica = core.members.join(ReplicaSpec("r0", "127.0.0.1", 1, capacity_tokens=stated), 0.0)
    core.members.heard("r0", Event.PROBE_OK, 0.0)
    missed = 0
    for session in (*range(40), *range(40)):  # 960 segments of the engine's thousand
        chain = [1_000 * (session + 1) + n for n in range(24)]
        ticket = core.arrive(prompt(chain, key=f"s{session}"), 0.0)
        core.began(ticket, 0.0)
        cached = min(engine.ask(chain, 0.0) * 1_000, 23_999) // 64 * 64
        missed += ticket.cached_tokens < 0.9 * cached
        core.finish(ticket, Outcome.DONE, 0.0, usage=Usage(24_000, 0, cached))
    assert missed == 0
    assert replica.capacity_tokens == stated, "nothing has shown another room"


def test_a_lifetime_is_learned_and_what_is_older_not_believed() -> None:
    engine = Engine(100_000, lifetime_s=500.0)
    replica = drive(engine, turns=1_500, sessions=12, gap_s=40.0, stated=10_000_000)
    lifetime_s = replica.keeping.lifetime_s
    assert lifetime_s is not None
    assert 240.0 <= lifetime_s <= 960.0
    steady = drive(Engine(100_000), turns=600, sessions=12, gap_s=40.0, stated=10_000_000)
    assert steady.keeping.lifetime_s is None


@given(st.lists(st.tuples(st.floats(0, 20_000), st.booleans()), max_size=200))
def test_a_lifetime_is_never_shorter_than_what_was_mostly_kept(
    samples: list[tuple[float, bool]],
) -> None:
    keeping = Keeping()
    for idle_s, is_kept in samples:
        keeping.returned(idle_s, is_kept=is_kept)
    if all(is_kept for _, is_kept in samples):
        assert keeping.lifetime_s is None
    assert keeping.lifetime_s is None or keeping.lifetime_s >= 30.0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10**9)), max_size=100))
def test_the_room_stays_within_bounds(lessons: list[tuple[bool, int]]) -> None:
    keeping = Keeping()
    for is_loss, n_bytes in lessons:
        if is_loss:
            keeping.lost(n_bytes, 10**8)
        else:
            keeping.found(n_bytes, 10**8)
        assert 0.02 <= keeping.factor <= 16.0


def test_ages_tell_the_last_use_before_a_time() -> None:
    ages = Ages()
    assert ages.until(1e9) == 0
    for step in range(100):
        ages.mark(step * 5.0, step)
    assert ages.until(-1.0) == 0
    assert ages.until(0.0) == 0
    assert 57 <= ages.until(300.0) <= 60
    assert ages.until(1e9) >= 97


def test_a_restart_and_a_move_teach_no_lifetime() -> None:
    core = make_core(2)
    engines = {"r0": Engine(100_000), "r1": Engine(100_000)}
    chains = {n: HEAD + [1_000 * (n + 1) + k for k in range(20)] for n in range(8)}

    def turn(n: int, now_s: float) -> str:
        chains[n].append(1_000 * (n + 1) + len(chains[n]))
        ticket = core.arrive(prompt(chains[n], key=f"s{n}"), now_s)
        core.began(ticket, now_s)
        tokens = len(chains[n]) * 1_000
        cached = (
            min(engines[ticket.replica_id].ask(chains[n], now_s) * 1_000, tokens - 1) // 64 * 64
        )
        core.finish(ticket, Outcome.DONE, now_s, usage=Usage(tokens, 0, cached))
        return ticket.replica_id

    for n in range(8):
        turn(n, n / 10)
        turn(n, n / 10 + 1.0)
    core.members.heard("r0", Event.CONNECT_FAILED, 5.0)
    engines["r0"].used.clear()
    core.members.heard("r0", Event.PROBE_OK, 20.0)
    for n in range(8):
        turn(n, 100.0 + n)
    for n in range(8):
        core.operating.move(f"s{n}", "r1", 200.0)
    for n in range(8):
        turn(n, 300.0 + n)
    assert [r.keeping.lifetime_s for r in core.fleet.replicas()] == [None, None]


def test_a_limit_that_is_edited_does_not_undo_what_was_learned_of_the_room() -> None:
    core = make_core(1)
    [replica] = core.fleet.replicas()
    replica.keeping.factor = 0.3
    for inflight_max in (4, 5):
        spec = ReplicaSpec(
            "r0", "127.0.0.1", 31_000, capacity_tokens=1_000_000, inflight_max=inflight_max
        )
        core.members.join(spec, 1.0)
        assert replica.capacity_tokens == 300_000
    assert replica.stated_tokens == 1_000_000
