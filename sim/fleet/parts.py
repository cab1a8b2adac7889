"""What a run is made of: replicas, exchanges, and the doors and clients at both ends of these."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from sim.kernel import Alarm, Rank

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replica.hardware.profiles import EngineFacts
    from router.dialect.base import Usage
    from router.errors import RouterError, UpstreamError
    from router.state.history import Outcome
    from router.ticket import Ticket
    from sim.engine.replica_model import ReplicaModel
    from sim.engine.requests import LoadReport
    from sim.workload.play.turns import PlayedPrompt, PlayedTurn

    ModelMaker = Callable[[EngineFacts, int], ReplicaModel]
    """From facts and the replica's number to its engine."""

HOP_S: Final = 0.001
"""One way through the network, client to engine. All of it lies between client and router: what a router
tells a replica is there at once, which no decision depends on."""


class SimReplica:
    """One replica: what runs there, and whether its process listens.

    ``exchanges`` are those submitted to the engine and not over, by engine request id. ``frozen`` is the
    report that is told instead of the present one, while its loads are stale. ``submitted``
    requests were told to the engine, ``cached_tokens`` reported by it. ``watchers`` are the doors that know
    it; ``n_asleep`` of them do not ask it, and want to know when that may bring something new. ``placed``
    counts the requests that are there by the books of each door, by its number.
    """

    __slots__ = (
        "alarm",
        "cached_tokens",
        "exchanges",
        "facts",
        "frozen",
        "has_joined",
        "index",
        "is_draining",
        "is_gone",
        "is_listening",
        "model",
        "n_asleep",
        "placed",
        "replica_id",
        "slow_factor",
        "submitted",
        "watchers",
    )

    def __init__(
        self,
        index: int,
        facts: EngineFacts,
        make: ModelMaker,
        wake: Callable[[SimReplica], None],
        *,
        is_listening: bool,
    ) -> None:
        self.index = index
        self.replica_id = f"r{index:04d}"
        self.facts = facts
        self.alarm = Alarm(Rank.ENGINE, wake, self)
        self.exchanges: dict[str, Exchange] = {}
        self.is_listening = is_listening
        self.has_joined = is_listening
        self.is_draining = False
        self.is_gone = False
        self.frozen: LoadReport | None = None
        self.slow_factor = 1.0
        self.submitted = self.cached_tokens = 0
        self.watchers: list[Door] = []
        self.n_asleep = 0
        self.placed: dict[int, int] = {}
        self.model = make(facts, index)

    @property
    def capacity_tokens(self) -> int:
        """KV tokens of device and host tier together."""
        return self.facts.capacity_tokens + self.facts.host_capacity_tokens

    @property
    def is_serving(self) -> bool:
        """It takes requests, whatever routers think of it."""
        return self.is_listening and not self.is_draining

    @property
    def is_idle(self) -> bool:
        """Its engine has nothing to do and nothing to tell."""
        return self.model.next_at() is None

    def report(self, now_s: float) -> LoadReport:
        """What it tells of its load when asked now."""
        if self.frozen is not None:
            return replace(self.frozen, at_s=now_s)
        return self.model.report(now_s)

    def used_ratio(self) -> float | None:
        """The share of the device pool that holds something; None while there is no process."""
        if not self.is_listening:
            return None
        pool = self.model.pool
        return (pool.tree.n_pages + pool.private_pages) / pool.capacity_pages

    def touch(self) -> None:
        """Asking it may bring something new from now on."""
        if self.n_asleep:
            for door in self.watchers:
                door.changed(self)

    def slow(self, factor: float, now_s: float) -> None:
        """From now on every step takes ``factor`` times as long; a new process as well."""
        self.slow_factor = factor
        self.model.slow(factor, now_s)

    def start_again(self, now_s: float) -> None:
        """A new process in the old one's place: nothing cached, nothing running."""
        assert not self.exchanges, f"{self.replica_id} starts again with requests of its last life"
        if self.slow_factor != 1.0:
            self.model.slow(self.slow_factor, now_s)
        self.is_listening = True


class Exchange:
    """One turn and where it stands.

    ``tries`` counts how often the client sent it, ``sends`` the replicas that a router sent this try to,
    ``started`` those of them that may have started on it. ``began_s`` is the first token of this try at
    the router, ``has_token`` that the client has seen one in any. ``held`` is the replica in
    whose row of the door's books it stands; ``order`` counts turns, those from ``order_floor`` on were not
    all over when it was first sent. Until ``turn_by_s`` this try may wait at the door for its turn, unless it
    ``has_waited`` for long enough where it would go; ``awaits``, while
    it does: the door's number and the replica.
    """

    __slots__ = (
        "awaits",
        "began_s",
        "cached_tokens",
        "ceiling_tokens",
        "door",
        "due_s",
        "has_token",
        "has_waited",
        "held",
        "is_measured",
        "is_over",
        "order",
        "order_floor",
        "priority",
        "prompt",
        "replica",
        "rid",
        "row",
        "sends",
        "started",
        "ticket",
        "tried",
        "tries",
        "turn",
        "turn_by_s",
    )

    def __init__(self, turn: PlayedTurn, due_s: float, prompt: PlayedPrompt) -> None:
        self.turn = turn
        self.due_s = due_s
        self.prompt: PlayedPrompt | None = prompt
        self.ceiling_tokens = prompt.ceiling_tokens
        self.row = -1
        self.order = self.order_floor = 0
        self.held: SimReplica | None = None
        self.priority = 0
        self.is_measured = False
        self.is_over = False
        self.has_token = False
        self.tries = 1
        self.sends = 0
        self.started = 0
        self.rid = ""
        self.began_s: float | None = None
        self.cached_tokens = 0
        self.door: Door | None = None
        self.replica: SimReplica | None = None
        self.ticket: Ticket | None = None
        self.tried: Sequence[SimReplica] = ()
        self.turn_by_s = 0.0
        self.has_waited = False
        self.awaits: tuple[int, str] | None = None

    def waited_s(self, now_s: float) -> float:
        """From the client's first try until what leaves the router now is with the client."""
        return now_s + HOP_S - self.due_s


class Door(Protocol):
    """What stands between clients and replicas: a router with its core, or the reference's exact knowledge."""

    number: int
    is_open: bool

    def place(self, exchange: Exchange, now_s: float) -> tuple[SimReplica, str, int]:
        """Decide where a turn goes; answers the replica, the reason, and the cached tokens expected there.

        Raises:
            AwaitsTurn: it is to wait until a replica has computed another long prompt.
            Refused: no replica may take it.
        """

    def has_turn(self, replica_id: str) -> bool:
        """A long prompt may be sent there now, as far as turns go."""

    def place_again(
        self, exchange: Exchange, error: UpstreamError, now_s: float
    ) -> SimReplica | None:
        """A replica failed it before its first token: decide anew; None if there is no other."""

    def blame(self, exchange: Exchange, error: UpstreamError, now_s: float) -> None:
        """A replica failed it, and it is not tried again."""

    def began(self, exchange: Exchange, now_s: float) -> None:
        """Its first token came."""

    def finish(
        self,
        exchange: Exchange,
        outcome: Outcome,
        now_s: float,
        *,
        usage: Usage | None = None,
        error: RouterError | None = None,
    ) -> None:
        """It is over for this door."""

    def joined(self, replica: SimReplica, now_s: float, *, is_first: bool = False) -> None:
        """A replica was named or registered; ``is_first``: before the door was opened."""

    def draining(self, replica: SimReplica, now_s: float) -> None:
        """A replica is to take no new requests."""

    def left(self, replica: SimReplica, now_s: float) -> None:
        """A replica is no more."""

    def changed(self, replica: SimReplica) -> None:
        """Asking the replica may bring something new from now on."""

    def inflight(self, replica: SimReplica) -> int | None:
        """Its requests in flight there; None if it does not know the replica."""

    def stop(self) -> None:
        """It is lost, with all it knew."""

    def check(self) -> str:
        """What is wrong with its beliefs as such; empty if nothing is."""

    def check_end(self) -> str:
        """What is left in its books when everything is over; empty if nothing is."""

    @property
    def moves(self) -> int:
        """Sessions that were given another home although the old one could be used."""


class ClientSide(Protocol):
    """What the edge tells the clients."""

    def waits_no_longer(self, exchange: Exchange) -> None:
        """The first token of a turn, in whichever try, left the router."""

    def over(self, exchange: Exchange, now_s: float) -> None:
        """The whole answer left the router."""

    def failed(self, exchange: Exchange, now_s: float, *, retry_after_s: float | None) -> None:
        """The try ended with an error that another may not."""

    def rejected(self, exchange: Exchange, now_s: float) -> None:
        """The replica found fault with the request itself."""
