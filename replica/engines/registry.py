"""The engines by name: how a setup becomes a process of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.engines import emulated, sglang
from replica.errors import ReplicaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.engines.base import Launch

ENGINES: Final[dict[str, Callable[..., Launch]]] = {
    "sglang": sglang.launch_of,
    "emulated": emulated.launch_of,
}
"""Name -> ``launch_of(setup, *, host, port, gpus, ...)``."""


def engine_named(name: str) -> Callable[..., Launch]:
    """What launches this engine.

    Raises:
        ReplicaError: ``no-engine``; the message lists the known ones.
    """
    launch = ENGINES.get(name)
    if launch is None:
        raise ReplicaError("no-engine", f"unknown engine {name!r}: there are {', '.join(ENGINES)}")
    return launch
