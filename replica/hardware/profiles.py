"""Named profiles: everything the engine model needs to know about one replica's configuration.

Each is derived from the facts and formulas beside it for Kimi K2.6 with its DFlash drafter, at the
stated memory fraction and host tier; no profile has a number of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from replica.hardware.gpus import gpu_named
from replica.hardware.memory import (
    PAGE_TOKENS,
    capacity_tokens,
    host_load_s_per_token,
    host_tokens,
)
from replica.hardware.models import KIMI_K26, KvDtype, Model
from replica.hardware.steps import StepTimes, step_times

MEM_FRACTION: Final = 0.90
"""Share of usable memory for weights and KV: between the 0.85 of SGLang's test and untried 0.92."""

HOST_GB_PER_RANK: Final = 240.0
"""Host tier a rank: 1 TB of host memory for a TP4 replica, 2 TB for a TP8 one."""

ACCEPT_LENGTH: Final = 5.84
"""Tokens a verify step yields with a drafter tuned on coding traffic (published)."""

ACCEPT_SPREAD_RATIO: Final = 0.5
"""How far requests' own accept lengths spread: assumed, nothing public was measured."""


@dataclass(slots=True, frozen=True)
class EngineFacts:
    """One replica as the engine model sees it.

    Capacities are whole pages; ``host_capacity_tokens`` 0 means no host tier. ``verify_tokens`` is
    the tokens a verify step checks; 1 means no drafter: plain decode steps of one token each.
    ``accept_length`` lies within 1 and ``verify_tokens``; requests' own means spread evenly around
    it, to ``accept_spread_ratio`` (0 to 1) of the way to the nearer of these two. ``layers`` are the model's.
    """

    name: str
    gpu: str
    tp: int
    kv_dtype: KvDtype
    capacity_tokens: int
    host_capacity_tokens: int
    host_load_s_per_token: float
    times: StepTimes
    page_tokens: int = PAGE_TOKENS
    chunk_tokens: int = 8192
    max_running_requests: int = 16
    accept_length: float = ACCEPT_LENGTH
    accept_spread_ratio: float = ACCEPT_SPREAD_RATIO
    verify_tokens: int = 8
    context_tokens_max: int = 262_144
    layers: int = KIMI_K26.layers

    def prefill_s(self, new_tokens: int, cached_tokens: int) -> float:
        """Seconds to prefill ``new_tokens`` behind ``cached_tokens``, in chunks, alone."""
        return self.times.prompt_s(new_tokens, cached_tokens, chunk_tokens=self.chunk_tokens)

    def loading_s(self, compute_s: float, load_s: float) -> float:
        """Seconds of a prefill step whose cached part comes from the host tier meanwhile.

        SGLang loads on a stream of its own, and each layer waits for its part alone (``LayerDoneCounter``):
        the longer of the two goes on without a pause, the other one adds its first or last layer.
        """
        if compute_s >= load_s:
            return compute_s + load_s / self.layers
        return load_s + compute_s / self.layers

    def step_s(self, batch: int, context_tokens: float) -> float:
        """Seconds of one generation step: verify with a drafter, plain decode without."""
        return self.steps_s(batch, context_tokens, context_tokens)[0]

    def steps_s(
        self, batch: int, context_tokens: float, later_tokens: float
    ) -> tuple[float, float]:
        """Seconds of two generation steps of one batch that differ in their mean context."""
        if self.verify_tokens == 1:
            return self.times.decode_s(batch, context_tokens, later_tokens)
        return self.times.verify_s(batch, context_tokens, later_tokens)


def engine_facts(
    *,
    gpu_name: str,
    tp: int,
    kv_dtype: KvDtype,
    model: Model = KIMI_K26,
    mem_fraction: float = MEM_FRACTION,
    host_gb_per_rank: float = HOST_GB_PER_RANK,
    has_draft: bool = True,
) -> EngineFacts:
    """Derive the facts of one configuration.

    Raises:
        ValueError: the GPU or the step times are unknown, a number is out of range, or the pool
            is too small for one page.
    """
    gpu = gpu_named(gpu_name)
    capacity = capacity_tokens(
        gpu, model, tp=tp, kv_dtype=kv_dtype, mem_fraction=mem_fraction, has_draft=has_draft
    )
    name = f"{gpu.name}-tp{tp}-{kv_dtype}"
    if not capacity:
        raise ValueError(
            f"{name} leaves no room for KV at mem_fraction {mem_fraction}: "
            "raise it, or use more or larger GPUs"
        )
    return EngineFacts(
        name=name,
        gpu=gpu.name,
        tp=tp,
        kv_dtype=kv_dtype,
        capacity_tokens=capacity,
        host_capacity_tokens=host_tokens(
            model, kv_dtype=kv_dtype, host_gb_per_rank=host_gb_per_rank
        ),
        host_load_s_per_token=host_load_s_per_token(gpu, model, kv_dtype=kv_dtype),
        times=step_times(gpu.name, tp, kv_dtype),
        accept_length=ACCEPT_LENGTH if has_draft else 1.0,
        verify_tokens=model.draft.block_tokens if has_draft else 1,
        context_tokens_max=model.context_tokens_max,
        layers=model.layers,
    )


PROFILES: Final[dict[str, EngineFacts]] = {
    facts.name: facts
    for facts in (
        engine_facts(gpu_name="b200", tp=4, kv_dtype=KvDtype.FP8),
        engine_facts(gpu_name="b200", tp=4, kv_dtype=KvDtype.BF16),
        engine_facts(gpu_name="b200", tp=8, kv_dtype=KvDtype.FP8),
        engine_facts(gpu_name="b200", tp=8, kv_dtype=KvDtype.BF16),
        engine_facts(gpu_name="b300", tp=4, kv_dtype=KvDtype.FP8),
        engine_facts(gpu_name="b300", tp=4, kv_dtype=KvDtype.BF16),
        engine_facts(gpu_name="b300", tp=8, kv_dtype=KvDtype.FP8),
        engine_facts(gpu_name="b300", tp=8, kv_dtype=KvDtype.BF16),
    )
}
"""The named profiles, at :data:`MEM_FRACTION` and :data:`HOST_GB_PER_RANK`."""


def profile_named(name: str) -> EngineFacts:
    """The profile of this name.

    Raises:
        ValueError: the name is unknown; the message lists the known ones.
    """
    facts = PROFILES.get(name)
    if facts is None:
        raise ValueError(f"unknown profile {name!r}: known are {', '.join(sorted(PROFILES))}")
    return facts
