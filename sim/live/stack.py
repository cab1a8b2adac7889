"""Supervised emulated replicas and a router in front of them, as processes on loopback."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sim.live.children import Children

RECIPE: Final = "kimi-k2.6-nvfp4"
_HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What to start; ``port`` 0 is any free one."""

    replicas: int
    time_scale: float
    policy: str = "home"
    port: int = 0


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
    serve = await children.start(
        "homeport serve",
        (
            *("serve", "--host", _HOST, "--port", str(options.port)),
            *("--admin-port", str(admin_port), "--policy", options.policy),
        ),
    )
    run = await children.start(
        "homeport replica run",
        (
            *("replica", "run", RECIPE, "--engine", "emulated", "--one-process"),
            *("--port", "0", "--no-metrics"),
            *("--replicas", str(options.replicas), "--time-scale", f"{options.time_scale:g}"),
            *("--router", f"http://{_HOST}:{admin_port}"),
        ),
    )
    ready = (await serve.wait_ready(1))[0]
    await run.wait_ready(options.replicas)
    return Stack(ready["url"], ready["admin_url"])


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
