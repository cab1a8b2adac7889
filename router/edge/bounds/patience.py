"""How long each state of a client's connection may last."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.edge.bounds.limits import EdgeLimits


class Verdict(Enum):
    """What time says of a connection."""

    FINE = auto()
    STUCK = auto()  # the client has not read for too long
    LATE = auto()  # its request does not arrive
    IDLE = auto()  # it asks for nothing
    OVERDUE = auto()  # it was closed and is still there


class Patience:
    """The times of one connection; all on the door's clock.

    ``started_s``: the first bytes of a request that is not whole, None if there is none.
    ``idle_since_s``: the last answer.
    """

    __slots__ = (
        "_close_by_s",
        "_limits",
        "_paused_since_s",
        "_unsent",
        "idle_since_s",
        "started_s",
    )

    def __init__(self, limits: EdgeLimits, now_s: float) -> None:
        self._limits = limits
        self.idle_since_s = now_s
        self.started_s: float | None = None
        self._paused_since_s = 0.0
        self._close_by_s = 0.0
        self._unsent = 0

    def paused(self, now_s: float) -> None:
        """More is unsent than may be."""
        self._paused_since_s = now_s

    def closing(self, now_s: float) -> None:
        """The connection is being closed."""
        self._close_by_s = now_s + self._limits.close_s

    def allowed_s(self, n_bytes: int) -> float:
        """How long a request may take to arrive of which so many bytes of body are here."""
        return self._limits.request_read_s + n_bytes / self._limits.request_bytes_per_s

    def of_closing(self, now_s: float, unsent_bytes: int) -> Verdict:
        """Closing must end; a client that goes on reading its answer gets all of it.

        The kernel takes more only when much of its own buffer has gone out: progress is coarse.
        """
        limits = self._limits
        if unsent_bytes != self._unsent:
            self._unsent = unsent_bytes
            self._close_by_s = now_s + (limits.stream_idle_s if unsent_bytes else limits.close_s)
            return Verdict.FINE
        return Verdict.OVERDUE if now_s >= self._close_by_s else Verdict.FINE

    def of_reading(self, now_s: float) -> Verdict:
        """Whether a client that is behind may stay so."""
        is_stuck = now_s - self._paused_since_s > self._limits.stream_idle_s
        return Verdict.STUCK if is_stuck else Verdict.FINE

    def of_asking(self, now_s: float, n_bytes: int) -> Verdict:
        """Whether a connection to which no answer is owed may stay; ``n_bytes`` of body are here."""
        if self.started_s is not None:
            is_late = now_s - self.started_s > self.allowed_s(n_bytes)
            return Verdict.LATE if is_late else Verdict.FINE
        is_idle = now_s - self.idle_since_s > self._limits.client_idle_s
        return Verdict.IDLE if is_idle else Verdict.FINE
