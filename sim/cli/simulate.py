"""``homeport sim``: routing policies on a simulated fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sim.cli.asking import (
    Given,
    HtmlFile,
    Jobs,
    JsonFile,
    Name,
    Policies,
    Resume,
    Seed,
    Sets,
    Trace,
    VariantName,
    asked_of,
    give,
    told,
)
from sim.cli.matrix import matrix_command
from sim.cli.running import application, run

if TYPE_CHECKING:
    from collections.abc import Sequence

_LINE_CHARS = 100
_app = application()


def simulate(arguments: Sequence[str]) -> int:
    """Run ``homeport sim``."""
    return run(_app, "sim", arguments)


@_app.callback()
def _simulate_command() -> None:
    """Try routing policies on a simulated fleet: one virtual clock, the router's own code, no GPU."""


@_app.command("run")
def _run_command(
    name: Name,
    *,
    policies: Policies = None,
    trace: Trace = None,
    seed: Seed = None,
    sets: Sets = None,
    variant: VariantName = None,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    jobs: Jobs = None,
) -> None:
    """Run the scenario's policies."""
    from sim.jobs import commands

    with told():
        given = Given(name, policies, trace, seed, sets, variant, json_file, html_file, jobs)
        give(commands.run(asked_of(given, "run"), is_compared=False), given)


@_app.command("compare")
def _compare_command(
    name: Name,
    *,
    policies: Policies = None,
    trace: Trace = None,
    seed: Seed = None,
    sets: Sets = None,
    variant: VariantName = None,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    jobs: Jobs = None,
) -> None:
    """Run policies against the clairvoyant reference."""
    from sim.jobs import commands

    with told():
        given = Given(name, policies, trace, seed, sets, variant, json_file, html_file, jobs)
        give(commands.run(asked_of(given, "compare"), is_compared=True), given)


_Over = Annotated[
    list[str] | None,
    typer.Option(
        "--over",
        metavar="KEY=A,B",
        help="A key and its values, instead of the scenario's [sweep]; repeatable: all combinations.",
    ),
]
_Reference = Annotated[
    bool, typer.Option("--reference", help="Also the clairvoyant reference at each point.")
]


@_app.command("sweep")
def _sweep_command(
    name: Name,
    *,
    over: _Over = None,
    policies: Policies = None,
    trace: Trace = None,
    seed: Seed = None,
    sets: Sets = None,
    variant: VariantName = None,
    reference: _Reference = False,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    jobs: Jobs = None,
    resume: Resume = None,
) -> None:
    """Run the policies over values of some keys.

    All cores work on it. Finished runs are kept where --resume or --json says: an interrupted sweep goes on.
    """
    from sim.jobs import commands
    from sim.scenario.draft import axis_of

    with told():
        given = Given(
            name, policies, trace, seed, sets, variant, json_file, html_file, jobs, resume
        )
        options = [word for axis in over or () for word in ("--over", axis)]
        options += ["--reference"] if reference else []
        asked = asked_of(given, "sweep", options=options, is_kept=True)
        axes = dict(map(axis_of, over)) if over else asked.draft.axes(has_variants=not variant)
        give(commands.sweep(asked, axes, has_reference=reference), given)


@_app.command("size")
def _size_command(
    name: Name,
    *,
    ttft_p50: Annotated[float | None, typer.Option(help="Most seconds, median.")] = None,
    ttft_p90: Annotated[float | None, typer.Option(help="Most seconds, nine of ten.")] = None,
    ttft_p99: Annotated[float | None, typer.Option(help="Most seconds, 99 of 100.")] = None,
    tok_per_s_per_user: Annotated[
        float | None, typer.Option(help="Least output tokens a second of one request.")
    ] = None,
    errors_ratio: Annotated[
        float | None, typer.Option(help="Largest share of requests that fail.")
    ] = None,
    replicas_max: Annotated[
        int, typer.Option(help="The largest fleet to try.", min=1, max=4_096)
    ] = 1_024,
    policies: Policies = None,
    trace: Trace = None,
    seed: Seed = None,
    sets: Sets = None,
    variant: VariantName = None,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    resume: Resume = None,
) -> None:
    """Find the smallest fleet that meets an SLO.

    The number of sessions stays; replicas are doubled or halved, then bisected.
    """
    from sim.jobs import commands

    with told():
        given = Given(name, policies, trace, seed, sets, variant, json_file, html_file, 1, resume)
        slo = {
            "ttft_p50_s": ttft_p50,
            "ttft_p90_s": ttft_p90,
            "ttft_p99_s": ttft_p99,
            "tok_per_s_per_user": tok_per_s_per_user,
            "errors_ratio": errors_ratio,
        }
        options = ["--replicas-max", str(replicas_max)]
        asked = asked_of(given, "size", options=options, slo=slo, is_kept=True)
        give(commands.size(asked, replicas_max=replicas_max), given)


@_app.command("explain")
def _explain_command(
    name: Name,
    *,
    policy: Annotated[
        str | None, typer.Option(help="Instead of the scenario's first.", metavar="NAME")
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="KEY", help="Of this session; with --turn or --at.")
    ] = None,
    turn: Annotated[int | None, typer.Option(help="The session's N-th request.", min=1)] = None,
    at: Annotated[
        float | None, typer.Option(help="The first one decided from these seconds on.", min=0.0)
    ] = None,
    slowest: Annotated[
        int | None,
        typer.Option(
            help="The requests with the longest TTFT; 1 if nothing is said.", min=1, max=100
        ),
    ] = None,
    rows: Annotated[int, typer.Option(help="Replicas to show at most.", min=1)] = 24,
    trace: Trace = None,
    seed: Seed = None,
    sets: Sets = None,
    variant: VariantName = None,
    json_file: JsonFile = None,
) -> None:
    """Say of single decisions of a run why they were made, and what then happened.

    The run is the one of `homeport sim run` with the same scenario, policy and seed; it is played until those
    requests are answered.
    """
    from router.policy.registry import POLICIES
    from sim.fleet.explaining import Pick
    from sim.jobs.explaining import explain
    from sim.scenario.errors import ScenarioError

    with told():
        if session is not None and turn is None and at is None:
            raise ScenarioError("--session: say which one with --turn N or --at SECONDS")
        if turn is not None and session is None:
            raise ScenarioError("--turn: say of which session with --session KEY")
        if slowest is not None and (session is not None or at is not None):
            raise ScenarioError("--slowest: picks requests by itself, without --session and --at")
        if policy is not None and policy not in POLICIES:
            raise ScenarioError(f"--policy {policy}: not known; one of {', '.join(POLICIES)}")
        pick = None if session is None and at is None else Pick(session, turn, at)
        options = {"--session": session, "--turn": turn, "--at": at, "--slowest": slowest}
        words = [
            word
            for flag, value in options.items()
            if value is not None
            for word in (flag, str(value))
        ]
        given = Given(name, policy, trace, seed, sets, variant, json_file)
        asked = asked_of(given, "explain", options=words)
        give(explain(asked, pick, n_slowest=slowest or 1, rows_max=rows), given)


_app.command("matrix")(matrix_command)


@_app.command("list")
def _list_command() -> None:
    """List the shipped scenarios and what each shows."""
    from textwrap import fill

    from sim.scenario.finding import draft_named, shipped

    with told():
        for name in shipped():
            about = " ".join(draft_named(name).scenario().about.split())
            print(name)
            print(fill(about, _LINE_CHARS, initial_indent="  ", subsequent_indent="  "))


@_app.command("show")
def _show_command(name: Name) -> None:
    """Print a scenario's file, to copy and change."""
    from sim.scenario.finding import draft_named, located

    with told():
        draft_named(name).scenario()
        print(located(name).read_text(encoding="utf-8"), end="")


@_app.command("keys")
def _keys_command() -> None:
    """List every key of a scenario: what it is and what it may be."""
    from sim.scenario.keys import described

    with told():
        print("\n".join(described()))
