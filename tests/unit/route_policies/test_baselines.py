"""The baselines do what their names say."""

from __future__ import annotations

import random

from router.policy import registry
from router.policy.view import Ranking, RouteRequest
from router.state.fleet.candidates import View
from router.state.fleet.ledger import Load
from router.state.fleet.replica import Replica, ReplicaSpec
from router.state.sessions.pins import HomeTotals
from tests.doubles.held_tokens import HeldTokens


def _fleet(*inflight: int) -> View:
    return View.of(
        [
            Replica(ReplicaSpec(f"r{i}", "h", 1), Load(inflight=n), HomeTotals())
            for i, n in enumerate(inflight)
        ]
    )


def _rank(
    policy: str, fleet: View, *, serial: int = 0, home: str | None = None, key: str = "s"
) -> Ranking:
    request = RouteRequest(
        session_key=key,
        prompt_tokens=1_000,
        output_tokens=100,
        serial=serial,
        home_id=home,
        home_age_s=100.0,
        session_inflight=0,
        is_auxiliary=False,
        cached_tokens=HeldTokens(),
    )
    return registry.make(policy).rank(request, fleet, random.Random(serial))


def test_round_robin_takes_turns() -> None:
    fleet = _fleet(9, 0, 0)
    chosen = [_rank("round_robin", fleet, serial=n).ranked[0] for n in range(6)]
    assert chosen == ["r0", "r1", "r2", "r0", "r1", "r2"]


def test_least_inflight_looks_at_the_count() -> None:
    assert _rank("least_inflight", _fleet(3, 1, 2)).ranked == ("r1", "r2", "r0")


def test_power_of_two_never_takes_the_worst_of_two() -> None:
    fleet = _fleet(5, 0)
    assert {_rank("power_of_two", fleet, serial=n).ranked[0] for n in range(20)} == {"r1"}
    many = _fleet(*([9] * 7), 0)
    chosen = [_rank("power_of_two", many, serial=n).ranked[0] for n in range(400)]
    assert 0.15 < chosen.count("r7") / 400 < 0.35


def test_random_covers_the_fleet_evenly() -> None:
    chosen = [_rank("random", _fleet(9, 0, 0, 0), serial=n).ranked[0] for n in range(400)]
    assert all(60 < chosen.count(f"r{i}") < 140 for i in range(4))


def test_rendezvous_keeps_keys_when_a_replica_leaves() -> None:
    four, three = _fleet(0, 0, 0, 0), View.of(_fleet(0, 0, 0, 0).candidates[:3])
    for n in range(60):
        before = _rank("rendezvous", four, key=f"s{n}").ranked
        after = _rank("rendezvous", three, key=f"s{n}").ranked
        assert [r for r in before if r != "r3"] == list(after)


def test_sticky_ignores_load_once_a_session_has_begun() -> None:
    assert _rank("sticky", _fleet(3, 1, 2)).ranked[0] == "r1"
    assert _rank("sticky", _fleet(50, 0, 0), home="r0").ranked[0] == "r0"
    gone = _rank("sticky", _fleet(3, 1, 2), home="gone")
    assert (gone.ranked[0], gone.reason) == ("r1", "rehome")


def test_equal_ones_are_chosen_by_key_and_not_by_id() -> None:
    for policy in ("least_inflight", "sticky"):
        chosen = [_rank(policy, _fleet(1, 0, 0, 0), key=f"s{n}").ranked[0] for n in range(300)]
        assert set(chosen) == {"r1", "r2", "r3"}
        assert all(70 < chosen.count(name) < 130 for name in set(chosen))
    many = _fleet(*([0] * 300))
    chosen = [_rank("least_inflight", many, key=f"s{n}").ranked[0] for n in range(600)]
    assert max(chosen.count(name) for name in set(chosen)) < 20
