"""Step times against the published values and the calibration grid."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import pytest

from replica.hardware.models import KvDtype
from replica.hardware.steps import STEP_TIMES, StepTimes, step_times

GRID = (
    Path(__file__).resolve().parents[3].parent
    / "shared"
    / "data"
    / "calibration"
    / "aic_kimi_k26_nvfp4_sglang_grid.csv"
)
B200_TP4 = STEP_TIMES["b200", 4, KvDtype.FP8]
B200_TP8 = STEP_TIMES["b200", 8, KvDtype.FP8]


@pytest.mark.parametrize(("tokens", "seconds"), [(32_768, 0.97), (100_000, 5.4)])
def test_a_cold_prompt_is_the_sum_of_its_chunks(tokens: int, seconds: float) -> None:
    assert B200_TP4.prompt_s(tokens, 0, chunk_tokens=8192) == pytest.approx(seconds, rel=0.01)


@pytest.mark.parametrize(
    ("new", "cached", "tp4_ms", "tp8_ms"),
    [
        (8192, 0, 174, 144),
        (1024, 100_000, 115, 68),
        (4096, 100_000, 384, 228),
        (8192, 100_000, 754, 426),
    ],
)
def test_one_chunk_is_near_the_kernel_tables(
    new: int, cached: int, tp4_ms: float, tp8_ms: float
) -> None:
    assert B200_TP4.prefill_s(new, cached) == pytest.approx(tp4_ms / 1e3, rel=0.07)
    assert B200_TP8.prefill_s(new, cached) == pytest.approx(tp8_ms / 1e3, rel=0.07)


@pytest.mark.parametrize(
    ("batch", "decode_ms", "verify_ms"),
    [(1, 7.1, 10.4), (4, 10.6, 18.3), (8, 15.3, 26.6), (16, 25.3, 37.0), (32, 42.2, 55.4)],
)
def test_steps_at_100k_context_are_near_the_kernel_tables(
    batch: int, decode_ms: float, verify_ms: float
) -> None:
    decode_s = B200_TP4.decode.step_s(batch, 100_000)
    verify_s = B200_TP4.verify.step_s(batch, 100_000)
    assert decode_s == pytest.approx(decode_ms / 1e3, rel=0.16)
    assert verify_s == pytest.approx(verify_ms / 1e3, rel=0.11)


def test_no_tokens_take_no_time() -> None:
    assert B200_TP4.prefill_s(0, 1000) == 0.0
    assert B200_TP4.prompt_s(0, 1000, chunk_tokens=8192) == 0.0
    assert B200_TP4.prefill_batch_s([]) == 0.0


def test_prompts_that_share_a_step_share_its_constant() -> None:
    apart = B200_TP4.prefill_s(500, 0) + B200_TP4.prefill_s(700, 90_000)
    together = B200_TP4.prefill_batch_s([(500, 0), (700, 90_000)])
    assert 0.012 < apart - together < 0.05


def test_the_drafter_and_the_host_are_added_once_a_step() -> None:
    verify = [B200_TP4.verify.step_s(5, tokens) + 0.0012 + 0.00083 for tokens in (1e5, 2e5)]
    assert B200_TP4.verify_s(5, 1e5, 2e5) == pytest.approx(verify)
    decode = [B200_TP4.decode.step_s(5, tokens) + 0.00083 for tokens in (1e5, 2e5)]
    assert B200_TP4.decode_s(5, 1e5, 2e5) == pytest.approx(decode)


def test_a_configuration_that_was_not_measured_is_refused() -> None:
    assert step_times("b300", 8, KvDtype.BF16) is STEP_TIMES["b300", 8, KvDtype.BF16]
    with pytest.raises(ValueError, match="no step times of h200-tp8-fp8: known are b200-tp4-fp8,"):
        step_times("h200", 8, KvDtype.FP8)


@pytest.mark.skipif(not GRID.exists(), reason=f"no calibration grid at {GRID}")
def test_closed_forms_follow_the_calibration_grid() -> None:
    errors: dict[tuple[StepTimes, str], list[float]] = defaultdict(list)
    with GRID.open(newline="") as rows:
        for row in csv.DictReader(rows):
            times = STEP_TIMES[
                row["system"].removesuffix("_sxm"),
                int(row["tp"]),
                KvDtype.FP8 if row["kv_dtype"] == "fp8" else KvDtype.BF16,
            ]
            formed_s = _formed_s(times, row)
            if formed_s is not None:
                error = abs(formed_s * 1e3 / float(row["latency_ms"]) - 1)
                errors[times, row["op"]].append(error)
    assert len(errors) == 3 * len(STEP_TIMES)
    for (_, op), found in errors.items():
        assert len(found) >= 40, op
        assert sum(found) / len(found) < 0.04, op
        assert max(found) <= 0.20, op


def _formed_s(times: StepTimes, row: dict[str, str]) -> float | None:
    """The closed form's answer to a row of the grid; None outside the range of the fit."""
    batch, context = int(row["batch"]), int(row["context_or_prefix_tokens"])
    new = int(row["new_tokens_per_seq"])
    if row["op"] == "prefill":
        in_range = batch == 1 and 256 <= new <= 16_384
        return times.prefill_s(new, context) if in_range else None
    if row["op"] == "decode":
        in_range = batch <= 64 and 1024 <= context <= 256_000
        return times.decode.step_s(batch, context) if in_range else None
    in_range = row["verify_len"] == "8" and batch <= 32 and 8192 <= context <= 200_000
    return times.verify.step_s(batch, context) if in_range else None
