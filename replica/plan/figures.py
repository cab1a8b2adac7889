"""The figures of a plan: memory a GPU, tokens and sessions, host memory, expected speeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from replica.errors import ReplicaError
from replica.hardware.gpus import GIB
from replica.hardware.memory import weights_only_tokens
from replica.hardware.models import model_named
from replica.hardware.profiles import ACCEPT_LENGTH, PROFILES
from replica.setup import draft_kv_dtype

if TYPE_CHECKING:
    from replica.hardware.steps import StepTimes
    from replica.setup import Setup

SESSION_TOKENS: Final = (20_000, 100_000, 200_000)
"""Sizes of a session that a plan counts: young, the mean of coding agents, old."""
PROMPTS: Final = ((8_000, 0), (32_000, 0), (100_000, 0), (2_000, 100_000))
"""New and cached tokens of the prompts whose prefill a plan tells."""
BATCHES: Final = (1, 4, 8, 16, 32)
CONTEXT_TOKENS: Final = 100_000

# SGLang's own rule for what it keeps free where no memory fraction is given (0.5.23, memory_hook), MiB.
_BASE_MIB, _TOKEN_MIB, _REQUEST_MIB, _TP8_MIB = 512.0, 1.5, 2.0, 1024.0


@dataclass(slots=True, frozen=True)
class Memory:
    """One device, in GiB. ``headroom_gib`` is negative where graphs and activations may not fit."""

    device_gib: float
    target_gib: float
    draft_gib: float
    reserved_gib: float
    kv_gib: float
    draft_kv_gib: float
    graphs_gib: float
    activations_gib: float
    headroom_gib: float


@dataclass(slots=True, frozen=True)
class Prefill:
    """Expected seconds of a prompt's prefill, alone."""

    new_tokens: int
    cached_tokens: int
    took_s: float

    @property
    def tokens_per_s(self) -> float:
        """New tokens a second."""
        return self.new_tokens / self.took_s


@dataclass(slots=True, frozen=True)
class Decode:
    """Expected generation of ``batch`` requests at a context of 100,000 tokens."""

    batch: int
    step_s: float
    user_tokens_per_s: float

    @property
    def tokens_per_s(self) -> float:
        """All requests together."""
        return self.user_tokens_per_s * self.batch


@dataclass(slots=True, frozen=True)
class Plan:
    """Everything that a plan says in numbers; ``accept_length`` is 1 without a drafter."""

    setup: Setup
    memory: Memory
    capacity_tokens: int
    weights_only_tokens: int | None
    host_capacity_tokens: int
    host_gb: float
    accept_length: float
    prefill: tuple[Prefill, ...]
    decode: tuple[Decode, ...]

    def sessions(self, tokens: int) -> tuple[int, int]:
        """How many sessions of this size the device tier holds, and the host tier."""
        return self.capacity_tokens // tokens, self.host_capacity_tokens // tokens


def plan_of(setup: Setup, *, accept_length: float | None = None) -> Plan:
    """Plan one setup; speeds are there where the hardware was measured.

    ``accept_length`` is the tokens that a verify step yields, instead of the published ones.

    Raises:
        ReplicaError: ``does-not-fit``, or ``bad-value`` for an accept length that cannot be.
    """
    recipe, share = setup.recipe, setup.footprint
    capacity = setup.capacity_tokens
    if not capacity:
        raise _unfitting(setup)
    host_tokens = setup.host_capacity_tokens
    accepted = _accepted(setup, accept_length)
    facts = PROFILES.get(setup.profile)
    known = model_named(recipe.facts) if recipe.facts is not None else None
    return Plan(
        setup=setup,
        memory=_memory(setup, capacity),
        capacity_tokens=capacity,
        weights_only_tokens=None
        if known is None or setup.gpu is None
        else weights_only_tokens(
            setup.gpu, known, tp=setup.tp, kv_dtype=recipe.memory.kv_dtype.value
        ),
        host_capacity_tokens=host_tokens,
        host_gb=host_tokens * share.token_bytes * setup.tp / 1e9,
        accept_length=accepted,
        prefill=() if facts is None else _prefill(facts.times, setup),
        decode=() if facts is None else _decode(facts.times, setup, accepted),
    )


def rest_gib(setup: Setup) -> tuple[float, float]:
    """GiB that graphs with metadata, and activations with communication, take by SGLang's own rule."""
    scheduling = setup.recipe.scheduling
    graphs = _BASE_MIB + _REQUEST_MIB * scheduling.running_max.value
    activations = _TOKEN_MIB * max(2048, scheduling.chunk_tokens.value) + _TP8_MIB * setup.tp / 8
    return graphs / 1024, activations / 1024


def tree_of(plan: Plan) -> dict[str, Any]:
    """The plan as plain values. The keys are a promise: more may come, none goes."""
    setup = plan.setup
    recipe = setup.recipe
    memory = {name: round(getattr(plan.memory, name), 3) for name in Memory.__dataclass_fields__}
    return {
        "schema": 1,
        "recipe": recipe.name,
        "variant": recipe.variant,
        "options": list(recipe.options),
        "model": recipe.model.path,
        "draft": None if recipe.draft is None else recipe.draft.path,
        "gpu": setup.device,
        "tp": setup.tp,
        "kv_dtype": recipe.memory.kv_dtype.value.value,
        "draft_kv_dtype": draft_kv_dtype(recipe),
        "mem_fraction": recipe.memory.mem_fraction.value,
        "memory_gib_per_gpu": memory,
        "kv_bytes_per_token": setup.footprint.kv_bytes,
        "draft_kv_bytes_per_token": setup.footprint.draft_kv_bytes,
        "capacity_tokens": plan.capacity_tokens,
        "weights_only_tokens": plan.weights_only_tokens,
        "host": {"tokens": plan.host_capacity_tokens, "gb": round(plan.host_gb, 1)},
        "sessions": [
            {"tokens": size, "device": plan.sessions(size)[0], "host": plan.sessions(size)[1]}
            for size in SESSION_TOKENS
        ],
        "running_max": recipe.scheduling.running_max.value,
        "accept_length": plan.accept_length,
        "prefill": [
            {
                "new_tokens": row.new_tokens,
                "cached_tokens": row.cached_tokens,
                "seconds": round(row.took_s, 4),
                "tokens_per_s": round(row.tokens_per_s),
            }
            for row in plan.prefill
        ],
        "decode": [
            {
                "batch": row.batch,
                "context_tokens": CONTEXT_TOKENS,
                "step_ms": round(row.step_s * 1e3, 2),
                "user_tokens_per_s": round(row.user_tokens_per_s, 1),
                "tokens_per_s": round(row.tokens_per_s, 1),
            }
            for row in plan.decode
        ],
    }


def _unfitting(setup: Setup) -> ReplicaError:
    recipe, share = setup.recipe, setup.footprint
    fraction = recipe.memory.mem_fraction.value
    loaded = (share.target_bytes + share.draft_bytes + share.reserved_bytes) / GIB
    least = loaded / setup.device_gib
    remedy = f"raise --mem-fraction above {least:.3f}, or " if least < 1.0 else ""
    more = [n for n in recipe.tp if n > setup.tp]
    wider = f"use --tp {more[0]} or a larger GPU" if more else "use a larger GPU"
    return ReplicaError(
        "does-not-fit",
        f"{recipe.name} at TP{setup.tp} on {setup.device}: weights of {loaded:.1f} GiB a GPU leave no KV in"
        f" {fraction:g} of {setup.device_gib:.1f} GiB: {remedy}{wider}",
    )


def _accepted(setup: Setup, accept_length: float | None) -> float:
    draft = setup.recipe.draft
    if draft is None:
        return 1.0
    if accept_length is None:
        return min(ACCEPT_LENGTH, float(draft.block_tokens.value))
    if not 1.0 <= accept_length <= draft.block_tokens.value:
        raise ReplicaError(
            "bad-value",
            f"an accept length of {accept_length:g}: a step checks {draft.block_tokens.value} tokens, so give 1 to"
            " that many",
        )
    return accept_length


def _memory(setup: Setup, capacity_tokens: int) -> Memory:
    share = setup.footprint
    budget = share.budget(setup.device_gib, setup.recipe.memory.mem_fraction.value)
    graphs, activations = rest_gib(setup)
    kv, draft_kv = (n * capacity_tokens / GIB for n in (share.kv_bytes, share.draft_kv_bytes))
    return Memory(
        device_gib=setup.device_gib,
        target_gib=share.target_bytes / GIB,
        draft_gib=share.draft_bytes / GIB,
        reserved_gib=share.reserved_bytes / GIB,
        kv_gib=kv,
        draft_kv_gib=draft_kv,
        graphs_gib=graphs,
        activations_gib=activations,
        headroom_gib=budget.rest_bytes / GIB - graphs - activations,
    )


def _prefill(times: StepTimes, setup: Setup) -> tuple[Prefill, ...]:
    chunk = setup.recipe.scheduling.chunk_tokens.value
    return tuple(
        Prefill(new, cached, times.prompt_s(new, cached, chunk_tokens=chunk))
        for new, cached in PROMPTS
    )


def _decode(times: StepTimes, setup: Setup, accepted: float) -> tuple[Decode, ...]:
    step = times.decode_s if setup.recipe.draft is None else times.verify_s
    rows = []
    for batch in BATCHES:
        if batch <= setup.recipe.scheduling.running_max.value:
            took_s = step(batch, CONTEXT_TOKENS, CONTEXT_TOKENS)[0]
            rows.append(Decode(batch, took_s, accepted / took_s))
    return tuple(rows)
