"""Model facts: KV bytes, weights a GPU, look-up by name or checkpoint."""

from __future__ import annotations

import pytest

from replica.hardware.models import KIMI_K26, MODELS, KvDtype, model_named


def test_kv_bytes_of_a_token_are_those_published() -> None:
    assert KIMI_K26.kv_bytes_per_token(KvDtype.BF16) == 70_272
    assert KIMI_K26.kv_bytes_per_token(KvDtype.FP8) == 35_136


@pytest.mark.parametrize(
    ("tp", "target", "draft", "draft_kv"), [(4, 140.7, 1.62, 6144), (8, 71.8, 0.81, 3072)]
)
def test_weights_and_draft_of_each_gpu(tp: int, target: float, draft: float, draft_kv: int) -> None:
    assert KIMI_K26.target_gib_per_gpu(tp) == target
    assert KIMI_K26.draft.weights_gib_per_gpu(tp) == pytest.approx(draft)
    assert KIMI_K26.draft.kv_bytes_per_gpu(tp) == draft_kv


def test_a_tensor_parallelism_that_was_not_counted_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"no weight size of kimi-k2\.6 at TP2: known are TP 4, 8, 16"
    ):
        KIMI_K26.target_gib_per_gpu(2)


def test_models_are_found_by_name_and_by_checkpoint() -> None:
    for model in MODELS.values():
        assert model_named(model.name) is model
        assert model_named(model.model_path) is model
        assert model.context_tokens_max == 262_144
    assert model_named("NVIDIA/kimi-k2.6-nvfp4") is KIMI_K26


def test_each_model_has_its_own_draft() -> None:
    assert len({model.draft.model_path for model in MODELS.values()}) == len(MODELS) == 3


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown model 'kimi': known are kimi-k2\.5, "):
        model_named("kimi")
