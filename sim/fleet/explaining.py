"""A run of which some decisions are looked at as they are made: the run itself is the same, to the byte.

The routers' policies are asked for the reasons of a wanted decision in the very place where it is made, with the same
request, view and dice; what they answer is what is done.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from router.explaining.decision import told
from router.state.history import Outcome
from sim.fleet.driver import routed
from sim.fleet.polls import MODEL
from sim.fleet.rooms import TURN_S
from sim.fleet.routers import SimRouter

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from router.core import RouterCore
    from router.dialect.base import Usage
    from router.errors import RouterError
    from router.explaining.decision import Decision
    from router.policy.view import Explanation, FleetView, Policy, Ranking, RouteRequest
    from sim.fleet.driver import FleetRun
    from sim.fleet.parts import Exchange, SimReplica
    from sim.scenario.model import Scenario
    from sim.workload.play.turns import Play


@dataclass(frozen=True, slots=True)
class Pick:
    """Which decisions are wanted: those of ``rows``, else the first one that fits.

    ``turn`` counts a session's requests from 1, ``at_s`` is the earliest time of the run.
    """

    session: str | None = None
    turn: int | None = None
    at_s: float | None = None
    rows: frozenset[int] = frozenset()


@dataclass(slots=True)
class Explained:
    """One decision, where it stands in the run, and what then happened; times are seconds of the run.

    ``ttft_s`` is the client's, from its first try; of a turn without a token it is the wait so far. For ``held_s`` this try
    had waited at the door for its turn when it was placed.
    """

    row: int
    turn: int
    at_s: float
    decision: Decision
    exchange: Exchange
    held_s: float = 0.0
    outcome: str = "unfinished"
    replica_id: str = ""
    tries: int = 1
    ttft_s: float | None = None
    reported_prompt_tokens: int | None = None
    reported_cached_tokens: int | None = None
    output_tokens: int | None = None
    answer_s: float | None = None


class Enough(Exception):  # noqa: N818  (no fault: the run has come as far as is wanted)
    """All wanted decisions are made, and their requests answered."""


@dataclass(slots=True)
class Watch:
    """What is wanted of a run, and what was found so far, in order of time.

    ``turns`` are the requests of each session so far, ``rows`` which one each request is.
    """

    pick: Pick
    found: dict[int, Explained] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)

    def wants(self, exchange: Exchange, now_s: float) -> bool:
        """This request's decision is to be explained; to be asked of every one, in order."""
        pick, row, key = self.pick, exchange.row, exchange.turn.session_key
        if row not in self.rows:
            self.turns[key] = self.rows[row] = self.turns.get(key, 0) + 1
        if row in self.found:
            return False
        if pick.rows:
            return row in pick.rows
        is_fit = pick.session in (None, key) and pick.turn in (None, self.rows[row])
        return is_fit and not self.found and (pick.at_s is None or now_s >= pick.at_s)

    @property
    def is_over(self) -> bool:
        """Nothing more is wanted."""
        n_wanted = len(self.pick.rows) or 1
        return len(self.found) == n_wanted and all(
            explained.answer_s is not None for explained in self.found.values()
        )


class Watched:
    """A policy that decides as ever, and explains what it decides at ``asked_s``."""

    def __init__(self, policy: Policy, core: RouterCore) -> None:
        self._policy = policy
        self._core = core
        self.asked_s: float | None = None
        self._decision: Decision | None = None

    def taken(self) -> Decision:
        """The decision that was explained last."""
        decision = self._decision
        assert decision is not None, "a policy decides about every turn that is placed"
        return decision

    def rank(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Ranking:
        """The policy's answer."""
        if self.asked_s is None:
            return self._policy.rank(request, fleet, dice)
        explanation = self._policy.explain(request, fleet, dice)
        self._decision = told(self._core, request, explanation, self.asked_s, model=MODEL)
        return explanation.ranking

    def explain(self, request: RouteRequest, fleet: FleetView, dice: random.Random) -> Explanation:
        """The policy's answer."""
        return self._policy.explain(request, fleet, dice)


class WatchedRouter(SimRouter):
    """A router of which the wanted decisions are kept."""

    def __init__(
        self,
        number: int,
        core: RouterCore,
        *parts: Any,  # noqa: ANN401  (a router's other parts, as they come)
        watch: Watch,
        **more: Any,  # noqa: ANN401
    ) -> None:
        core.policy = self._policy = Watched(core.policy, core)
        super().__init__(number, core, *parts, **more)
        self._watch = watch

    @override
    def place(self, exchange: Exchange, now_s: float) -> tuple[SimReplica, str, int]:
        """Let the core decide, and keep the decision if it is wanted.

        Raises:
            Refused: no replica may take it.
        """
        watch, policy = self._watch, self._policy
        if not watch.wants(exchange, now_s):
            return super().place(exchange, now_s)
        policy.asked_s = now_s
        try:
            placed = super().place(exchange, now_s)
        finally:
            policy.asked_s = None
        decision, row = policy.taken(), exchange.row
        assert decision.chosen_id == placed[0].replica_id, "what is explained is what is done"
        held_s = max(0.0, now_s - (exchange.turn_by_s - TURN_S))
        watch.found[row] = Explained(row, watch.rows[row], now_s, decision, exchange, held_s)
        return placed

    @override
    def finish(
        self,
        exchange: Exchange,
        outcome: Outcome,
        now_s: float,
        *,
        usage: Usage | None = None,
        error: RouterError | None = None,
    ) -> None:
        """A try is over; if it was the last one that is wanted, the run is.

        Raises:
            Enough: nothing more is wanted of this run.
        """
        ticket = exchange.ticket
        super().finish(exchange, outcome, now_s, usage=usage, error=error)
        found = self._watch.found.get(exchange.row)
        if found is None or ticket is None:
            return
        record = ticket.record
        # Clients of a run do not leave: who is told to has not been answered when it ends.
        is_cut = outcome is Outcome.CLIENT_GONE
        found.outcome = "unfinished" if is_cut else outcome.value
        found.replica_id = record.replica_id
        found.reported_prompt_tokens = record.reported_prompt_tokens
        found.reported_cached_tokens = record.reported_cached_tokens
        found.output_tokens = record.output_tokens
        if outcome is Outcome.DONE and record.began_s is not None:
            found.answer_s = now_s - record.began_s
        if self._watch.is_over:
            raise Enough


def explained(
    scenario: Scenario, policy: str, make_play: Callable[[], Play], pick: Pick, *, seed: int
) -> Watch:
    """Play a scenario until the wanted decisions are made and their requests answered, or to its end.

    Raises:
        ConfigError: there is no such policy.
        ValueError: the scenario's fleet cannot be; the message says what.
        InvariantBrokenError: the run did what must not be.
    """
    watch = Watch(pick)
    make_router = partial(WatchedRouter, watch=watch)
    run = routed(scenario, policy, make_play(), seed=seed, make_router=make_router)
    with suppress(Enough):
        run.result(policy)
    rows = run.recording.rows
    for row, found in watch.found.items():
        waited_s = rows.ttft_s[row]
        found.ttft_s = None if isnan(waited_s) else waited_s
        found.tries = found.exchange.tries
    return watch


def slowest(
    scenario: Scenario, policy: str, make_play: Callable[[], Play], n: int, *, seed: int
) -> Pick:
    """Play it to its end, and pick the ``n`` measured requests with the longest TTFT.

    Raises:
        as :func:`explained`.
    """
    run: FleetRun = routed(scenario, policy, make_play(), seed=seed)
    run.result(policy)
    rows, until_s = run.recording.rows, run.recording.closed_s
    measured = [
        row
        for row in range(len(rows))
        if scenario.warmup_s <= rows.due_s[row] < until_s and not isnan(rows.ttft_s[row])
    ]
    measured.sort(key=lambda row: (-rows.ttft_s[row], row))
    return Pick(rows=frozenset(measured[:n]))
