"""Model folders of a config alone, for an engine's argument check: shapes as published, no weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

    from replica.hardware.models import Model

_VOCABULARY: Final = 163_840


def write_stand_ins(model: Model, folder: Path) -> tuple[Path, Path]:
    """Write a target's and a drafter's folder into this one; answers both."""
    paths = folder / "target", folder / "draft"
    for path, config in zip(paths, (_target(model), _draft(model)), strict=True):
        path.mkdir()
        (path / "config.json").write_text(json.dumps(config))
    return paths


def _target(model: Model) -> dict[str, Any]:
    """A Kimi K2.5, K2.6 or K2.7: only routed experts in NVFP4, scales for KV in FP8."""
    text = {
        "model_type": "kimi_k2",
        "dtype": "bfloat16",
        "vocab_size": _VOCABULARY,
        "hidden_size": model.hidden_size,
        "intermediate_size": 18_432,
        "moe_intermediate_size": 2_048,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.attention_heads,
        "num_key_value_heads": model.attention_heads,
        "kv_lora_rank": model.kv_lora_rank,
        "q_lora_rank": 1_536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": model.qk_rope_head_dim,
        "v_head_dim": 128,
        "n_routed_experts": model.routed_experts,
        "n_shared_experts": 1,
        "num_experts_per_tok": model.active_experts,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.827,
        "max_position_embeddings": model.context_tokens_max,
        "rms_norm_eps": 1e-5,
        "rope_theta": 50_000.0,
        "rope_scaling": {
            "type": "yarn",
            "factor": 64.0,
            "original_max_position_embeddings": 4_096,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
        "tie_word_embeddings": False,
        "num_nextn_predict_layers": 0,
    }
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "dtype": "bfloat16",
        "text_config": text,
        "vision_config": {},
        "quantization_config": _quantization(),
    }


def _quantization() -> dict[str, Any]:
    group = {"num_bits": 4, "type": "float", "group_size": 16}
    kept = ("lm_head", "layers.0.mlp*")
    return {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
        "config_groups": {
            "group_0": {"weights": group, "input_activations": group, "targets": ["Linear"]}
        },
        "ignore": [
            *(f"language_model.{name}" for name in kept),
            "*self_attn*",
            "*shared_experts*",
            "vision_tower*",
            "mm_projector*",
        ],
        "producer": {"name": "modelopt", "version": "0"},
    }


def _draft(model: Model) -> dict[str, Any]:
    """Its DFlash drafter: six layers of plain attention."""
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "dtype": "bfloat16",
        "vocab_size": _VOCABULARY,
        "hidden_size": model.hidden_size,
        "head_dim": 128,
        "num_attention_heads": model.attention_heads,
        "num_key_value_heads": 8,
        "num_hidden_layers": 6,
        "num_target_layers": model.layers,
        "intermediate_size": 18_432,
        "block_size": model.draft.block_tokens,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": model.context_tokens_max,
        "dflash_config": {
            "mask_token_id": 163_838,
            "target_layer_ids": [1, 12, 24, 35, 47, 58],
        },
        "tie_word_embeddings": False,
    }
