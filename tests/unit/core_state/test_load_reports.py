"""Load reports: what others carry there, how fast it computes, whether it moves."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.dialect.base import Usage
from router.state.fleet.replica import Description, Observation, Replica, ReplicaSpec
from router.state.health.table import Event, State
from router.state.history import Outcome
from router.state.rates.prefill import PrefillRate
from tests.doubles.core_rig import make_core
from tests.doubles.prompts import prompt

if TYPE_CHECKING:
    from router.core import RouterCore
    from router.ticket import Ticket

RATE = PrefillRate(0.02, 2e-5, 1e-9, 1e-9)


def only(core: RouterCore) -> Replica:
    [replica] = core.fleet.replicas()
    return replica


def told(
    core: RouterCore, *, chunk_tokens: int = 8_192, rate: PrefillRate | None = RATE
) -> Replica:
    said = Description(models=("m",), chunk_tokens=chunk_tokens, rate=rate, reports_cached=True)
    core.members.described("r0", said)
    return only(core)


def report(
    core: RouterCore,
    now_s: float,
    stamp: float,
    *,
    heard_s: float = 0.0,
    prefill: tuple[int, int] = (0, 0),
) -> None:
    load = only(core).load
    seen = Observation(
        0, 0, 0, now_s, load.inflight, load.backlog_s,
        stamp=(stamp,), heard_s=heard_s, prefill_tokens=prefill[0], prefill_busy_us=prefill[1],
    )  # fmt: skip
    core.members.observed("r0", seen)


class Engine:
    """What an engine has of ours and of others, and the snapshot it told last."""

    def __init__(self) -> None:
        self.ours: list[Ticket] = []
        self.others = 0
        self.stamp = 0.0
        self.told = (0, 0)

    def tell(self) -> None:
        self.stamp += 1.0
        self.told = (len(self.ours), self.others)


@settings(deadline=None, max_examples=200)
@given(seed=st.integers(0, 2**32))
def test_the_wait_is_the_snapshot_plus_what_was_sent_since_less_what_ended_since(seed: int) -> None:
    """However old a snapshot is when it is read again: ours are exact, others as it said."""
    dice = random.Random(seed)
    core, engine = make_core(1), Engine()
    replica, now_s, n = only(core), 0.0, 0
    others_known = 0
    for _ in range(60):
        now_s += dice.random()
        act = dice.random()
        if act < 0.3:
            n += 1
            engine.ours.append(core.arrive(prompt([n], key=f"s{n}"), now_s))
        elif act < 0.5 and engine.ours:
            core.finish(engine.ours.pop(dice.randrange(len(engine.ours))), Outcome.DONE, now_s)
        elif act < 0.6:
            engine.others = max(0, engine.others + dice.choice((-1, 1, 1)))
        else:
            is_new = dice.random() < 0.5
            if (
                is_new
            ):  # the engine tells anew just when it is asked; else the old report is read again
                engine.tell()
            ours, others = engine.told
            seen = Observation(
                ours + others,
                0,
                0,
                now_s,
                len(engine.ours),
                0.0,
                stamp=(engine.stamp,),
                heard_s=now_s,
            )
            if engine.stamp:
                core.members.observed("r0", seen)
            if is_new:
                others_known = engine.others
        assert replica.inflight == len(engine.ours) + others_known
        assert replica.load.inflight == len(engine.ours)


def test_a_scheduler_that_stands_still_is_seen_within_its_longest_step_and_three_seconds() -> None:
    core = make_core(1)
    replica = told(core)
    report(core, 0.0, 1.0)
    ticket = core.arrive(prompt(list(range(1, 60)), key="s"), 0.2)
    longest_s = RATE.prefill_s(8_192, ticket.prompt_tokens + 500)
    assert 0.1 < longest_s < 1.0
    now_s = 0.2
    while replica.state is State.READY:
        now_s += 0.25
        report(core, now_s, 1.0)
    assert 1.6 < now_s - 0.2 <= 3.0 + longest_s
    assert replica.load.is_lost
    # What it holds is not forgotten, and a probe that its HTTP server answers does not bring it back.
    core.members.heard("r0", Event.PROBE_OK, now_s)
    assert replica.state is State.STALLED
    report(core, now_s + 1.0, 2.0)
    assert replica.state is State.READY
    assert not replica.load.is_lost
    assert replica.counters.stalls == 1


def test_long_prefills_and_flowing_answers_are_no_stall() -> None:
    core = make_core(1)
    replica = told(core, chunk_tokens=16_384)
    report(core, 0.0, 1.0)
    deep = core.arrive(prompt(list(range(1, 245)), key="s"), 0.1)
    assert deep.prompt_tokens > 240_000
    longest_s = RATE.prefill_s(16_384, 250_000)
    assert longest_s > 4.0
    now_s = 0.1
    while now_s < longest_s:
        now_s += 0.25
        report(core, now_s, 1.0)
        assert replica.state is State.READY
    report(core, now_s, 2.0)
    core.began(deep, now_s)
    for _ in range(40):  # its report is old, but its answers flow
        now_s += 0.25
        report(core, now_s, 2.0, heard_s=now_s - 0.25)
        assert replica.state is State.READY


def test_a_prefill_that_was_given_up_may_still_be_computed() -> None:
    core = make_core(1)
    replica = told(core, chunk_tokens=16_384)
    report(core, 0.0, 1.0)
    deep = core.arrive(prompt(list(range(1, 245)), key="s"), 0.1)
    core.finish(deep, Outcome.CLIENT_GONE, 0.2)
    for tenth in range(3, 60):
        report(core, tenth / 10, 1.0)
        assert replica.state is State.READY or tenth / 10 > 4.0


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_long_prompt_that_was_answered_gives_the_next_one_no_more_time(
    is_answered: bool,  # noqa: FBT001
) -> None:
    core = make_core(1)
    replica = told(core, chunk_tokens=16_384)
    report(core, 0.0, 1.0)
    deep = core.arrive(prompt(list(range(1, 245)), key="s"), 0.1)
    if is_answered:
        core.began(deep, 0.2)
    core.finish(deep, Outcome.DONE if is_answered else Outcome.CLIENT_GONE, 0.3)
    core.arrive(prompt(list(range(500, 510)), key="t"), 0.4)
    now_s = 0.4
    while replica.state is State.READY:
        now_s += 0.25
        report(core, now_s, 1.0)
    assert (now_s - 0.4 <= 3.0) is is_answered


def test_one_of_several_ranks_that_stands_still_is_seen() -> None:
    core = make_core(1)
    replica = told(core)
    core.arrive(prompt([1], key="s"), 0.0)
    for quarter in range(20):
        now_s = quarter / 4
        core.members.observed(
            "r0", Observation(1, 0, 0, now_s, 1, 0.0, stamp=(7.0, now_s), heard_s=now_s)
        )
    assert replica.state is State.STALLED


def test_without_a_known_rate_there_is_more_patience() -> None:
    core = make_core(1)
    replica = told(core, rate=None)
    report(core, 0.0, 1.0)
    deep = core.arrive(prompt(list(range(1, 245)), key="s"), 0.1)
    assert deep.prompt_tokens > 240_000
    for quarter in range(1, 32):
        report(core, quarter / 4, 1.0)
    assert replica.state is State.READY


@pytest.mark.parametrize("true_factor", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("others", [0.0, 1.0])
def test_a_replicas_rate_is_learned_from_its_counters(true_factor: float, others: float) -> None:
    """Whoever else sends it work of the same kind, and however much later it counts than it answers."""
    core = make_core(1)
    replica = told(core, rate=None)
    true_rate = replica.rate.scaled(true_factor)
    dice = random.Random(4)
    tokens, busy_us, now_s = 0, 0.0, 0.0
    for n in range(1, 60):
        now_s += 1.0
        segments = [n, *range(1_000 * n, 1_000 * n + dice.randint(2, 60))]
        ticket = core.arrive(prompt(segments, key=f"s{n}"), now_s)
        total = ticket.prompt_tokens
        core.began(ticket, now_s)
        if n % 3 == 0:  # its last step is counted with the next report
            report(core, now_s, now_s, prefill=(tokens, int(busy_us)))
        tokens += int(total * (1.0 + others))
        busy_us += 1e6 * (1.0 + others) * true_rate.prefill_s(total, 0)
        core.finish(ticket, Outcome.DONE, now_s + 0.5, usage=Usage(total, 10, 0))
        report(core, now_s + 0.6, now_s + 0.6, prefill=(tokens, int(busy_us)))
    for new, cached in ((8_192, 0), (30_000, 0), (60_000, 0)):
        assert replica.prefill_s(new, cached) == pytest.approx(
            true_rate.prefill_s(new, cached), rel=0.1
        )
    assert replica.is_rate_known


def test_counters_of_a_new_process_begin_anew() -> None:
    core = make_core(1)
    replica = told(core, rate=None)
    for stamp, tokens, busy_us in ((1.0, 10**6, 10**7), (2.0, 10, 10), (3.0, 20, 10**9)):
        seen = Observation(
            0, 0, 0, stamp, 0, 0.0,
            stamp=(stamp,), prefill_tokens=tokens, prefill_busy_us=busy_us,
        )  # fmt: skip
        core.members.observed("r0", seen)
    assert replica.learner.rate is None


def test_another_process_behind_the_same_address_holds_nothing() -> None:
    core = make_core(1)
    ticket = core.arrive(prompt([1, 2], key="s"), 0.0)
    core.began(ticket, 0.1)
    core.finish(ticket, Outcome.DONE, 0.2)
    core.members.described("r0", Description(models=("m",), started="one"))
    assert core.index.held_bytes("r0")
    core.members.described("r0", Description(models=("m",), started="one"))
    assert core.index.held_bytes("r0")
    core.members.described("r0", Description(models=("m",), started="two"))
    assert not core.index.held_bytes("r0")


def test_what_a_profile_says_counts_until_the_counters_say_more() -> None:
    core = make_core(0)
    core.members.join(ReplicaSpec("r0", "127.0.0.1", 1, rate=RATE), 0.0)
    replica = only(core)
    assert replica.rate == RATE
    assert replica.is_rate_known
    core.members.described("r0", Description(rate=RATE.scaled(2.0)))
    assert replica.rate == RATE  # what it registered with goes first


def test_who_goes_on_by_himself_is_given_as_long_again_but_a_hang_teaches_little() -> None:
    core = make_core(1)
    replica = told(core)
    core.arrive(prompt([1], key="s"), 0.0)
    stamp, now_s, patience_s = 1.0, 0.0, []
    report(core, now_s, stamp)
    for gap_s in (4.0, 4.0, 600.0, 600.0):
        began_s, noticed_s = now_s, None
        while now_s < began_s + gap_s:
            now_s += 0.25
            report(core, now_s, stamp)
            if noticed_s is None and replica.state is not State.READY:
                noticed_s = now_s - began_s
        patience_s.append(noticed_s)
        stamp += 1.0
        report(core, now_s, stamp)
        replica.state = State.READY  # whatever its record says of coming back
    first, second, third, fourth = patience_s
    assert first is not None
    assert first <= 3.0
    assert second is None or second > first
    assert third is not None
    assert fourth is not None
    assert third <= 6.0
    assert fourth <= 12.0


def test_a_hung_replica_is_not_taken_back_because_its_requests_have_left_it() -> None:
    core = make_core(1)
    replica = told(core)
    report(core, 0.0, 1.0)
    ticket = core.arrive(prompt([1], key="s"), 0.1)
    now_s = 0.1
    while replica.state is State.READY:
        now_s += 0.25
        report(core, now_s, 1.0)
    core.finish(ticket, Outcome.CLIENT_GONE, now_s)
    for _ in range(40):
        now_s += 0.25
        report(core, now_s, 1.0)
        assert replica.state is State.STALLED
    report(core, now_s + 0.25, 2.0)
    assert replica.state is State.READY
    assert replica.counters.stalls == 1


def test_a_prompt_that_was_wrongly_believed_to_be_cached_is_no_stall() -> None:
    core = make_core(1)
    replica = told(core, chunk_tokens=16_384)
    segments = list(range(1, 245))
    first = core.arrive(prompt(segments, key="s"), 0.0)
    core.began(first, 20.0)
    core.finish(first, Outcome.DONE, 21.0, usage=Usage(first.prompt_tokens, 10, 0))
    report(core, 22.0, 22.0)
    again = core.arrive(prompt([*segments, 999], key="s"), 22.5)
    assert (
        again.cached_tokens > 240_000
    )  # all but gone, as it turns out: it computes chunk after chunk
    now_s, step_s = 22.5, RATE.prefill_s(16_384, 240_000)
    for stamp in (23.0, 24.0, 25.0):
        until_s = now_s + step_s
        while now_s < until_s:
            now_s += 0.25
            report(core, now_s, stamp)
            assert replica.state is State.READY


def test_what_others_sent_is_not_forgotten_because_ours_hides_it() -> None:
    core = make_core(1)
    replica = told(core, chunk_tokens=16_384)
    seen = Observation(1, 0, 0, 0.0, 0, 0.0, stamp=(1.0,))
    core.members.observed("r0", seen)  # another router's request
    core.arrive(prompt([1, 2, 3], key="s"), 0.5)
    core.members.observed("r0", Observation(1, 0, 0, 1.0, 1, 0.0, stamp=(2.0,)))
    for quarter in range(5, 18):
        report(core, quarter / 4, 2.0)
    assert replica.state is State.READY


def test_an_outage_teaches_nothing_of_the_length_of_steps() -> None:
    core = make_core(1)
    replica = told(core)
    report(core, 0.0, 1.0)
    report(core, 1.0, 2.0)
    core.members.heard("r0", Event.CONNECT_FAILED, 2.0)
    core.members.heard("r0", Event.PROBE_OK, 300.0)
    report(core, 300.1, 0.5)
    core.arrive(prompt([1], key="s"), 300.2)
    now_s = 300.2
    while replica.state is State.READY:
        now_s += 0.25
        report(core, now_s, 0.5)
    assert now_s - 300.2 < 3.1


def test_nobody_leaves_a_replica_for_another_that_stands_still() -> None:
    core = make_core(2)
    ticket = core.arrive(prompt([1], key="s"), 0.0)
    assert core.has_elsewhere(ticket)
    for name in ("r0", "r1"):
        core.members.heard(name, Event.STALL, 1.0)
    assert not core.has_elsewhere(ticket)
    assert core.arrive(prompt([2], key="t"), 1.0).replica_id in (
        "r0",
        "r1",
    )  # rather than be refused


def test_a_stalled_replica_that_says_so_itself_is_still_left() -> None:
    core = make_core(1)
    replica = told(core)
    report(core, 0.0, 1.0)
    core.members.heard("r0", Event.STALL, 1.0)
    core.members.heard("r0", Event.PROBE_NOT_READY, 2.0)
    assert replica.load.is_lost
    report(core, 3.0, 2.0)
    assert not replica.load.is_lost


def test_ranks_compute_side_by_side() -> None:
    core = make_core(1)
    replica = told(core)
    for n in range(8):
        core.arrive(prompt([n * 1_000 + k for k in range(100)], key=f"s{n}"), 0.0)
    alone_s = replica.prefill_ahead_s
    core.members.described("r0", Description(models=("m",), n_caches=8, rate=RATE))
    assert replica.prefill_ahead_s == pytest.approx(alone_s / 8)
    assert replica.backlog_s == pytest.approx(alone_s / 8)
