"""``home`` at its edges: when it stays, moves, splits, and where it places."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from router.policy.home import Home, HomeParameters
from router.policy.view import Price, Ranking, RouteRequest
from router.state.fleet.candidates import View
from router.state.fleet.ledger import Load
from router.state.fleet.replica import Replica, ReplicaSpec
from router.state.sessions.pins import HomeTotals
from tests.doubles.held_tokens import HeldTokens

P = HomeParameters()


@dataclass
class Case:
    """A fleet of idle replicas and a warm session at r0; tests change what they are about."""

    n: int = 3
    loads: dict[int, Load] = field(default_factory=dict)
    homes: dict[int, HomeTotals] = field(default_factory=dict)
    capacity_tokens: int = 7_000_000

    def rank(self, **changes: object) -> Ranking:
        return Home().rank(*self._asked(changes), random.Random(1))

    def all_prices(self, **changes: object) -> dict[str, Price]:
        """What each candidate would cost."""
        found = Home().explain(*self._asked(changes), random.Random(1))
        return {row.replica_id: row.price for row in found.candidates if row.price is not None}

    def _asked(self, changes: dict[str, object]) -> tuple[RouteRequest, View]:
        fields: dict[str, object] = {
            "session_key": "s",
            "prompt_tokens": 50_000,
            "output_tokens": 500,
            "serial": 1,
            "home_id": "r0",
            "home_age_s": 600.0,
            "session_inflight": 0,
            "is_auxiliary": False,
            "cached_tokens": {"r0": 49_000},
        }
        fields |= changes
        fields["cached_tokens"] = HeldTokens(fields["cached_tokens"])  # type: ignore[call-overload]
        request = RouteRequest(**fields)  # type: ignore[arg-type]
        replicas = [
            Replica(
                ReplicaSpec(f"r{i}", "h", 1),
                self.loads.get(i, Load()),
                self.homes.get(i, HomeTotals()),
                capacity_tokens=self.capacity_tokens,
            )
            for i in range(self.n)
        ]
        return request, View.of(replicas)


def _backlog(seconds: float, **more: int) -> Load:
    return Load(backlog_us=int(seconds * 1e6), **more)


def test_a_short_wait_at_home_is_waited_for() -> None:
    ranking = Case(loads={0: _backlog(3.0)}).rank()
    assert (ranking.ranked[0], ranking.reason) == ("r0", "home")
    assert ranking.prices["r0"].wait_s == 3.0


def test_the_busier_the_fleet_the_more_a_move_must_save() -> None:
    """In flight elsewhere, where nothing waits and nobody would be slowed: only the toll of a move differs."""
    idle = Case(n=40, loads={0: _backlog(12.0)})
    full = {n: Load(inflight=8) for n in range(20, 40)}
    busy = Case(n=40, loads={0: _backlog(12.0), **full})
    assert idle.rank().reason == "move"
    assert busy.rank().reason == "home"
    assert Case(n=40, loads={0: _backlog(60.0), **full}).rank().reason == "move"


def test_the_fuller_the_caches_the_more_a_move_must_save() -> None:
    """Beyond half full: up to there a copy of all that lives finds room beside it."""

    def ranked(live_tokens: int) -> Ranking:
        homes = {n: HomeTotals(live_tokens=live_tokens) for n in range(40)}
        loads = {0: _backlog(16.0), **{n: Load(inflight=2) for n in range(20, 40)}}
        return Case(n=40, loads=loads, homes=homes).rank()

    assert ranked(0).reason == ranked(3_500_000).reason == "move"
    assert ranked(5_500_000).reason == "home"


def test_a_move_to_who_holds_as_much_pays_no_toll() -> None:
    full = {n: Load(inflight=8) for n in range(20, 40)}
    case = Case(n=40, loads={0: _backlog(12.0), **full})
    cached = {"r0": 49_000, "r1": 49_000}
    moved = case.rank(cached_tokens=cached)
    assert (moved.ranked[0], moved.reason) == ("r1", "move")


def test_long_prompts_take_turns_wherever_they_go() -> None:
    assert Case().rank().takes_turns
    assert Case().rank(home_id=None).takes_turns


def test_a_long_wait_is_left_only_when_clearly_cheaper_elsewhere() -> None:
    recompute_s = Case().rank(home_id=None, cached_tokens={}).prices["r1"].prefill_s
    assert 1.5 < recompute_s < 2.0
    warm_s = Case().rank().prices["r0"].prefill_s
    edge_s = recompute_s + P.move_margin_s - warm_s
    assert Case(loads={0: _backlog(edge_s - 0.5)}).rank().reason == "home"
    left = Case(loads={0: _backlog(edge_s + 0.5)}).rank()
    assert left.reason == "move"
    assert left.ranked[0] in ("r1", "r2")
    assert {left.ranked[0], "r0"} == set(left.prices)


def test_a_session_that_has_just_moved_stays() -> None:
    case = Case(loads={0: _backlog(60.0)})
    assert case.rank(home_age_s=P.move_age_s_min - 1).reason == "home"
    assert case.rank(home_age_s=P.move_age_s_min).reason == "move"


def test_a_move_counts_those_who_would_wait_behind_its_recompute() -> None:
    busy = Load(inflight=6, decoding=6)
    case = Case(n=2, loads={0: _backlog(8.0), 1: busy})
    assert case.rank().reason == "home"
    assert Case(n=2, loads={0: _backlog(8.0)}).rank().reason == "move"


def test_a_thick_session_is_split_to_the_cheapest() -> None:
    case = Case(loads={0: Load(inflight=4, decoding=4), 1: Load(inflight=2, decoding=2)})
    kept = case.rank(session_inflight=P.thick_inflight - 1)
    assert (kept.ranked[0], kept.reason) == ("r0", "home")
    cached = {"r0": 9_000, "r1": 8_000, "r2": 8_000}
    split = case.rank(session_inflight=P.thick_inflight, prompt_tokens=10_000, cached_tokens=cached)
    assert (split.ranked[0], split.reason) == ("r2", "split")


def test_a_branch_goes_to_who_holds_it() -> None:
    cached = {"r0": 4_000, "r2": 49_000}
    branch = Case().rank(cached_tokens=cached)
    assert (branch.ranked[0], branch.reason) == ("r2", "branch")
    little = {"r0": 40_000, "r2": 40_000 + P.branch_tokens_min}
    assert Case().rank(cached_tokens=little).reason == "home"


def test_a_head_that_another_holds_is_no_branch() -> None:
    prompt_tokens = 20_000
    case = Case(loads={0: _backlog(2.0)})
    for held, reason in ((prompt_tokens // 2, "home"), (prompt_tokens // 2 + 64, "branch")):
        found = case.rank(prompt_tokens=prompt_tokens, cached_tokens={"r2": held})
        assert found.reason == reason, held


def test_an_auxiliary_request_goes_where_it_is_cheap() -> None:
    case = Case(loads={0: _backlog(2.0)})
    aside = case.rank(is_auxiliary=True, prompt_tokens=500, cached_tokens={})
    assert aside.reason == "auxiliary"
    assert aside.ranked[0] != "r0"


def test_new_sessions_go_where_fewest_live_though_the_head_is_cached_elsewhere() -> None:
    homes = {0: HomeTotals(2, 30_000), 1: HomeTotals(1, 15_000), 2: HomeTotals(0, 0)}
    new = Case(homes=homes).rank(
        home_id=None, prompt_tokens=12_000, cached_tokens={"r0": 10_000, "r1": 10_000}
    )
    assert (new.ranked[0], new.reason) == ("r2", "new")


def test_new_sessions_avoid_a_replica_whose_pool_is_full() -> None:
    homes = {0: HomeTotals(3, 880_000), 1: HomeTotals(5, 300_000)}
    case = Case(n=2, homes=homes, capacity_tokens=900_000)
    assert case.rank(home_id=None, cached_tokens={}).ranked[0] == "r1"
    prices = case.all_prices(home_id=None, cached_tokens={})
    assert prices["r0"].pressure_s > prices["r1"].pressure_s + 2.0


def test_a_cold_prompt_goes_where_the_fewest_wait_behind_it() -> None:
    loads = {0: Load(inflight=5, decoding=5), 1: Load(inflight=1, decoding=1)}
    new = Case(n=2, loads=loads).rank(home_id=None, cached_tokens={})
    assert new.ranked[0] == "r1"


def test_the_ranking_of_a_new_session_names_fallbacks_by_backlog() -> None:
    loads = {1: _backlog(9.0), 2: _backlog(1.0)}
    assert Case(loads=loads).rank(home_id=None).ranked == ("r0", "r2", "r1")


def test_a_session_that_stays_is_ranked_alone() -> None:
    assert Case().rank().ranked == ("r0",)


def test_running_answers_weigh_more_than_queued_ones_for_a_cold_prompt() -> None:
    loads = {0: Load(inflight=1, decoding=1), 1: Load(inflight=2)}
    case = Case(n=2, loads=loads)
    assert case.rank(home_id=None, cached_tokens={}).ranked[0] == "r1"
    there = case.all_prices(home_id=None, cached_tokens={})["r0"]
    assert there.interference_s > there.prefill_s


# Fleets that are too large to price everybody


def test_of_many_the_one_with_room_takes_a_new_session() -> None:
    homes = {i: HomeTotals(9, 900_000) for i in range(200)}
    case = Case(n=200, homes=homes | {137: HomeTotals(0, 0)})
    new = case.rank(home_id=None, cached_tokens={f"r{i}": 12_000 for i in range(200)})
    assert (new.ranked[0], new.reason) == ("r137", "new")
    assert len(new.prices) < 40
    assert len(new.ranked) == 4


def test_of_many_the_least_backlogged_takes_a_session_that_leaves() -> None:
    loads = {i: _backlog(2.0 + i / 100) for i in range(200)} | {0: _backlog(60.0), 99: Load()}
    moved = Case(n=200, loads=loads).rank()
    assert (moved.ranked[0], moved.reason) == ("r99", "move")


def test_of_many_the_holder_of_a_branch_is_found_behind_a_head_that_all_hold() -> None:
    cached = {f"r{i}": 12_000 for i in range(200)} | {"r142": 49_000}
    branch = Case(n=200).rank(cached_tokens=cached)
    assert (branch.ranked[0], branch.reason) == ("r142", "branch")


def test_of_two_that_hold_a_branch_alike_rendezvous_chooses() -> None:
    cached = {"r0": 4_000, "r1": 49_000, "r2": 49_000}
    chosen = {Case().rank(cached_tokens=cached, session_key=f"s{n}").ranked[0] for n in range(20)}
    assert chosen == {"r1", "r2"}


def test_a_thick_session_of_many_goes_where_little_waits_and_home_is_weighed_as_well() -> None:
    loads = {i: Load(inflight=5, decoding=5) for i in range(200)} | {77: Load()}
    split = Case(n=200, loads=loads).rank(
        session_inflight=P.thick_inflight, prompt_tokens=10_000, cached_tokens={"r0": 9_000}
    )
    assert (split.ranked[0], split.reason) == ("r77", "split")
    assert "r0" in split.prices


def _lived_in(n: int, live_tokens: int) -> dict[int, HomeTotals]:
    return {i: HomeTotals(live_tokens=live_tokens) for i in range(n)}


def test_in_a_full_fleet_a_move_must_save_more_for_nowhere_is_there_room() -> None:
    cached = {"r0": 49_000, "r1": 49_000}
    for live_tokens, waits_s in ((6_900_000, P.move_margin_s), (7_100_000, P.full_margin_s)):
        homes = _lived_in(3, live_tokens)
        for more_s, reason in ((-0.5, "home"), (0.5, "move")):
            case = Case(loads={0: _backlog(waits_s + more_s)}, homes=homes)
            assert case.rank(cached_tokens=cached).reason == reason
    told = Home().explain(*case._asked({"cached_tokens": cached}), random.Random(1))
    assert "a move must save (60 s" in told.rule


def test_in_a_full_fleet_nobody_is_left_out_for_those_whom_a_prefill_would_hold_up() -> None:
    """A long prompt before three that are answered here, five that wait there."""
    loads = {0: Load(inflight=3, decoding=3), 1: Load(inflight=5)}
    case = Case(n=2, loads=loads, homes=_lived_in(2, 7_100_000))
    new = {"home_id": None, "cached_tokens": {}, "prompt_tokens": 250_000}
    assert case.rank(**new).ranked[0] == "r0"
    agreed = case.rank(**new, is_apart=True)
    (best,) = agreed.prices
    assert agreed.prices[best] == case.all_prices(**new)[best]


def test_in_a_full_fleet_what_is_new_goes_where_the_fewest_wait_for_room() -> None:
    """Else where its prefill holds up the fewest that are being answered."""
    loads = {0: Load(inflight=8, decoding=1), 1: Load(inflight=2, decoding=2)}
    for live_tokens, best in ((6_000_000, "r0"), (7_100_000, "r1")):
        case = Case(n=2, loads=loads, homes=_lived_in(2, live_tokens))
        new = {"home_id": None, "cached_tokens": {}}
        assert case.rank(**new).ranked[0] == best
        assert min(case.all_prices(**new).items(), key=lambda row: row[1].total_s)[0] == best
