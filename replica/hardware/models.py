"""Models of the Kimi K2 family: shape, weights a GPU, KV bytes a token, context.

Shapes are those of the published ``config.json``; weights a GPU are counted from the shape for the
NVFP4 checkpoint (routed experts in FP4, the rest in BF16; q_a, kv_a, router and vision replicated
on every rank). The INT4 checkpoints have the same size.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


_FP4_BITS: Final = 4.5
"""Of a weight in NVFP4: blocks of 16 share a scale of 8."""
_BF16_BITS: Final = 16.0


class KvDtype(StrEnum):
    """How the engine stores the KV cache."""

    FP8 = "fp8"
    BF16 = "bf16"

    @property
    def bytes_per_value(self) -> int:
        """Bytes of one stored value."""
        return 1 if self is KvDtype.FP8 else 2


@dataclass(slots=True, frozen=True)
class Draft:
    """A DFlash drafter: plain attention, sharded by tensor parallelism.

    Weights and KV are in BF16 unless said otherwise; FP8 halves either.
    """

    model_path: str
    block_tokens: int
    weights_gib: float
    kv_bytes_per_token: int

    def weights_gib_per_gpu(self, tp: int, *, is_fp8: bool = False) -> float:
        """GiB of its weights on each of ``tp`` GPUs."""
        return self.weights_gib / tp / (2 if is_fp8 else 1)

    def kv_bytes_per_gpu(self, tp: int, kv_dtype: KvDtype = KvDtype.BF16) -> int:
        """KV bytes a token on each of ``tp`` GPUs.

        A draft window does not shrink them: the pool has a slot for each token of the target.
        """
        return self.kv_bytes_per_token * kv_dtype.bytes_per_value // 2 // tp


@dataclass(slots=True, frozen=True)
class Model:
    """A model with multi-head latent attention (MLA).

    The latent of ``kv_lora_rank + qk_rope_head_dim`` values a layer is repeated on every rank, so
    tensor parallelism does not shrink the KV of a token. ``weights_gb`` is the checkpoint in 10^9
    bytes as published; ``weights_gib_per_gpu`` maps tensor parallelism to GiB a GPU.
    ``shared_experts_gib`` of that are shared experts in BF16, sharded by tensor parallelism.
    """

    name: str
    model_path: str
    layers: int
    hidden_size: int
    attention_heads: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    routed_experts: int
    active_experts: int
    context_tokens_max: int
    weights_gb: float
    weights_gib_per_gpu: Mapping[int, float]
    draft: Draft
    shared_experts_gib: float = 0.0

    def kv_bytes_per_token(self, kv_dtype: KvDtype) -> int:
        """KV bytes of one token on each GPU."""
        width = self.kv_lora_rank + self.qk_rope_head_dim
        return self.layers * width * kv_dtype.bytes_per_value

    def target_gib_per_gpu(self, tp: int, *, has_fp4_shared_experts: bool = False) -> float:
        """GiB of weights on each of ``tp`` GPUs.

        ``has_fp4_shared_experts`` is a checkpoint whose shared experts are in NVFP4, at 4.5 bit a
        weight, instead of BF16.

        Raises:
            ValueError: this tensor parallelism was not counted for the model.
        """
        gib = self.weights_gib_per_gpu.get(tp)
        if gib is None:
            known = ", ".join(str(n) for n in sorted(self.weights_gib_per_gpu))
            raise ValueError(f"no weight size of {self.name} at TP{tp}: known are TP {known}")
        if has_fp4_shared_experts:
            gib -= self.shared_experts_gib * (1 - _FP4_BITS / _BF16_BITS) / tp
        return gib


def _kimi(name: str, version: str) -> Model:
    return Model(
        name=name,
        model_path=f"nvidia/Kimi-{version}-NVFP4",
        layers=61,
        hidden_size=7168,
        attention_heads=64,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        routed_experts=384,
        active_experts=8,
        context_tokens_max=262_144,
        weights_gb=595.0,
        weights_gib_per_gpu=MappingProxyType({4: 140.7, 8: 71.8, 16: 37.3}),
        shared_experts_gib=4.92,  # 60 layers x 3 x 7,168 x 2,048 in BF16
        draft=Draft(
            model_path=_DRAFT_PATHS[version],
            block_tokens=8,
            weights_gib=6.48,
            kv_bytes_per_token=24_576,  # 6 layers x 2 x 8 KV heads x 128 x 2 bytes
        ),
    )


_DRAFT_PATHS: Final[dict[str, str]] = {
    "K2.5": "z-lab/Kimi-K2.5-DFlash",
    "K2.6": "nvidia/Kimi-K2.6-DFlash",
    "K2.7-Code": "nvidia/Kimi-K2.7-Code-DFlash",
}

KIMI_K25: Final = _kimi("kimi-k2.5", "K2.5")
KIMI_K26: Final = _kimi("kimi-k2.6", "K2.6")
KIMI_K27_CODE: Final = _kimi("kimi-k2.7-code", "K2.7-Code")

MODELS: Final[dict[str, Model]] = {m.name: m for m in (KIMI_K25, KIMI_K26, KIMI_K27_CODE)}
"""Every known model by name."""


def model_named(name: str) -> Model:
    """The model of this name or of this checkpoint path, in any case.

    Raises:
        ValueError: the name is unknown; the message lists the known ones.
    """
    wanted = name.lower()
    for model in MODELS.values():
        if wanted in (model.name, model.model_path.lower()):
            return model
    raise ValueError(f"unknown model {name!r}: known are {', '.join(sorted(MODELS))}")
