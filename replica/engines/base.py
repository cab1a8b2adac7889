"""One engine process as it is to be started: what a recipe comes to on one machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True, frozen=True)
class Launch:
    """An engine's command line and environment, and where its server will answer.

    ``environment`` is added to the launcher's own. ``host`` and ``port`` are what the engine binds;
    ``ports`` are all that it needs free, its server's among them. ``model`` is the name it serves.
    ``gpus`` are the indexes it is given, empty without any. ``step_s_max`` is the longest that one
    engine step may take, in seconds, by the profile of its hardware.
    """

    engine: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    host: str
    port: int
    model: str
    ports: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    profile: str | None = None
    capacity_tokens: int | None = None
    inflight_max: int | None = None
    context_tokens_max: int | None = None
    step_s_max: float = 15.0
    shared_head: tuple[str, ...] = field(default=())
    """Texts that sessions begin with: prefilled before the replica is ready."""
    count: int = 1
    """Replicas that this one process serves, at ``port`` and those behind it: an emulated engine only."""
    api_key: str | None = field(default=None, repr=False)
    """What its server demands, where it demands one: for the supervisor's and the router's requests."""
