"""The page as a whole: well-formed, complete in itself, escaped, the same for the same results."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.page import render
from tests.unit.simulation_page.page_documents import (
    POLICIES,
    compared,
    contested,
    curves,
    figures,
    laddered,
    scenario,
    sized,
    swept,
)
from tests.unit.simulation_page.page_reader import Page

EVENTS = [
    {"at_s": 700.0, "what": "crash", "replica": "r0001"},
    {"at_s": 701.0, "what": "crash", "replica": "r0002"},
    {"at_s": 900.0, "what": "ready", "replica": "r0001"},
    {"at_s": 1_790.0, "what": "router-loss", "replica": ""},
]
UNMEASURED = {"mean": None, "p50": None, "p90": None, "p99": None}
EMPTY = figures(
    requests=0,
    ttft_s=UNMEASURED,
    ttft_warm_s={},
    ttft_cold_s=None,
    itl_s=None,
    tok_per_s_per_user=None,
    tokens_per_min_per_gpu=0.0,
    cached_ratio=None,
    reasons={},
    curves={"ttft_cdf": [], "over_time": {}, "inflight_spread": [], "replicas": {"ids": []}},
)
DOCUMENTS: dict[str, dict[str, Any]] = {
    "compared": compared(),
    "one policy": compared({"home": 0.8}, command="run", reference=None),
    "fourteen": compared({name: 0.5 + n * n / 4 for n, name in enumerate(POLICIES)}),
    "twenty": compared({f"policy_{n}": 0.5 + n for n in range(20)}),
    "faults": compared(
        policies={name: figures(0.8, events=EVENTS, errors=4) for name in ("home", "sticky")},
        scenario=scenario(fault=[{"kind": "crash", "at_s": 700.0, "replicas": [1, 2]}]),
    ),
    "no request": compared(policies={"home": EMPTY, "sticky": EMPTY}, reference=None),
    "no curves": compared(policies={"home": figures(curves=None)}),
    "many replicas": compared(policies={"home": figures(curves=curves(1.0, replicas=512))}),
    "sweep": swept(),
    "ladder": laddered(),
    "ladder with a reference": laddered(has_reference=True),
    "fourteen over a sweep": contested(),
    "size": sized(),
    "no policy": compared(policies={}, reference=None),
    "no point": compared(command="sweep", policies={}, reference=None, points=[]),
    "bare": {},
}


@pytest.fixture(params=DOCUMENTS, scope="module")
def page(request: pytest.FixtureRequest) -> Page:
    return Page(render(DOCUMENTS[request.param]))


def test_a_page_is_well_formed_and_its_ids_are_unique(page: Page) -> None:
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    for attribute in ("for", "aria-labelledby"):
        assert set(page.values(attribute)) <= set(ids)
    assert {f"#{name}" for name in ids} >= {link["href"] for link in page.all("a")}


def test_a_page_needs_nothing_outside_itself(page: Page) -> None:
    assert {"link", "img", "iframe", "object", "embed", "base"}.isdisjoint(
        t for t, _ in page.elements
    )
    assert not page.values("src")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_address_is_anywhere_in_a_page(name: str) -> None:
    written = render(DOCUMENTS[name])
    assert not any(
        sign in written for sign in ("http:", "https:", "//cdn", "url(", "@import", "fetch(")
    )


def test_a_page_can_be_read_by_a_screen_reader(page: Page) -> None:
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("title")) >= 1
    levels = [level for level, _ in page.headings]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert all(text.strip() for _, text in page.headings)
    for drawing in page.all("svg"):
        assert drawing.get("aria-hidden") == "true" or (
            drawing["role"] == "img" and drawing["aria-label"]
        )
    for region in page.elements:
        assert region[1].get("tabindex") != "0" or region[1].get("aria-label")


def test_all_text_of_the_scenario_and_the_policies_is_escaped() -> None:
    evil = "</style></script><script>alert('x')</script>\"&"
    document = compared(
        policies={
            evil: figures(
                reasons={evil: 5},
                events=[{"at_s": 700.0, "what": evil, "replica": evil}],
                curves={**curves(1.0), "replicas": {**curves(1.0)["replicas"], "ids": [evil] * 4}},
            )
        },
        reference=figures(rule=evil),
        scenario=scenario(name=evil, about=evil, workload={evil: evil}, policies=[evil]),
        homeport=evil,
        command=evil,
    )
    page = Page(render(document))
    assert len(page.all("script")) == 1
    assert evil in page.text


@pytest.mark.parametrize("name", DOCUMENTS)
def test_equal_results_give_equal_bytes_whatever_the_order_of_keys(name: str) -> None:
    document = DOCUMENTS[name]
    assert render(document) == render(copy.deepcopy(document))
    shuffled = json.loads(json.dumps(document, sort_keys=True))
    for part in [shuffled, *shuffled.get("points", [])]:
        policies = part.get("policies", {})
        part["policies"] = dict(reversed(policies.items()))
        for found in policies.values():
            found["reasons"] = dict(reversed((found.get("reasons") or {}).items()))
    alike = {**shuffled, "scenario": document.get("scenario", {})}
    assert render(alike) == render(document)


def test_wall_time_is_in_the_footer_alone() -> None:
    slow = copy.deepcopy(compared())
    for found in slow["policies"].values():
        found.update(wall_s=99.0, requests_per_wall_s=181.8, load_s=7.25)
    one, other = (render(document).partition("<footer>") for document in (compared(), slow))
    assert one[0] == other[0]
    assert one[2] != other[2]
    assert "99.0 s for 18,000 requests, 182/s, loading 7.25 s" in other[2]


def test_fourteen_policies_on_sixty_four_replicas_are_less_than_one_and_a_half_megabytes() -> None:
    found = {
        name: figures(1.0 + n, curves=curves(1.0 + n, replicas=64, buckets=100))
        for n, name in enumerate(POLICIES)
    }
    written = render(
        compared(policies=found, reference=figures(curves=curves(1.0, replicas=64, buckets=100)))
    )
    assert len(written.encode()) < 1_500_000


def test_fourteen_policies_over_ten_points_are_less_than_one_and_a_half_megabytes() -> None:
    assert len(render(contested()).encode()) < 1_500_000


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


def paths(value: object, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something lies in a document; of long lists the first items."""
    found = [before] if before else []
    if isinstance(value, dict):
        for key, item in value.items():
            found += paths(item, (*before, key))
    elif isinstance(value, list):
        for index, item in enumerate(value[:2]):
            found += paths(item, (*before, index))
    return found


BROKEN = [compared({"home": 0.8, "sticky": 2.0}), swept(), laddered(), sized()]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_whatever_a_document_holds_a_well_formed_page_comes_of_it(data: st.DataObject) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from(BROKEN)))
    for _ in range(3):
        path = data.draw(st.sampled_from(paths(document)))
        place: Any = document
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = data.draw(VALUES)
    Page(render(document))
