"""``homeport demo``: emulated replicas and a router as processes, agents' load, a live table."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from rich.console import Console
from rich.live import Live

from sim.live import table
from sim.live.children import ChildError, Children, child_failures
from sim.live.fleet_client import Fleet, FleetClient
from sim.live.load import Load, LoadOptions
from sim.live.stack import Stack, StackOptions, is_free, start_stack
from sim.workload.agents import AgentWorkload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEFAULT_PORT: Final = 30_000
_REFRESH_S: Final = 1.0
_PLAIN_EVERY: Final = 5  # refreshes between two plain lines
_SESSIONS_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the demo runs; ``port`` None is 30000 if that is free, else any free one.

    ``duration_s`` is wall time from the first request on; None runs until Ctrl-C. ``lanes`` None is
    six a replica, about what keeps a replica busy at the default pauses.
    """

    replicas: int = 3
    time_scale: float = 10.0
    policy: str = "home"
    port: int | None = None
    lanes: int | None = None
    seed: int = 1
    duration_s: float | None = None
    has_load: bool = True
    as_json: bool = False

    @property
    def n_lanes(self) -> int:
        """Sessions that run at the same time."""
        return 0 if not self.has_load else self.lanes or 6 * self.replicas


def run_demo(options: DemoOptions) -> int:
    """Run the demo to its end; the exit code: 0, or 1 if a process died or never became ready."""
    # With --json, stdout carries the one object and nothing else.
    console = Console(stderr=options.as_json, highlight=False, markup=False)
    demo = _Demo(options, console)
    failures: list[str] = []
    try:
        asyncio.run(demo.run())
    except* ChildError as group:
        failures = child_failures(group)
    for failure in failures:
        print(f"homeport demo: {failure}", file=sys.stderr)  # noqa: T201 - a command's output
    if failures:
        return 1
    demo.report()
    return 0


class _Demo:
    def __init__(self, options: DemoOptions, console: Console) -> None:
        self._options = options
        self._console = console
        self._load: Load | None = None
        self._fleet = Fleet()
        self._elapsed_s = 0.0
        self._picture: table.Picture | None = None

    async def run(self) -> None:
        """Run until the duration is over, or SIGINT or SIGTERM asks for the end."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self._work(), name="demo")
            end = group.create_task(_cancel_when(stop, work), name="stop")
            work.add_done_callback(lambda _: end.cancel())

    async def _work(self) -> None:
        options = self._options
        port = options.port
        if port is None:
            port = DEFAULT_PORT if is_free(DEFAULT_PORT) else 0
        stack_options = StackOptions(
            replicas=options.replicas,
            time_scale=options.time_scale,
            policy=options.policy,
            port=port,
        )
        self._console.print(
            f"starting {options.replicas} emulated replicas and a router ...", style="dim"
        )
        async with Children() as children, asyncio.TaskGroup() as group:
            stack = await start_stack(children, stack_options)
            if not self._console.is_terminal:
                self._console.print(table.how_to(stack), soft_wrap=True)
            self._load = self._new_load(stack)
            load = group.create_task(self._load.run(), name="load") if self._load else None
            async with FleetClient(stack.admin_url) as client:
                await self._show(client, stack)
            if load is not None:
                load.cancel()

    def _new_load(self, stack: Stack) -> Load | None:
        options = self._options
        if not options.has_load:
            return None
        load = LoadOptions(
            base_url=stack.base_url, lanes=options.n_lanes, time_scale=options.time_scale
        )
        return Load(AgentWorkload(seed=options.seed), load)

    async def _show(self, client: FleetClient, stack: Stack) -> None:
        """Refresh the picture each second until the duration is over."""
        began_s = asyncio.get_running_loop().time()
        limit_s = self._options.duration_s
        with self._shown() as show:
            while limit_s is None or self._elapsed_s < limit_s:
                rest_s = _REFRESH_S if limit_s is None else limit_s - self._elapsed_s
                await asyncio.sleep(min(_REFRESH_S, max(0.0, rest_s)))
                self._elapsed_s = asyncio.get_running_loop().time() - began_s
                self._fleet = await client.fleet() or self._fleet
                sessions = await client.sessions(_SESSIONS_SHOWN)
                self._picture = table.Picture(
                    stack=stack,
                    time_scale=self._options.time_scale,
                    fleet=self._fleet,
                    sessions=sessions,
                    load=self._load.tally.summary() if self._load else None,
                    load_inflight=self._load.n_inflight if self._load else 0,
                    elapsed_s=self._elapsed_s,
                )
                show(self._picture)

    def report(self) -> None:
        """Print the last summary: one JSON object on stdout, or one line."""
        options, totals = self._options, self._fleet.totals
        load = self._load.tally.summary() if self._load else None
        if options.as_json:
            report = {
                "policy": options.policy,
                "replicas": options.replicas,
                "time_scale": options.time_scale,
                "seed": options.seed,
                "lanes": options.n_lanes,
                "wall_s": round(self._elapsed_s, 3),
                **(load.as_dict() if load else {}),
                "moves": totals.moves,
                "splits": totals.splits,
                "router": msgspec.to_builtins(self._fleet),
            }
            print(json.dumps(report))  # noqa: T201 - the command's output
        elif self._picture is not None:
            self._console.print(f"stopped: {table.fleet_line(self._picture)}", soft_wrap=True)
        else:
            self._console.print("stopped before the fleet was ready")

    @contextlib.contextmanager
    def _shown(self) -> Iterator[Callable[[table.Picture], None]]:
        if self._console.is_terminal:
            with Live(console=self._console, auto_refresh=False) as live:
                yield lambda picture: live.update(table.live_view(picture), refresh=True)
            return
        n_shown = 0

        def line(picture: table.Picture) -> None:
            nonlocal n_shown
            if n_shown % _PLAIN_EVERY == 0:
                self._console.print(table.plain_line(picture), soft_wrap=True)
            n_shown += 1

        yield line


async def _cancel_when(stop: asyncio.Event, work: asyncio.Task[None]) -> None:
    await stop.wait()
    work.cancel()
