"""Memory arithmetic against the published capacity tables."""

from __future__ import annotations

import pytest

from replica.hardware.gpus import B200, B300, H200, Gpu
from replica.hardware.memory import (
    PAGE_TOKENS,
    capacity_tokens,
    free_gib,
    host_load_s_per_token,
    host_tokens,
    weights_only_tokens,
)
from replica.hardware.models import KIMI_K26, KvDtype


@pytest.mark.parametrize(
    ("mem_fraction", "left_gib", "with_draft_kv", "without_draft_kv"),
    [
        (0.85, 9.83, 0.256e6, 0.300e6),
        (0.90, 18.78, 0.488e6, 0.574e6),
        (0.92, 22.36, 0.582e6, 0.683e6),
        (0.94, 25.94, 0.675e6, 0.793e6),
    ],
)
def test_what_sglang_leaves_on_a_b200_at_tp4(
    mem_fraction: float, left_gib: float, with_draft_kv: float, without_draft_kv: float
) -> None:
    free = free_gib(B200, KIMI_K26, tp=4, mem_fraction=mem_fraction)
    assert free == pytest.approx(left_gib, abs=0.006)
    for has_draft_kv, expected in ((True, with_draft_kv), (False, without_draft_kv)):
        tokens = capacity_tokens(
            B200,
            KIMI_K26,
            tp=4,
            kv_dtype=KvDtype.FP8,
            mem_fraction=mem_fraction,
            has_draft_kv=has_draft_kv,
        )
        assert tokens == pytest.approx(expected, rel=0.003)
        assert tokens % PAGE_TOKENS == 0


@pytest.mark.parametrize(
    ("gpu", "tp", "mem_fraction", "millions"),
    [(B200, 8, 0.85, 2.2), (B200, 8, 0.90, 2.5), (B300, 4, 0.85, 2.2), (B300, 8, 0.85, 4.4)],
)
def test_what_sglang_leaves_elsewhere(
    gpu: Gpu, tp: int, mem_fraction: float, millions: float
) -> None:
    tokens = capacity_tokens(gpu, KIMI_K26, tp=tp, kv_dtype=KvDtype.FP8, mem_fraction=mem_fraction)
    assert tokens / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize(
    ("tp", "kv_dtype", "millions"),
    [
        (4, KvDtype.BF16, 0.445),
        (4, KvDtype.FP8, 0.89),
        (8, KvDtype.BF16, 1.50),
        (8, KvDtype.FP8, 3.0),
        (2, KvDtype.FP8, 0.0),
        (1, KvDtype.FP8, 0.0),
    ],
)
def test_the_published_table_counts_weights_only(
    tp: int, kv_dtype: KvDtype, millions: float
) -> None:
    tokens = weights_only_tokens(B200, KIMI_K26, tp=tp, kv_dtype=kv_dtype)
    assert tokens / 1e6 == pytest.approx(millions, rel=0.005)


def test_no_capacity_where_the_weights_do_not_fit() -> None:
    assert free_gib(H200, KIMI_K26, tp=4, mem_fraction=0.9) < 0
    assert capacity_tokens(H200, KIMI_K26, tp=4, kv_dtype=KvDtype.FP8, mem_fraction=0.9) == 0


def test_without_a_draft_there_is_more_room() -> None:
    with_draft, without = (
        capacity_tokens(
            B200, KIMI_K26, tp=4, kv_dtype=KvDtype.FP8, mem_fraction=0.9, has_draft=has_draft
        )
        for has_draft in (True, False)
    )
    assert without == pytest.approx((161.1 - 140.7) * 2**30 / 35_136, abs=PAGE_TOKENS)
    assert without > with_draft


@pytest.mark.parametrize("mem_fraction", [0.0, 1.0, -0.5, 90.0, float("nan")])
def test_a_memory_fraction_is_a_share(mem_fraction: float) -> None:
    with pytest.raises(ValueError, match="give a share between 0 and 1"):
        free_gib(B200, KIMI_K26, tp=4, mem_fraction=mem_fraction)


def test_host_tier_of_a_terabyte() -> None:
    fp8 = host_tokens(KIMI_K26, kv_dtype=KvDtype.FP8, host_gb_per_rank=250.0)
    assert fp8 / 1e6 == pytest.approx(7.1, abs=0.05)
    assert host_tokens(KIMI_K26, kv_dtype=KvDtype.BF16, host_gb_per_rank=0.0) == 0


@pytest.mark.parametrize("host_gb_per_rank", [-1.0, float("nan")])
def test_a_host_tier_has_a_size(host_gb_per_rank: float) -> None:
    with pytest.raises(ValueError, match="give 0 or more gigabytes"):
        host_tokens(KIMI_K26, kv_dtype=KvDtype.FP8, host_gb_per_rank=host_gb_per_rank)


def test_loading_100k_tokens_from_the_host() -> None:
    fp8 = host_load_s_per_token(B200, KIMI_K26, kv_dtype=KvDtype.FP8)
    bf16 = host_load_s_per_token(B200, KIMI_K26, kv_dtype=KvDtype.BF16)
    assert 100_000 * fp8 == pytest.approx(0.070, abs=0.001)
    assert 100_000 * bf16 == pytest.approx(0.141, abs=0.001)
