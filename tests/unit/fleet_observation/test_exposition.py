"""Prometheus pages of engines as load reports, and pages that are none."""

from __future__ import annotations

import pytest

from router.control.observe.exposition import read_page
from router.control.observe.reports import observation
from tests.doubles.core_rig import make_core

SGLANG = b"""\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 3.0
sglang:num_running_reqs{engine_type="unified",model_name="m",moe_ep_rank="1",pp_rank="0",tp_rank="1"} 3.0
sglang:num_running_reqs_offline_batch{model_name="m",tp_rank="0"} 9.0
sglang:num_queue_reqs{model_name="m",pp_rank="0",tp_rank="0"} 2.0
sglang:token_usage{model_name="m",pp_rank="0",tp_rank="0"} 0.25
sglang:realtime_tokens_total{mode="prefill_compute",model_name="m",tp_rank="0"} 1000.0
sglang:realtime_tokens_total{mode="prefill_cache",model_name="m",tp_rank="0"} 70.0
sglang:realtime_tokens_total{mode="decode",model_name="m",tp_rank="0"} 5.0
sglang:generation_tokens_total{model_name="m"} 5.0
"""
RANKS = b"""\
sglang:num_running_reqs{dp_rank="1",tp_rank="0"} 1.0
sglang:num_running_reqs{dp_rank="0",tp_rank="0",priority="1"} 2.0
sglang:num_running_reqs{dp_rank="0",tp_rank="0",priority="2"} 4.0
sglang:num_queue_reqs{dp_rank="1",tp_rank="0"} 8
sglang:token_usage{dp_rank="0",tp_rank="0"} 0.5
"""
VLLM = b"""\
vllm:num_requests_running{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.125
vllm:prompt_tokens_total{engine="0",model_name="m"} 10.0
vllm:generation_tokens_total{engine="0",model_name="m"} 6.0"""


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (SGLANG, (3, 2, 0.25, 1_000, (1_080.0,))),
        (VLLM, (4, 1, 0.125, 0, (16.0,))),
        (RANKS, (7, 8, 0.25, 0, (0.0, 0.0))),
    ],
    ids=["sglang", "vllm", "ranks"],
)
def test_a_page_is_a_load_report(page: bytes, expected: tuple[object, ...]) -> None:
    ranks = read_page(page)
    assert ranks is not None
    [replica] = make_core(1).fleet.replicas()
    seen = observation(ranks, replica, 5.0)
    told = seen.running, seen.waiting, seen.used_ratio, seen.prefill_tokens, seen.stamp
    assert told == expected
    assert seen.seen_s == 5.0


def test_the_loads_of_ranks_are_told_apart() -> None:
    ranks = read_page(RANKS)
    assert ranks is not None
    [replica] = make_core(1).fleet.replicas()
    loads = observation(ranks, replica, 0.0).ranks
    assert [(load.rank, load.running, load.waiting) for load in loads] == [(0, 6, 0), (1, 1, 8)]


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"not a page",
        b"<html>sglang:num_running_reqs</html>",
        b"sglang:num_running_reqs",
        b"sglang:num_running_reqs many",
        b'sglang:num_running_reqs{tp_rank="0"} NaN',
        b'sglang:num_running_reqs{tp_rank="0"} +Inf',
        b'sglang:num_running_reqs{tp_rank="0"',
        b'other:num_running_reqs{tp_rank="0"} 1',
    ],
)
def test_what_tells_no_running_requests_is_no_load_report(page: bytes) -> None:
    assert read_page(page) is None


def test_a_page_of_one_metric_over_and_over_ends() -> None:
    line = b'sglang:num_running_reqs{tp_rank="0"} 1\n'
    ranks = read_page(line * 50_000)
    assert ranks is not None
    assert ranks[0].num_running_reqs < 50_000
