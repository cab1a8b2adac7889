"""Named profiles are derived, and say what the formulas say."""

from __future__ import annotations

import pytest

from replica.hardware.gpus import GPUS
from replica.hardware.memory import capacity_tokens
from replica.hardware.models import KIMI_K26, KvDtype
from replica.hardware.profiles import (
    HOST_GB_PER_RANK,
    MEM_FRACTION,
    PROFILES,
    engine_facts,
    profile_named,
)


def test_the_named_profiles() -> None:
    assert sorted(PROFILES) == [
        "b200-tp4-bf16",
        "b200-tp4-fp8",
        "b200-tp8-bf16",
        "b200-tp8-fp8",
        "b300-tp4-bf16",
        "b300-tp4-fp8",
        "b300-tp8-bf16",
        "b300-tp8-fp8",
    ]
    for name, facts in PROFILES.items():
        assert profile_named(name) is facts
        assert facts.capacity_tokens == capacity_tokens(
            GPUS[facts.gpu],
            KIMI_K26,
            tp=facts.tp,
            kv_dtype=facts.kv_dtype,
            mem_fraction=MEM_FRACTION,
        )


def test_the_default_recipe() -> None:
    facts = profile_named("b200-tp4-fp8")
    assert facts.capacity_tokens == pytest.approx(0.488e6, rel=0.002)
    assert facts.host_capacity_tokens == pytest.approx(HOST_GB_PER_RANK * 1e9 / 35_136, abs=64)
    assert facts.capacity_tokens % facts.page_tokens == 0
    assert (facts.chunk_tokens, facts.verify_tokens, facts.accept_length) == (8192, 8, 5.84)
    assert facts.prefill_s(100_000, 0) == pytest.approx(5.4, rel=0.01)
    assert facts.steps_s(4, 1e5, 2e5) == facts.times.verify_s(4, 1e5, 2e5)


def test_without_a_draft_steps_are_plain_and_yield_one_token() -> None:
    facts = engine_facts(gpu_name="b200", tp=4, kv_dtype=KvDtype.BF16, has_draft=False)
    assert (facts.verify_tokens, facts.accept_length) == (1, 1.0)
    assert facts.steps_s(4, 1e5, 2e5) == facts.times.decode_s(4, 1e5, 2e5)


def test_unknown_and_impossible_configurations_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown profile 'b200': known are b200-tp4-bf16, "):
        profile_named("b200")
    with pytest.raises(ValueError, match=r"no room for KV at mem_fraction 0\.5: raise it"):
        engine_facts(gpu_name="b200", tp=4, kv_dtype=KvDtype.FP8, mem_fraction=0.5)
