"""``homeport replica plan``: what fits, how fast it will be, what to beware of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from replica.commands.asking import (
    AsJson,
    DraftPath,
    Fraction,
    GpuName,
    KvDtypeName,
    ModelPath,
    Options,
    RecipeName,
    RecipeOption,
    Tp,
    Variant,
    Wanted,
    found,
    recipe_of,
)
from replica.commands.running import run, show_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.commands.asking import Found

_AcceptLength = Annotated[
    float | None,
    typer.Option(metavar="N", help="Tokens a verify step yields; 5.84 if not given."),
]


def plan(arguments: Sequence[str]) -> int:
    """Run ``homeport replica plan``."""
    return run("plan", _plan, arguments)


def _plan(
    named: RecipeName = None,
    *,
    recipe: RecipeOption = None,
    variant: Variant = None,
    option: Options = [],  # noqa: B006  (typer copies it)
    gpu: GpuName = None,
    tp: Tp = None,
    kv_dtype: KvDtypeName = None,
    mem_fraction: Fraction = None,
    accept_length: _AcceptLength = None,
    host_ram_gib: Annotated[
        float | None,
        typer.Option(metavar="GIB", help="The machine's memory, to judge the host tier."),
    ] = None,
    memory_gib: Annotated[
        float | None,
        typer.Option(
            metavar="GIB", help="What a device has free, instead of what its kind offers."
        ),
    ] = None,
    model_path: ModelPath = None,
    draft_path: DraftPath = None,
    as_json: AsJson = False,
) -> None:
    """Plan a replica: memory of each GPU, KV tokens, sessions, host memory, expected speeds, warnings.

    Reads no GPU and no weights. Capacities are what SGLang leaves at the memory fraction; speeds come
    from fits to measured kernels. Exit codes: 0 it fits, 2 a mistake or it does not fit.
    """
    from replica.plan.cautions import cautions
    from replica.plan.figures import plan_of, tree_of

    seen = found(
        Wanted(
            recipe=recipe_of(named, recipe),
            variant=variant,
            options=tuple(option),
            gpu=gpu,
            tp=tp,
            kv_dtype=kv_dtype,
            mem_fraction=mem_fraction,
            model_path=model_path,
            draft_path=draft_path,
            device_gib=memory_gib,
        )
    )
    made = plan_of(seen.setup, accept_length=accept_length)
    beware = cautions(made, host_ram_gib=host_ram_gib, is_accept_said=accept_length is not None)
    steps = _options(seen)
    if as_json:
        warnings = [{"code": each.code, "message": each.words} for each in beware]
        show_json({**tree_of(made), "each_option": steps, "warnings": warnings})
        return
    from replica.commands.plan_tables import show

    show(made, beware, steps, about=seen.file)


def _options(seen: Found) -> list[dict[str, Any]]:
    """What each option alone would make of the pool: the ladder, with its arithmetic."""
    from replica.setup import changed, setup_of

    setup, chosen = seen.setup, seen.setup.recipe
    if chosen.facts is None:
        return []
    own = seen.file.resolved(chosen.variant, chosen.options).memory.kv_dtype
    rows = []
    for name, summary in seen.file.options.items():
        if name in chosen.options:
            continue
        recipe = seen.file.resolved(chosen.variant, (*chosen.options, name))
        is_kept = recipe.memory.kv_dtype == own
        recipe = changed(
            recipe,
            kv_dtype=chosen.memory.kv_dtype.value if is_kept else None,
            mem_fraction=chosen.memory.mem_fraction.value,
        )
        other = setup_of(recipe, gpu=setup.device, tp=setup.tp, device_gib=setup.device_gib)
        if other.footprint == setup.footprint:
            continue
        tokens = other.capacity_tokens
        rows.append(
            {
                "option": name,
                "summary": summary,
                "capacity_tokens": tokens,
                "more_tokens": tokens - setup.capacity_tokens,
                "weights_gib": round(
                    (other.footprint.target_bytes + other.footprint.draft_bytes) / (1 << 30), 2
                ),
                "token_bytes": other.footprint.token_bytes,
            }
        )
    return rows
