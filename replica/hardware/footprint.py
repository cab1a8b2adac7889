"""What one rank of a model holds: weights and KV bytes a token, from facts or from a model's config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from replica.hardware.gpus import GIB
from replica.hardware.memory import IMAGE_CACHE_GIB, PAGE_TOKENS, Budget
from replica.hardware.models import KvDtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.hardware.models import Model

_SIZE_MAX: Final = 1 << 24


@dataclass(slots=True, frozen=True)
class Footprint:
    """One rank's share: bytes of weights, and bytes of KV a token, of target and draft.

    ``reserved_bytes`` is what the engine takes out of the pool besides. ``heads`` must be a
    multiple of the tensor parallelism.
    """

    target_bytes: float
    kv_bytes: int
    context_tokens_max: int
    heads: int
    draft_bytes: float = 0.0
    draft_kv_bytes: int = 0
    reserved_bytes: float = 0.0

    @property
    def token_bytes(self) -> int:
        """KV bytes of one token, target and draft."""
        return self.kv_bytes + self.draft_kv_bytes

    def budget(
        self, device_gib: float, mem_fraction: float, page_tokens: int = PAGE_TOKENS
    ) -> Budget:
        """The memory of a device of this size with it on."""
        return Budget(
            device_gib * GIB,
            mem_fraction,
            self.token_bytes,
            target_bytes=self.target_bytes,
            draft_bytes=self.draft_bytes,
            reserved_bytes=self.reserved_bytes,
            page_tokens=page_tokens,
        )


def footprint_of(
    model: Model,
    *,
    tp: int,
    kv_dtype: KvDtype,
    draft_kv_dtype: KvDtype | None = KvDtype.BF16,
    has_fp8_draft: bool = False,
    has_fp4_shared_experts: bool = False,
) -> Footprint:
    """A known model's share; ``draft_kv_dtype`` None is without a draft.

    Raises:
        ValueError: the model's weights were not counted at this TP.
    """
    target = model.target_gib_per_gpu(tp, has_fp4_shared_experts=has_fp4_shared_experts)
    has_draft = draft_kv_dtype is not None
    return Footprint(
        target_bytes=target * GIB,
        kv_bytes=model.kv_bytes_per_token(kv_dtype),
        context_tokens_max=model.context_tokens_max,
        heads=model.attention_heads,
        draft_bytes=model.draft.weights_gib_per_gpu(tp, is_fp8=has_fp8_draft) * GIB
        if has_draft
        else 0.0,
        draft_kv_bytes=0
        if draft_kv_dtype is None
        else model.draft.kv_bytes_per_gpu(tp, draft_kv_dtype),
        reserved_bytes=IMAGE_CACHE_GIB * GIB,
    )


def footprint_of_config(
    config: Mapping[str, Any], *, weights_bytes: int, tp: int, kv_dtype: KvDtype
) -> Footprint:
    """The share of a model by its ``config.json``: plain or grouped-query attention, or MLA.

    KV heads are split over the ranks and repeated where there are fewer of them; MLA's latent is
    whole on each.

    Raises:
        ValueError: a size is missing or is no size; the message names the key.
    """
    text = config.get("text_config", config)
    if not isinstance(text, dict):
        raise ValueError("config.json: text_config is no object")  # noqa: TRY004  (a bad file)
    layers = _size(text, "num_hidden_layers")
    heads = _size(text, "num_attention_heads")
    if text.get("kv_lora_rank") is not None:
        width = _size(text, "kv_lora_rank") + _size(text, "qk_rope_head_dim")
    else:
        kv_heads = _size(text, "num_key_value_heads") if "num_key_value_heads" in text else heads
        is_said = text.get("head_dim") is not None
        head = _size(text, "head_dim") if is_said else _size(text, "hidden_size") // heads
        width = max(1, kv_heads // tp) * 2 * head
    return Footprint(
        target_bytes=weights_bytes / tp,
        kv_bytes=layers * width * kv_dtype.bytes_per_value,
        context_tokens_max=_size(text, "max_position_embeddings"),
        heads=heads,
        reserved_bytes=IMAGE_CACHE_GIB * GIB if "vision_config" in config else 0.0,
    )


def _size(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _SIZE_MAX:
        raise ValueError(f"config.json: {key} is {value!r}, expected a positive whole number")
    return value
