"""What all sub-commands ask alike: which recipe, on what, with which folders; and what that comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from replica.machine.model_files import ModelFiles
    from replica.settings import RecipeFile
    from replica.setup import Setup

RecipeName = Annotated[
    str | None,
    typer.Argument(metavar="RECIPE", help="A recipe's name, or the path of a TOML file."),
]
RecipeOption = Annotated[
    str | None, typer.Option("--recipe", metavar="RECIPE", help="The same, as an option.")
]
Variant = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="One of the recipe's variants; the first if not given."),
]
Options = Annotated[
    list[str],
    typer.Option("--option", metavar="NAME", help="One of the recipe's options; repeatable."),
]
GpuName = Annotated[
    str | None,
    typer.Option("--gpu", metavar="b200|b300|h200|cpu", help="The recipe's first if not given."),
]
Tp = Annotated[
    int | None,
    typer.Option(metavar="N", help="GPUs of one replica; the recipe's first if not given."),
]
KvDtypeName = Annotated[
    str | None, typer.Option("--kv-dtype", metavar="fp8|bf16", help="Instead of the recipe's.")
]
Fraction = Annotated[
    float | None,
    typer.Option(
        "--mem-fraction", metavar="SHARE", help="Of a device, for weights and KV; 0 to 1."
    ),
]
ModelPath = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="The model's folder, or its name on the hub."),
]
DraftPath = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="The drafter's folder, or its name on the hub."),
]
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="What the engine's server binds.")]
Port = Annotated[
    int, typer.Option(metavar="N", help="Its publishers take the ports 100, 200 and 300 above.")
]
Gpus = Annotated[
    str | None,
    typer.Option(
        metavar="0-3", help="Indexes of the GPUs it is given, 0-3 or 0,2; all that are seen if not."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of tables.")]


def recipe_of(named: str | None, option: str | None) -> str:
    """The recipe that a command line names, once, or twice alike.

    Raises:
        ReplicaError: ``bad-value``: it names none, or two.
    """
    from replica.errors import ReplicaError

    given = option or named
    if given is None or (option and named not in (None, option)):
        raise ReplicaError("bad-value", "name one RECIPE, kimi-k2.6-nvfp4 or tiny-cpu for one")
    return given


def indexes(said: str | None) -> tuple[int, ...]:
    """GPU indexes from a list such as ``0-3,6``, in its order; none where none is given.

    Raises:
        ReplicaError: ``bad-value``.
    """
    from replica.machine.gpus import gpu_indexes

    return () if said is None else gpu_indexes(said)


@dataclass(slots=True, frozen=True)
class Wanted:
    """What a command line names; paths are checked where they are folders."""

    recipe: str
    variant: str | None = None
    options: tuple[str, ...] = ()
    gpu: str | None = None
    tp: int | None = None
    kv_dtype: str | None = None
    mem_fraction: float | None = None
    model_path: str | None = None
    draft_path: str | None = None
    device_gib: float | None = None


@dataclass(slots=True, frozen=True)
class Found:
    """What it comes to; ``model`` and ``draft`` are the folders, where folders were given."""

    file: RecipeFile
    setup: Setup
    model: ModelFiles | None
    draft: ModelFiles | None


def found(wanted: Wanted) -> Found:
    """Read the recipe and the folders, and set the recipe up.

    Raises:
        ReplicaError: whatever is wrong with either.
    """
    from replica.errors import ReplicaError
    from replica.hardware.footprint import footprint_of_config
    from replica.hardware.models import model_named
    from replica.machine.model_files import check_draft, is_folder, read_model
    from replica.settings import load_recipe
    from replica.setup import changed, setup_of

    file = load_recipe(wanted.recipe)
    recipe = file.resolved(wanted.variant, wanted.options)
    recipe = changed(recipe, kv_dtype=wanted.kv_dtype, mem_fraction=wanted.mem_fraction)
    model, draft = (
        read_model(path) if path is not None and is_folder(path) else None
        for path in (wanted.model_path, wanted.draft_path)
    )
    facts = None if recipe.facts is None else model_named(recipe.facts)
    if draft is not None:
        check_draft(draft, target=model, facts=facts)
    share = None
    if facts is None and model is not None:
        try:
            share = footprint_of_config(
                model.config,
                weights_bytes=model.weights_bytes,
                tp=wanted.tp or recipe.tp[0],
                kv_dtype=recipe.memory.kv_dtype.value,
            )
        except ValueError as failure:
            raise ReplicaError("model-incomplete", f"{model.folder}: {failure}") from None
    setup = setup_of(
        recipe,
        gpu=wanted.gpu,
        tp=wanted.tp,
        device_gib=_device_gib(wanted, recipe.gpus),
        footprint=share,
    )
    return Found(file, setup, model, draft)


def _device_gib(wanted: Wanted, gpus: tuple[str, ...]) -> float | None:
    """What was said, or what the CPU has free where the engine runs on it."""
    from replica.machine.memory import free_cpu_gib

    if wanted.device_gib is not None or (wanted.gpu or gpus[0]).lower() != "cpu":
        return wanted.device_gib
    return free_cpu_gib()
