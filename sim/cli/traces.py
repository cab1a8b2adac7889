"""``homeport trace``: what is in recorded traffic."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sim.cli.running import application, run

if TYPE_CHECKING:
    from collections.abc import Sequence

_app = application()


def trace(arguments: Sequence[str]) -> int:
    """Run ``homeport trace``."""
    return run(_app, "trace", arguments)


@_app.callback()
def _trace_command() -> None:
    """Look into recorded traffic."""


_ContextMax = Annotated[
    int, typer.Option(help="Prompts are cut there, tokens.", min=1, max=1 << 24)
]
_GapMax = Annotated[float, typer.Option(help="Pauses are capped there, seconds; inf: not.")]
_Format = Annotated[
    str | None, typer.Option("--format", help="Instead of what is recognised; a wrong name lists.")
]
_Lanes = Annotated[
    int,
    typer.Option(help="Sessions at a time where they have no common clock.", min=1, max=100_000),
]
_Pools = Annotated[
    list[int] | None, typer.Option("--pool", help="LRU pool to measure, tokens; repeatable.", min=1)
]


@_app.command("stats")
def _stats_command(
    path: Annotated[Path, typer.Argument(help="A file, a folder, or an archive of traces.")],
    *,
    format_name: _Format = None,
    context_max: _ContextMax = 262_144,
    gap_max: _GapMax = 300.0,
    drop_long: Annotated[
        bool, typer.Option("--drop-long", help="Leave out sessions with longer prompts instead.")
    ] = False,
    turns_min: Annotated[int, typer.Option(help="Leave out sessions with fewer turns.", min=1)] = 1,
    share_heads: Annotated[
        bool,
        typer.Option(
            "--share-heads",
            help="Claude Code traces: equal sizes of tools and system prompt mean equal ones.",
        ),
    ] = False,
    lanes: _Lanes = 20,
    pool: _Pools = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write all figures there.")
    ] = None,
) -> None:
    """Print what is in recorded traffic: sizes, pauses, sharing, and what caches would hold."""
    from sim.workload.figures.report import StatsOptions, stats_of
    from sim.workload.traces.errors import TraceError
    from sim.workload.traces.model import Limits

    if not gap_max >= 0.0:
        raise typer.BadParameter(f"{gap_max} is not 0 or more", param_hint="--gap-max")
    options = StatsOptions(
        limits=Limits(context_max, gap_max),
        lanes=lanes,
        pool_tokens=tuple(pool or ()),
        format_name=format_name,
        share_heads=share_heads,
        has_no_long=drop_long,
        turns_min=turns_min,
    )
    try:
        report = stats_of(path, options, _say_progress)
        print(report.table)
        if json_file is not None:
            json_file.write_text(report.json + "\n")
    except (TraceError, OSError) as failure:
        print(f"homeport trace: {failure}", file=sys.stderr)
        raise typer.Exit(2) from failure


def _say_progress(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
