"""Explained runs: the run is the same to the byte, and what is explained is what it did."""

from __future__ import annotations

from functools import partial
from math import isnan
from typing import TYPE_CHECKING

import pytest

from router.policy import registry
from sim.fleet.driver import routed
from sim.fleet.explaining import Pick, Watch, WatchedRouter, explained, slowest
from tests.doubles.small_play import SmallPlay
from tests.simulation.test_fleet_run import EVERYTHING, SMALL, as_bytes, run

if TYPE_CHECKING:
    from sim.fleet.driver import FleetRun
    from sim.scenario.model import Scenario

ALL = Pick(rows=frozenset(range(1_000_000)))


def play() -> SmallPlay:
    return SmallPlay(40, turns=8, gap_s=6.0)


def watched(scenario: Scenario, policy: str) -> tuple[FleetRun, Watch, str]:
    """A run of which every decision is explained, and its figures."""
    watch = Watch(ALL)
    router = partial(WatchedRouter, watch=watch)
    made = routed(scenario, policy, play(), seed=1, make_router=router)
    return made, watch, as_bytes(made.result(policy))


@pytest.mark.parametrize("policy", sorted(registry.POLICIES))
def test_explaining_every_decision_leaves_the_run_as_it_is(policy: str) -> None:
    made, watch, figures = watched(EVERYTHING, policy)
    assert figures == as_bytes(run(EVERYTHING, policy))
    rows = made.recording.rows
    assert len(watch.found) > 0.9 * len(rows)
    states = set()
    for row, found in watch.found.items():
        decision = found.decision
        first = decision.replicas[0]
        assert first.replica_id == decision.chosen_id
        assert decision.prompt_tokens > 0
        ids = [replica.replica_id for replica in decision.replicas]
        assert len(set(ids)) == len(ids)
        if found.exchange.tries == 1:
            assert first.cached_tokens == rows.predicted_tokens[row]
        states |= {replica.state.value for replica in decision.replicas if not replica.is_candidate}
    assert "down" in states


def test_the_slowest_requests_are_explained_and_no_more_is_played() -> None:
    whole = routed(SMALL, "home", play(), seed=1)
    whole.result("home")
    rows = whole.recording.rows
    pick = slowest(SMALL, "home", play, 3, seed=1)
    measured = [
        rows.ttft_s[row]
        for row in range(len(rows))
        if SMALL.warmup_s <= rows.due_s[row] < SMALL.duration_s and not isnan(rows.ttft_s[row])
    ]
    assert sorted(rows.ttft_s[row] for row in pick.rows) == sorted(measured)[-3:]
    watch = explained(SMALL, "home", play, pick, seed=1)
    assert watch.found.keys() == pick.rows
    for row, found in watch.found.items():
        assert found.ttft_s == rows.ttft_s[row]
        assert found.reported_cached_tokens == rows.cached_tokens[row]
        assert found.reported_prompt_tokens == rows.prompt_tokens[row]
        assert found.answer_s == pytest.approx(rows.decode_s[row])
        assert found.outcome == "done"
    assert len(watch.rows) < len(rows), "it ends with the last of them"


def test_a_session_s_turn_and_a_time_are_found() -> None:
    keys = explained(SMALL, "home", play, Pick(at_s=0.0), seed=1).turns
    key = next(iter(keys))
    watch = explained(SMALL, "home", play, Pick(session=key, turn=3), seed=1)
    [found] = watch.found.values()
    assert (found.turn, found.decision.session_key) == (3, key)
    assert found.decision.home_id is not None
    at_s = found.at_s - 0.1
    [later] = explained(SMALL, "home", play, Pick(session=key, at_s=at_s), seed=1).found.values()
    assert (later.at_s, later.turn) == (found.at_s, 3)
    [any_one] = explained(SMALL, "home", play, Pick(at_s=at_s), seed=1).found.values()
    assert at_s <= any_one.at_s <= later.at_s
    assert explained(SMALL, "home", play, Pick(session="nobody", turn=1), seed=1).found == {}
