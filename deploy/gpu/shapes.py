"""Write a small model of Kimi's shape, with its DFlash drafter: configs and a tokenizer, no weights.

Multi-head latent attention and routed experts as Kimi K2 has them, in BF16 and few layers, so that one GPU
of any kind holds it. Weights are dummies of the engine's (``--load-format dummy``). Run by the engine's
interpreter, needs no network: ``python shapes.py FOLDER`` writes ``FOLDER/target`` and ``FOLDER/draft``.
``--no-tokenizer`` leaves that out: an argument check does not need it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

LAYERS: Final = 6
HIDDEN: Final = 2_048
VOCABULARY: Final = 4_096
CONTEXT_TOKENS: Final = 65_536
BLOCK_TOKENS: Final = 8
MASK_TOKEN: Final = VOCABULARY - 1
COMMON: Final[dict[str, Any]] = {
    "dtype": "bfloat16",
    "hidden_size": HIDDEN,
    "max_position_embeddings": CONTEXT_TOKENS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 50_000.0,
    "tie_word_embeddings": False,
    "vocab_size": VOCABULARY,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
TARGET: Final[dict[str, Any]] = {
    **COMMON,
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_act": "silu",
    "intermediate_size": 4_096,
    "moe_intermediate_size": 512,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "kv_lora_rank": 512,
    "q_lora_rank": 1_536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 32,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.827,
    "num_nextn_predict_layers": 0,
}
DRAFT: Final[dict[str, Any]] = {
    **COMMON,
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_act": "silu",
    "head_dim": 128,
    "intermediate_size": 4_096,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "num_hidden_layers": 2,
    "num_target_layers": LAYERS,
    "block_size": BLOCK_TOKENS,
    "dflash_config": {"mask_token_id": MASK_TOKEN, "target_layer_ids": [1, 4]},
}
TEMPLATE: Final = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "<|assistant|>"
)
MARKERS: Final = ("<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
TEXT: Final = """\
The module reads its input once and keeps no copy of it, so a caller may change the buffer after the call
returns. Every test covers one case of the table below with its expected result. Keep the change small, say
what was run, and read the file before you write to it: 0 1 2 3 4 5 6 7 8 9.
"""


def write_tokenizer(folder: Path) -> None:
    """A byte-level one: any text has tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learned.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY // 2,
        special_tokens=list(MARKERS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    learned.train_from_iterator([TEXT], trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=learned,
        bos_token=MARKERS[0],
        eos_token=MARKERS[1],
        pad_token=MARKERS[0],
        model_max_length=CONTEXT_TOKENS,
    )
    made.chat_template = TEMPLATE
    made.save_pretrained(folder)


def main(words: list[str]) -> int:
    """Write both folders."""
    place = Path(words[0])
    for name, config in (("target", TARGET), ("draft", DRAFT)):
        folder = place / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config, indent=1))
        if "--no-tokenizer" not in words:
            write_tokenizer(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
