"""A replica's health as a table of states and events.

Only ``ready`` replicas are chosen; ``suspect`` and ``starting`` ones are the last resort, when
nothing is ready. ``draining`` takes nothing new and ends what it has; ``down`` takes nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a replica stands."""

    STARTING = "starting"
    READY = "ready"
    SUSPECT = "suspect"
    DRAINING = "draining"
    DOWN = "down"


class Event(StrEnum):
    """What was learned about a replica."""

    PROBE_OK = "probe-ok"
    PROBE_NOT_READY = "probe-not-ready"
    PROBE_FAILED = "probe-failed"
    CONNECT_FAILED = "connect-failed"
    REQUEST_FAILED = "request-failed"
    REQUEST_OK = "request-ok"
    DRAIN = "drain"


_S = State
TABLE: Final[dict[tuple[State, Event], State]] = {
    (_S.STARTING, Event.PROBE_OK): _S.READY,
    (_S.STARTING, Event.REQUEST_OK): _S.READY,
    (_S.STARTING, Event.CONNECT_FAILED): _S.DOWN,
    (_S.STARTING, Event.PROBE_FAILED): _S.DOWN,
    (_S.STARTING, Event.DRAIN): _S.DRAINING,
    (_S.READY, Event.PROBE_NOT_READY): _S.SUSPECT,
    (_S.READY, Event.PROBE_FAILED): _S.SUSPECT,
    (_S.READY, Event.CONNECT_FAILED): _S.DOWN,
    (_S.READY, Event.REQUEST_FAILED): _S.SUSPECT,
    (_S.READY, Event.DRAIN): _S.DRAINING,
    (_S.SUSPECT, Event.PROBE_OK): _S.READY,
    (_S.SUSPECT, Event.REQUEST_OK): _S.READY,
    (_S.SUSPECT, Event.PROBE_NOT_READY): _S.DOWN,
    (_S.SUSPECT, Event.PROBE_FAILED): _S.DOWN,
    (_S.SUSPECT, Event.CONNECT_FAILED): _S.DOWN,
    (_S.SUSPECT, Event.DRAIN): _S.DRAINING,
    (_S.DOWN, Event.PROBE_OK): _S.READY,
    (_S.DOWN, Event.DRAIN): _S.DRAINING,
}
"""Every move; an event that is not listed for a state changes nothing.

A replica that says it is not ready (503) or fails one request is suspect until the next probe; a
refused connection means the process is gone. Draining is left only by removal or a new
registration.
"""


def follow(state: State, event: Event) -> State:
    """The state after an event."""
    return TABLE.get((state, event), state)
