"""The few daemons of the front door: named, referenced, and loud when they fail."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

_log = logging.getLogger("homeport.tasks")
_running: set[asyncio.Task[Any]] = set()


def spawn(work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
    """Run ``work`` as a task that is kept alive and whose failure is logged as an error."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_ended)
    return task


def _ended(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (failure := task.exception()) is not None:
        _log.error("task-failed task=%s", task.get_name(), exc_info=failure)
