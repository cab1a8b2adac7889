"""``homeport replica check``: SGLang's own word on a recipe, and whether this machine can take it."""

from __future__ import annotations

import tempfile
from pathlib import Path
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

    from replica.commands.asking import Found
    from replica.engines.base import Launch
    from replica.engines.sglang_check import Answer
    from replica.machine.inspection import Finding


def check(arguments: Sequence[str]) -> int:
    """Run ``homeport replica check``."""
    return run("check", _check, arguments)


def _check(
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
    python: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="SGLang's interpreter; that of the sglang command if not given."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask SGLang's own parser and resolver about a recipe, and look at this machine.

    SGLang is asked in its own interpreter, as if on the GPU of the plan: a B200, a B300 or a CPU; an H200 can
    only be planned for. No weights are read but for whether they are whole. Exit codes: 0 all is well, 1
    something fails, 2 a mistake in the command.
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
    is_well = _report(wanted, host=host, port=port, gpus=gpus, python=python, as_json=as_json)
    raise typer.Exit(0 if is_well else 1)


def _report(
    wanted: Wanted, *, host: str, port: int, gpus: str | None, python: str | None, as_json: bool
) -> bool:
    """Look, ask and print; answers whether nothing fails."""
    from replica.engines.sglang import launch_of
    from replica.engines.sglang_check import engine_python
    from replica.machine.inspection import inspected
    from replica.plan.cautions import cautions
    from replica.plan.figures import plan_of

    seen = found(wanted)
    plan = plan_of(seen.setup)
    launch = launch_of(
        seen.setup,
        host=host,
        port=port,
        gpus=indexes(gpus),
        model_path=wanted.model_path,
        draft_path=wanted.draft_path,
    )
    answer = _asked(seen, launch, engine_python(python))
    findings = [
        *_engine(seen, answer),
        *_folders(seen),
        *inspected(plan, launch, has_folder=seen.model is not None),
    ]
    beware = [(each.code, each.words) for each in cautions(plan, is_accept_said=True)]
    changes = [
        {"field": name, "asked": asked, "resolved": resolved}
        for name, asked, resolved in answer.differences()
    ]
    if as_json:
        _show_tree(seen, launch, answer=answer, findings=findings, beware=beware, changes=changes)
    else:
        from replica.commands.check_tables import show

        show(seen.setup, answer.version, findings, beware, changes)
    return not any(row.state == "fail" for row in findings)


def _asked(seen: Found, launch: Launch, python: Path) -> Answer:
    """SGLang's answer; configs of the published shapes stand in for models that are not here."""
    from replica.engines.sglang import launch_of
    from replica.engines.sglang_check import ask
    from replica.engines.stand_in_configs import write_stand_ins
    from replica.hardware.models import model_named

    setup = seen.setup
    with tempfile.TemporaryDirectory() as folder:
        paths: list[str | None] = [
            None if files is None else str(files.folder) for files in (seen.model, seen.draft)
        ]
        if setup.recipe.facts is not None:
            shapes = write_stand_ins(model_named(setup.recipe.facts), Path(folder))
            paths = [given or str(shape) for given, shape in zip(paths, shapes, strict=True)]
        local = launch_of(
            setup,
            host=launch.host,
            port=launch.port,
            gpus=launch.gpus,
            model_path=paths[0],
            draft_path=paths[1],
        )
        return ask(python, [(local.argv[2:], setup.device)], environment=local.environment)[0]


def _engine(seen: Found, answer: Answer) -> list[Finding]:
    from replica.machine.inspection import Finding

    setup = seen.setup
    wanted = setup.recipe.engine_version
    rows = []
    if answer.version is not None and answer.version != wanted:
        words = f"SGLang {answer.version} is installed, the recipe is for {wanted}: what it resolves may differ"
        rows.append(Finding("engine", "note", words, "engine-version"))
    if answer.fault is not None:
        rows.append(Finding("arguments", "fail", str(answer.fault), answer.fault.code))
    else:
        words = f"SGLang {answer.version} accepts them for {setup.tp} x {setup.device}"
        rows.append(Finding("arguments", "ok", words))
    return rows


def _folders(seen: Found) -> list[Finding]:
    from replica.machine.inspection import Finding

    return [
        Finding(
            what, "ok", f"{files.folder} is whole: {files.weights_bytes / 1e9:,.1f} GB of weights"
        )
        for what, files in (("model", seen.model), ("draft", seen.draft))
        if files is not None
    ]


def _show_tree(
    seen: Found,
    launch: Launch,
    *,
    answer: Answer,
    findings: list[Finding],
    beware: list[tuple[str, str]],
    changes: list[dict[str, Any]],
) -> None:
    recipe = seen.setup.recipe
    show_json(
        {
            "schema": 1,
            "recipe": recipe.name,
            "variant": recipe.variant,
            "options": list(recipe.options),
            "gpu": seen.setup.device,
            "tp": seen.setup.tp,
            "engine_version": answer.version,
            "is_accepted": answer.fault is None,
            "argv": list(launch.argv),
            "findings": [
                {
                    "what": row.what,
                    "state": row.state,
                    "message": row.words,
                    "code": None if row.state == "ok" else row.code,
                }
                for row in findings
            ],
            "resolved_differently": changes,
            "warnings": [{"code": code, "message": words} for code, words in beware],
        }
    )
