"""How many tokens of KV fit: on the device beside the weights, and in the host tier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.hardware.gpus import GIB

if TYPE_CHECKING:
    from replica.hardware.gpus import Gpu
    from replica.hardware.models import KvDtype, Model

PAGE_TOKENS: Final = 64
"""Tokens of one KV page, the engine's unit of cache."""


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
    return max(0, whole_pages_tokens(free * GIB / token_bytes))


def weights_only_tokens(gpu: Gpu, model: Model, *, tp: int, kv_dtype: KvDtype) -> int:
    """The published arithmetic: advertised memory minus the target's weights, nothing else.

    An upper bound that no engine reaches: draft, graphs and activations are not in it. 0 where
    the weights do not fit.
    """
    free_bytes = (gpu.hbm_gb - model.weights_gb / tp) * 1e9
    return max(0, int(free_bytes / model.kv_bytes_per_token(kv_dtype)))


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
