"""What a policy says of a decision is what it decided, and the reasons hold."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

from router.policy import registry
from router.policy.home import Home
from router.policy.home_rules import HomeParameters
from tests.props.test_policies import Case, cases

if TYPE_CHECKING:
    from router.policy.view import Explanation, Price

P = HomeParameters()


def explained(name: str, case: Case) -> Explanation:
    return registry.make(name).explain(case.request, case.view(), random.Random(case.seed))


def total_s(found: Explanation, replica_id: str) -> float:
    prices = {row.replica_id: row.price for row in found.candidates}
    price = prices[replica_id]
    assert price is not None
    return price.total_s


def dearer(price: Price | None) -> Price:
    """By a millisecond, within which prices are equal."""
    assert price is not None
    return structs.replace(price, wait_s=price.wait_s + 0.001)


@st.composite
def at_home(draw: st.DrawFn) -> Case:
    """A plain turn of a session whose home can take it; homes are dear in half of them."""
    case = draw(cases())
    ids = [replica.replica_id for replica in case.view().candidates][:8]
    home_id = draw(st.sampled_from(ids))
    rows = list(case.rows)
    if draw(st.booleans()):
        at = int(home_id[1:])
        rows[at] = replace(rows[at], backlog_s=float(draw(st.integers(0, 60))), weight=1.0)
    request = structs.replace(
        case.request,
        home_id=home_id,
        home_age_s=draw(st.sampled_from((0.0, 12.0, 29.9, 30.0, 600.0))),
        session_inflight=draw(st.integers(0, P.thick_inflight)),
        is_auxiliary=False,
        is_apart=draw(st.sampled_from((False, False, False, True))),
    )
    return Case(tuple(rows), request, case.seed, case.tried)


@pytest.mark.parametrize("name", sorted(registry.POLICIES))
@settings(deadline=None, max_examples=60)
@given(case=cases() | at_home())
def test_what_is_explained_is_what_is_chosen(name: str, case: Case) -> None:
    dice = random.Random(case.seed)
    found = registry.make(name).explain(case.request, case.view(), dice)
    ranking_dice = random.Random(case.seed)
    ranking = registry.make(name).rank(case.request, case.view(), ranking_dice)
    assert found.ranking == ranking
    assert dice.getstate() == ranking_dice.getstate()
    ids = [replica.replica_id for replica in case.view().candidates]
    assert [row.replica_id for row in found.candidates] == ids
    assert [row.replica_id for row in found.candidates if not row.why_not] == [ranking.ranked[0]]
    assert found.rule
    assert all(row.compared for row in found.candidates)
    for row in found.candidates:
        assert (row.price is not None) == (name in registry.PRICED)
        if row.price is not None and row.replica_id in ranking.prices:
            assert row.price == ranking.prices[row.replica_id]


@settings(deadline=None, max_examples=150)
@given(case=cases() | at_home())
def test_home_says_of_everybody_by_how_much_it_differs(case: Case) -> None:
    found = explained("home", case)
    first = found.ranking.ranked[0]
    for row in found.candidates:
        apart_ms = round(total_s(found, row.replica_id) * 1e3) - round(total_s(found, first) * 1e3)
        why = row.why_not
        if why.startswith("dearer by"):
            assert apart_ms > 0
        elif why.startswith("cheaper by"):
            assert apart_ms < 0
            assert found.ranking.reason == "home"
        elif why.startswith("as dear"):
            assert apart_ms == 0
        elif why:
            assert re.match("the session's key|home is kept|holds|not priced|computes", why), why
        said = re.match(r"\w+ by ([\d,.]+) (ms|s)\b", why)
        if said is not None:
            said_s = float(said[1].replace(",", "")) / (1e3 if said[2] == "ms" else 1.0)
            assert said_s == pytest.approx(abs(apart_ms) / 1e3, rel=0.06, abs=0.0021)


@settings(deadline=None, max_examples=200)
@given(case=at_home())
def test_without_what_kept_a_session_at_home_it_leaves(case: Case) -> None:
    """Each reason for staying, taken away, changes the decision; and only that one does."""
    found = explained("home", case)
    assume(found.ranking.reason == "home")
    home_s = total_s(found, found.ranking.ranked[0])
    home_price = found.ranking.prices[found.ranking.ranked[0]]
    terms = P.terms(home_price, case.view())
    older = structs.replace(case.request, home_age_s=P.move_age_s_min)
    when_older = Home().rank(older, case.view(), random.Random(case.seed))
    kept = [row for row in found.candidates if "home is kept: moved" in row.why_not]
    if kept:
        assert case.request.home_age_s < P.move_age_s_min
        cheapest = min(kept, key=lambda row: total_s(found, row.replica_id))
        is_all_weighed = case.view().n_ready <= P.weigh_all_max
        if is_all_weighed and terms.is_clear(dearer(cheapest.price)):
            assert when_older.reason == "move"
    for row in found.candidates:
        if "less than what a move must save" in row.why_not:
            assert row.price is not None
            assert not terms.is_clear(row.price)
            bolder = HomeParameters(
                recompute_per_inflight=0.0, move_margin_s=0.0, full_margin_s=0.0
            )
            assert bolder.terms(home_price, case.view()).is_clear(row.price)
        if "a branch must save" in row.why_not:
            cached = case.request.cached_tokens
            more = cached.get(row.replica_id) - cached.get(found.ranking.ranked[0])
            assert more > P.branch_tokens_min
            assert cached.get(row.replica_id) > P.branch_share_min * case.request.prompt_tokens
            assert home_s - total_s(found, row.replica_id) <= P.branch_margin_s


@settings(deadline=None, max_examples=200)
@given(case=cases())
def test_who_is_passed_over_on_the_ring_is_full_and_who_comes_later_need_not_be(case: Case) -> None:
    found = explained("ring_bounded", case)
    assume(found.ranking.reason != "ring-full")
    loads = {replica.replica_id: replica.inflight for replica in case.view().candidates}
    passed = 0
    for row in found.candidates:
        over = re.fullmatch(r"nearer on the ring, but at the bound of (\d+)", row.why_not)
        if over is not None:
            passed += 1
            assert loads[row.replica_id] >= int(over[1])
        else:
            assert row.why_not in ("", "further on the ring")
    assert (passed > 0) == (found.ranking.reason == "ring-next")
