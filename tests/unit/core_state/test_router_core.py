"""The core, driven as its drivers drive it: arrivals, answers, failures, time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.core import CoreParameters, RouterCore
from router.dialect.base import PromptFacts, Usage
from router.errors import ConnectFailed, Refused, UpstreamProtocol, UpstreamStatus
from router.policy import registry
from router.state.fleet import Observation, ReplicaSpec
from router.state.health import Event, State
from router.state.history import Outcome
from tests.doubles.prompts import prompt


def make_core(
    n: int = 3, *, policy: str = "home", parameters: CoreParameters | None = None
) -> RouterCore:
    core = RouterCore(registry.make(policy), random.Random(1), parameters)
    for i in range(n):
        spec = ReplicaSpec(f"r{i}", "127.0.0.1", 31_000 + i, capacity_tokens=1_000_000)
        core.members.join(spec, 0.0)
        core.members.heard(f"r{i}", Event.PROBE_OK, 0.0)
    return core


def serve(core: RouterCore, facts: PromptFacts, now_s: float, *, cached: int = 0) -> str:
    """One request from arrival to a good end; answers where it was served."""
    ticket = core.arrive(facts, now_s)
    core.began(ticket, now_s + 0.1)
    usage = Usage(len(facts.chain) * 1_000, 100, cached)
    core.finish(ticket, Outcome.DONE, now_s + 1.0, usage=usage)
    return ticket.replica_id


def all_idle(core: RouterCore) -> bool:
    return all(
        (load.inflight, load.inflight_tokens, load.backlog_us, load.decoding) == (0, 0, 0, 0)
        for load in (core.ledger.load(r.replica_id) for r in core.fleet.replicas())
    )


def test_a_session_stays_where_its_cache_is() -> None:
    core = make_core()
    home = serve(core, prompt([1, 2], key="s"), 0.0)
    for turn in range(3, 12):
        assert serve(core, prompt(list(range(1, turn + 1)), key="s"), turn * 10.0) == home
    assert core.history.totals.moves == 0
    assert all_idle(core)


def test_predicted_cached_tokens_are_the_last_prompt_and_answer() -> None:
    core = make_core()
    serve(core, prompt([1, 2], key="s"), 0.0)
    ticket = core.arrive(prompt([1, 2, 3], key="s"), 5.0)
    assert ticket.cached_tokens == 2_100 // 64 * 64
    assert ticket.prompt_tokens == 3_000
    assert ticket.price.prefill_s < 0.1
    assert ticket.reason == "home"


def test_new_sessions_spread_evenly_though_they_share_a_head() -> None:
    core = make_core(4)
    head = list(range(1, 13))
    homes = [serve(core, prompt([*head, 1000 + n], key=f"s{n}"), n * 1.0) for n in range(48)]
    counts = [homes.count(f"r{i}") for i in range(4)]
    assert all(10 <= count <= 14 for count in counts), counts


@pytest.mark.parametrize("has_key", [True, False])
def test_simultaneous_first_turns_spread_as_well(*, has_key: bool) -> None:
    core = make_core(4)
    head = list(range(1, 13))
    tickets = []
    for n in range(48):
        facts = prompt([*head, 1000 + n], key=f"s{n}" if has_key else "", head_segments=12)
        tickets.append(core.arrive(facts, 0.0))
    counts = [sum(t.replica_id == f"r{i}" for t in tickets) for i in range(4)]
    assert all(10 <= count <= 14 for count in counts), counts


def test_a_session_without_a_key_is_known_by_the_prompt_it_continues() -> None:
    core = make_core()
    first = core.arrive(prompt([1, 2, 50], head_segments=2), 0.0)
    core.finish(first, Outcome.DONE, 1.0, usage=Usage(3_000, 10, 0))
    again = core.arrive(prompt([1, 2, 50, 51, 52], head_segments=2), 2.0)
    other = core.arrive(prompt([1, 2, 60], head_segments=2), 2.0)
    assert again.session_key == first.session_key
    assert other.session_key != first.session_key


def test_a_refused_connection_rehomes_a_session_once() -> None:
    core = make_core()
    home = serve(core, prompt([1, 2], key="s"), 0.0)
    ticket = core.arrive(prompt([1, 2, 3], key="s"), 10.0)
    assert ticket.replica_id == home
    assert core.retry(ticket, ConnectFailed("connect-failed", "refused"), 10.1)
    second = ticket.replica_id
    assert second != home
    core.finish(ticket, Outcome.DONE, 11.0, usage=Usage(3_000, 10, 0))
    dead = core.fleet.get(home)
    assert dead is not None
    assert dead.state is State.DOWN
    assert serve(core, prompt([1, 2, 3, 4], key="s"), 20.0) == second
    # Its cache is gone; it comes back empty and the session stays where it went.
    core.members.heard(home, Event.PROBE_OK, 30.0)
    assert core.index.held_bytes(home) == 0
    assert serve(core, prompt([1, 2, 3, 4, 5], key="s"), 40.0) == second
    assert core.history.totals.rehomes == 1
    assert all_idle(core)


def test_each_replica_is_tried_once_and_then_nobody_is_left() -> None:
    core = make_core(3)
    ticket = core.arrive(prompt([1], key="s"), 0.0)
    error = UpstreamStatus("upstream-status", "The request queue is full.", http_status=503)
    seen = [ticket.replica_id]
    while core.retry(ticket, error, 0.1):
        seen.append(ticket.replica_id)
    assert sorted(seen) == ["r0", "r1", "r2"]
    # Being full is capacity, not a failure of health.
    assert all(r.state is State.READY for r in core.fleet.replicas())
    core.finish(ticket, Outcome.FAILED, 0.2, error=error)
    assert all_idle(core)
    assert core.history.totals.errors == 1


def test_garbage_makes_a_replica_suspect_until_it_is_probed() -> None:
    core = make_core(2)
    ticket = core.arrive(prompt([1], key="s"), 0.0)
    first = ticket.replica_id
    assert core.retry(ticket, UpstreamProtocol("bad-upstream-response", "not HTTP"), 0.1)
    core.finish(ticket, Outcome.DONE, 1.0)
    assert serve(core, prompt([9], key="t"), 1.0) != first
    core.members.heard(first, Event.PROBE_OK, 2.0)
    replica = core.fleet.get(first)
    assert replica is not None
    assert replica.state is State.READY


def test_a_thick_session_is_split_and_keeps_its_home() -> None:
    core = make_core(4)
    home = serve(core, prompt([1, 2, 3], key="s"), 0.0)
    tickets = [core.arrive(prompt([1, 2, 3, 10 + n], key="s"), 5.0) for n in range(12)]
    counts = [sum(t.replica_id == f"r{i}" for t in tickets) for i in range(4)]
    assert max(counts) <= 6, counts
    assert core.history.totals.splits > 0
    for ticket in tickets:
        core.finish(ticket, Outcome.DONE, 6.0, usage=Usage(4_000, 10, 0))
    pin = core.pins.get("s")
    assert pin is not None
    assert pin.home_id == home
    assert serve(core, prompt([1, 2, 3, 10, 11], key="s"), 9.0) == home


def test_a_title_request_does_not_move_or_claim_a_session() -> None:
    core = make_core()
    home = serve(core, prompt(list(range(1, 60)), key="s"), 0.0)
    for n in range(5):
        serve(core, prompt([900 + n], key="s"), 1.0 + n)
    pin = core.pins.get("s")
    assert pin is not None
    assert pin.home_id == home
    assert pin.tail_segments == 59
    assert serve(core, prompt(list(range(1, 62)), key="s"), 20.0) == home


def test_a_home_that_is_far_too_busy_is_left() -> None:
    core = make_core(2)
    home = serve(core, prompt([1, 2], key="s"), 0.0)
    for n in range(4):
        # Cold giants of other sessions, all bound to the home by their pins.
        core.pins.touch(f"g{n}", home, 50.0, tokens=200_000)
        core.arrive(prompt(list(range(1000 * (n + 1), 1000 * (n + 1) + 200)), key=f"g{n}"), 50.0)
    assert core.ledger.load(home).backlog_s > 20
    ticket = core.arrive(prompt([1, 2, 3], key="s"), 60.0)
    assert ticket.replica_id != home
    assert ticket.reason == "move"
    assert core.history.totals.moves >= 1


def test_draining_takes_nothing_new_and_all_draining_is_a_refusal() -> None:
    core = make_core(2)
    core.members.heard("r0", Event.DRAIN, 0.0)
    assert {serve(core, prompt([n], key=f"s{n}"), float(n)) for n in range(1, 6)} == {"r1"}
    core.members.heard("r1", Event.DRAIN, 9.0)
    with pytest.raises(Refused) as refused:
        core.arrive(prompt([1], key="s1"), 10.0)
    assert refused.value.code == "no-replica-ready"
    assert refused.value.retry_after_s


def test_limits_refuse_with_the_time_to_come_back() -> None:
    core = make_core(2, parameters=CoreParameters(inflight_max=2))
    tickets = [core.arrive(prompt([n], key=f"s{n}"), 0.0) for n in range(1, 5)]
    with pytest.raises(Refused) as refused:
        core.arrive(prompt([9], key="s9"), 0.0)
    assert refused.value.code == "saturated"
    assert refused.value.http_status == 503
    core.finish(tickets[0], Outcome.CLIENT_GONE, 1.0)
    assert core.arrive(prompt([9], key="s9"), 1.0).replica_id == tickets[0].replica_id


def test_no_replica_at_all_says_what_to_do() -> None:
    core = make_core(0)
    with pytest.raises(Refused, match="--replica"):
        core.arrive(prompt([1]), 0.0)
    assert not core.is_ready


def test_leases_end_and_heartbeats_renew_them() -> None:
    core = make_core(0)
    core.members.join(ReplicaSpec("r", "10.0.0.1", 1, lease_s=10.0), 0.0)
    assert core.members.renew("r", 8.0) is not None
    assert core.tick(17.9) == []
    assert core.tick(18.1) == ["r"]
    assert core.members.renew("r", 19.0) is None


def test_only_foreign_load_is_added_to_our_own() -> None:
    core = make_core(1)
    ticket = core.arrive(prompt(list(range(1, 51)), key="s"), 0.0)
    ours_s = core.ledger.load("r0").backlog_s
    replica = core.fleet.get("r0")
    assert replica is not None
    seen = Observation(1, 0, 0, 0.5, ours=1, ours_backlog_s=ours_s)
    core.members.observed("r0", seen)
    assert replica.inflight == 1
    assert replica.backlog_s == ours_s
    core.members.observed("r0", Observation(2, 3, 100_000, 1.0, ours=1, ours_backlog_s=0.0))
    assert replica.inflight == 5
    assert replica.backlog_s > ours_s + 1.0
    core.finish(ticket, Outcome.DONE, 2.0)
    assert replica.inflight == 4


def test_unreadable_bodies_are_placed_by_their_key_alone() -> None:
    core = make_core()
    facts = PromptFacts(dialect="chat", is_readable=False, session_key="k")
    first = core.arrive(facts, 0.0)
    core.began(first, 0.1)
    core.finish(first, Outcome.DONE, 1.0, usage=Usage(10, 1, None))
    assert core.arrive(facts, 2.0).replica_id == first.replica_id


def test_finishing_twice_releases_and_counts_once() -> None:
    core = make_core(1)
    ticket = core.arrive(prompt([1], key="s"), 0.0)
    core.finish(ticket, Outcome.CLIENT_GONE, 1.0)
    core.finish(ticket, Outcome.DONE, 2.0)
    assert core.history.totals.requests == 1
    assert core.history.totals.client_gone == 1
    assert ticket.record.outcome is Outcome.CLIENT_GONE


def test_history_keeps_predicted_against_reported() -> None:
    core = make_core()
    serve(core, prompt([1, 2], key="s"), 0.0)
    serve(core, prompt([1, 2, 3], key="s"), 10.0, cached=2_048)
    first, second = core.history.of("s")
    assert (first.predicted_cached_tokens, first.reported_cached_tokens) == (0, 0)
    assert second.predicted_cached_tokens == 2_048
    assert second.reported_cached_tokens == 2_048
    assert second.reason == "home"
    assert second.replica_id in second.prices


def test_a_suspect_home_keeps_its_sessions_and_gets_no_new_ones() -> None:
    core = make_core(2)
    home = serve(core, prompt([1, 2], key="s"), 0.0)
    core.members.heard(home, Event.PROBE_FAILED, 1.0)
    assert core.fleet.get(home).state is State.SUSPECT  # type: ignore[union-attr]
    others = {serve(core, prompt([50 + n], key=f"n{n}"), 2.0 + n) for n in range(4)}
    assert home not in others
    core.members.heard(home, Event.PROBE_FAILED, 7.0)
    core.members.heard(home, Event.PROBE_OK, 8.0)
    core.members.heard(home, Event.PROBE_FAILED, 9.0)
    assert serve(core, prompt([1, 2, 3], key="s"), 10.0) == home
    assert core.history.totals.rehomes == 0


def test_a_home_that_says_it_is_not_ready_takes_nothing_while_it_answers_the_rest() -> None:
    core = make_core(2)
    home = serve(core, prompt([1, 2], key="s"), 0.0)
    queued = core.arrive(prompt([1, 2, 3], key="s"), 1.0)
    assert queued.replica_id == home
    core.members.heard(home, Event.PROBE_NOT_READY, 2.0)
    core.began(queued, 3.0)
    core.finish(queued, Outcome.DONE, 4.0)
    assert serve(core, prompt([1, 2, 3, 4], key="s"), 5.0) != home
    assert serve(core, prompt([9], key="n"), 6.0) != home
    assert core.history.totals.rehomes == 1


def test_a_full_home_is_spilled_past_and_stays_the_home() -> None:
    core = make_core(2, parameters=CoreParameters(inflight_max=1))
    home = serve(core, prompt([1, 2], key="s"), 0.0)
    busy = core.arrive(prompt([1, 2, 3], key="s"), 1.0)
    assert busy.replica_id == home
    spilled = core.arrive(prompt([1, 2, 4], key="s"), 1.0)
    assert (spilled.reason, spilled.replica_id != home) == ("spill", True)
    core.finish(busy, Outcome.DONE, 2.0)
    core.finish(spilled, Outcome.DONE, 2.0)
    assert serve(core, prompt([1, 2, 3, 5], key="s"), 3.0) == home
    assert (core.history.totals.moves, core.history.totals.rehomes) == (0, 0)


def test_a_home_whose_queue_is_full_is_retried_elsewhere_and_stays_the_home() -> None:
    core = make_core(2)
    home = serve(core, prompt([1, 2], key="s"), 0.0)
    ticket = core.arrive(prompt([1, 2, 3], key="s"), 1.0)
    full = UpstreamStatus("upstream-status", "The request queue is full.", http_status=503)
    assert core.retry(ticket, full, 1.1)
    core.finish(ticket, Outcome.DONE, 2.0)
    assert serve(core, prompt([1, 2, 3, 4], key="s"), 3.0) == home
    pin = core.pins.get("s")
    assert pin is not None
    assert pin.n_requests == 3


def test_full_replicas_without_a_ready_one_are_a_refusal_too() -> None:
    core = make_core(1, parameters=CoreParameters(inflight_max=1))
    core.arrive(prompt([1], key="s"), 0.0)
    core.members.heard("r0", Event.PROBE_FAILED, 1.0)
    with pytest.raises(Refused) as refused:
        core.arrive(prompt([2], key="t"), 2.0)
    assert refused.value.code == "saturated"


def test_a_branch_that_goes_on_elsewhere_takes_its_home_along_in_the_end() -> None:
    core = make_core(2)
    home = serve(core, prompt(list(range(1, 9)), key="s"), 0.0)
    other = "r1" if home == "r0" else "r0"
    branch = list(range(100, 140))
    core.index.hold(other, prompt(branch).chain, prompt(branch).ends_bytes)
    reasons = []
    for n in range(3):
        branch = [*branch, 200 + n]
        ticket = core.arrive(prompt(branch, key="s"), 100.0 + n)
        core.began(ticket, 100.1 + n)
        core.finish(ticket, Outcome.DONE, 100.5 + n)
        reasons.append((ticket.reason, ticket.replica_id))
    assert reasons == [("branch", other)] * 3
    pin = core.pins.get("s")
    assert pin is not None
    assert pin.home_id == other


def test_another_process_under_a_known_name_starts_empty() -> None:
    core = make_core(1)
    serve(core, prompt([1, 2], key="s"), 0.0)
    assert core.index.held_bytes("r0") > 0
    replica = core.members.join(ReplicaSpec("r0", "127.0.0.1", 32_000), 1.0)
    assert replica.state is State.STARTING
    assert core.index.held_bytes("r0") == 0


def test_the_index_follows_the_learned_ratio() -> None:
    core = make_core(0)
    core.members.join(ReplicaSpec("r0", "h", 1, capacity_tokens=10_000), 0.0)
    core.members.heard("r0", Event.PROBE_OK, 0.0)
    ticket = core.arrive(prompt(list(range(1, 21)), key="s"), 0.0)
    core.began(ticket, 0.1)
    assert core.index.held_bytes("r0") == 40_000
    # Eight bytes a token: the same bytes are half the tokens, and twice as many fit.
    core.finish(ticket, Outcome.DONE, 1.0, usage=Usage(10_000, 10, 0))
    core.tick(2.0)
    again = core.arrive(prompt(list(range(1, 21)), key="s"), 3.0)
    core.began(again, 3.1)
    assert core.index.held_bytes("r0") == 80_000


def test_old_load_reports_are_forgotten() -> None:
    core = make_core(1)
    core.members.observed("r0", Observation(3, 2, 50_000, 0.0))
    replica = core.fleet.get("r0")
    assert replica is not None
    assert replica.inflight == 5
    core.tick(9.0)
    assert replica.inflight == 5
    core.tick(11.0)
    assert (replica.inflight, replica.backlog_s) == (0, 0.0)


def test_nothing_is_kept_of_replicas_that_came_and_went() -> None:
    core = make_core(1)
    for n in range(50):
        core.members.join(ReplicaSpec(f"x{n}", "h", n + 1), 0.0)
        core.members.heard("r0", Event.PROBE_FAILED, 0.0)
        core.members.heard(f"x{n}", Event.PROBE_OK, 0.0)
        ticket = core.arrive(prompt([n + 1], key=f"s{n}"), 0.0)
        assert ticket.replica_id == f"x{n}"
        core.members.leave(f"x{n}")
        core.finish(ticket, Outcome.DONE, 1.0)
    core.tick(1e6)
    assert set(core.ledger._loads) == {"r0"}
    assert set(core.pins._totals) == {"r0"}


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(["arrive", "begin", "end", "report"]), max_size=60),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_load_is_the_report_and_what_we_did_since(
    steps: list[str], running: int, waiting: int
) -> None:
    """In flight = what the replica reported + dispatched since - ended since, never twice."""
    core = make_core(1)
    replica = core.fleet.get("r0")
    assert replica is not None
    tickets = []
    reported, since = 0, 0
    for n, step in enumerate(steps):
        if step == "arrive":
            tickets.append(core.arrive(prompt([n + 1], key=f"s{n}"), float(n)))
            since += 1
        elif step == "begin" and tickets:
            core.began(tickets[-1], float(n))
        elif step == "end" and tickets:
            core.finish(tickets.pop(0), Outcome.DONE, float(n))
            since -= 1
        elif step == "report":
            ours = core.ledger.load("r0").inflight
            seen = Observation(
                ours + running,
                waiting,
                0,
                float(n),
                ours=ours,
                ours_backlog_s=core.ledger.load("r0").backlog_s,
            )
            core.members.observed("r0", seen)
            reported, since = ours + running + waiting, 0
        assert replica.inflight == reported + since
        assert replica.inflight >= replica.load.inflight
