"""A recipe on one kind of GPU: which one, how many, and what a person changed of its memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from replica.errors import ReplicaError
from replica.hardware.footprint import Footprint, footprint_of
from replica.hardware.gpus import GIB, GPUS, Gpu
from replica.hardware.memory import CPU_GROWTH_GIB, PAGE_TOKENS
from replica.hardware.models import MODELS, KvDtype, model_named
from replica.settings import Choice

if TYPE_CHECKING:
    from replica.settings import Recipe

CPU: Final = "cpu"
_SAID: Final = {"reason": "said on the command line", "source": "command line"}


@dataclass(slots=True, frozen=True)
class Setup:
    """A recipe with one variant, on ``tp`` devices of one kind; ``gpu`` None is a CPU.

    ``footprint`` is what a rank holds; ``device_gib`` what a device has free before it is loaded.
    """

    recipe: Recipe
    gpu: Gpu | None
    tp: int
    footprint: Footprint
    device_gib: float

    @property
    def device(self) -> str:
        """The device's name."""
        return CPU if self.gpu is None else self.gpu.name

    @property
    def page_tokens(self) -> int:
        """Tokens of a page; SGLang's own default is one."""
        chosen = self.recipe.memory.page_tokens
        if chosen is not None:
            return chosen.value
        return 1 if self.gpu is None else PAGE_TOKENS

    @property
    def context_tokens_max(self) -> int:
        """The longest context, in tokens."""
        chosen = self.recipe.scheduling.context_tokens_max
        return self.footprint.context_tokens_max if chosen is None else chosen.value

    @property
    def capacity_tokens(self) -> int:
        """KV tokens of the device tier; 0 where the weights do not fit."""
        fraction = self.recipe.memory.mem_fraction.value
        return self.footprint.budget(self.device_gib, fraction, self.page_tokens).tokens()

    @property
    def host_capacity_tokens(self) -> int:
        """KV tokens of the host tier, 0 without one; SGLang adds a page of padding."""
        chosen = self.recipe.memory.host_gb_per_rank
        if chosen is None:
            return 0
        tokens = int(chosen.value * 1e9 // self.footprint.kv_bytes)
        return (tokens // self.page_tokens + 1) * self.page_tokens

    @property
    def profile(self) -> str:
        """The name of the hardware profile that the step times are from."""
        return f"{self.device}-tp{self.tp}-{self.recipe.memory.kv_dtype.value}"


def draft_kv_dtype(recipe: Recipe) -> KvDtype | None:
    """How SGLang stores the draft's KV; None without a draft.

    It follows the target's unless it is said; fa4, which reads no FP8, makes it BF16 whatever is said.
    """
    draft = recipe.draft
    if draft is None:
        return None
    if draft.attention_backend is not None and draft.attention_backend.value == "fa4":
        return KvDtype.BF16
    if draft.kv_dtype is not None:
        return draft.kv_dtype.value
    return recipe.memory.kv_dtype.value


def changed(
    recipe: Recipe, *, kv_dtype: str | None = None, mem_fraction: float | None = None
) -> Recipe:
    """The recipe with these in place of its own, where they are given.

    Raises:
        ReplicaError: ``kv-dtype-unsupported`` or ``bad-value``.
    """
    memory = recipe.memory
    if kv_dtype is not None:
        try:
            chosen = KvDtype(kv_dtype.lower())
        except ValueError:
            known = ", ".join(KvDtype)
            raise ReplicaError(
                "kv-dtype-unsupported", f"KV dtype {kv_dtype!r} is not one of {known}"
            ) from None
        memory = memory.model_copy(update={"kv_dtype": Choice[KvDtype](value=chosen, **_SAID)})
    if mem_fraction is not None:
        if not 0.0 < mem_fraction < 1.0:
            raise ReplicaError(
                "bad-value",
                f"the memory fraction is {mem_fraction:g}: give a share between 0 and 1",
            )
        share = Choice[float](value=mem_fraction, **_SAID)
        memory = memory.model_copy(update={"mem_fraction": share})
    return recipe.model_copy(update={"memory": memory})


def setup_of(
    recipe: Recipe,
    *,
    gpu: str | None = None,
    tp: int | None = None,
    device_gib: float | None = None,
    footprint: Footprint | None = None,
) -> Setup:
    """A recipe on ``tp`` devices: those it is for come first where nothing is said.

    ``device_gib`` is what a device has free, instead of what its kind offers; a CPU needs it.
    ``footprint`` is that of a model of one's own, for a recipe without ``facts``.

    Raises:
        ReplicaError: ``unknown-gpu``, ``gpu-unsupported``, ``tp-unsupported``,
            ``kv-dtype-unsupported``, ``bad-value`` or ``model-missing``.
    """
    name = (gpu or recipe.gpus[0]).lower()
    count = recipe.tp[0] if tp is None else tp
    kind = _kind(recipe, name)
    if count < 1:
        raise ReplicaError("tp-unsupported", f"tensor parallelism is {count}: give 1 or more")
    kv_dtype = recipe.memory.kv_dtype.value
    if kind is None and kv_dtype is KvDtype.FP8:
        raise ReplicaError("kv-dtype-unsupported", "a CPU has no fp8 KV: use --kv-dtype bf16")
    if device_gib is None:
        if kind is None:
            raise ReplicaError("bad-value", "how much memory the CPU has free is not known")
        device_gib = kind.usable_gib
    if not 0.0 < device_gib < float("inf"):
        raise ReplicaError("bad-value", f"a device of {device_gib:g} GiB: give a size above 0")
    share = footprint or _known_footprint(recipe, count)
    if share.heads % count:
        raise _undivided(recipe, share.heads, count)
    if kind is None:
        share = replace(share, reserved_bytes=share.reserved_bytes + CPU_GROWTH_GIB * GIB)
    return Setup(recipe, kind, count, share, device_gib)


def _kind(recipe: Recipe, name: str) -> Gpu | None:
    """The GPU of this name, None for a CPU."""
    is_for_cpu = CPU in recipe.gpus
    if name == CPU and is_for_cpu:
        return None
    kind = GPUS.get(name)
    if kind is None and name != CPU:
        known = ", ".join((*GPUS, CPU))
        raise ReplicaError("unknown-gpu", f"unknown GPU {name!r}: known are {known}")
    if kind is None or is_for_cpu:
        for_these = ", ".join(recipe.gpus)
        raise ReplicaError("gpu-unsupported", f"{recipe.name} is for {for_these}, not for {name}")
    return kind


def _known_footprint(recipe: Recipe, tp: int) -> Footprint:
    if recipe.facts is None:
        raise ReplicaError(
            "model-missing",
            f"{recipe.name} is for a model of your own: give its folder with --model-path",
        )
    weights = recipe.weights.shared_experts
    draft = recipe.draft
    try:
        model = model_named(recipe.facts)
    except ValueError as failure:
        raise ReplicaError("bad-recipe", f"{recipe.name}: facts: {failure}") from None
    for other in MODELS.values():
        if draft is not None and draft.path == other.draft.model_path and other is not model:
            raise ReplicaError(
                "draft-mismatch",
                f"{draft.path} is the drafter of {other.name}: use {model.draft.model_path} for {recipe.name}",
            )
    if model.attention_heads % tp:
        raise _undivided(recipe, model.attention_heads, tp)
    if tp not in model.weights_gib_per_gpu:
        gib = model.weights_gb / tp * 1e9 / GIB
        raise ReplicaError(
            "does-not-fit",
            f"{recipe.name}: at TP{tp} the weights alone are {gib:.0f} GiB a GPU, which no known one holds: use"
            f" {_tp_words(recipe)}",
        )
    if tp not in recipe.tp:
        raise ReplicaError(
            "tp-unsupported",
            f"{recipe.name} is for one machine: use {_tp_words(recipe)}, not TP{tp}",
        )
    return footprint_of(
        model,
        tp=tp,
        kv_dtype=recipe.memory.kv_dtype.value,
        draft_kv_dtype=draft_kv_dtype(recipe),
        has_fp8_draft=draft is not None
        and draft.quantization is not None
        and draft.quantization.value == "fp8",
        has_fp4_shared_experts=weights is not None,
    )


def _undivided(recipe: Recipe, heads: int, tp: int) -> ReplicaError:
    return ReplicaError(
        "tp-unsupported",
        f"{recipe.name} has {heads} attention heads, which {tp} GPUs do not divide: use {_tp_words(recipe)}",
    )


def _tp_words(recipe: Recipe) -> str:
    return f"--tp {' or '.join(map(str, recipe.tp))}"
