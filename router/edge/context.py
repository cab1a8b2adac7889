"""What every connection of one front door shares."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from router.edge.bounds.holding import WaitingRoom
from router.edge.bounds.tries import RetryBudget
from router.edge.entry.credentials import ReplicaKeys
from router.edge.replicas.holders import Holders
from router.edge.wire.decoding import Decoders
from router.framing.forwarding import ForwardingRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from router.core import RouterCore
    from router.dialect.base import PromptFacts
    from router.edge.bounds.limits import EdgeLimits
    from router.edge.replicas.upstream import UpstreamPool
    from router.edge.routes.routes import Routes
    from router.framing.events import RequestHead
    from router.state.fleet.names import ModelNames
    from router.state.history import RequestRecord
    from router.tenants.gate import Gate
    from router.ticket import Ticket


class Pressure(StrEnum):
    """What happens to requests that cannot be served at once."""

    HELD = "held"
    HELD_PLACED = "held-placed"
    HELD_GIVEN_UP = "held-given-up"
    HELD_CLIENT_GONE = "held-client-gone"
    RETRY_DENIED = "retry-denied"
    REPEATED = "repeated"


class Observer(Protocol):
    """Told of each request once it is over: metrics and the access log."""

    def finished(self, record: RequestRecord) -> None:
        """A request that was placed has ended."""

    def turned_away(self, *, code: str, dialect: str, target: str, tenant: str = "") -> None:
        """The router answered a request itself, without placing it."""

    def noted(self, event: Pressure) -> None:
        """Something was done about a request that could not be served at once."""


class Tying(Protocol):
    """Learns the pages of prompts, where replicas tell of theirs."""

    def offer(self, ticket: Ticket, dialect: str, body: bytes) -> None:
        """A request's answer begins; ``body`` is what its replica was sent."""


class Sharing(Protocol):
    """Knows the sessions of other routers."""

    def ask(self, facts: PromptFacts, then: Callable[[], None]) -> bool:
        """Find a session that is not known here; True if ``then`` is called, once and soon."""


class Sweepable(Protocol):
    """A connection whose time-outs the front door's one timer looks after."""

    def sweep(self, now_s: float) -> None:
        """Act on what has taken too long."""

    def drain(self) -> None:
        """Close now if idle, else after the answer that is owed."""

    def shut_down(self) -> None:
        """The time to drain is over: tell the client what happened to its answer, then close."""

    def abort(self) -> None:
        """Close at once, whatever is unsent."""


_ID_BYTES: Final = 16
_IDS_AT_ONCE: Final = 256


def _ids() -> Iterator[str]:
    """Ids without end; the system is asked for the bytes of many at once."""
    while True:
        drawn = os.urandom(_ID_BYTES * _IDS_AT_ONCE).hex()
        for at in range(0, len(drawn), 2 * _ID_BYTES):
            yield drawn[at : at + 2 * _ID_BYTES]


new_request_id: Final[Callable[[], str]] = _ids().__next__
"""A fresh id of 32 hex digits: SGLang aborts by prefix, so all ids have one length."""


@dataclass(slots=True)
class Door:
    """The front door's shared parts; ``connections`` are the clients' live ones.

    ``clients`` counts the connections of each address, ``arriving_bytes`` the bodies that
    have not arrived whole. ``door_id`` names this door in the header by which a request that comes
    round to it is recognised. ``gate`` knows the tenants, None if the door is open to all; ``keys`` are
    those that replicas are sent. ``holders`` knows which replica keeps which response; ``tying`` learns the
    pages of prompts, None if nobody wants them. ``is_draining``: it takes nothing new; ``is_leaving``: it still
    does, but each answer is its connection's last.
    """

    core: RouterCore
    routes: Routes
    names: ModelNames
    limits: EdgeLimits
    observer: Observer
    now_s: Callable[[], float]
    pool: UpstreamPool
    gate: Gate | None = None
    keys: ReplicaKeys = field(default_factory=ReplicaKeys)
    new_id: Callable[[], str] = new_request_id
    door_id: str = field(default_factory=new_request_id)
    connections: set[Sweepable] = field(default_factory=set)
    clients: dict[str, int] = field(default_factory=dict)
    forwarding: ForwardingRules = field(default_factory=ForwardingRules)
    decoders: Decoders = field(default_factory=Decoders)
    holders: Holders = field(default_factory=Holders)
    tying: Tying | None = None
    sharing: Sharing | None = None
    is_draining: bool = False
    is_leaving: bool = False
    arriving_bytes: int = 0

    @property
    def is_closing(self) -> bool:
        """Each answer is its connection's last."""
        return self.is_draining or self.is_leaving

    def arrive(
        self,
        facts: PromptFacts,
        now_s: float,
        request: RequestHead,
        request_id: str,
        *,
        may_wait: bool = False,
    ) -> Ticket:
        """Place a request; its record carries the ids by which people look for it.

        Raises:
            AwaitsTurn: it had better wait for its turn; only if it ``may_wait``.
            Refused: no replica can take the request.
        """
        ticket = self.core.arrive(facts, now_s, may_wait=may_wait)
        ticket.record.request_id, ticket.record.trace_id = request_id, request.trace_id
        return ticket

    room: WaitingRoom = field(init=False)
    budget: RetryBudget = field(init=False)

    def __post_init__(self) -> None:
        self.room = WaitingRoom(self.limits.hold, self.now_s, self.core.fleet.has_turn)
        self.budget = RetryBudget(self.limits.retry)

    def sweep(self, now_s: float) -> None:
        """Let time pass: who waits may have room now."""
        self.budget.turn(now_s)
        self.room.call(now_s)
