"""``homeport replica run``: engines as supervised processes, registered with routers."""

from __future__ import annotations

import math
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from replica.commands import running
from replica.commands.asking import RecipeName, RecipeOption, indexes
from replica.errors import ReplicaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.engines.base import Launch
    from replica.setup import Setup
    from replica.supervise.machine import MetricsPlace
    from replica.supervise.ports import Maker
    from replica.supervise.replica import Care

_NAME: Final = re.compile(r"[A-Za-z0-9._:-]{1,100}")
_PORT_MAX: Final = 65_535
_HEAD_BYTES_MAX: Final = 4 << 20
_EMULATE: Final = (sys.executable, "-P", "-m", "router.cli")


class Engine(StrEnum):
    """What runs."""

    SGLANG = "sglang"
    EMULATED = "emulated"


def _seconds(text: str, least: float = 0.1) -> Any:  # noqa: ANN401  (typer's own type)
    return typer.Option(help=text, metavar="SECONDS", min=least)


_Variant = Annotated[str | None, typer.Option(help="a variant of the recipe")]
_Options = Annotated[list[str] | None, typer.Option("--option", help="an option of it; repeatable")]
_Engine = Annotated[Engine, typer.Option(help="the engine itself, or an emulation without a GPU")]
_Gpu = Annotated[str | None, typer.Option(help="the kind of GPU, b200 for one, or cpu")]
_Gpus = Annotated[
    str | None, typer.Option(help="indexes, 0-3 or 0-7 for one: as many replicas as they make")
]
_Tp = Annotated[int | None, typer.Option(help="GPUs of one replica", min=1)]
_KvDtype = Annotated[str | None, typer.Option("--kv-dtype", help="fp8 or bf16")]
_Fraction = Annotated[float | None, typer.Option(help="of a device, for weights and KV; 0 to 1")]
_Replicas = Annotated[int | None, typer.Option(help="where no GPUs are named", min=1, max=256)]
_Host = Annotated[str, typer.Option(help="address that engines listen on")]
_Port = Annotated[
    int, typer.Option(help="first engine's port, the next ones follow; 0: free ones", min=0)
]
_ModelPath = Annotated[str | None, typer.Option(help="a folder instead of the recipe's model")]
_DraftPath = Annotated[str | None, typer.Option(help="a folder instead of the recipe's draft")]
_Program = Annotated[str, typer.Option(help="the engine's program")]
_Routers = Annotated[
    list[str] | None,
    typer.Option("--router", metavar="URL", help="a router's control port; repeatable"),
]
_KeyFile = Annotated[Path | None, typer.Option(help="file with the routers' admin key")]
_CaFile = Annotated[Path | None, typer.Option(help="file with the CA of the routers' https")]
_Advertise = Annotated[str | None, typer.Option(help="address that routers reach engines at")]
_Name = Annotated[str | None, typer.Option(help="replica id, a number behind it if several")]
_Lease = Annotated[
    float, typer.Option(help="seconds a router waits for a heartbeat", min=1.0, max=3600.0)
]
_MetricsHost = Annotated[str, typer.Option(help="address of the supervisor's own port")]
_MetricsPort = Annotated[int, typer.Option(help="its port; 0: a free one", min=0, max=_PORT_MAX)]
_NoMetrics = Annotated[bool, typer.Option("--no-metrics", help="open no port of its own")]
_Heads = Annotated[
    list[Path] | None,
    typer.Option("--shared-head", help="file with a text that sessions begin with; repeatable"),
]
_Restarts = Annotated[
    int, typer.Option(help="within --restart-window; one more fault is final", min=0, max=1000)
]
_HangAfter = Annotated[
    float | None,
    typer.Option(help="longest step of the engine; default: by its hardware", min=0.1),
]
_Scale = Annotated[
    float, typer.Option(help="emulated: engine seconds per wall second", min=0.01, max=10_000)
]
_KvEvents = Annotated[bool, typer.Option("--kv-events", help="emulated: publish KV events")]
_OneProcess = Annotated[
    bool, typer.Option("--one-process", help="emulated: all replicas share a process")
]
_LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error")]


def run(arguments: Sequence[str]) -> int:
    """``homeport replica run``."""
    return running.run("run", _command, arguments)


def _command(
    *,
    named: RecipeName = None,
    recipe: RecipeOption = None,
    variant: _Variant = None,
    option: _Options = None,
    engine: _Engine = Engine.SGLANG,
    gpu: _Gpu = None,
    gpus: _Gpus = None,
    tp: _Tp = None,
    replicas: _Replicas = None,
    kv_dtype: _KvDtype = None,
    mem_fraction: _Fraction = None,
    host: _Host = "127.0.0.1",
    port: _Port = 30_000,
    model_path: _ModelPath = None,
    draft_path: _DraftPath = None,
    program: _Program = "sglang",
    router: _Routers = None,
    router_key_file: _KeyFile = None,
    router_ca_file: _CaFile = None,
    advertise: _Advertise = None,
    name: _Name = None,
    lease: _Lease = 15.0,
    metrics_host: _MetricsHost = "127.0.0.1",
    metrics_port: _MetricsPort = 30_090,
    no_metrics: _NoMetrics = False,
    shared_head: _Heads = None,
    start_timeout: Annotated[float, _seconds("until it says ready")] = 2400.0,
    warmup_timeout: Annotated[float, _seconds("for its first generations")] = 900.0,
    drain_timeout: Annotated[float, _seconds("until sessions have left", 0.0)] = 300.0,
    stop_timeout: Annotated[float, _seconds("for its end, at least", 0.0)] = 30.0,
    health_timeout: Annotated[float, _seconds("for a health check")] = 30.0,
    restarts: _Restarts = 5,
    restart_window: Annotated[float, _seconds("that restarts are counted in")] = 900.0,
    hang_after: _HangAfter = None,
    time_scale: _Scale = 1.0,
    kv_events: _KvEvents = False,
    one_process: _OneProcess = False,
    log_level: _LogLevel = "info",
) -> None:
    """Run a recipe's engine and look after it: start, warm up, register, watch, restart, drain.

    The first SIGTERM, SIGINT or SIGHUP drains all replicas, the second ends them at once. Exit codes: 0 stopped
    as asked, 2 a mistake in the command, 3 cannot start, 4 gave up after restarts, 5 requests were cut off, 128
    and the signal's number after a second signal.
    """
    asked = locals()
    from replica.supervise.checks.faults import CANNOT_START, KINDS

    try:
        code = _run(asked)
    except ReplicaError as fault:
        if fault.code not in KINDS:
            raise
        print(f"homeport replica run: {fault} [{fault.code}]", file=sys.stderr)
        code = CANNOT_START
    raise typer.Exit(code)


def _run(asked: dict[str, Any]) -> int:
    import asyncio
    import random

    from replica.supervise.machine import supervise

    _demand_sane(asked)
    try:
        return asyncio.run(
            supervise(
                _launches(asked),
                _care(asked),
                dice=random.Random(),  # noqa: S311  (jitter)
                metrics=_metrics(asked),
                log_level=_level(asked["log_level"]),
            )
        )
    except OSError as failure:
        where = f"{asked['metrics_host']} port {asked['metrics_port']}"
        print(
            f"homeport replica run: cannot serve metrics on {where}: {failure.strerror or failure};"
            " choose another --metrics-port, or --no-metrics",
            file=sys.stderr,
        )
        return 1


def _demand_sane(asked: dict[str, Any]) -> None:
    """Refuse what the options' own limits let through."""
    for key, value in asked.items():
        if isinstance(value, float) and not math.isfinite(value):
            flag = key.replace("_", "-")
            raise ReplicaError("bad-value", f"--{flag} {value}: give a number")
    name = asked["name"]
    if name is not None and not _NAME.fullmatch(name):
        raise ReplicaError(
            "bad-value", f"--name {name}: give up to 100 letters, digits, dots, dashes or colons"
        )


def _launches(asked: dict[str, Any]) -> list[tuple[tuple[str, ...], Launch]]:
    """The processes of this machine, each with the names of its replicas."""
    import socket
    from dataclasses import replace
    from itertools import count

    from replica.supervise import ports

    setup = _setup(asked)
    gpus = indexes(asked["gpus"])
    groups = ports.gpu_groups(gpus, setup.tp, asked["replicas"])
    is_shared = asked["engine"] is Engine.EMULATED and asked["one_process"] and not gpus
    heads = tuple(_text(path) for path in asked["shared_head"] or ())
    made = ports.launches(
        groups,
        asked["port"],
        _launch_of(asked, setup),
        a_process=len(groups) if is_shared else 1,
    )
    is_everywhere = asked["host"] in ("", "0.0.0.0", "::")  # noqa: S104  (compared, not bound)
    here = asked["advertise"] or (socket.gethostname() if is_everywhere else asked["host"])
    name, numbers, named = asked["name"], count(), []
    for launch in made:
        at = range(launch.port, launch.port + launch.count)
        names = [f"{here}:{port}" for port in at]
        if name is not None:
            names = [name] if len(groups) == 1 else [f"{name}-{next(numbers)}" for _ in at]
        heads_too = replace(launch, shared_head=(*launch.shared_head, *heads))
        named.append((tuple(names), heads_too))
    return named


def _setup(asked: dict[str, Any]) -> Setup:
    """The recipe, set up for these devices or this CPU."""
    from replica.commands.asking import Wanted, found, recipe_of

    return found(
        Wanted(
            recipe=recipe_of(asked["named"], asked["recipe"]),
            variant=asked["variant"],
            options=tuple(asked["option"] or ()),
            gpu=asked["gpu"],
            tp=asked["tp"],
            kv_dtype=asked["kv_dtype"],
            mem_fraction=asked["mem_fraction"],
            model_path=asked["model_path"],
            draft_path=asked["draft_path"],
        )
    ).setup


def _launch_of(asked: dict[str, Any], setup: Setup) -> Maker:
    from replica.engines import emulated, sglang

    host = asked["host"]

    def emulate(port: int, *, gpus: tuple[int, ...], count: int) -> Launch:
        return emulated.launch_of(
            setup,
            host=host,
            port=port,
            gpus=gpus,
            command=_EMULATE,
            time_scale=asked["time_scale"],
            kv_events=asked["kv_events"],
            count=count,
        )

    def serve(port: int, *, gpus: tuple[int, ...], count: int) -> Launch:
        assert count == 1, "each process of SGLang is one replica"
        return sglang.launch_of(
            setup,
            host=host,
            port=port,
            gpus=gpus,
            model_path=asked["model_path"],
            draft_path=asked["draft_path"],
            program=asked["program"],
        )

    return emulate if asked["engine"] is Engine.EMULATED else serve


def _care(asked: dict[str, Any]) -> Care:
    from replica.lifecycle import Rules
    from replica.supervise.replica import Care
    from replica.supervise.settings import engine_environment, router_accesses

    return Care(
        Rules(
            start_s_max=asked["start_timeout"],
            warm_s_max=asked["warmup_timeout"],
            drain_s_max=asked["drain_timeout"],
            stop_s_max=asked["stop_timeout"],
            restarts_max=asked["restarts"],
            restart_window_s=asked["restart_window"],
        ),
        router_accesses(
            tuple(asked["router"] or ()),
            key_file=asked["router_key_file"],
            ca_file=asked["router_ca_file"],
        ),
        engine_environment(),
        lease_s=asked["lease"],
        health_s_max=asked["health_timeout"],
        step_s_max=asked["hang_after"],
        advertised_host=asked["advertise"],
    )


def _metrics(asked: dict[str, Any]) -> MetricsPlace | None:
    from replica.supervise.machine import MetricsPlace

    if asked["no_metrics"]:
        return None
    return MetricsPlace(asked["metrics_host"], asked["metrics_port"])


def _level(name: str) -> int:
    import logging

    level = logging.getLevelNamesMapping().get(name.upper())
    if level is None:
        raise ReplicaError("bad-value", f"--log-level {name}: give debug, info, warning or error")
    return level


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_HEAD_BYTES_MAX + 1)
        text = raw.decode()
    except (OSError, UnicodeDecodeError) as failure:
        raise ReplicaError("bad-value", f"--shared-head {path} cannot be read: {failure}") from None
    if len(raw) > _HEAD_BYTES_MAX or not text.strip():
        raise ReplicaError("bad-value", f"--shared-head {path}: give a text of up to 4 MiB")
    return text
