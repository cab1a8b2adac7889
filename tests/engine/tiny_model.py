"""Write the model that the real replicas of the tests serve: random weights, its own tokenizer.

A Llama of two layers and 2.5 M parameters with a byte-level vocabulary, two to three bytes a token
on what synthetic agents say, and a chat template in Kimi's order. Needs no
network. Run by the engine's environment: ``python tiny_model.py FOLDER``.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

sys.path.append(str(Path(__file__).parents[2]))

from sim.workload.text import Prose

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTEXT_TOKENS: Final = 131_072
VOCABULARY: Final = 8_192
START, STOP, PAD = "<|bos|>", "<|eos|>", "<|pad|>"
MARKERS: Final = (
    START,
    STOP,
    PAD,
    "<|im_system|>",
    "<|im_user|>",
    "<|im_assistant|>",
    "<|im_middle|>",
    "<|im_end|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<think>",
    "</think>",
)
ENGLISH: Final = """\
The module reads its input once and keeps no copy of it, so a caller may change the buffer after the
call returns. Every test covers one case of the table below with its expected result. You are an agent
that edits code: keep the change small, say what was run, and read the file before you write to it.
Rule 1: the system prompt names the tools, their description, parameters and required properties.
"""


def texts() -> Iterator[str]:
    """What the vocabulary is learned from: English, and what synthetic agents are made to say."""
    rng = random.Random(0)
    for n in range(200):
        prose = Prose(rng)  # with words of its own each time
        yield ENGLISH
        yield prose.text(rng, 2_000)
        tool = prose.tool(rng, f"tool_{n}", 100)
        function = {"name": tool.name, "description": tool.description, "parameters": tool.schema()}
        yield json.dumps({"type": "function", "function": function}, separators=(",", ":"))


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer: any text has tokens, and the markers are one token each."""
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learned.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(MARKERS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    learned.train_from_iterator(texts(), trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=learned,
        bos_token=START,
        eos_token=STOP,
        pad_token=PAD,
        model_max_length=CONTEXT_TOKENS,
    )
    made.chat_template = (Path(__file__).parent / "template.jinja").read_text()
    return made


def model(n_tokens: int) -> LlamaForCausalLM:
    """The network: its text is noise, its cache is real."""
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=n_tokens,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT_TOKENS,
        rope_theta=10_000.0,
        tie_word_embeddings=False,
        bos_token_id=MARKERS.index(START),
        eos_token_id=MARKERS.index(STOP),
        pad_token_id=MARKERS.index(PAD),
        torch_dtype="bfloat16",
    )
    return LlamaForCausalLM(shape).to(torch.bfloat16)


def main() -> None:
    """Write tokenizer and weights to the folder named on the command line."""
    folder = Path(sys.argv[1])
    words = tokenizer()
    words.save_pretrained(folder)
    model(len(words)).save_pretrained(folder, safe_serialization=True)


if __name__ == "__main__":
    main()
