"""What policies say of candidates that were not chosen, in examples."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from router.policy import registry
from router.policy.home_rules import HomeParameters
from router.policy.words import in_tokens, seconds
from tests.doubles.small_fleet import Row, busy, fleet, request

if TYPE_CHECKING:
    from router.policy.view import Explanation, RouteRequest
    from router.state.fleet.candidates import View

WARM = request({"r0": 9_920}, home_id="r0")


def explained(name: str, view: View, asked: RouteRequest) -> Explanation:
    return registry.make(name).explain(asked, view, random.Random(1))


def said(name: str, view: View, asked: RouteRequest) -> list[str]:
    """What is said of r0, r1, ..."""
    return [row.why_not for row in explained(name, view, asked).candidates]


@pytest.mark.parametrize(
    ("rows", "changes", "phrases"),
    [
        ((Row(), Row()), {}, ["", "dearer by 0.2 s"]),
        (
            (Row(backlog_s=1.0), Row()),
            {},
            ["", "cheaper by 0.8 s, less than what a move must save (3 s)"],
        ),
        (
            (Row(backlog_s=9.0), Row()),
            {"home_age_s": 12.0},
            ["", "cheaper by 8.8 s, but home is kept: moved 12 s ago, less than 30 s"],
        ),
        ((Row(backlog_s=9.0), Row()), {}, ["dearer by 8.8 s", ""]),
        (
            (Row(backlog_s=9.0), Row(), Row()),
            {"is_apart": True},
            ["", *["home is kept: other routers cannot be heard"] * 2],
        ),
        ((Row(inflight=4), Row()), {"session_inflight": 4}, ["dearer by 0.66 s", ""]),
    ],
)
def test_home_says_what_its_rule_compared(
    rows: tuple[Row, ...], changes: dict[str, object], phrases: list[str]
) -> None:
    asked = structs.replace(WARM, **changes)
    assert said("home", fleet(*rows), asked) == phrases


def test_home_says_of_a_branch_what_it_must_save() -> None:
    asked = request({"r0": 11_024, "r1": 14_096}, home_id="r0", prompt_tokens=20_000)
    view = fleet(Row(), Row())
    assert said("home", view, asked) == [
        "",
        "cheaper by 77 ms, less than what a branch must save (0.25 s)",
    ]
    dear = fleet(Row(backlog_s=1.0), Row(), Row())
    found = explained("home", dear, asked)
    assert found.ranking.reason == "branch"
    assert found.candidates[2].why_not == "holds 14.1k tokens less of this branch"


def test_home_says_who_was_not_priced_in_a_large_fleet() -> None:
    rows = [Row(backlog_s=9.0)] + [Row(inflight=1, backlog_s=0.001 * n) for n in range(40)]
    found = explained("home", fleet(*rows), WARM)
    assert found.ranking.reason == "move"
    words = "not priced by the rule in a fleet of this size: not among the best in any part"
    n_left_out = sum(row.why_not == words for row in found.candidates)
    assert 41 - 2 * HomeParameters().weighed - 1 <= n_left_out < 41


@pytest.mark.parametrize(
    ("name", "view", "asked", "phrases"),
    [
        ("round_robin", busy(0, 0, 0), request(serial=4), ["its turn is 2 requests later", "", "its turn is 1 request later"]),
        ("least_inflight", busy(1, 4, 2), request(), ["", "3 more in flight", "1 more in flight"]),
        ("sticky", busy(9, 0), WARM, ["", "not the session's home"]),
        ("smg_cache_aware", fleet(Row(), Row(waiting=9)), request({"r0": 9_000}), ["", "overloaded: 9 wait, 0% of KV in use"]),
        ("smg_cache_aware", busy(90, 0, 0), request({"r0": 9_000}), ["over the gate of 45.0 in flight", "", "the session's key ranks it lower"]),
        ("smg_cache_aware_old", busy(0, 0), request({"r0": 9_000}), ["", "holds 9.0k tokens less"]),
        ("dynamo_kv", fleet(Row(), Row(prefill_tokens=64_000)), request(), ["", "cost higher by 1,000"]),
        ("llm_d", fleet(Row(), Row(used_ratio=0.5)), request(), ["", "score higher by 1"]),
        ("modal_v2", busy(9, 0), WARM, ["", "not the session's home"]),
        ("prefix_hash", busy(0, 0), request(head_key=0), ["", "as few in flight; the session's key ranks it lower"]),
    ],
)  # fmt: skip
def test_baselines_say_what_they_compare(
    name: str, view: View, asked: RouteRequest, phrases: list[str]
) -> None:
    assert said(name, view, asked) == phrases


def test_lengths_and_sizes_are_said_in_few_figures() -> None:
    told = [seconds(length_s) for length_s in (0.0, 0.004, 0.25, 0.999, 1.0, 12.34, 99.0, 1_234.5)]
    assert told == ["0 ms", "4 ms", "0.25 s", "1 s", "1 s", "12.3 s", "99 s", "1,234 s"]
    assert [in_tokens(n) for n in (950, 61_000, 7_250_000)] == [
        "950 tokens",
        "61.0k tokens",
        "7.25M tokens",
    ]
