"""How many tokens of KV fit: on the device beside the weights, and in the host tier.

One formula, :meth:`Budget.tokens`, stands behind every number: what the published tables assume, what
SGLang leaves on a GPU at a memory fraction, and what it leaves on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.hardware.gpus import GIB

if TYPE_CHECKING:
    from replica.hardware.gpus import Gpu
    from replica.hardware.models import KvDtype, Model

PAGE_TOKENS: Final = 64
"""Tokens of one KV page, the engine's unit of cache."""

IMAGE_CACHE_GIB: Final = 100 / 1024
"""What SGLang takes out of the pool for images' embeddings (``SGLANG_VLM_CACHE_SIZE_MB``), a GPU."""

CPU_GROWTH_GIB: Final = 0.06
"""What SGLang's process grows by between its look at a CPU's free memory and its pool: it lives in the
memory it shares out. Starts of SGLang 0.5.23 on a quiet machine: 0.00 to 0.12 GiB, most 0.06."""


@dataclass(slots=True, frozen=True)
class Budget:
    """One device's memory in bytes, and what of it is not KV.

    ``device_bytes`` is what is free before anything is loaded; ``mem_fraction`` of it goes to
    weights and KV, the rest to activations, graphs and communication. ``token_bytes`` is a token's
    KV of target and draft together.
    """

    device_bytes: float
    mem_fraction: float
    token_bytes: int
    target_bytes: float = 0.0
    draft_bytes: float = 0.0
    reserved_bytes: float = 0.0
    page_tokens: int = PAGE_TOKENS

    @property
    def pool_bytes(self) -> float:
        """Bytes left for KV; negative where the weights do not fit."""
        loaded = self.target_bytes + self.draft_bytes + self.reserved_bytes
        return self.device_bytes * self.mem_fraction - loaded

    @property
    def rest_bytes(self) -> float:
        """Bytes for all that is neither weights nor KV."""
        return self.device_bytes * (1.0 - self.mem_fraction)

    def tokens(self) -> int:
        """KV tokens that fit, in whole pages; 0 where the weights do not."""
        page_bytes = self.token_bytes * self.page_tokens
        return max(0, int(self.pool_bytes // page_bytes)) * self.page_tokens


def free_gib(
    gpu: Gpu, model: Model, *, tp: int, mem_fraction: float, has_draft: bool = True
) -> float:
    """GiB a GPU left for KV: its share of the usable memory minus target and draft weights.

    Activations, CUDA graphs and communication buffers live in the other ``1 - mem_fraction``.
    Negative where the weights do not fit.

    Raises:
        ValueError: ``mem_fraction`` is not within 0 to 1, or the model was not counted at this TP.
    """
    if not 0.0 < mem_fraction < 1.0:
        raise ValueError(f"mem_fraction is {mem_fraction}: give a share between 0 and 1")
    weights = model.target_gib_per_gpu(tp)
    if has_draft:
        weights += model.draft.weights_gib_per_gpu(tp)
    return gpu.usable_gib * mem_fraction - weights


def capacity_tokens(
    gpu: Gpu,
    model: Model,
    *,
    tp: int,
    kv_dtype: KvDtype,
    mem_fraction: float,
    has_draft: bool = True,
    has_draft_kv: bool = True,
) -> int:
    """KV tokens one replica's device tier holds, rounded down to whole pages.

    The MLA latent is repeated on every rank, so this is the free memory of *one* GPU over the KV
    bytes of a token there. ``has_draft_kv=False`` is the limit that a draft window approaches.
    0 where the weights do not fit.

    Raises:
        ValueError: as :func:`free_gib`.
    """
    free = free_gib(gpu, model, tp=tp, mem_fraction=mem_fraction, has_draft=has_draft)
    token_bytes = model.kv_bytes_per_token(kv_dtype)
    if has_draft and has_draft_kv:
        token_bytes += model.draft.kv_bytes_per_gpu(tp)
    return Budget(free * GIB, 1.0, token_bytes).tokens()


def weights_only_tokens(gpu: Gpu, model: Model, *, tp: int, kv_dtype: KvDtype) -> int:
    """The published arithmetic: advertised memory minus the target's weights, nothing else.

    An upper bound that no engine reaches: draft, graphs and activations are not in it. 0 where
    the weights do not fit.
    """
    return Budget(
        gpu.hbm_gb * 1e9,
        1.0,
        model.kv_bytes_per_token(kv_dtype),
        target_bytes=model.weights_gb / tp * 1e9,
        page_tokens=1,
    ).tokens()


def host_tokens(model: Model, *, kv_dtype: KvDtype, host_gb_per_rank: float) -> int:
    """KV tokens the host tier holds, in whole pages.

    The pool is per rank and MLA repeats the same KV on each, so more ranks hold no more tokens.

    Raises:
        ValueError: ``host_gb_per_rank`` is negative or not a number.
    """
    if not host_gb_per_rank >= 0.0:
        raise ValueError(f"host_gb_per_rank is {host_gb_per_rank}: give 0 or more gigabytes")
    return whole_pages_tokens(host_gb_per_rank * 1e9 / model.kv_bytes_per_token(kv_dtype))


def host_load_s_per_token(gpu: Gpu, model: Model, *, kv_dtype: KvDtype) -> float:
    """Seconds to bring one token back from the host tier, all ranks in parallel."""
    return model.kv_bytes_per_token(kv_dtype) / (gpu.host_link_gb_per_s * 1e9)


def whole_pages_tokens(tokens: float) -> int:
    """``tokens`` rounded down to whole pages."""
    return int(tokens // PAGE_TOKENS) * PAGE_TOKENS
