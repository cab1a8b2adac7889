"""The core, driven as its drivers drive it: sessions, homes, what is learned."""

from __future__ import annotations

import pytest

from router.dialect.base import PromptFacts, Usage
from router.state.fleet.replica import Description
from router.state.history import Outcome
from tests.doubles.core_rig import all_idle, make_core, serve
from tests.doubles.prompts import prompt


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


@pytest.mark.parametrize("reports_cached", [True, False])
def test_no_word_of_cached_tokens_means_none_where_they_are_reported(
    *, reports_cached: bool
) -> None:
    core = make_core(1)
    core.members.described("r0", Description(reports_cached=reports_cached))
    ticket = core.arrive(prompt([1, 2], key="s"), 0.0)
    core.began(ticket, 0.1)
    core.finish(ticket, Outcome.DONE, 1.0, usage=Usage(2_000, 100, None))
    assert ticket.record.reported_cached_tokens == (0 if reports_cached else None)


def test_an_answer_is_not_judged_by_a_prompt_that_does_not_go_on_from_it() -> None:
    """Two prompts go on from one answer, which both send back whole; the first to end is shorter."""
    core = make_core(1)
    serve(core, prompt([1, 2], key="s"), 0.0)
    one = core.arrive(prompt([1, 2, 3], key="s"), 10.0)
    other = core.arrive(prompt([1, 2, 4, 5], key="s"), 10.0)
    for ticket, prompt_tokens in ((one, 2_105), (other, 4_000)):
        core.began(ticket, 10.5)
        core.finish(ticket, Outcome.DONE, 11.0, usage=Usage(prompt_tokens, 500, 2_100 // 64 * 64))
    assert core.answers.share(one.facts.model, one.facts.dialect) == 0.8


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
