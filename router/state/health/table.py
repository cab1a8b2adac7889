"""A replica's health as a table of states and events.

Only ``ready`` replicas take new sessions. A ``suspect`` one failed a request or missed a probe, a ``full``
one turned a request away: both keep the sessions that live there, and take others only when nothing is
ready. One on ``trial`` failed too often and is tried with a request at a time. ``not-ready`` said so
itself (it starts, or it drains); ``draining`` was told to; a ``stalled`` one answers over HTTP, but
its scheduler stands still: it is sent requests only where nobody else is left. ``not-ready``, ``draining``,
``starting`` and ``down`` replicas take nothing.

What events are made of probes and requests is worked out in ``router.state.health.standing``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a replica stands."""

    STARTING = "starting"
    READY = "ready"
    FULL = "full"
    TRIAL = "trial"
    SUSPECT = "suspect"
    STALLED = "stalled"
    NOT_READY = "not-ready"
    DRAINING = "draining"
    DOWN = "down"


class Event(StrEnum):
    """What was learned about a replica.

    ``errors``: too large a share of its requests failed. ``full``: it turned a request away; ``room``: it
    may have room again. ``try``: it is there again, after it has failed often. ``stall``: its
    load report has not changed for longer than its longest step can take; ``move``: it has.
    """

    PROBE_OK = "probe-ok"
    PROBE_NOT_READY = "probe-not-ready"
    PROBE_FAILED = "probe-failed"
    CONNECT_FAILED = "connect-failed"
    HEALTH_OK = "health-ok"
    HEALTH_FAILED = "health-failed"
    REQUEST_FAILED = "request-failed"
    REQUEST_OK = "request-ok"
    ERRORS = "errors"
    FULL = "full"
    ROOM = "room"
    TRY = "try"
    STALL = "stall"
    MOVE = "move"
    DRAIN = "drain"
    UNDRAIN = "undrain"


_S = State
TABLE: Final[dict[tuple[State, Event], State]] = {
    (_S.STARTING, Event.PROBE_OK): _S.READY,
    (_S.STARTING, Event.TRY): _S.TRIAL,
    (_S.STARTING, Event.CONNECT_FAILED): _S.DOWN,
    (_S.STARTING, Event.PROBE_FAILED): _S.DOWN,
    (_S.STARTING, Event.DRAIN): _S.DRAINING,
    (_S.READY, Event.PROBE_NOT_READY): _S.NOT_READY,
    (_S.READY, Event.PROBE_FAILED): _S.SUSPECT,
    (_S.READY, Event.CONNECT_FAILED): _S.DOWN,
    (_S.READY, Event.HEALTH_FAILED): _S.SUSPECT,
    (_S.READY, Event.REQUEST_FAILED): _S.SUSPECT,
    (_S.READY, Event.ERRORS): _S.SUSPECT,
    (_S.READY, Event.FULL): _S.FULL,
    (_S.READY, Event.STALL): _S.STALLED,
    (_S.READY, Event.DRAIN): _S.DRAINING,
    (_S.FULL, Event.ROOM): _S.READY,
    (_S.FULL, Event.PROBE_NOT_READY): _S.NOT_READY,
    (_S.FULL, Event.PROBE_FAILED): _S.SUSPECT,
    (_S.FULL, Event.CONNECT_FAILED): _S.DOWN,
    (_S.FULL, Event.HEALTH_FAILED): _S.SUSPECT,
    (_S.FULL, Event.REQUEST_FAILED): _S.SUSPECT,
    (_S.FULL, Event.ERRORS): _S.SUSPECT,
    (_S.FULL, Event.STALL): _S.STALLED,
    (_S.FULL, Event.DRAIN): _S.DRAINING,
    (_S.TRIAL, Event.REQUEST_OK): _S.READY,
    (_S.TRIAL, Event.PROBE_NOT_READY): _S.NOT_READY,
    (_S.TRIAL, Event.PROBE_FAILED): _S.SUSPECT,
    (_S.TRIAL, Event.CONNECT_FAILED): _S.DOWN,
    (_S.TRIAL, Event.HEALTH_FAILED): _S.SUSPECT,
    (_S.TRIAL, Event.REQUEST_FAILED): _S.SUSPECT,
    (_S.TRIAL, Event.STALL): _S.STALLED,
    (_S.TRIAL, Event.DRAIN): _S.DRAINING,
    (_S.SUSPECT, Event.PROBE_OK): _S.READY,
    (_S.SUSPECT, Event.REQUEST_OK): _S.READY,
    (_S.SUSPECT, Event.TRY): _S.TRIAL,
    (_S.SUSPECT, Event.PROBE_NOT_READY): _S.NOT_READY,
    (_S.SUSPECT, Event.PROBE_FAILED): _S.DOWN,
    (_S.SUSPECT, Event.CONNECT_FAILED): _S.DOWN,
    (_S.SUSPECT, Event.STALL): _S.STALLED,
    (_S.SUSPECT, Event.DRAIN): _S.DRAINING,
    (_S.STALLED, Event.MOVE): _S.READY,
    (_S.STALLED, Event.TRY): _S.TRIAL,
    (_S.STALLED, Event.PROBE_NOT_READY): _S.NOT_READY,
    (_S.STALLED, Event.PROBE_FAILED): _S.DOWN,
    (_S.STALLED, Event.CONNECT_FAILED): _S.DOWN,
    (_S.STALLED, Event.DRAIN): _S.DRAINING,
    (_S.NOT_READY, Event.PROBE_OK): _S.READY,
    (_S.NOT_READY, Event.TRY): _S.TRIAL,
    (_S.NOT_READY, Event.PROBE_FAILED): _S.DOWN,
    (_S.NOT_READY, Event.CONNECT_FAILED): _S.DOWN,
    (_S.NOT_READY, Event.DRAIN): _S.DRAINING,
    (_S.DOWN, Event.PROBE_OK): _S.READY,
    (_S.DOWN, Event.TRY): _S.TRIAL,
    (_S.DOWN, Event.PROBE_NOT_READY): _S.STARTING,
    (_S.DOWN, Event.DRAIN): _S.DRAINING,
    (_S.DRAINING, Event.UNDRAIN): _S.STARTING,
}
"""Every move; an event that is not listed for a state changes nothing.

A replica that says it is not ready (503) is believed whatever its running requests do: SGLang still
answers while it drains. A refused connection means the process is gone. Draining is left only by
removal, a new registration, or on being told. A readiness probe that a stalled replica answers says nothing:
it is its HTTP server that answers.
"""

TAKING: Final = frozenset((State.READY, State.TRIAL))
"""Who takes requests of any session."""

KEEPING: Final = frozenset((State.SUSPECT, State.FULL))
"""Who takes those of the sessions that live there, and others where nobody else is left."""


HOPED_FOR: Final = frozenset((State.STALLED,))
"""Who takes requests only where nobody else is left: they wait for it to go on, rather than be refused."""


def follow(state: State, event: Event) -> State:
    """The state after an event."""
    return TABLE.get((state, event), state)
