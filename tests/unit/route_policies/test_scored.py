"""Dynamo's cost and llm-d's scores, against figures worked out by hand."""

from __future__ import annotations

import pytest

from router.policy.scored import DynamoKv, LlmD, LlmDParameters
from tests.doubles.small_fleet import Row, fleet, ranked, request


@pytest.mark.parametrize(
    ("one", "other", "cached"),
    [
        # 10,000 tokens are 156.25 blocks of prefill and 157 in use, everywhere
        (Row(), Row(prefill_tokens=64), {}),
        (Row(), Row(inflight_tokens=64), {}),
        # 6,400 cached tokens outweigh 99 blocks in use, and not 101
        (Row(inflight_tokens=99 * 64), Row(), {"r0": 6_400}),
        (Row(), Row(inflight_tokens=101 * 64), {"r1": 6_400}),
        # what is being prefilled and what is in use weigh the same
        (Row(prefill_tokens=640), Row(inflight_tokens=704), {}),
    ],
)
def test_dynamo_takes_the_least_prefill_and_decode_blocks(
    one: Row, other: Row, cached: dict[str, int]
) -> None:
    assert ranked(DynamoKv(), fleet(one, other), request(cached)).ranked[0] == "r0"
    swapped = {{"r0": "r1", "r1": "r0"}[name]: held for name, held in cached.items()}
    assert ranked(DynamoKv(), fleet(other, one), request(swapped)).ranked[0] == "r1"


@pytest.mark.parametrize(
    ("one", "other", "cached"),
    [
        # 3 * 0.5 of prefix against 2 * (1 - 0) of queue
        (Row(), Row(waiting=1), {"r1": 5_000}),
        (Row(waiting=1), Row(), {"r0": 7_000}),
        # the queue's score is relative: the most waiting is 0, however few
        (Row(waiting=3), Row(waiting=300), {}),
        (Row(used_ratio=0.1), Row(used_ratio=0.2), {}),
        # 3 * 0.2 of prefix against 2 * 0.31 of KV
        (Row(), Row(used_ratio=0.31), {"r1": 2_000}),
        (Row(used_ratio=0.29), Row(), {"r0": 2_000}),
    ],
)
def test_llm_d_adds_three_of_prefix_two_of_queue_two_of_kv(
    one: Row, other: Row, cached: dict[str, int]
) -> None:
    assert ranked(LlmD(), fleet(one, other), request(cached)).ranked[0] == "r0"


def test_the_middle_of_the_queues_scores_in_between() -> None:
    rows = [Row(waiting=0), Row(waiting=5), Row(waiting=10)]
    # r1: 3 * 0.4 + 2 * 0.5 = 2.2 over r0's 2; with 0.3 it is 1.9
    assert ranked(LlmD(), fleet(*rows), request({"r1": 4_000})).ranked[0] == "r1"
    assert ranked(LlmD(), fleet(*rows), request({"r1": 3_000})).ranked[0] == "r0"
    no_prefix = LlmD(LlmDParameters(prefix_weight=0.0))
    assert ranked(no_prefix, fleet(*rows), request({"r1": 9_000})).ranked[0] == "r0"
