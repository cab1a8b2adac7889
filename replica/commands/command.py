"""``homeport replica command``: the command line and environment of a recipe, to copy."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replica.commands.asking import (
    AsJson,
    DraftPath,
    Fraction,
    GpuName,
    Gpus,
    Host,
    KvDtypeName,
    ModelPath,
    Options,
    Port,
    RecipeName,
    RecipeOption,
    Tp,
    Variant,
    Wanted,
    found,
    indexes,
    recipe_of,
)
from replica.commands.running import run, show_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.engines.base import Launch
    from replica.setup import Setup


def command(arguments: Sequence[str]) -> int:
    """Run ``homeport replica command``."""
    return run("command", _command, arguments)


def _command(
    named: RecipeName = None,
    *,
    recipe: RecipeOption = None,
    variant: Variant = None,
    option: Options = [],  # noqa: B006  (typer copies it)
    gpu: GpuName = None,
    tp: Tp = None,
    kv_dtype: KvDtypeName = None,
    mem_fraction: Fraction = None,
    host: Host = "127.0.0.1",
    port: Port = 30_000,
    gpus: Gpus = None,
    model_path: ModelPath = None,
    draft_path: DraftPath = None,
    engine: Annotated[
        str, typer.Option(metavar="sglang|emulated", help="What is to be launched.")
    ] = "sglang",
    as_json: AsJson = False,
) -> None:
    """Print the command line and environment that serve a recipe, quoted for a shell.

    Nothing is started and nothing of this machine is looked at, but for folders that are given; a recipe
    for a CPU looks at its free memory. `check` asks SGLang itself.
    """
    wanted = Wanted(
        recipe=recipe_of(named, recipe),
        variant=variant,
        options=tuple(option),
        gpu=gpu,
        tp=tp,
        kv_dtype=kv_dtype,
        mem_fraction=mem_fraction,
        model_path=model_path,
        draft_path=draft_path,
    )
    setup, launch = _launch(wanted, engine, host=host, port=port, gpus=gpus)
    if as_json:
        show_json(_tree(setup, launch))
    else:
        print(shell_text(launch))


def _launch(
    wanted: Wanted, engine: str, *, host: str, port: int, gpus: str | None
) -> tuple[Setup, Launch]:
    from replica.engines.registry import engine_named
    from replica.plan.figures import plan_of

    launch_of = engine_named(engine)
    setup = found(wanted).setup
    plan_of(setup)  # says what is wrong where nothing fits
    folders: dict[str, str | None] = {}
    if engine == "sglang":
        folders = {"model_path": wanted.model_path, "draft_path": wanted.draft_path}
    return setup, launch_of(setup, host=host, port=port, gpus=indexes(gpus), **folders)


def _tree(setup: Setup, launch: Launch) -> dict[str, Any]:
    """The launch as plain values. The keys are a promise: more may come, none goes."""
    return {
        "schema": 1,
        "recipe": setup.recipe.name,
        "variant": setup.recipe.variant,
        "options": list(setup.recipe.options),
        "gpu": setup.device,
        "tp": setup.tp,
        "engine": launch.engine,
        "argv": list(launch.argv),
        "environment": dict(launch.environment),
        "model": launch.model,
        "ports": list(launch.ports),
        "capacity_tokens": launch.capacity_tokens,
        "inflight_max": launch.inflight_max,
        "context_tokens_max": launch.context_tokens_max,
    }


def shell_text(launch: Launch) -> str:
    """The command as a shell takes it: variables, then one flag with its value a line."""
    lines = [f"{name}={shlex.quote(value)}" for name, value in launch.environment.items()]
    words: list[list[str]] = [[]]
    for word in launch.argv:
        if word.startswith("--"):
            words.append([])
        words[-1].append(shlex.quote(word))
    lines += [" ".join(each) for each in words]
    return " \\\n  ".join(lines)
