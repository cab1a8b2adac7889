"""The emulated engine: ``homeport emulate`` as a process, sized as a recipe's plan says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.engines.base import Launch
from replica.engines.sglang import step_s_max
from replica.errors import ReplicaError
from replica.hardware.profiles import PROFILES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.settings import Recipe
    from replica.setup import Setup

STAND_IN: Final = "b200-tp4-fp8"
"""The profile of hardware that was not measured, a CPU's for one."""
_PORT_MAX: Final = 65_535
POLICIES: Final = ("fcfs", "lpm", "shortest-prefill-first")
"""Those that ``homeport emulate`` takes; another one is left out."""


def launch_of(
    setup: Setup,
    *,
    host: str = "127.0.0.1",
    port: int = 30_000,
    gpus: tuple[int, ...] = (),
    command: Sequence[str] = ("homeport",),
    time_scale: float = 1.0,
    kv_events: bool = False,
    count: int = 1,
) -> Launch:
    """The process that emulates this setup: no GPU, no model, the recipe's sizes and step times.

    ``gpus`` are noted, not used. ``time_scale`` is engine seconds a wall second.
    ``kv_events`` publishes its cache on two free ports (needs pyzmq). ``count`` replicas share the
    process, at ``port`` and those behind it.

    Raises:
        ReplicaError: ``port-range``, or ``does-not-fit`` where no KV is left.
    """
    recipe = setup.recipe
    capacity = setup.capacity_tokens
    if not 1 <= port <= _PORT_MAX - count + 1:
        raise ReplicaError("port-range", f"port {port}: give one from 1 to {_PORT_MAX - count + 1}")
    if not capacity:
        raise ReplicaError("does-not-fit", f"{recipe.name}: no KV fits; `plan` says why")
    profile = setup.profile if setup.profile in PROFILES else STAND_IN
    words = ["--profile", profile, "--host", host, "--port", str(port)]
    words += ["--model", recipe.model.served_name, "--time-scale", f"{time_scale:g}"]
    words += ["--capacity-tokens", str(max(64, capacity))]
    words += ["--host-tokens", str(setup.host_capacity_tokens)]
    words += ["--context-tokens", str(setup.context_tokens_max)]
    words += _scheduling(recipe)
    if count > 1:
        words += ["--count", str(count)]
    if kv_events:
        words.append("--kv-events")
    return Launch(
        engine="emulated",
        argv=(*command, "emulate", *words),
        environment={},
        host=host,
        port=port,
        model=recipe.model.served_name,
        ports=tuple(range(port, port + count)),
        count=count,
        gpus=gpus,
        profile=profile,
        capacity_tokens=capacity,
        inflight_max=recipe.scheduling.running_max.value,
        context_tokens_max=setup.context_tokens_max,
        step_s_max=step_s_max(setup),
    )


def _scheduling(recipe: Recipe) -> list[str]:
    scheduling = recipe.scheduling
    words = ["--max-running-requests", str(scheduling.running_max.value)]
    if scheduling.queued_max is not None:
        words += ["--max-queued-requests", str(scheduling.queued_max.value)]
    if scheduling.policy is not None and scheduling.policy.value in POLICIES:
        words += ["--schedule-policy", scheduling.policy.value]
    if scheduling.prefill_decode_interval is not None:
        words += ["--prefill-decode-interval", str(scheduling.prefill_decode_interval.value)]
    return words
