"""What a plan warns of: what is tight, what was not measured, and what is known to be broken upstream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.hardware.profiles import PROFILES
from replica.plan.figures import CONTEXT_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.plan.figures import Plan
    from replica.settings import Recipe

CAUTIONS: Final = (
    "accept-length",
    "headroom",
    "context-over-pool",
    "few-sessions",
    "host-memory",
    "host-under-device",
    "hicache-with-dflash",
    "prefill-graph",
    "policy-experimental",
    "policy-needs-radix-cache",
    "policy-with-priorities",
    "revision-moves",
    "own-checkpoint",
    "plan-only",
    "not-measured",
)
"""Every code; ``docs/replica.md`` explains them."""
_NODE_GPUS: Final = 8
_SESSIONS_MIN: Final = 2
_HOST_SHARE: Final = 0.9
"""Of a host's memory that caches may take: SGLang keeps 10 GiB, the rest of the machine lives there too."""


@dataclass(slots=True, frozen=True)
class Caution:
    """One warning: a stable code, and what it is about in words."""

    code: str
    words: str

    def __post_init__(self) -> None:
        assert self.code in CAUTIONS, self.code


def cautions(
    plan: Plan, *, host_ram_gib: float | None = None, is_accept_said: bool = False
) -> list[Caution]:
    """What to beware of; ``host_ram_gib`` is the machine's memory, where it is known."""
    assumed = (
        [] if is_accept_said or not plan.decode or plan.accept_length == 1.0 else [_assumed(plan)]
    )
    return [
        *assumed,
        *_of_memory(plan),
        *_of_host(plan, host_ram_gib),
        *_of_hardware(plan),
        *_of_upstream(plan.setup.recipe),
    ]


def _assumed(plan: Plan) -> Caution:
    return Caution(
        "accept-length",
        f"{plan.accept_length:g} tokens a step is the best published, of a drafter tuned on coding traffic; SGLang's"
        " test of nvidia's own saw 2.66: give yours with --accept-length",
    )


def _of_memory(plan: Plan) -> Iterator[Caution]:
    setup, memory = plan.setup, plan.memory
    if setup.gpu is not None and memory.headroom_gib < 0:
        wanted = memory.graphs_gib + memory.activations_gib
        yield Caution(
            "headroom",
            f"graphs and activations take {wanted:.1f} GiB by SGLang's rule, {-memory.headroom_gib:.1f} more than"
            " the memory fraction leaves: lower it, or chunk_tokens",
        )
    if plan.capacity_tokens < setup.context_tokens_max:
        yield Caution(
            "context-over-pool",
            f"the pool of {plan.capacity_tokens:,} tokens holds no request of the longest context,"
            f" {setup.context_tokens_max:,}: SGLang refuses what does not fit",
        )
    if setup.gpu is not None and plan.sessions(CONTEXT_TOKENS)[0] < _SESSIONS_MIN:
        yield Caution(
            "few-sessions",
            f"the device tier of {plan.capacity_tokens:,} tokens holds fewer than {_SESSIONS_MIN} sessions of"
            f" {CONTEXT_TOKENS:,}: each turn of another one evicts it",
        )


def _of_host(plan: Plan, host_ram_gib: float | None) -> Iterator[Caution]:
    if not plan.host_capacity_tokens:
        return
    if plan.host_capacity_tokens <= plan.capacity_tokens:
        yield Caution(
            "host-under-device",
            f"the host tier ({plan.host_capacity_tokens:,} tokens) is no larger than the device's"
            f" ({plan.capacity_tokens:,}): written through, it adds nothing",
        )
    if host_ram_gib is None:
        return
    room_gb = host_ram_gib * _HOST_SHARE * (1 << 30) / 1e9
    replicas = max(1, _NODE_GPUS // plan.setup.tp)
    for count, whose in ((1, "this replica"), (replicas, f"{replicas} replicas on 8 GPUs")):
        if plan.host_gb * count > room_gb:
            yield Caution(
                "host-memory",
                f"the host tier of {whose} pins {plan.host_gb * count:,.0f} GB, the machine can spare"
                f" {room_gb:,.0f}: lower host_gb_per_rank, or use the variant without it",
            )
            return


def _of_hardware(plan: Plan) -> Iterator[Caution]:
    setup = plan.setup
    recipe = setup.recipe
    if setup.device not in recipe.gpus:
        words = (
            f"{setup.device} is for planning only: {recipe.name} is for {', '.join(recipe.gpus)}"
        )
        if setup.gpu is not None and not setup.gpu.has_fp4:
            words += "; NVFP4 does not run natively there"
        yield Caution("plan-only", words)
    if setup.profile not in PROFILES:
        yield Caution("not-measured", f"no step times of {setup.profile}: speeds are not told")
    if recipe.weights.shared_experts is not None:
        yield Caution(
            "own-checkpoint",
            "shared experts in NVFP4 need a checkpoint of your own: the published one has them in BF16",
        )


def _of_upstream(recipe: Recipe) -> Iterator[Caution]:
    flags = {name: choice.value for name, choice in recipe.flags.items()}
    policy = recipe.scheduling.policy
    if recipe.memory.host_gb_per_rank is not None and recipe.draft is not None:
        yield Caution(
            "hicache-with-dflash",
            "HiCache keeps the drafter's KV in a pool of its own; a fault there costs accept length or answers"
            " (sglang 17338, 38031): compare answers with the variant no-hicache first",
        )
    if flags.get("attention-backend") == "trtllm_mla" and not flags.get(
        "disable-prefill-cuda-graph"
    ):
        yield Caution(
            "prefill-graph",
            "with trtllm_mla a captured prefill converts the whole KV pool in each layer (sglang PR 35807):"
            " set disable-prefill-cuda-graph",
        )
    if policy is not None and policy.value == "shortest-prefill-first":
        yield Caution(
            "policy-experimental",
            "shortest-prefill-first calls itself experimental, and nothing ages in it: short prompts without end"
            " starve a long one",
        )
        if flags.get("disable-radix-cache"):
            yield Caution(
                "policy-needs-radix-cache",
                "shortest-prefill-first without the prefix cache ends the scheduler at its start, which SGLang's"
                " argument check does not see",
            )
        if flags.get("enable-priority-scheduling"):
            yield Caution(
                "policy-with-priorities",
                "priority scheduling asserts the policy fcfs or lof: SGLang refuses to start",
            )
    moving = [
        part.path
        for part in (recipe.model, recipe.draft)
        if part is not None and part.revision is not None and part.revision.value == "main"
    ]
    if moving:
        yield Caution(
            "revision-moves", f"the revision main of {' and '.join(moving)} moves: pin a commit"
        )
