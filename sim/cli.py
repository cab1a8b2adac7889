"""Sub-commands of the package: each function takes the remaining arguments, answers the exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer.exceptions import TyperException

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.hardware.profiles import EngineFacts
    from sim.live.emulator import EmulatorOptions

_PORT_MAX: Final = 65_535
_HELP: Final = {"help_option_names": ["-h", "--help"]}
_emulate = typer.Typer(add_completion=False, context_settings=_HELP, rich_markup_mode=None)
_demo = typer.Typer(add_completion=False, context_settings=_HELP, rich_markup_mode=None)
_trace = typer.Typer(add_completion=False, context_settings=_HELP, rich_markup_mode=None)


def emulate(arguments: Sequence[str]) -> int:
    """Run ``homeport emulate``."""
    return _run(_emulate, "emulate", arguments)


_Profile = Annotated[
    str, typer.Option(help="Hardware profile; a wrong name lists those there are.")
]
_TimeScale = Annotated[
    float, typer.Option(help="Engine seconds per wall second.", min=0.01, max=10_000)
]
_Queued = Annotated[
    int | None, typer.Option(help="Requests that may wait; default: any number.", min=1)
]
_Running = Annotated[int | None, typer.Option(help="Instead of the profile's.", min=1)]
_Capacity = Annotated[
    int | None, typer.Option(help="KV tokens on the device instead of the profile's.", min=64)
]
_HostTier = Annotated[
    int | None, typer.Option(help="KV tokens in the host tier; 0: no host tier.", min=0)
]
_Context = Annotated[
    int | None, typer.Option(help="Longest context instead of the model's.", min=64)
]
_Output = Annotated[int, typer.Option(help="Generated where a request does not say.", min=1)]
_AdminKey = Annotated[
    str | None, typer.Option(help="Bearer token that control endpoints demand instead.")
]
_HealthTimeout = Annotated[
    float, typer.Option(help="Wall seconds until the health check of a hung engine fails.", min=1.0)
]
_DisconnectPoll = Annotated[
    float,
    typer.Option(help="Wall seconds between looks whether a silent client has left.", min=0.01),
]
_Reasoning = Annotated[
    float, typer.Option(help="Reasoning's share of an answer.", min=0.0, max=1.0)
]
_Preserve = Annotated[bool, typer.Option(help="Default of chat_template_kwargs.preserve_thinking.")]
_Hoist = Annotated[
    bool, typer.Option(help="Move inline system messages of /v1/messages to the head.")
]


@_emulate.command()
def _emulate_command(
    *,
    port: Annotated[int, typer.Option(help="First port; 0: free ports.", min=0, max=_PORT_MAX)] = 0,
    count: Annotated[int, typer.Option(help="Replicas in this process.", min=1, max=64)] = 1,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    profile: _Profile = "b200-tp4-fp8",
    time_scale: _TimeScale = 1.0,
    model: Annotated[str, typer.Option(help="Served model name.")] = "kimi-k2.6",
    max_queued_requests: _Queued = None,
    max_running_requests: _Running = None,
    capacity_tokens: _Capacity = None,
    host_tokens: _HostTier = None,
    context_tokens: _Context = None,
    output_tokens: _Output = 500,
    api_key: Annotated[str | None, typer.Option(help="Bearer token to demand.")] = None,
    admin_api_key: _AdminKey = None,
    health_timeout: _HealthTimeout = 20.0,
    disconnect_poll: _DisconnectPoll = 4.0,
    reasoning_ratio: _Reasoning = 0.25,
    preserve_thinking: _Preserve = False,
    hoist_system: _Hoist = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run emulated replicas: SGLang's HTTP surface over the engine model, no GPU."""
    from sim.live.emulator import EmulatorOptions, sized
    from sim.live.rendering.bodies import TemplateDefaults

    facts = sized(
        _facts(profile),
        capacity_tokens=capacity_tokens,
        host_tokens=host_tokens,
        max_running_requests=max_running_requests,
        context_tokens=context_tokens,
    )
    options = EmulatorOptions(
        facts=facts,
        time_scale=time_scale,
        model=model,
        max_queued_requests=max_queued_requests,
        api_key=api_key,
        admin_api_key=admin_api_key,
        health_timeout_s=health_timeout,
        disconnect_poll_s=disconnect_poll,
        reasoning_ratio=reasoning_ratio,
        output_tokens=output_tokens,
        template=TemplateDefaults(preserve_thinking, hoist_system),
    )
    _log_from(log_level)
    _serve_emulated(options, count=count, host=host, port=port)


def _facts(profile: str) -> EngineFacts:
    from replica.hardware.profiles import profile_named

    try:
        return profile_named(profile)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--profile") from error


def _log_from(name: str) -> None:
    """Log to stderr from this level on."""
    import logging

    level = logging.getLevelNamesMapping().get(name.upper())
    if level is None:
        raise typer.BadParameter(f"unknown level {name!r}", param_hint="--log-level")
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s")


def _serve_emulated(options: EmulatorOptions, *, count: int, host: str, port: int) -> None:
    import asyncio

    from sim.live.emulator import serve_until_signalled

    if port and port + count - 1 > _PORT_MAX:
        raise typer.BadParameter(
            f"{count} ports from {port} on go beyond {_PORT_MAX}", param_hint="--port"
        )
    words = f"profile={options.facts.name} time_scale={options.time_scale:g}"

    def announce(url: str) -> None:
        print(f"replica ready url={url} {words}", flush=True)

    try:
        asyncio.run(
            serve_until_signalled(options, count=count, host=host, port=port, announce=announce)
        )
    except OSError as error:
        typer.echo(f"homeport emulate: cannot listen on {host} port {port}: {error}", err=True)
        raise typer.Exit(1) from error


def demo(arguments: Sequence[str]) -> int:
    """Run ``homeport demo``."""
    return _run(_demo, "demo", arguments)


@_demo.command()
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


def trace(arguments: Sequence[str]) -> int:
    """Run ``homeport trace``."""
    return _run(_trace, "trace", arguments)


@_trace.callback()
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


@_trace.command("stats")
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


def _run(app: typer.Typer, name: str, arguments: Sequence[str]) -> int:
    """Run one typer application; a mistake is one line and exit code 2."""
    try:
        code = app(list(arguments), prog_name=f"homeport {name}", standalone_mode=False)
    except typer.Exit as left:
        return left.exit_code
    except TyperException as mistake:
        said = getattr(mistake, "format_message", mistake.__str__)()
        print(f"homeport {name}: {said}", file=sys.stderr)
        return 2
    return code if isinstance(code, int) else 0
