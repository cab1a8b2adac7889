"""One router of a run: the core with its policy, its polls, and its ticks.

``tick`` is due each second, as ``router.wiring`` has it. It is run late: before the core is told anything,
once for the last second that has passed. That is exact, for nothing reads the core in between: pins
grow idle and are forgotten in order of their last use, however many seconds are caught up on at once;
a report that is too old is dropped before it is read; capacities follow a ratio that only answers change.
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, Final

from router.core import CoreParameters, RouterCore
from router.dialect.base import PromptFacts, SessionSource
from router.policy import registry
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event
from router.state.history import History
from sim.fleet.polls import MODEL, Polls
from sim.fleet.sharing import SimLink
from sim.rng import stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.dialect.base import Usage
    from router.errors import RouterError, UpstreamError
    from router.state.history import Outcome
    from sim.fleet.edge import Edge
    from sim.fleet.parts import Exchange, SimReplica
    from sim.fleet.sharing import SimStore
    from sim.kernel import Kernel
    from sim.scenario.model import RouterSpec
    from sim.workload.play.turns import PlayedPrompt

    CoreMaker = Callable[[str, int, int, RouterSpec], RouterCore]
    """From policy, seed, the router's number and the routers' description, to one core."""

    RouterMaker = Callable[..., "SimRouter"]
    """As :class:`SimRouter` is made."""

_PORT: Final = 30_000
_PINS_LOOKED_AT: Final = 64


def plain_core(policy: str, seed: int, number: int, spec: RouterSpec) -> RouterCore:
    """The core of one router, with dice of its own. It remembers no decisions: nobody asks for them.

    Raises:
        ConfigError: there is no such policy.
    """
    core = RouterCore(
        registry.make(policy),
        stream(seed, f"router/{number}"),
        CoreParameters(inflight_max=spec.inflight_max),
    )
    core.history = History(sessions_max=0)
    return core


def facts_of(session_key: str, prompt: PlayedPrompt) -> PromptFacts:
    """What a router knows of a request of a run."""
    return PromptFacts(
        "openai-chat",
        MODEL,
        is_stream=True,
        session_key=session_key,
        session_source=SessionSource.HEADER,
        chain=prompt.chain,
        ends_bytes=prompt.ends_bytes,
        head_segments=prompt.head_segments,
    )


class SimRouter:
    """A door that decides with a router's core."""

    def __init__(
        self,
        number: int,
        core: RouterCore,
        kernel: Kernel,
        spec: RouterSpec,
        *,
        seed: int,
        fleet: Sequence[SimReplica],
        edge: Edge,
        can_sleep: bool = True,
        store: SimStore | None = None,
    ) -> None:
        self.number = number
        self.is_open = True
        self.core = core
        self._fleet = fleet
        self._by_id: dict[str, SimReplica] = {}
        dice = stream(seed, f"polls/{number}")
        self._tick_phase_s = kernel.now_s + dice.random()
        self._tick_s = self._tick_phase_s
        self._polls = Polls(
            kernel,
            core,
            period_s=spec.probe_s,
            delay_s=spec.delay_s,
            dice=dice,
            catch_up=self.catch_up,
            on_lost=lambda replica: edge.leave(self, replica, self._may_leave),
            can_sleep=can_sleep,
        )

        if spec.is_apart:
            core.peers.part(is_apart=True)
        self._link: SimLink | None = None
        if store is not None:
            self._link = SimLink(number, core, kernel, store, seed=seed, catch_up=self.catch_up)

    @property
    def moves(self) -> int:
        """Sessions that were given another home although the old one could be used."""
        return self.core.history.totals.moves

    def catch_up(self, now_s: float) -> None:
        """Let the core tick for the last second that has passed, if one has."""
        if now_s >= self._tick_s:
            phase_s = self._tick_phase_s
            n = max(0, floor(now_s - phase_s) - 1)
            while phase_s + n + 1 <= now_s:
                n += 1
            self.core.tick(phase_s + n)
            self._tick_s = phase_s + n + 1

    def place(self, exchange: Exchange, now_s: float) -> tuple[SimReplica, str, int]:
        """Let the core decide.

        Raises:
            Refused: no replica may take it.
        """
        if now_s >= self._tick_s:
            self.catch_up(now_s)
        prompt = exchange.prompt
        assert prompt is not None, "only what is not over is placed"
        facts = facts_of(exchange.turn.session_key, prompt)
        if self._link is not None:
            self._link.look(facts, now_s)
        exchange.ticket = ticket = self.core.arrive(
            facts, now_s, may_wait=now_s < exchange.turn_by_s and not exchange.has_waited
        )
        record = ticket.record
        replica = self._by_id[record.replica_id]
        return replica, record.reason, record.predicted_cached_tokens

    def has_turn(self, replica_id: str) -> bool:
        """No long prompt of this router's is computed there."""
        return self.core.fleet.has_turn(replica_id)

    def place_again(
        self, exchange: Exchange, error: UpstreamError, now_s: float
    ) -> SimReplica | None:
        """Let the core decide anew."""
        ticket = exchange.ticket
        assert ticket is not None, "what failed was placed before"
        self.catch_up(now_s)
        if not self.core.retry(ticket, error, now_s):
            return None
        return self._by_id[ticket.record.replica_id]

    def _may_leave(self, exchange: Exchange) -> bool:
        """Another replica might take it."""
        return exchange.ticket is not None and self.core.has_elsewhere(exchange.ticket)

    def blame(self, exchange: Exchange, error: UpstreamError, now_s: float) -> None:
        """A replica failed it, and it is not tried again."""
        ticket = exchange.ticket
        assert ticket is not None, "what failed was placed before"
        self.catch_up(now_s)
        self.core.blame(ticket, error, now_s)

    def began(self, exchange: Exchange, now_s: float) -> None:
        """Its first token came."""
        ticket = exchange.ticket
        assert ticket is not None, "what begins was placed before"
        if now_s >= self._tick_s:
            self.catch_up(now_s)
        self.core.began(ticket, now_s)

    def finish(
        self,
        exchange: Exchange,
        outcome: Outcome,
        now_s: float,
        *,
        usage: Usage | None = None,
        error: RouterError | None = None,
    ) -> None:
        """It is over for this router."""
        ticket = exchange.ticket
        assert ticket is not None, "what ends was placed before"
        if now_s >= self._tick_s:
            self.catch_up(now_s)
        self.core.finish(ticket, outcome, now_s, usage=usage, error=error)

    def joined(self, replica: SimReplica, now_s: float, *, is_first: bool = False) -> None:
        """A replica was named or registered: it is asked at once.

        ``is_first``: before the router takes requests, for which it waits for the answer.
        """
        self.catch_up(now_s)
        self.core.members.join(ReplicaSpec(replica.replica_id, replica.replica_id, _PORT), now_s)
        self._by_id[replica.replica_id] = replica
        self._polls.watch(replica, is_first=is_first)

    def draining(self, replica: SimReplica, now_s: float) -> None:
        """A replica is to take no new requests."""
        self.catch_up(now_s)
        self.core.members.heard(replica.replica_id, Event.DRAIN, now_s)

    def left(self, replica: SimReplica, now_s: float) -> None:
        """A replica is no more."""
        self.catch_up(now_s)
        self._polls.forget(replica)
        self.core.members.leave(replica.replica_id)

    def inflight(self, replica: SimReplica) -> int | None:
        """This router's requests in flight there, by its ledger; None if it does not know the replica."""
        known = self.core.fleet.get(replica.replica_id)
        return None if known is None else known.load.inflight

    def changed(self, replica: SimReplica) -> None:
        """Asking the replica may bring something new from now on."""
        self._polls.changed(replica)

    def check(self) -> str:
        """What is wrong with its beliefs as such: sessions at home nowhere, sums that do not add up."""
        core = self.core
        for pin in core.pins.recent(_PINS_LOOKED_AT):
            if pin.home_id not in self._by_id:
                return f"session {pin.key} is at home at {pin.home_id!r}, which never was"
        live = sum(replica.home.live_sessions for replica in core.fleet.replicas())
        has_left = any(replica.is_gone for replica in self._fleet)
        if live > core.pins.live_count or (live < core.pins.live_count and not has_left):
            return f"{live} sessions live at homes, {core.pins.live_count} in all"
        return ""

    def check_end(self) -> str:
        """What is left in the ledger."""
        for replica in self.core.fleet.replicas():
            load = replica.load
            left = (load.inflight, load.inflight_tokens, load.decoding, load.backlog_us)
            if any(left):
                return f"the ledger of {replica.replica_id} is left with {left}"
        return ""

    def stop(self) -> None:
        """This router is lost, with all it knew."""
        self.is_open = False
        self._polls.stop()
        if self._link is not None:
            self._link.stop()
