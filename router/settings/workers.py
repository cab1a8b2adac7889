"""How a worker is told its place: by a variable that only the parent sets."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from router.errors import ConfigError
from router.settings.admin import WORKER

if TYPE_CHECKING:
    from router.settings.tree import Settings


def place_told() -> str | None:
    """The place that this process was given, None for one that a person started; it is not handed on."""
    return os.environ.pop(WORKER, None)


def worker_environment(text: str) -> dict[str, str]:
    """The environment of a worker that is given this place."""
    return dict(os.environ) | {WORKER: text}


def demand_workable(settings: Settings) -> None:
    """Several workers can run with these settings, on this system.

    Raises:
        ConfigError: they cannot; the text says why, and what to do.
    """
    said = f"workers = {settings.workers}"
    if not sys.platform.startswith("linux"):
        raise ConfigError(f"{said}: several workers need Linux; run one, or several routers")
    if settings.record is not None:
        raise ConfigError(
            f"{said}: a recording is of one process; record with workers = 1, or set no record"
        )
    if settings.routers_apart:
        raise ConfigError(
            f"{said}: routers_apart is for routers of one process; give all of them the same redis_url"
        )
