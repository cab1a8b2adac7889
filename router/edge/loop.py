"""The event loop of the front door."""

from __future__ import annotations

from typing import TYPE_CHECKING

import uvloop

if TYPE_CHECKING:
    from collections.abc import Coroutine


def run(work: Coroutine[object, object, None]) -> None:
    """Run ``work`` to its end on a new uvloop."""
    uvloop.run(work)
