"""A replica's health as a table of states and events.

Only ``ready`` replicas take new sessions. A ``suspect`` one failed a request or missed a probe: it
keeps the sessions that live there, and takes others only when nothing is ready. ``not-ready`` said so
itself (it starts, or it drains); ``draining`` was told to. These, ``starting`` and ``down`` take
nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a replica stands."""

    STARTING = "starting"
    READY = "ready"
    SUSPECT = "suspect"
    NOT_READY = "not-ready"
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
    HEALTH_OK = "health-ok"
    HEALTH_FAILED = "health-failed"
    DRAIN = "drain"
    UNDRAIN = "undrain"


_S = State
TABLE: Final[dict[tuple[State, Event], State]] = {
    (_S.STARTING, Event.PROBE_OK): _S.READY,
    (_S.STARTING, Event.CONNECT_FAILED): _S.DOWN,
    (_S.STARTING, Event.PROBE_FAILED): _S.DOWN,
    (_S.STARTING, Event.DRAIN): _S.DRAINING,
    (_S.READY, Event.PROBE_NOT_READY): _S.NOT_READY,
    (_S.READY, Event.PROBE_FAILED): _S.SUSPECT,
    (_S.READY, Event.CONNECT_FAILED): _S.DOWN,
    (_S.READY, Event.REQUEST_FAILED): _S.SUSPECT,
    (_S.READY, Event.DRAIN): _S.DRAINING,
    (_S.SUSPECT, Event.PROBE_OK): _S.READY,
    (_S.SUSPECT, Event.REQUEST_OK): _S.READY,
    (_S.SUSPECT, Event.PROBE_NOT_READY): _S.NOT_READY,
    (_S.SUSPECT, Event.PROBE_FAILED): _S.DOWN,
    (_S.SUSPECT, Event.CONNECT_FAILED): _S.DOWN,
    (_S.SUSPECT, Event.DRAIN): _S.DRAINING,
    (_S.NOT_READY, Event.PROBE_OK): _S.READY,
    (_S.NOT_READY, Event.PROBE_FAILED): _S.DOWN,
    (_S.NOT_READY, Event.CONNECT_FAILED): _S.DOWN,
    (_S.NOT_READY, Event.DRAIN): _S.DRAINING,
    (_S.DOWN, Event.PROBE_OK): _S.READY,
    (_S.DOWN, Event.PROBE_NOT_READY): _S.STARTING,
    (_S.DOWN, Event.DRAIN): _S.DRAINING,
    (_S.DRAINING, Event.UNDRAIN): _S.STARTING,
}
"""Every move; an event that is not listed for a state changes nothing.

A replica that says it is not ready (503) is believed whatever its running requests do: SGLang still
answers while it drains. A refused connection means the process is gone. Draining is left only by
removal, a new registration, or on being told.
"""


def follow(state: State, event: Event) -> State:
    """The state after an event."""
    return TABLE.get((state, event), state)
