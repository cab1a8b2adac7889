"""How replicas fare: probes, requests and reports become events of the health table.

The table says what an event means; here is worked out which event a fact is, given a replica's standing,
and what a change of state entails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.errors import ConnectFailed, UpstreamStatus
from router.state.health.progress import Progress
from router.state.health.standing import RAMP_END, RAMP_START
from router.state.health.table import TAKING, Event, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.errors import UpstreamError
    from router.state.beliefs import Beliefs
    from router.state.cache.prefix_index import PrefixIndex
    from router.state.fleet.fleet import Fleet
    from router.state.fleet.replica import Replica

    StateListener = Callable[[str, State, State, Event], None]
    """Told of a change: replica, state before, state now, what caused it."""

_PROBE_OK: Final = Event.PROBE_OK
_READY: Final = State.READY
_FULL: Final = State.FULL
_RETURNS: Final = frozenset((Event.PROBE_OK, Event.MOVE))
"""What brings a replica back."""

_PROBED: Final = frozenset((Event.PROBE_OK, Event.PROBE_NOT_READY, Event.PROBE_FAILED))
_DOUBTED: Final = frozenset((State.SUSPECT, State.STALLED))
_MISSED_MAX: Final = 3
"""Probes in a row without an answer, until a replica that is suspect is down."""

_AWAY: Final = frozenset(
    (State.STARTING, State.SUSPECT, State.STALLED, State.NOT_READY, State.DOWN)
)
_FALLEN: Final = frozenset((State.SUSPECT, State.STALLED, State.DOWN))
_USED: Final = TAKING | {State.FULL}
_LOST: Final = frozenset((State.STALLED, State.DOWN))
"""Where requests that have not begun should not wait."""

_STILL: Final = frozenset((State.NOT_READY, State.DRAINING))

_CAPACITY_STATUSES: Final = frozenset((429, 503))
_SERVER_FAULT: Final = 500
_OWN_CODE: Final = "saturated"
"""The router itself had no room for the connection."""
_FULL_S: Final = 1.0
"""How long a replica that turned a request away counts as full, if none of its requests ends before."""


class Conduct:
    """Applies events to the fleet's replicas and tells who listens of every change of state.

    It keeps nothing of its own: whoever is told something may have one.
    """

    def __init__(
        self,
        fleet: Fleet,
        index: PrefixIndex,
        beliefs: Beliefs,
        on_change: StateListener | None = None,
    ) -> None:
        self._fleet = fleet
        self._index = index
        self._beliefs = beliefs
        self._on_change = on_change

    def heard(self, replica: Replica, event: Event, now_s: float) -> State:
        """A fact about a replica's health; answers the state before."""
        if event is _PROBE_OK:
            replica.ready_s = now_s
        judged = self._judged(replica, event, now_s)
        if judged is None:
            return replica.state
        return self._follow(replica, judged, now_s)

    def failed(self, replica: Replica, error: UpstreamError, now_s: float) -> None:
        """A request failed there. Being full is no fault of its health, and what the router lacks none of it."""
        replica.counters.failures += 1
        if error.code == _OWN_CODE:
            return
        standing = replica.standing
        if isinstance(error, UpstreamStatus):
            if error.http_status in _CAPACITY_STATUSES:
                self.heard(replica, Event.FULL, now_s)
            elif error.http_status >= _SERVER_FAULT:
                standing.failed(now_s)
        else:
            standing.failed(now_s)
            is_gone = isinstance(error, ConnectFailed) and error.code != "connect-timeout"
            self.heard(replica, Event.CONNECT_FAILED if is_gone else Event.REQUEST_FAILED, now_s)
        if standing.is_poor(now_s):
            self.heard(replica, Event.ERRORS, now_s)

    def succeeded(self, replica: Replica, now_s: float) -> None:
        """A request got its first event there."""
        replica.standing.succeeded(now_s)
        if replica.state is not _READY:
            self.heard(replica, Event.REQUEST_OK, now_s)
        elif replica.allowance is not None:
            wider = 2 * replica.allowance
            self._fleet.allow(replica, None if wider >= RAMP_END else wider)

    def ended(self, replica: Replica, now_s: float) -> None:
        """A request ended there: one that was full has room."""
        if replica.state is _FULL:
            self.heard(replica, Event.ROOM, now_s)

    def tick(self, now_s: float) -> None:
        """Let time pass: who was full is tried again."""
        for replica in list(self._fleet.full.values()):
            if now_s - replica.full_s >= _FULL_S:
                self.heard(replica, Event.ROOM, now_s)

    def _judged(self, replica: Replica, event: Event, now_s: float) -> Event | None:
        """The event that a fact is for this replica, None if it is none."""
        standing, state = replica.standing, replica.state
        if event in _PROBED:
            n_missed = standing.probed(is_answered=event is not Event.PROBE_FAILED)
            if event is Event.PROBE_FAILED and state in _DOUBTED and n_missed < _MISSED_MAX:
                return None  # a server that has much to do may be late
        if event in _RETURNS and state in _AWAY:
            if standing.is_kept_away(now_s) and self._fleet.has_takers:
                # It answers, but that it has done before: down it is not, taken back neither.
                return Event.PROBE_NOT_READY if state is State.DOWN else None
            if standing.needs_trial(now_s) and state is not State.STALLED:
                return Event.TRY
            if event is Event.MOVE and standing.needs_trial(now_s):
                return Event.TRY
        elif event is Event.REQUEST_OK and state is State.SUSPECT and standing.needs_trial(now_s):
            return None
        return event

    def _follow(self, replica: Replica, event: Event, now_s: float) -> State:
        before = self._fleet.follow(replica, event)
        after = replica.state
        if after is before:
            return before
        self._entered(replica, before, event, now_s)
        if self._on_change is not None:
            self._on_change(replica.replica_id, before, after, event)
        return before

    def _entered(self, replica: Replica, before: State, event: Event, now_s: float) -> None:
        """What a new state entails."""
        after, fleet, standing = replica.state, self._fleet, replica.standing
        replica.load.is_lost = after in _LOST or (
            before is State.STALLED
            and after in _STILL  # it says so, or is told to; it still stands still
        )
        if after in _FALLEN and before in _USED:
            standing.fell(now_s)
        if after is State.DOWN:
            if event is Event.CONNECT_FAILED:
                # The process is gone: what it held in memory will not be there again. Of one that is only
                # silent, what it says of its start when it is back, or its next answer, tells.
                self._index.clear(replica.replica_id)
            self._beliefs.lost(replica.replica_id)
            replica.progress = Progress()
            fleet.set_foreign(replica, 0, 0.0)
        elif after is State.STALLED:
            replica.counters.stalls += 1
            replica.stalled_s = now_s
        elif after is State.FULL:
            replica.full_s = now_s
        self._ramp(replica, before, now_s)

    def _ramp(self, replica: Replica, before: State, now_s: float) -> None:
        """How much a replica in a new state may be given at once."""
        after, standing = replica.state, replica.standing
        if after is State.TRIAL:
            self._fleet.allow(replica, 1)
        elif after is State.READY:
            if before is State.TRIAL:
                standing.passed()
            has_fallen = before is State.STARTING and standing.falls(now_s) > 0.0
            if has_fallen or before in (State.TRIAL, State.STALLED, State.DOWN):
                self._fleet.allow(replica, RAMP_START)
        elif after is not State.FULL:
            self._fleet.allow(replica, None)
