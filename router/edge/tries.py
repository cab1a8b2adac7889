"""How often one request is tried before the client is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.errors import ConnectFailed, UpstreamStatus

if TYPE_CHECKING:
    from router.core import Ticket
    from router.edge.limits import EdgeLimits
    from router.errors import UpstreamError


class Tries:
    """Counts the tries of one request; those that may have started on it count apart.

    A replica that refused it, or could not be reached, did not start.
    """

    __slots__ = ("_limits", "_n_started")

    def __init__(self, limits: EdgeLimits) -> None:
        self._limits = limits
        self._n_started = 0

    def may_go_on(self, error: UpstreamError, ticket: Ticket) -> bool:
        """Whether the request may be sent to another replica after this failure."""
        limits = self._limits
        if not isinstance(error, (ConnectFailed, UpstreamStatus)):
            self._n_started += 1
            if not limits.is_started_repeated or self._n_started >= limits.started_tries_max:
                return False
        return ticket.n_tries < limits.tries_max


def who(ticket: Ticket) -> str:
    """The replica that has the request, for the person who reads an error."""
    tries = "" if ticket.n_tries == 1 else f" (try {ticket.n_tries})"
    return f"Replica {ticket.replica_id}{tries}"
