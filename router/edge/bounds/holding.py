"""Requests that wait at the door until there is room for them: the oldest first, and bounded.

Of those that wait for their turn at an engine that takes the shortest prompts first, the shortest go first.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from router.dialect.clients.agents import BUSY
from router.errors import AwaitsTurn, Refused, RouterError, UpstreamStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.dialect.clients.agents import Manners
    from router.edge.bounds.limits import HoldLimits

    HasTurn = Callable[[str], bool]
    """Whether a long prompt may be sent to a replica of this id now."""

_log: Final = logging.getLogger("homeport.edge")

_LIMIT: Final = "tenant-limit"
_PAUSE_S: Final = 1.0
_PAUSE_S_MAX: Final = 8.0
"""Between two tries of a request that the fleet's engines, or its model's replicas, turned away."""

_LOOK_S: Final = 1.0
"""How often who waits for its turn looks whether another replica is better for it by now."""


def wait_s(limits: HoldLimits, error: RouterError, manners: Manners) -> float:
    """How long a request may wait after this refusal, 0 for not at all."""
    code = error.code
    if isinstance(error, AwaitsTurn):
        return error.allowed_s(most_s=limits.turn_s, short_first_s=limits.turn_short_first_s)
    if code == "no-replica-ready":
        allowed_s = limits.no_replica_ready_s
    elif code == _LIMIT:
        allowed_s = limits.tenant_limit_s
    elif code == "saturated" or (isinstance(error, UpstreamStatus) and error.http_status in BUSY):
        allowed_s = limits.saturated_s
    else:
        return 0.0
    return max(allowed_s, limits.unretried_s) if manners.ends_turn else allowed_s


class Waiter(Protocol):
    """A request that may wait."""

    def try_again(self, now_s: float) -> bool:
        """Place it, if there is room; False if there is none for anybody."""

    def abandon(self, error: RouterError) -> bool:
        """Tell the client this error; False if there is nobody to be told."""


class Wait:
    """The wait of one request.

    ``refusal`` is the last one, and what the client is told after ``until_s``, unless it waits for its turn: who does
    is sent then. It is not tried before ``due_s``.
    """

    __slots__ = ("_looked_s", "_pause_s", "due_s", "n_bytes", "refusal", "until_s")

    def __init__(self, refusal: RouterError, *, until_s: float, n_bytes: int) -> None:
        self.refusal = refusal
        self.until_s = until_s
        self.n_bytes = n_bytes
        self.due_s = 0.0
        self._looked_s = 0.0
        self._pause_s = _PAUSE_S

    @property
    def is_for_turn(self) -> bool:
        """It waits for its turn at a replica."""
        return isinstance(self.refusal, AwaitsTurn)

    @property
    def place(self) -> int:
        """Among all who wait, the least goes first, and of equals the oldest."""
        refusal = self.refusal
        return refusal.place if isinstance(refusal, AwaitsTurn) else 0

    @property
    def awaits_fleet(self) -> bool:
        """The router's own view tells when there may be room again."""
        return isinstance(self.refusal, Refused) and self.refusal.code != _LIMIT

    def refused(self, refusal: RouterError, now_s: float) -> None:
        """It was looked at now, and waits, or still waits, for this reason."""
        self.refusal = refusal
        self._looked_s = now_s

    def may_try(self, now_s: float, has_turn: HasTurn) -> bool:
        """It is due; of those that wait for a turn only who may have it, or has not looked elsewhere for a while."""
        refusal = self.refusal
        if self.due_s > now_s:
            return False
        if not isinstance(refusal, AwaitsTurn) or now_s - self._looked_s >= _LOOK_S:
            return True
        return now_s >= self.until_s or has_turn(refusal.replica_id)

    def pause(self, now_s: float) -> None:
        """It was turned away though there seemed to be room: wait longer each time."""
        self.due_s = now_s + self._pause_s
        self._pause_s = min(2.0 * self._pause_s, _PAUSE_S_MAX)


def _place(waiting: tuple[Waiter, Wait]) -> int:
    return waiting[1].place


class WaitingRoom:
    """Who is ``waiting``, in the order in which they came."""

    __slots__ = ("_has_turn", "_is_rung", "_limits", "_now_s", "n_bytes", "waiting")

    def __init__(self, limits: HoldLimits, now_s: Callable[[], float], has_turn: HasTurn) -> None:
        self._limits = limits
        self._has_turn = has_turn
        self._now_s = now_s
        self.waiting: dict[Waiter, Wait] = {}
        self._is_rung = False
        self.n_bytes = 0

    def __len__(self) -> int:
        return len(self.waiting)

    def enter(self, waiter: Waiter, wait: Wait) -> bool:
        """Let a request wait; False if there are enough."""
        limits = self._limits
        if len(self.waiting) >= limits.requests_max:
            return False
        if self.n_bytes + wait.n_bytes > limits.bytes_max:
            return False
        self.waiting[waiter] = wait
        self.n_bytes += wait.n_bytes
        return True

    def leave(self, waiter: Waiter) -> None:
        """It waits no more."""
        wait = self.waiting.pop(waiter, None)
        if wait is not None:
            self.n_bytes -= wait.n_bytes

    def ring(self) -> None:
        """Something became free: who waits goes before who comes next."""
        if self.waiting and not self._is_rung:
            self._is_rung = True
            asyncio.get_running_loop().call_soon(self._answer_bell)

    def call(self, now_s: float) -> None:
        """Let those that are due try again, until one finds that there is no room."""
        for waiter, wait in sorted(self.waiting.items(), key=_place):
            if not wait.may_try(now_s, self._has_turn):
                continue
            try:
                if not waiter.try_again(now_s):
                    break
            except Exception:  # noqa: BLE001 - one request's fault must not stop the others
                _log.exception("held-request-failed")
                waiter.abandon(
                    RouterError("internal", "The router failed on this request; it is logged.")
                )

    def _answer_bell(self) -> None:
        self._is_rung = False
        self.call(self._now_s())
