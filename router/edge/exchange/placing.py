"""Where one request is: at a replica, on its way to another, or waiting at the door for room."""

from __future__ import annotations

import logging
from enum import Enum, auto
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from router.dialect.clients.agents import manners_of
from router.edge.bounds.holding import Wait, wait_s
from router.edge.bounds.tries import STALLED, costs_work, may_go_on, may_have_started, may_repeat
from router.edge.context import Pressure
from router.edge.exchange.opening import opened
from router.errors import AwaitsTurn, Refused, RouterError, UpstreamStatus
from router.state.health.table import KEEPING, TAKING
from router.state.history import Outcome
from router.ticket import priority_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.dialect.base import Dialect, PromptFacts, Usage
    from router.dialect.clients.agents import Manners
    from router.edge.bounds.holding import Waiter
    from router.edge.context import Door
    from router.edge.exchange.tenancy import Visit
    from router.errors import UpstreamError
    from router.framing.events import RequestHead
    from router.ticket import Ticket

_ANSWERING: Final = TAKING | KEEPING
_LOOK_S: Final = 1.0
_log: Final = logging.getLogger("homeport.edge")


class Move(Enum):
    """What became of a request after a failure."""

    MOVED = auto()  # the core has placed it anew: dispatch it
    LATER = auto()  # it goes to the same replica once more, at `again_s`
    STAYS = auto()  # nobody else may have it


class Placement:
    """One request before the core: its facts, what is forwarded of it, and its ticket.

    ``ticket`` is None until it is placed, and while it waits; ``wait`` is there from when it was held
    until it is answered. ``again_s`` is when it is to be sent
    once more, infinite unless a move said ``LATER``.
    """

    __slots__ = (
        "_door",
        "_leaves_s",
        "_manners",
        "_n_started",
        "_request",
        "_request_id",
        "_visit",
        "again_s",
        "body",
        "dialect",
        "facts",
        "fields",
        "is_stream",
        "started_s",
        "strips_usage",
        "ticket",
        "wait",
    )

    def __init__(
        self, door: Door, dialect: Dialect, request: RequestHead, visit: Visit | None = None
    ) -> None:
        self._door = door
        self._visit = visit
        self._request_id = ""
        self.dialect = dialect
        self._request = request
        self._manners: Manners | None = None
        self._n_started = 0
        self._leaves_s = -inf
        self.wait: Wait | None = None
        self.facts: PromptFacts | None = None
        self.ticket: Ticket | None = None
        self.body = self.fields = b""
        self.is_stream = self.strips_usage = False
        self.started_s = 0.0
        self.again_s = inf

    @property
    def manners(self) -> Manners:
        """How this request's agent is refused; looked up when it is."""
        if self._manners is None:
            self._manners = manners_of(self._request.headers, self._request.path)
        return self._manners

    def read(self, body: bytes, request_id: str, kept_id: str) -> None:
        """Learn what is asked, and prepare what is forwarded.

        Raises:
            ClientError: the body cannot be read.
        """
        self._request_id = request_id
        opening = opened(
            self._door,
            self.dialect,
            self._request,
            body,
            request_id,
            visit=self._visit,
            kept_id=kept_id,
        )
        self.facts, self.body, self.strips_usage, self.fields = opening
        self.is_stream = opening.facts.is_stream

    def fields_for(self, ticket: Ticket) -> bytes:
        """The header lines that are forwarded to the replica which has the request now."""
        replica = self._door.core.fleet.get(ticket.replica_id)
        if replica is None or not replica.has_priorities or not ticket.record.is_turn:
            return self.fields
        priority = priority_of(ticket.prompt_tokens, ticket.cached_tokens)
        return b"%bx-override-priority: %d\r\n" % (self.fields, priority)

    def asks(self, then: Callable[[], None], fail: Callable[[RouterError], None]) -> bool:
        """Ask for the session where other routers may know it better; True if ``then`` is called, soon.

        ``fail`` is told what goes wrong in that.
        """
        sharing = self._door.sharing
        if sharing is None or self.facts is None:
            return False
        return sharing.ask(self.facts, partial(_guarded, then, fail))

    def arrive(self, waiter: Waiter, now_s: float) -> bool:
        """Place the request; False if it waits for room.

        Raises:
            Refused: no replica can take it, and it may not wait.
        """
        door = self._door
        self.started_s = now_s
        door.budget.n_asked += 1
        try:
            self._admit(now_s)
            if not self._takes_turn(waiter, now_s):
                self._let_in(now_s)
        except Refused as refusal:
            if not self.hold(refusal, waiter, now_s):
                raise
        return self.ticket is not None

    def let_go(self) -> None:
        """The answer begins: the body is not sent again."""
        tying = self._door.tying
        if tying is not None and self.ticket is not None:
            tying.offer(self.ticket, self.dialect.name, self.body)
        self.body = b""

    def began(self, now_s: float) -> None:
        """The first model event came; where a long prompt was computed, it is the next one's turn."""
        door, ticket = self._door, self.ticket
        assert ticket is not None
        door.core.began(ticket, now_s)
        if door.room.waiting and ticket.entry.is_long:
            door.room.ring()

    # After a failure

    def move(self, error: UpstreamError, now_s: float) -> Move:
        """Let the core place a failed request anew, within its tries and the budget of all."""
        door, ticket = self._door, self.ticket
        assert ticket is not None
        self._n_started += may_have_started(error)
        if not may_go_on(door.limits, ticket, error, self._n_started):
            door.core.blame(ticket, error, now_s)
            return Move.STAYS
        if costs_work(error) and not door.budget.take(now_s):
            door.observer.noted(Pressure.RETRY_DENIED)
            door.core.blame(ticket, error, now_s)
            return Move.STAYS
        if door.core.retry(ticket, error, now_s):
            self.again_s = inf
            return Move.MOVED
        replica = door.core.fleet.get(ticket.replica_id)
        is_there = replica is not None and replica.state in _ANSWERING
        if not is_there or not may_repeat(error):
            return Move.STAYS
        door.observer.noted(Pressure.REPEATED)
        self.again_s = now_s + door.limits.retry.backoff_s
        return Move.LATER

    def may_leave(self, now_s: float) -> bool:
        """It has not begun where nothing moves, and may go to somebody else; looked at once a second."""
        ticket, door = self.ticket, self._door
        if ticket is None or not ticket.entry.load.is_lost or now_s < self._leaves_s:
            return False
        self._leaves_s = now_s + _LOOK_S
        n_started = self._n_started + 1
        return (
            door.core.has_elsewhere(ticket)
            and may_go_on(door.limits, ticket, STALLED, n_started)
            and door.budget.has_room(now_s)
        )

    def finish(
        self,
        outcome: Outcome,
        now_s: float,
        *,
        usage: Usage | None = None,
        error: RouterError | None = None,
    ) -> None:
        """The request is over, or was taken back: close its ticket. Room for another."""
        door, ticket = self._door, self.ticket
        assert ticket is not None
        self.body = b""
        door.observer.finished(door.core.finish(ticket, outcome, now_s, usage=usage, error=error))
        if door.room.waiting:
            door.room.ring()

    # At the door

    @property
    def is_waiting(self) -> bool:
        """It is at the door now."""
        return self.wait is not None and self.ticket is None

    @property
    def refusal(self) -> RouterError:
        """Why it waits."""
        assert self.wait is not None
        return self.wait.refusal

    def is_over(self, now_s: float) -> bool:
        """It has waited long enough. Who waits for its turn is sent then, not refused."""
        assert self.wait is not None
        return now_s >= self.wait.until_s and not self.wait.is_for_turn

    def hold(self, refusal: RouterError, waiter: Waiter, now_s: float) -> bool:
        """Let it wait for room, if its agent or the settings want that; False if it may not."""
        door, wait = self._door, self.wait
        if wait is None:
            allowed_s = wait_s(door.limits.hold, refusal, self.manners)
            if not allowed_s:
                return False
            wait = Wait(refusal, until_s=self.started_s + allowed_s, n_bytes=len(self.body))
        elif not isinstance(refusal, (Refused, UpstreamStatus)):
            return False
        else:
            self._wait_on(wait, refusal)
        if now_s >= wait.until_s or not door.room.enter(waiter, wait):
            return False
        if self.wait is None:
            door.observer.noted(Pressure.HELD)
        self.wait = wait
        wait.refused(refusal, now_s)
        if self.ticket is not None:
            wait.pause(now_s)
            self._take_back(refusal, now_s)
        return True

    def find_room(self, waiter: Waiter, now_s: float) -> bool | None:
        """Place it, if there is room: True if it is placed, None if there is room for others only."""
        door, wait = self._door, self.wait
        assert wait is not None
        is_full = wait.awaits_fleet and door.core.fleet.view().is_empty
        if (is_full and not wait.is_for_turn) or door.is_draining:
            return False
        try:
            self._admit(now_s)
            self._let_in_turn(now_s)
        except Refused as refusal:
            self._wait_on(wait, refusal)
            wait.refused(refusal, now_s)
            if not wait.is_for_turn:
                wait.pause(now_s)
            return None
        door.room.leave(waiter)
        return True

    def leave(self, waiter: Waiter, how: Pressure) -> None:
        """It waits no more, nor will it again."""
        if self.wait is not None:
            self.wait = None
            self._door.room.leave(waiter)
            self._door.observer.noted(how)

    def _takes_turn(self, waiter: Waiter, now_s: float) -> bool:
        """Place it unless it has to wait for its turn, and let it wait then; False if it can do neither."""
        try:
            self._let_in_turn(now_s)
        except AwaitsTurn as turn:
            return self.hold(turn, waiter, now_s)
        return True

    def _let_in_turn(self, now_s: float) -> None:
        """Place it, if it need not wait for its turn: only a stream shows its client that it is alive meanwhile.

        Raises:
            AwaitsTurn: it is to wait on.
            Refused: no replica can take it.
        """
        hold, waited_s = self._door.limits.hold, now_s - self.started_s
        try:
            self._let_in(now_s, may_wait=self.is_stream and waited_s < hold.turn_s)
        except AwaitsTurn as turn:
            if waited_s < wait_s(hold, turn, self.manners):
                raise
            self._let_in(now_s)

    def _wait_on(self, wait: Wait, refusal: RouterError) -> None:
        """It may wait as long as its new refusal allows, where one of the two is that of a turn."""
        if wait.is_for_turn or isinstance(refusal, AwaitsTurn):
            allowed_s = wait_s(self._door.limits.hold, refusal, self.manners)
            wait.until_s = self.started_s + allowed_s

    def _admit(self, now_s: float) -> None:
        if self._visit is not None:
            self._visit.admit(now_s)

    def _let_in(self, now_s: float, *, may_wait: bool = False) -> None:
        assert self.facts is not None
        self.ticket = ticket = self._door.arrive(
            self.facts, now_s, self._request, self._request_id, may_wait=may_wait
        )
        ticket.record.held_s = now_s - self.started_s
        if self._visit is not None:
            self._visit.placed(ticket, len(self.body))

    def _take_back(self, error: RouterError, now_s: float) -> None:
        body = self.body
        self.finish(Outcome.HELD, now_s, error=error)
        self.body = body
        self.ticket = None
        self.again_s = inf


def _guarded(then: Callable[[], None], fail: Callable[[RouterError], None]) -> None:
    """Nobody above answers what fails here."""
    try:
        then()
    except RouterError as error:
        fail(error)
    except Exception:  # noqa: BLE001 - a fault of the router itself is answered as one
        _log.exception("request-failed")
        fail(RouterError("internal", "The router failed on this request; it is logged."))
