"""How often a request is tried before the client is told, and what share of all may be retries."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from router.errors import ConnectFailed, FirstEventTimeout, UpstreamProtocol, UpstreamStatus

if TYPE_CHECKING:
    from router.edge.bounds.limits import EdgeLimits, RetryLimits
    from router.errors import UpstreamError
    from router.ticket import Ticket

_SLOTS: Final = 10
_WINDOW_S: Final = 60.0
"""What counts as recent. Agents' requests take tens of seconds, so those that are lost together
with a replica arrived within the last minute."""


STALLED: Final = FirstEventTimeout("replica-stalled", "a replica does not move")
"""What a request that leaves a replica that stands still has met with."""


class RetryBudget:
    """Counts requests and retries of the last minute; whoever asks adds to ``n_asked`` itself."""

    __slots__ = ("_limits", "_n_taken", "_past", "_slot_ends_s", "n_asked")

    def __init__(self, limits: RetryLimits) -> None:
        self._limits = limits
        self._past: deque[tuple[int, int]] = deque(maxlen=_SLOTS)
        self._n_taken = 0
        self._slot_ends_s = float("-inf")
        self.n_asked = 0

    def take(self, now_s: float) -> bool:
        """Whether one more retry is within the budget; it is then counted."""
        if not self.has_room(now_s):
            return False
        self._n_taken += 1
        return True

    def has_room(self, now_s: float) -> bool:
        """Whether one more retry would be within the budget."""
        self.turn(now_s)
        n_asked = self.n_asked + sum([asked for asked, _ in self._past])
        n_taken = self._n_taken + sum([taken for _, taken in self._past])
        return n_taken < self._limits.floor + self._limits.share * n_asked

    def turn(self, now_s: float) -> None:
        """Let time pass, at least a few times a slot: what is a minute old is forgotten."""
        if now_s < self._slot_ends_s:
            return
        slot_s = _WINDOW_S / _SLOTS
        self._past.append((self.n_asked, self._n_taken))
        self.n_asked = self._n_taken = 0
        n_missed = (now_s - self._slot_ends_s) / slot_s
        self._past.extend([(0, 0)] * min(_SLOTS, int(min(n_missed, _SLOTS))))
        self._slot_ends_s = now_s + slot_s


def may_have_started(error: UpstreamError) -> bool:
    """A replica that refused the request, or could not be reached, did not start on it."""
    return not isinstance(error, (ConnectFailed, UpstreamStatus))


def may_go_on(limits: EdgeLimits, ticket: Ticket, error: UpstreamError, n_started: int) -> bool:
    """Whether the request may be sent again after this failure, as far as its own tries go.

    ``n_started`` are those of them that may have started on it, the failed one included.
    """
    if may_have_started(error) and not (
        limits.is_started_repeated and n_started < limits.started_tries_max
    ):
        return False
    return ticket.n_tries < limits.tries_max


def costs_work(error: UpstreamError) -> bool:
    """Whether a retry after this failure loads the fleet anew: nothing was sent to who was not reached."""
    return not isinstance(error, ConnectFailed)


def may_repeat(error: UpstreamError) -> bool:
    """Whether the same replica may do better in a moment: it broke off, but was neither full nor late."""
    return isinstance(error, UpstreamProtocol)


def who(ticket: Ticket) -> str:
    """The replica that has the request, for the person who reads an error."""
    tries = "" if ticket.n_tries == 1 else f" (try {ticket.n_tries})"
    return f"Replica {ticket.replica_id}{tries}"
