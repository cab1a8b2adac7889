"""``homeport demo``: a router, emulated replicas and an agent load on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from sim.cli.running import application, run

if TYPE_CHECKING:
    from collections.abc import Sequence

_PORT_MAX: Final = 65_535
_app = application()


def demo(arguments: Sequence[str]) -> int:
    """Run ``homeport demo``."""
    return run(_app, "demo", arguments)


@_app.command()
def _demo_command(
    *,
    replicas: Annotated[int, typer.Option(help="Emulated replicas.", min=1, max=64)] = 3,
    time_scale: Annotated[
        float, typer.Option(help="Engine seconds per wall second.", min=0.01, max=1_000)
    ] = 10.0,
    policy: Annotated[
        str, typer.Option(help="Routing policy; `homeport serve --help` lists them.")
    ] = "home",
    port: Annotated[
        int | None,
        typer.Option(
            help="The router's port; default: 30000 if it is free, else any.", min=0, max=_PORT_MAX
        ),
    ] = None,
    no_load: Annotated[
        bool, typer.Option("--no-load", help="Start the fleet only, send no requests.")
    ] = False,
    lanes: Annotated[
        int | None,
        typer.Option(help="Sessions at a time; default: six a replica.", min=1, max=500),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the synthetic sessions.")] = 1,
    duration: Annotated[
        float | None, typer.Option(help="Stop after this many wall seconds.", min=0.1)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end, all else on stderr.")
    ] = False,
) -> None:
    """Show a router at work: emulated replicas, synthetic agents and a live table. No GPU."""
    from sim.live.demo import DemoOptions, run_demo

    options = DemoOptions(
        replicas=replicas,
        time_scale=time_scale,
        policy=policy,
        port=port,
        lanes=lanes,
        seed=seed,
        duration_s=duration,
        has_load=not no_load,
        as_json=as_json,
    )
    if code := run_demo(options):
        raise typer.Exit(code)
