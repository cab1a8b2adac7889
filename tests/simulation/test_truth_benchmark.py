"""The engine model against time per token and time to first token that InferenceX measured.

Kimi K2.5 NVFP4 on one B200 TP4 replica under vLLM 0.17, 8k in, 1k out, no speculation. InferenceX's
client (``benchmarks/benchmark_lib.sh``, ``utils/bench_serving/benchmark_serving.py``) keeps ``concurrency``
requests open without pauses, ten times as many in all, lengths drawn evenly from 80 to 100 % of 8,192 and
1,024 tokens, no two with a common prefix, and reports means. vLLM lets running requests decode along with
the chunks of others' prompts. The model does the same; one constant, fitted at concurrency 8, is free.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pytest

from replica.hardware.models import KvDtype
from replica.hardware.profiles import engine_facts
from replica.hardware.steps import HOST_STEP_S
from sim.engine.replica_model import ReplicaModel
from sim.engine.requests import Began, Ended, EngineRequest
from sim.engine.rules import EngineRules
from sim.rng import stream

ROWS = (
    Path(__file__).resolve().parents[2].parent
    / "shared"
    / "data"
    / "calibration"
    / "inferencex_silicon_kimi_k25.csv"
)
SEEDS = range(5)
FITTED_AT = 8
FACTS = engine_facts(
    gpu_name="b200", tp=4, kv_dtype=KvDtype.FP8, has_draft=False, host_gb_per_rank=0
)


class Point(NamedTuple):
    """Milliseconds: of a token after the first, and to the first."""

    tpot_ms: float
    ttft_ms: float


MEASURED = {
    4: (Point(8.82, 238), Point(8.83, 232), Point(9.76, 255)),
    8: (Point(11.18, 309), Point(11.30, 306), Point(11.11, 322)),
    16: (Point(14.93, 388), Point(15.18, 401), Point(14.92, 419)),
    32: (Point(21.03, 571), Point(21.36, 594), Point(21.86, 614)),
}
"""By concurrency, a published measurement each: experts split by tensor (20 April 2026), and whole over the
four GPUs (11 and 27 March). Some rows call the replica of the last one 4 x TP4, others with the same
figures, as InferenceX's own name of the run, one TP4."""


@cache
def benchmarked(host_step_s: float, concurrency: int) -> Point:
    """The benchmark on the engine model, averaged over seeds."""
    points = [one_benchmark(host_step_s, concurrency, seed) for seed in SEEDS]
    return Point(fmean(p.tpot_ms for p in points), fmean(p.ttft_ms for p in points))


def one_benchmark(host_step_s: float, concurrency: int, seed: int) -> Point:
    """Means over ten requests for each place."""
    dice = stream(seed, "inferencex")
    times = replace(FACTS.times, host_step_s=host_step_s)
    facts = replace(FACTS, times=times, max_running_requests=concurrency)
    model = ReplicaModel(facts, rules=EngineRules(is_chunk_mixed=True))
    requests = [
        EngineRequest(str(n), dice.randint(6_553, 8_192), dice.randint(819, 1_024))
        for n in range(10 * concurrency)
    ]
    waiting = iter(requests)
    outputs = {request.rid: request.output_tokens for request in requests}
    sent_s: dict[str, float] = {}
    began_s: dict[str, float] = {}
    tpot_s: list[float] = []

    def send(now_s: float) -> None:
        request = next(waiting, None)
        if request is not None:
            sent_s[request.rid] = now_s
            model.submit(request, now_s)

    for _ in range(concurrency):
        send(0.0)
    while (now_s := model.next_at()) is not None:
        for event in model.advance(now_s, with_progress=False):
            if isinstance(event, Began):
                began_s[event.rid] = event.at_s
            elif isinstance(event, Ended):
                tpot_s.append((event.at_s - began_s[event.rid]) / (outputs[event.rid] - 1))
                send(now_s)
    assert len(tpot_s) == len(requests)
    return Point(1e3 * fmean(tpot_s), 1e3 * fmean(began_s[rid] - sent_s[rid] for rid in sent_s))


def test_the_host_constant_is_what_concurrency_8_asks_for() -> None:
    wanted_ms = fmean(point.tpot_ms for point in MEASURED[FITTED_AT])
    low_s, high_s = 0.0, 0.004
    while high_s - low_s > 1e-6:
        middle_s = (low_s + high_s) / 2
        if benchmarked(middle_s, FITTED_AT).tpot_ms < wanted_ms:
            low_s = middle_s
        else:
            high_s = middle_s
    assert low_s == pytest.approx(HOST_STEP_S, abs=20e-6)


@pytest.mark.parametrize("concurrency", MEASURED)
def test_time_per_token_is_within_12_percent_of_every_measurement(concurrency: int) -> None:
    answered_ms = benchmarked(HOST_STEP_S, concurrency).tpot_ms
    for measured in MEASURED[concurrency]:
        assert answered_ms == pytest.approx(measured.tpot_ms, rel=0.12)


@pytest.mark.parametrize("concurrency", MEASURED)
def test_time_to_first_token_lacks_a_third_of_what_was_measured(concurrency: int) -> None:
    """The model has kernels alone: no HTTP, tokenizer or scheduler of vLLM, and SGLang's kernels."""
    answered_ms = benchmarked(HOST_STEP_S, concurrency).ttft_ms
    for measured in MEASURED[concurrency]:
        assert 0.60 < answered_ms / measured.ttft_ms < 0.80


@pytest.mark.skipif(not ROWS.exists(), reason=f"no measured rows at {ROWS}")
def test_the_measurements_are_all_there_are_of_this_configuration() -> None:
    """Rows that repeat a measurement, exactly or rounded, are one; concurrency 64 is out of the range."""
    found: defaultdict[int, set[Point]] = defaultdict(set)
    with ROWS.open(newline="") as lines:
        for row in csv.DictReader(lines):
            shape = (row["system"], row["mode"], row["backend"], row["precision"])
            sizes = (row["tp_size"], row["isl"], row["osl"])
            if shape == ("b200_sxm", "agg", "vllm", "fp4") and sizes == ("4", "8192", "1024"):
                concurrency = int(row["batch_size"]) * int(row["attention_dp_size"])
                tpot_ms, ttft_ms = float(row["silicon_tpot_ms"]), float(row["silicon_ttft_ms"])
                found[concurrency].add(Point(round(tpot_ms, 2), round(ttft_ms)))
    assert {n: points for n, points in found.items() if n != 64} == {
        n: set(points) for n, points in MEASURED.items()
    }
