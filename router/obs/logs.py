"""Logs: an event's name, then key=value; never a word of a prompt."""

from __future__ import annotations

import logging
import sys
from typing import Final

from router.state.health.table import Event, State

_FORMAT: Final = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s"
_EXPECTED: Final = (Event.DRAIN, Event.UNDRAIN, Event.FULL)
_fleet: Final = logging.getLogger("homeport.fleet")


def configure(level: str) -> None:
    """Send the router's logs to standard error from ``level`` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT, datefmt="%Y-%m-%dT%H:%M:%S"))
    root = logging.getLogger("homeport")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def state_changed(replica_id: str, before: State, now: State, cause: Event) -> None:
    """A replica changed its state: worth a warning unless it is well, or was told to."""
    is_expected = now is State.READY or cause in _EXPECTED
    _fleet.log(
        logging.INFO if is_expected else logging.WARNING,
        "replica-state replica=%s before=%s now=%s cause=%s",
        replica_id,
        before,
        now,
        cause,
    )


def is_logged(level: str) -> bool:
    """Whether lines of this level are written at all."""
    return logging.getLogger("homeport").isEnabledFor(logging.getLevelNamesMapping()[level.upper()])
