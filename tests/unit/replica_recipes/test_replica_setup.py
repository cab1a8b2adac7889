"""A recipe on a GPU: what fits, what is refused and why, and the ladder of options in tokens."""

from __future__ import annotations

import pytest

from replica.errors import ReplicaError
from replica.hardware.footprint import footprint_of, footprint_of_config
from replica.hardware.gpus import B200, GIB
from replica.hardware.memory import Budget, weights_only_tokens
from replica.hardware.models import KIMI_K26, KvDtype
from replica.plan.cautions import CAUTIONS, cautions
from replica.plan.figures import SESSION_TOKENS, plan_of, tree_of
from replica.settings import Choice, Recipe, load_recipe
from replica.setup import Setup, changed, draft_kv_dtype, setup_of
from tests.unit.replica_recipes.setups import (
    CPU_GIB,
    TINY,
    every_recipe,
    kimi,
    set_up,
    tiny_footprint,
)


def recipe_of(name: str = "kimi-k2.6-nvfp4") -> Recipe:
    return load_recipe(name).resolved()


def codes(setup: Setup, **known: float) -> set[str]:
    return {each.code for each in cautions(plan_of(setup), **known)}


@pytest.mark.parametrize(
    ("tp", "kv_dtype", "millions"),
    [
        (4, KvDtype.BF16, 0.445),
        (4, KvDtype.FP8, 0.89),
        (8, KvDtype.BF16, 1.50),
        (8, KvDtype.FP8, 3.0),
    ],
)
def test_one_formula_gives_the_published_table(tp: int, kv_dtype: KvDtype, millions: float) -> None:
    token_bytes = KIMI_K26.kv_bytes_per_token(kv_dtype)
    budget = Budget(180e9, 1.0, token_bytes, target_bytes=595e9 / tp, page_tokens=1)
    assert budget.tokens() / 1e6 == pytest.approx(millions, rel=0.005)
    assert budget.tokens() == weights_only_tokens(B200, KIMI_K26, tp=tp, kv_dtype=kv_dtype)
    setup = setup_of(changed(recipe_of(), kv_dtype=kv_dtype), tp=tp)
    assert plan_of(setup).weights_only_tokens == budget.tokens()


@pytest.mark.parametrize(
    ("mem_fraction", "tp", "gpu", "millions"),
    [
        (0.85, 4, "b200", 0.256),
        (0.90, 4, "b200", 0.488),
        (0.92, 4, "b200", 0.582),
        (0.85, 8, "b200", 2.235),
        (0.85, 4, "b300", 2.22),
        (0.85, 8, "b300", 4.361),
    ],
)
def test_and_what_sglang_leaves_at_a_memory_fraction(
    mem_fraction: float, tp: int, gpu: str, millions: float
) -> None:
    setup = setup_of(changed(recipe_of(), mem_fraction=mem_fraction), gpu=gpu, tp=tp)
    # Images' embeddings, which the published arithmetic leaves out, take 0.1 GiB.
    assert setup.capacity_tokens / 1e6 == pytest.approx(millions, abs=0.1 * GIB / 35_136 / 1e6)
    assert setup.capacity_tokens % 64 == 0


def test_each_step_of_the_ladder_is_worth_what_its_bytes_say() -> None:
    base = kimi(None, "kv-bf16").capacity_tokens
    pool = (179 * 0.9 - 140.7 - 1.62 - 100 / 1024) * GIB
    assert base == pytest.approx(pool / (70_272 + 6_144), abs=64)
    assert kimi().capacity_tokens == pytest.approx(pool / (35_136 + 6_144), abs=64)
    steps = {
        "draft-fp8": (pool + 0.81 * GIB) / 41_280,
        "draft-kv-fp8": pool / (35_136 + 3_072),
        "shared-experts-nvfp4": (pool + 4.92 / 4 * (1 - 4.5 / 16) * GIB) / 41_280,
        "no-draft": (pool + 1.62 * GIB) / 35_136,
    }
    for option, tokens in steps.items():
        assert kimi(None, option).capacity_tokens == pytest.approx(tokens, abs=64), option


def test_the_drafters_kv_follows_sglangs_rules() -> None:
    assert draft_kv_dtype(recipe_of()) is KvDtype.BF16  # fa4 reads no FP8
    file = load_recipe("kimi-k2.6-nvfp4")
    assert draft_kv_dtype(file.resolved(None, ("draft-kv-fp8",))) is KvDtype.FP8
    assert draft_kv_dtype(file.resolved(None, ("no-draft",))) is None
    recipe = recipe_of()
    assert recipe.draft is not None
    plain = recipe.draft.model_copy(update={"attention_backend": None})
    assert draft_kv_dtype(recipe.model_copy(update={"draft": plain})) is KvDtype.FP8


@pytest.mark.parametrize(("label", "recipe", "gpu", "tp"), every_recipe())
def test_every_recipe_has_a_plan(label: str, recipe: Recipe, gpu: str, tp: int) -> None:
    plan = plan_of(set_up(recipe, gpu=gpu, tp=tp))
    memory = plan.memory
    assert plan.capacity_tokens > SESSION_TOKENS[1], label
    spent = (
        memory.target_gib
        + memory.draft_gib
        + memory.reserved_gib
        + memory.kv_gib
        + memory.draft_kv_gib
    )
    fraction = recipe.memory.mem_fraction.value
    page_gib = plan.setup.page_tokens * plan.setup.footprint.token_bytes / GIB
    assert spent == pytest.approx(memory.device_gib * fraction, abs=page_gib)
    rest = memory.graphs_gib + memory.activations_gib + memory.headroom_gib
    assert spent + rest == pytest.approx(memory.device_gib, abs=page_gib)
    if gpu != "cpu":
        assert memory.headroom_gib > 0
        assert plan.prefill[0].took_s < plan.prefill[2].took_s < 10
        assert plan.decode[0].user_tokens_per_s > plan.decode[-1].user_tokens_per_s > 20
        assert len(plan.decode) == (5 if recipe.scheduling.running_max.value == 32 else 4)
    tree = tree_of(plan)
    assert tree["schema"] == 1
    assert tree["capacity_tokens"] == plan.capacity_tokens
    assert {each.code for each in cautions(plan)} <= set(CAUTIONS)


def test_sessions_and_the_host_tier() -> None:
    plan = plan_of(kimi())
    assert [plan.sessions(size) for size in SESSION_TOKENS] == [(24, 284), (4, 56), (2, 28)]
    assert plan.host_capacity_tokens == pytest.approx(200e9 / 35_136, abs=64)
    # Four ranks each hold the same KV, and the drafter's share of it.
    assert plan.host_gb == pytest.approx(4 * 200 * (1 + 6_144 / 35_136), rel=0.001)
    assert plan_of(kimi("no-hicache")).host_gb == 0.0


def test_an_accept_length_is_within_a_block() -> None:
    assert plan_of(kimi()).accept_length == 5.84
    slow, fast = (plan_of(kimi(), accept_length=n).decode[0].user_tokens_per_s for n in (2.0, 4.0))
    assert fast == pytest.approx(2 * slow)
    with pytest.raises(ReplicaError, match="a step checks 8 tokens"):
        plan_of(kimi(), accept_length=9.0)
    assert plan_of(kimi(None, "no-draft")).accept_length == 1.0


def with_flags(**flags: bool | str) -> Setup:
    recipe = recipe_of()
    choices = {
        name.replace("_", "-"): Choice[bool | int | float | str](
            value=value, reason="for a test", source="test"
        )
        for name, value in flags.items()
    }
    return setup_of(recipe.model_copy(update={"flags": {**recipe.flags, **choices}}))


def test_warnings_of_known_defects() -> None:
    assert {"hicache-with-dflash", "policy-experimental", "revision-moves"} <= codes(kimi())
    assert "hicache-with-dflash" not in codes(kimi("no-hicache")) | codes(kimi(None, "no-draft"))
    assert "prefill-graph" not in codes(kimi())
    assert "prefill-graph" in codes(with_flags(disable_prefill_cuda_graph=False))
    assert "policy-needs-radix-cache" in codes(with_flags(disable_radix_cache=True))
    assert "policy-with-priorities" in codes(with_flags(enable_priority_scheduling=True))
    assert "own-checkpoint" in codes(kimi(None, "shared-experts-nvfp4"))


def test_warnings_of_what_is_tight() -> None:
    assert "headroom" not in codes(kimi())
    tight = setup_of(changed(recipe_of(), mem_fraction=0.95))
    assert "headroom" in codes(tight)
    small = setup_of(changed(recipe_of(), mem_fraction=0.82))
    assert {"context-over-pool", "few-sessions"} <= codes(small)
    assert "host-memory" not in codes(kimi(), host_ram_gib=2_048.0)
    assert "host-memory" in codes(kimi(), host_ram_gib=1_024.0)
    assert "host-under-device" not in codes(kimi(gpu="b300", tp=8))


def test_an_h200_is_planned_for_and_said_to_be_no_more() -> None:
    plan = plan_of(kimi(gpu="h200", tp=8))
    assert plan.prefill == ()
    assert {"plan-only", "not-measured"} <= {each.code for each in cautions(plan)}


@pytest.mark.parametrize(
    ("gpu", "tp", "code", "words"),
    [
        (
            "b200",
            3,
            "tp-unsupported",
            "64 attention heads, which 3 GPUs do not divide: use --tp 4 or 8",
        ),
        ("b200", 2, "does-not-fit", "277 GiB a GPU"),
        ("b200", 16, "tp-unsupported", "one machine"),
        ("b200", 0, "tp-unsupported", "give 1 or more"),
        ("a100", 4, "unknown-gpu", "known are b200, b300, h200, cpu"),
        ("cpu", 4, "gpu-unsupported", "is for b200, b300, not for cpu"),
    ],
)
def test_a_setup_that_cannot_be(gpu: str, tp: int, code: str, words: str) -> None:
    with pytest.raises(ReplicaError) as caught:
        kimi(gpu=gpu, tp=tp)
    assert caught.value.code == code
    assert words in str(caught.value)


def test_what_does_not_fit_is_told_with_the_least_that_would() -> None:
    with pytest.raises(
        ReplicaError, match=r"raise --mem-fraction above 0\.796, or use --tp 8"
    ) as caught:
        plan_of(setup_of(changed(recipe_of(), mem_fraction=0.75)))
    assert caught.value.code == "does-not-fit"
    with pytest.raises(ReplicaError, match=r"139\.8 GiB: use --tp 8 or a larger GPU"):
        plan_of(kimi(gpu="h200"))


def test_a_kv_dtype_that_is_not_there() -> None:
    with pytest.raises(ReplicaError, match="'nvfp4' is not one of fp8, bf16") as caught:
        changed(recipe_of(), kv_dtype="nvfp4")
    assert caught.value.code == "kv-dtype-unsupported"
    tiny = changed(recipe_of("tiny-cpu"), kv_dtype="fp8")
    with pytest.raises(ReplicaError, match="a CPU has no fp8 KV"):
        setup_of(tiny, device_gib=8.0, footprint=tiny_footprint())
    with pytest.raises(ReplicaError, match="give a share between 0 and 1"):
        changed(recipe_of(), mem_fraction=float("nan"))


def test_a_drafter_of_another_model_is_refused() -> None:
    recipe = recipe_of()
    assert recipe.draft is not None
    other = recipe.draft.model_copy(update={"path": "z-lab/Kimi-K2.5-DFlash"})
    with pytest.raises(ReplicaError, match=r"is the drafter of kimi-k2\.5") as caught:
        setup_of(recipe.model_copy(update={"draft": other}))
    assert caught.value.code == "draft-mismatch"


def test_a_footprint_by_config_is_that_of_the_facts() -> None:
    config = {
        "text_config": {
            "num_hidden_layers": 61,
            "num_attention_heads": 64,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "max_position_embeddings": 262_144,
        },
        "vision_config": {},
    }
    read = footprint_of_config(config, weights_bytes=4_000, tp=4, kv_dtype=KvDtype.FP8)
    known = footprint_of(KIMI_K26, tp=4, kv_dtype=KvDtype.FP8)
    assert (read.kv_bytes, read.reserved_bytes) == (known.kv_bytes, known.reserved_bytes)
    assert read.target_bytes == 1_000
    assert tiny_footprint().kv_bytes == 2 * 2 * 2 * 32 * 2
    assert tiny_footprint(tp=4).kv_bytes == tiny_footprint(tp=2).kv_bytes  # a head is repeated
    with pytest.raises(ValueError, match="num_hidden_layers is 'two'"):
        footprint_of_config(
            {**TINY, "num_hidden_layers": "two"}, weights_bytes=1, tp=1, kv_dtype=KvDtype.BF16
        )


def test_an_engine_on_a_cpu_lives_in_the_memory_that_it_shares_out() -> None:
    tiny = setup_of(recipe_of("tiny-cpu"), device_gib=CPU_GIB, footprint=tiny_footprint())
    kv_gib = tiny.capacity_tokens * tiny.footprint.kv_bytes / GIB
    weights_gib = tiny.footprint.target_bytes / GIB
    assert kv_gib + weights_gib == pytest.approx(CPU_GIB * 0.1 - 0.06, abs=1e-4)
