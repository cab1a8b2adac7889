"""Emulated replicas and a router in front of them, as processes on loopback."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sim.live.children import Children

_HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What to start; ``port`` 0 is any free one."""

    replicas: int
    time_scale: float
    policy: str = "home"
    port: int = 0
    profile: str = "b200-tp4-fp8"


@dataclass(frozen=True, slots=True)
class Stack:
    """Where the started processes listen."""

    base_url: str
    admin_url: str


async def start_stack(children: Children, options: StackOptions) -> Stack:
    """Start the replicas, then the router, and wait until both say that they are ready.

    Raises:
        ChildError: one of them did not become ready in time.
    """
    emulate = await children.start(
        "homeport emulate",
        (
            *("emulate", "--port", "0", "--count", str(options.replicas)),
            *("--profile", options.profile, "--time-scale", f"{options.time_scale:g}"),
        ),
    )
    urls = tuple(line["url"] for line in await emulate.wait_ready(options.replicas))
    replicas = (argument for url in urls for argument in ("--replica", url))
    serve = await children.start(
        "homeport serve",
        (
            *("serve", *replicas, "--host", _HOST, "--port", str(options.port)),
            *("--admin-port", "0", "--policy", options.policy),
        ),
    )
    ready = (await serve.wait_ready(1))[0]
    return Stack(ready["url"], ready["admin_url"])


def is_free(port: int) -> bool:
    """Whether a listener could bind this port on loopback now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
    return True
