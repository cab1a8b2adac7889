"""Supervised emulated replicas and a router in front of them, as processes on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sim.live.fleet_client import FleetClient

if TYPE_CHECKING:
    from sim.live.children import Children

RECIPE: Final = "kimi-k2.6-nvfp4"
_HOST: Final = "127.0.0.1"
_TAKEN_S_MAX: Final = 5.0
_LOOK_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What to start; ``port`` 0 is any free one.

    ``hardware`` are further words for ``homeport replica run``; ``record`` the file into which the router records.
    """

    replicas: int
    time_scale: float
    policy: str = "home"
    port: int = 0
    hardware: tuple[str, ...] = ()
    record: str | None = None


@dataclass(frozen=True, slots=True)
class Stack:
    """Where the started processes listen."""

    base_url: str
    admin_url: str


async def start_stack(children: Children, options: StackOptions) -> Stack:
    """Start the router and the replicas, and wait until all say that they are ready.

    The replicas are supervised, and register with the router. Both start at once, which takes less time
    than one after the other: the router's control port is chosen for them beforehand.

    Raises:
        ChildError: one of them did not become ready in time.
    """
    admin_port = _free_port()
    run = await children.start(
        "homeport replica run",
        (
            *("replica", "run", RECIPE, "--engine", "emulated", "--one-process"),
            *("--port", "0", "--no-metrics"),
            *("--replicas", str(options.replicas), "--time-scale", f"{options.time_scale:g}"),
            *("--router", f"http://{_HOST}:{admin_port}"),
            *options.hardware,
        ),
    )
    serve = await children.start(
        "homeport serve",
        (
            *("serve", "--host", _HOST, "--port", str(options.port)),
            *("--admin-port", str(admin_port), "--policy", options.policy),
            *(("--record", options.record) if options.record is not None else ()),
        ),
    )
    ready = (await serve.wait_ready(1))[0]
    await run.wait_ready(options.replicas)
    stack = Stack(ready["url"], ready["admin_url"])
    await _taken_for_ready(stack, options.replicas)
    return stack


async def _taken_for_ready(stack: Stack, count: int) -> None:
    """Wait until the router would send requests to all replicas, which have only just registered.

    One that does not come in time is seen in the table, and is no reason to stop.
    """
    async with FleetClient(stack.admin_url) as client:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TAKEN_S_MAX):
                while True:
                    fleet = await client.fleet()
                    states = [replica.state for replica in fleet.replicas] if fleet else []
                    if states == ["ready"] * count:
                        return
                    await asyncio.sleep(_LOOK_S)


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether a listener could bind this port on loopback now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
    return True
