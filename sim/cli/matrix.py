"""``homeport sim matrix``: everything that is claimed of a policy, in one command that can be interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sim.cli.asking import Given, Jobs, JsonFile, Resume, Sets, Trace, asked_of, give, told

FOLDER = Path("matrix.runs")
"""Where runs are kept unless told otherwise."""


def matrix_command(
    *,
    policy: Annotated[str, typer.Option(help="Which policy is judged.")] = "home",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=A,B",
            help="A part of it: size=16,64,200, workload=generator,trace, order=fcfs, load=90 (percent); repeatable.",
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(help="One fleet of this size instead, with the loads and seeds of 16.", min=1),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="At most so many seeds a load: a quick look.", min=1, max=100)
    ] = None,
    duration_s: Annotated[
        float, typer.Option(help="Virtual seconds of a run from half load on.", min=1.0)
    ] = 600.0,
    warmup_s: Annotated[
        float, typer.Option(help="Those at its beginning that are not counted.", min=0.0)
    ] = 240.0,
    trace: Trace = None,
    sets: Sets = None,
    json_file: JsonFile = None,
    jobs: Jobs = None,
    resume: Resume = None,
) -> None:
    """Judge a policy against baselines and reference: fleets, traffic, engine orders, loads, seeds.

    Finished runs are kept where --resume or --json says, else in ./matrix.runs: interrupted, or with other code of one
    policy, the same command goes on. Exit code 1: a rule is broken.
    """
    from sim.jobs.matrix import Matrix
    from sim.matrix.plan import BASE, Plan

    with told():
        path = None if trace is None else str(trace.absolute())
        plan = Plan(path, duration_s=duration_s, warmup_s=warmup_s)
        if replicas is not None:
            plan = plan.on(replicas)
        if seeds is not None:
            plan = plan.with_seeds(seeds)
        plan = plan.only(only or ())
        folder = resume if resume is not None or json_file is not None else FOLDER
        given = Given(BASE, sets=sets, json_file=json_file, jobs=jobs, resume=folder)
        options = ["--policy", policy, *(word for text in only or () for word in ("--only", text))]
        options += [] if path is None else ["--trace", path]
        options += [] if replicas is None else ["--replicas", str(replicas)]
        options += [] if seeds is None else ["--seeds", str(seeds)]
        options += ["--duration-s", f"{duration_s:g}", "--warmup-s", f"{warmup_s:g}"]
        asked = asked_of(given, "matrix", options=options, is_kept=True)
        asked.draft.with_value("policies", policy, by=f"--policy {policy}").scenario()
        matrix = Matrix(plan, policy, asked)
        give(matrix.run(), given)
        if not matrix.is_met:
            raise typer.Exit(1)
