"""What every registered policy owes its caller, whatever the fleet and the request."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

from router.errors import ConfigError
from router.policy import registry
from router.policy.home import Home, HomeParameters
from router.policy.ties import preferred
from router.policy.view import Ranking, RouteRequest
from router.state.fleet.candidates import Eligible, View
from tests.doubles.held_tokens import HeldTokens
from tests.doubles.small_fleet import Row

BY_PLACE = ("round_robin", "random", "power_of_two")
"""They draw or count places in the list of candidates, which the fleet keeps by id."""


@dataclass(frozen=True)
class Case:
    """A fleet as rows of numbers, a request, and who may not take it."""

    rows: tuple[Row, ...]
    request: RouteRequest
    seed: int
    tried: frozenset[str]

    def view(self, order: list[int] | None = None) -> View:
        replicas = [self.rows[i].replica(f"r{i}") for i in order or range(len(self.rows))]
        return View(Eligible.of(replicas), tried=self.tried)

    def ranked(self, name: str, order: list[int] | None = None) -> Ranking:
        policy = registry.make(name)
        return policy.rank(self.request, self.view(order), random.Random(self.seed))


_ROWS = st.builds(
    Row,
    inflight=st.integers(0, 20) | st.just(0),
    inflight_tokens=st.sampled_from((0, 64, 100_000)),
    prefill_tokens=st.sampled_from((0, 64, 100_000)),
    decoding=st.integers(0, 20),
    backlog_s=st.integers(0, 60).map(float),
    live_sessions=st.integers(0, 80),
    live_tokens=st.integers(0, 2 * 10**6),
    capacity_tokens=st.just(900_000),
    held_bytes=st.sampled_from((0, 1, 10**9)),
    waiting=st.sampled_from((0, 1, 8)),
    waiting_tokens=st.sampled_from((0, 1_000, 10**6)),
    used_ratio=st.sampled_from((0.0, 0.5, 0.8, 1.0)),
    ours=st.integers(0, 20),
    reports=st.booleans(),
    weight=st.just(1.0) | st.sampled_from((0.01, 0.5, 3.0, 100.0)),
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rows = tuple(draw(st.lists(_ROWS | st.just(Row()), min_size=1, max_size=8)))
    n_more = draw(st.sampled_from((0, 0, 0, 90)))
    rows += (Row(inflight=2),) * n_more
    if draw(st.sampled_from((False, False, True))):  # more lives than fits
        rows = tuple(replace(r, live_tokens=r.capacity_tokens + 1 + r.live_tokens) for r in rows)
    ids = [f"r{i}" for i in range(min(len(rows), 8))]
    prompt_tokens = draw(st.integers(1, 250_000))
    held = st.integers(0, prompt_tokens - 1) | st.just(prompt_tokens // 2)
    cached = draw(st.dictionaries(st.sampled_from([*ids, "gone"]), held))
    if draw(st.booleans()):
        cached = {f"r{i}": prompt_tokens // 4 for i in range(len(rows))} | cached
    request = RouteRequest(
        session_key=draw(st.text(max_size=12)),
        prompt_tokens=prompt_tokens,
        output_tokens=draw(st.integers(1, 4_000)),
        serial=draw(st.integers(0, 10**9)),
        home_id=draw(st.sampled_from([None, "gone", *ids])),
        home_age_s=draw(st.floats(0, 1e6)),
        session_inflight=draw(st.integers(0, 12)),
        is_auxiliary=draw(st.booleans()),
        cached_tokens=HeldTokens(cached),
        head_key=draw(st.integers(0, 2**64 - 1)),
    )
    tried = draw(st.frozensets(st.sampled_from(ids), max_size=len(rows) - 1))
    return Case(rows, request, draw(st.integers(0, 2**32)), tried)


@pytest.mark.parametrize("name", sorted(registry.POLICIES))
@settings(deadline=None, max_examples=25)
@given(case=cases())
def test_it_ranks_candidates_only_each_once_and_says_why(name: str, case: Case) -> None:
    ranking = case.ranked(name)
    ids = {f"r{i}" for i in range(len(case.rows))} - case.tried
    assert ranking.ranked
    assert len(set(ranking.ranked)) == len(ranking.ranked)
    assert set(ranking.ranked) <= ids
    assert ranking.reason
    assert ranking.ranked[0] in ranking.prices
    assert all(price.total_s >= 0 for price in ranking.prices.values())


@pytest.mark.parametrize("name", sorted(registry.POLICIES))
@settings(deadline=None, max_examples=25)
@given(case=cases())
def test_it_is_a_function_of_its_arguments(name: str, case: Case) -> None:
    policy = registry.make(name)
    first = policy.rank(case.request, case.view(), random.Random(case.seed))
    policy.rank(structs.replace(case.request, serial=7), case.view(), random.Random(3))
    assert policy.rank(case.request, case.view(), random.Random(case.seed)) == first


@pytest.mark.parametrize("name", sorted(set(registry.POLICIES) - set(BY_PLACE)))
@settings(deadline=None, max_examples=20)
@given(case=cases(), shuffle=st.randoms(use_true_random=False))
def test_the_order_of_replicas_changes_nothing(
    name: str, case: Case, shuffle: random.Random
) -> None:
    order = list(range(len(case.rows)))
    shuffle.shuffle(order)
    assert case.ranked(name, order) == case.ranked(name)


@settings(deadline=None, max_examples=150)
@given(case=cases())
def test_home_chooses_as_if_it_priced_everybody(case: Case) -> None:
    """Whom it leaves out by a bound of the price would not have been chosen."""
    home, view, request = Home(), case.view(), case.request
    assume(view.n_ready <= HomeParameters().weigh_all_max)
    ranking = home.rank(request, view, random.Random(1))
    assume(ranking.reason in ("new", "rehome", "home", "move"))
    at = None if request.home_id is None else view.candidate(request.home_id)
    others = [r for r in view.candidates if r is not at]
    is_new = at is None
    is_full = is_new and HomeParameters().is_full(view)
    prices = {r.replica_id: home._price(request, r, is_new=is_new, is_full=is_full) for r in others}
    terms = None
    if at is not None:
        terms = HomeParameters().terms(home._price(request, at), view)
    totals_s = {
        name: price.total_s + (0.0 if terms is None else terms.toll_s(price.prefill_s))
        for name, price in prices.items()
    }
    cheapest = None
    if others:
        least_ms = min(round(total_s * 1e3) for total_s in totals_s.values())
        tied = [r for r in others if round(totals_s[r.replica_id] * 1e3) == least_ms]
        cheapest = preferred(request.session_key, tied)
    if at is None:
        assert cheapest is not None
        assert ranking.ranked[0] == cheapest.replica_id
    elif request.session_inflight < HomeParameters().thick_inflight and not request.is_auxiliary:
        assert terms is not None
        moves = (
            cheapest is not None
            and request.home_age_s >= HomeParameters().move_age_s_min
            and terms.is_clear(prices[cheapest.replica_id])
        )
        assert (ranking.reason == "move") == moves
        if moves and cheapest is not None:
            assert ranking.ranked[0] == cheapest.replica_id


@settings(deadline=None, max_examples=100)
@given(case=cases(), more=st.sampled_from((1.001, 2.0, 50.0)))
def test_more_weight_never_costs_a_replica_a_request(case: Case, more: float) -> None:
    """Where a request without a home goes, it goes all the more with a greater weight there."""
    asked = structs.replace(case.request, home_id=None)
    before = replace(case, request=asked)
    chosen = before.ranked("home").ranked[0]
    assume(before.view().n_ready <= HomeParameters().weigh_all_max)
    at = int(chosen[1:])
    heavier = replace(case.rows[at], weight=case.rows[at].weight * more)
    rows = (*case.rows[:at], heavier, *case.rows[at + 1 :])
    assert replace(before, rows=rows).ranked("home").ranked[0] == chosen


@pytest.mark.parametrize("name", sorted(set(registry.POLICIES) - registry.PRICED))
@settings(deadline=None, max_examples=15)
@given(case=cases())
def test_who_prices_nothing_takes_no_notice_of_weights(name: str, case: Case) -> None:
    plain = replace(case, rows=tuple(replace(row, weight=1.0) for row in case.rows))
    assert case.ranked(name) == plain.ranked(name)


@settings(deadline=None, max_examples=50)
@given(case=cases(), factor=st.sampled_from((0.01, 0.5, 2.0, 100.0)), is_new=st.booleans())
def test_every_part_of_a_price_is_divided_by_the_weight(
    case: Case, factor: float, *, is_new: bool
) -> None:
    home, request = Home(), case.request
    for row in case.rows[:8]:
        plain, weighed = (replace(row, weight=w).replica("r0") for w in (1.0, factor))
        expected = [
            part / factor for part in structs.astuple(home._price(request, plain, is_new=is_new))
        ]
        assert structs.astuple(home._price(request, weighed, is_new=is_new)) == pytest.approx(
            expected
        )


def test_an_unknown_policy_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'nearest'.*round_robin"):
        registry.make("nearest")
