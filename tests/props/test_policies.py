"""What every registered policy owes its caller, whatever the fleet and the request."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import ConfigError
from router.policy import registry
from router.policy.view import RouteRequest
from router.state.fleet import Replica, ReplicaSpec, View
from router.state.ledger import Load
from router.state.pins import HomeTotals


@dataclass(frozen=True)
class Case:
    """A fleet as lists of numbers, and a request."""

    loads: tuple[tuple[int, int, int, int, int], ...]
    request: RouteRequest
    seed: int

    def view(self, order: list[int] | None = None) -> View:
        return View([self._replica(i) for i in (order or range(len(self.loads)))])

    def _replica(self, i: int) -> Replica:
        inflight, decoding, backlog_s, sessions, tokens = self.loads[i]
        load = Load(inflight, inflight * 1000, min(decoding, inflight), backlog_s * 10**6)
        spec = ReplicaSpec(f"r{i}", "h", 1)
        return Replica(spec, load, HomeTotals(sessions, tokens), capacity_tokens=900_000)


_LOAD = st.tuples(
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 60),
    st.integers(0, 80),
    st.integers(0, 2 * 10**6),
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    loads = tuple(draw(st.lists(_LOAD, min_size=1, max_size=8)))
    ids = [f"r{i}" for i in range(len(loads))]
    prompt_tokens = draw(st.integers(1, 250_000))
    cached = draw(
        st.dictionaries(st.sampled_from([*ids, "gone"]), st.integers(0, prompt_tokens - 1))
    )
    request = RouteRequest(
        session_key=draw(st.text(max_size=12)),
        prompt_tokens=prompt_tokens,
        output_tokens=draw(st.integers(1, 4_000)),
        serial=draw(st.integers(0, 10**9)),
        home_id=draw(st.sampled_from([None, "gone", *ids])),
        home_age_s=draw(st.floats(0, 1e6)),
        session_inflight=draw(st.integers(0, 10)),
        is_auxiliary=draw(st.booleans()),
        cached_tokens=cached,
    )
    return Case(loads, request, draw(st.integers(0, 2**32)))


@pytest.mark.parametrize("name", sorted(registry.POLICIES))
@settings(deadline=None, max_examples=60)
@given(case=cases())
def test_it_ranks_candidates_only_each_once_and_says_why(name: str, case: Case) -> None:
    ranking = registry.make(name).rank(case.request, case.view(), random.Random(case.seed))
    ids = {f"r{i}" for i in range(len(case.loads))}
    assert ranking.ranked
    assert len(set(ranking.ranked)) == len(ranking.ranked)
    assert set(ranking.ranked) <= ids
    assert ranking.reason
    assert ranking.ranked[0] in ranking.prices
    assert all(price.total_s >= 0 for price in ranking.prices.values())


@pytest.mark.parametrize("name", sorted(registry.POLICIES))
@settings(deadline=None, max_examples=40)
@given(case=cases())
def test_it_is_a_function_of_its_arguments(name: str, case: Case) -> None:
    policy = registry.make(name)
    first = policy.rank(case.request, case.view(), random.Random(case.seed))
    policy.rank(replace(case.request, serial=7), case.view(), random.Random(3))
    assert policy.rank(case.request, case.view(), random.Random(case.seed)) == first


@settings(deadline=None, max_examples=80)
@given(case=cases(), shuffle=st.randoms(use_true_random=False))
def test_the_order_of_replicas_changes_no_price(case: Case, shuffle: random.Random) -> None:
    order = list(range(len(case.loads)))
    shuffle.shuffle(order)
    policy = registry.make("home")
    one = policy.rank(case.request, case.view(), random.Random(1))
    two = policy.rank(case.request, case.view(order), random.Random(1))
    assert one.ranked[0] == two.ranked[0] or one.prices[one.ranked[0]] == two.prices[two.ranked[0]]
    for replica_id in one.prices.keys() & two.prices.keys():
        assert one.prices[replica_id] == two.prices[replica_id]


def test_an_unknown_policy_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'nearest'.*round_robin"):
        registry.make("nearest")
