"""``homeport emulate``: emulated replicas behind SGLang's HTTP surface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from sim.cli.running import application, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.hardware.profiles import EngineFacts
    from sim.engine.rules import EngineRules
    from sim.live.emulator import EmulatorOptions

_PORT_MAX: Final = 65_535
_app = application()


def emulate(arguments: Sequence[str]) -> int:
    """Run ``homeport emulate``."""
    return run(_app, "emulate", arguments)


_Profile = Annotated[
    str, typer.Option(help="Hardware profile; a wrong name lists those there are.")
]
_TimeScale = Annotated[
    float, typer.Option(help="Engine seconds per wall second.", min=0.01, max=10_000)
]
_Queued = Annotated[
    int | None, typer.Option(help="Requests that may wait; default: any number.", min=1)
]
_Policy = Annotated[
    str, typer.Option(help="Whose turn is next: fcfs, lpm or shortest-prefill-first.")
]
_Interval = Annotated[
    int, typer.Option(help="Generation steps between two prefill steps.", min=0, max=1_000)
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
_ToolTurns = Annotated[
    int,
    typer.Option(help="Answers in a row that call an agent's shell, before one ends.", min=0),
]
_Preserve = Annotated[bool, typer.Option(help="Default of chat_template_kwargs.preserve_thinking.")]
_Hoist = Annotated[
    bool, typer.Option(help="Move inline system messages of /v1/messages to the head.")
]
_Store = Annotated[bool, typer.Option(help="Keep responses of /v1/responses.")]

_KvEvents = Annotated[
    bool, typer.Option("--kv-events", help="Publish the cache as SGLang does, on two free ports.")
]
_Embedding = Annotated[
    bool, typer.Option("--is-embedding", help="Answer /v1/embeddings and /v1/rerank.")
]


@_app.command()
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
    schedule_policy: _Policy = "fcfs",
    prefill_decode_interval: _Interval = 0,
    capacity_tokens: _Capacity = None,
    host_tokens: _HostTier = None,
    context_tokens: _Context = None,
    output_tokens: _Output = 500,
    api_key: Annotated[str | None, typer.Option(help="Bearer token to demand.")] = None,
    admin_api_key: _AdminKey = None,
    health_timeout: _HealthTimeout = 20.0,
    disconnect_poll: _DisconnectPoll = 4.0,
    reasoning_ratio: _Reasoning = 0.25,
    tool_turns: _ToolTurns = 0,
    preserve_thinking: _Preserve = False,
    hoist_system: _Hoist = False,
    enable_response_store: _Store = False,
    is_embedding: _Embedding = False,
    kv_events: _KvEvents = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run emulated replicas: SGLang's HTTP surface over the engine model, no GPU."""
    from sim.live.emulator import EmulatorOptions, sized
    from sim.live.rendering.bodies import TemplateDefaults

    options = EmulatorOptions(
        facts=sized(
            _facts(profile),
            capacity_tokens=capacity_tokens,
            host_tokens=host_tokens,
            max_running_requests=max_running_requests,
            context_tokens=context_tokens,
        ),
        rules=_rules(schedule_policy, prefill_decode_interval),
        time_scale=time_scale,
        model=model,
        max_queued_requests=max_queued_requests,
        api_key=api_key,
        admin_api_key=admin_api_key,
        health_timeout_s=health_timeout,
        disconnect_poll_s=disconnect_poll,
        reasoning_ratio=reasoning_ratio,
        tool_turns=tool_turns,
        output_tokens=output_tokens,
        has_response_store=enable_response_store,
        is_embedding=is_embedding,
        has_kv_events=kv_events,
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


def _rules(policy: str, interval: int) -> EngineRules:
    from sim.engine.rules import POLICIES, EngineRules

    if policy not in POLICIES:
        what = f"{policy!r} is not emulated; known are {', '.join(POLICIES)}"
        raise typer.BadParameter(what, param_hint="--schedule-policy")
    return EngineRules(order=policy, prefill_decode_interval=interval)


def _need_zmq() -> None:
    from importlib.util import find_spec

    if find_spec("zmq") is None:
        what = "needs pyzmq: install homeport[events]"
        raise typer.BadParameter(what, param_hint="--kv-events")


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

    if options.has_kv_events:
        _need_zmq()
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
