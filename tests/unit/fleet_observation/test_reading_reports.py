"""What replicas answer, as the core is told it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.control.observe.feed import FeedAddress, feed_address
from router.control.observe.reports import (
    count,
    description,
    has_gone_back,
    observation,
    read_loads,
    read_object,
)
from router.state.fleet.replica import Observation, RankLoad
from tests.doubles.core_rig import make_core

RANK: dict[str, Any] = {
    "timestamp": 1_790_000_000.5,
    "dp_rank": 0,
    "num_running_reqs": 2,
    "num_waiting_reqs": 1,
    "num_waiting_uncached_tokens": 900,
    "token_usage": 0.5,
    "total_prefill_uncached_tokens": 10_000,
    "total_prefill_busy_us": 500_000,
}
INFO: dict[str, Any] = {
    "startup_time": {"load_weight": 12.75, "scheduler_e2e": 40.0625},
    "random_seed": 7,
    "launch_command": "sglang serve",
    "chunked_prefill_size": 8_192,
    "max_running_requests": 64,
    "internal_states": [
        {"effective_max_running_requests_per_dp": 30},
        {"effective_max_running_requests_per_dp": 31},
    ],
}


def seen(*rows: dict[str, Any]) -> Observation:
    ranks = read_loads(json.dumps({"loads": rows}).encode())
    assert ranks is not None
    [replica] = make_core(1).fleet.replicas()
    return observation(ranks, replica, 1.0)


def test_ranks_are_added_up_and_told_apart() -> None:
    second = RANK | {"dp_rank": 1, "num_running_reqs": 5, "token_usage": 0.0, "timestamp": 3}
    whole = seen(RANK, second)
    assert (whole.running, whole.waiting, whole.waiting_uncached_tokens) == (7, 2, 1_800)
    assert (whole.prefill_tokens, whole.prefill_busy_us) == (20_000, 1_000_000)
    assert whole.used_ratio == 0.25
    assert whole.stamp == (1_790_000_000.5, 3.0)
    assert whole.ranks == (RankLoad(0, 2, 1, 900, 0.5), RankLoad(1, 5, 1, 900, 0.0))


@pytest.mark.parametrize("time", [None, "now", True, [], {}])
def test_a_report_without_a_time_has_no_stamp(time: object) -> None:
    assert seen(RANK, RANK | {"timestamp": time}).stamp == ()


@pytest.mark.parametrize(
    ("change", "is_back"),
    [
        ({}, False),
        ({"timestamp": 1_790_000_001}, False),
        ({"timestamp": 1_790_000_000}, True),
        ({"timestamp": None}, False),
        ({"total_prefill_uncached_tokens": 9_999}, True),
        ({"total_prefill_uncached_tokens": 10_001}, False),
        ({"total_prefill_busy_us": 0}, True),
        ({"num_running_reqs": 0}, False),
    ],
)
def test_a_clock_or_a_total_behind_is_a_hint(change: dict[str, Any], *, is_back: bool) -> None:
    assert has_gone_back(seen(RANK), seen(RANK | change)) is is_back


def test_another_number_of_ranks_is_a_hint() -> None:
    assert has_gone_back(seen(RANK), seen(RANK, RANK))


def test_what_it_is_has_limits_and_tells_its_process() -> None:
    said = description(INFO, {})
    assert said.chunk_tokens == 8_192
    assert not said.has_priorities
    assert description(INFO | {"enable_priority_scheduling": True}, {}).has_priorities
    assert not description(INFO | {"enable_priority_scheduling": 1}, {}).has_priorities
    assert not said.is_short_first
    for policy, is_short_first in (("fcfs", False), ("shortest-prefill-first", True), (7, False)):
        assert description(INFO | {"schedule_policy": policy}, {}).is_short_first is is_short_first
    assert said.started
    assert description(INFO | {"version": "2"}, {}).started == said.started
    for change in ({"random_seed": 8}, {"startup_time": {"load_weight": 12.8}}):
        assert description(INFO | change, {}).started not in ("", said.started)


@pytest.mark.parametrize("info", [{}, {"launch_command": "x"}, {"random_seed": None}])
def test_what_does_not_tell_its_process_is_not_told_apart(info: dict[str, Any]) -> None:
    assert description(info, {}).started == ""


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"[" * 100_000, b"\xff", b'{"a":'])
def test_what_is_no_object_is_empty(body: bytes) -> None:
    assert read_object(body) == {}
    assert read_loads(body) is None


EVENTS: dict[str, Any] = {
    "endpoint_host": "*",
    "endpoint_port_base": 5_557,
    "dp_size": 2,
    "load_endpoint_port_base": 5_561,
    "load_topic": "load",
}


@pytest.mark.parametrize(
    ("change", "address"),
    [
        ({}, FeedAddress("10.0.0.7", 5_561, 2, "load")),
        ({"load_topic": "l"}, FeedAddress("10.0.0.7", 5_561, 2, "l")),
        ({"load_topic": 3}, None),
        ({"load_endpoint_port_base": None}, None),
        ({"load_endpoint_port_base": "5561"}, None),
        ({"load_endpoint_port_base": 0}, None),
        ({"load_endpoint_port_base": 65_535}, None),
        ({"load_endpoint_port_base": 65_534}, FeedAddress("10.0.0.7", 65_534, 2, "load")),
        ({"dp_size": 0}, None),
        ({"dp_size": 100_000}, None),
        ({"dp_size": True}, None),
    ],
)
def test_a_load_feed_is_where_the_replica_is(
    change: dict[str, Any], address: FeedAddress | None
) -> None:
    assert feed_address("10.0.0.7", {"kv_events": EVENTS | change}) == address


@pytest.mark.parametrize("events", [None, 7, [], {}])
def test_without_publisher_there_is_no_feed(events: object) -> None:
    assert feed_address("10.0.0.7", {"kv_events": events}) is None


def test_names_that_cannot_be_shown_are_not_there() -> None:
    models = {"data": [{"id": "m\x1b[2J"}, {"id": "ok"}, {"id": "l\nx", "parent": "ok"}]}
    said = description({"homeport": {"profile": "p\x07"}}, models)
    assert (said.models, said.adapters, said.profile) == (("ok",), (), None)


@pytest.mark.parametrize(
    ("told", "n"),
    [(float("nan"), 0), (float("inf"), 10**12), (-float("inf"), 0), (2.5, 2), (True, 0), (10**13, 10**12)],
)  # fmt: skip
def test_a_count_is_one_whatever_is_told(told: object, n: int) -> None:
    assert count(told) == n
