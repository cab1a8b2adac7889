"""Which GPUs and which ports each replica of a machine gets."""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from replica.errors import ReplicaError
from replica.machine.ports import bind_failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.engines.base import Launch

_TRIES: Final = 200


class Maker(Protocol):
    """How an engine is launched on a port."""

    def __call__(self, port: int, *, gpus: tuple[int, ...], count: int) -> Launch:
        """The launch of ``count`` replicas in one process."""


def gpu_groups(gpus: tuple[int, ...], tp: int, replicas: int | None) -> tuple[tuple[int, ...], ...]:
    """The GPUs of each replica, ``tp`` neighbours each; empty ones where no GPUs are named.

    Raises:
        ReplicaError: ``bad-value``: they do not come out even, or not at ``replicas``.
    """
    if not gpus:
        return ((),) * (replicas or 1)
    if len(gpus) % tp:
        raise ReplicaError(
            "bad-value", f"{len(gpus)} GPUs do not divide into replicas of {tp}: name {tp} for each"
        )
    groups = tuple(gpus[at : at + tp] for at in range(0, len(gpus), tp))
    if replicas is not None and replicas != len(groups):
        raise ReplicaError(
            "bad-value",
            f"{len(gpus)} GPUs are {len(groups)} replicas of {tp}, and --replicas says {replicas}",
        )
    return groups


def launches(
    groups: tuple[tuple[int, ...], ...],
    port: int,
    launch_of: Maker,
    *,
    a_process: int = 1,
) -> list[Launch]:
    """A launch for each group of GPUs: on ports from ``port`` on, or on free ones where it is 0.

    ``a_process`` groups without GPUs share a process. ``launch_of`` is given a port, GPUs, and how many
    replicas the process serves.

    Raises:
        ReplicaError: ``port-range``, ``port-taken`` where two of them would need the same one, or
            what ``launch_of`` raises.
    """
    made: list[Launch] = []
    used: set[int] = set()
    for first in range(0, len(groups), a_process):
        count = min(a_process, len(groups) - first)
        make = partial(launch_of, gpus=groups[first], count=count)
        launch = make(port + first) if port else _on_free_ports(used, make)
        wanted = {launch.port, *launch.ports}
        if shared := sorted(wanted & used):
            raise ReplicaError(
                "port-taken", f"two replicas would need port {shared[0]}: choose another --port"
            )
        used |= wanted
        made.append(launch)
    return made


def _on_free_ports(used: set[int], make: Callable[[int], Launch]) -> Launch:
    for _ in range(_TRIES):
        try:
            launch = make(_free_port())
        except ReplicaError as failure:
            if failure.code != "port-range":
                raise
            continue  # its other ports would lie beyond the last one
        if not {launch.port, *launch.ports} & used and _are_free(launch):
            return launch
    raise ReplicaError("port-taken", f"no free ports were found in {_TRIES} tries: give --port")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _are_free(launch: Launch) -> bool:
    others = {*launch.ports} - {launch.port}
    return bind_failure(launch.host, launch.port) is None and all(
        bind_failure("", port) is None for port in others
    )
