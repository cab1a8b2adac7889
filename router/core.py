"""The router's core: told what happened and when, it answers what to do. No I/O, no clock.

The edge drives it over sockets, the simulator in virtual time. A request is one ticket: ``arrive``
decides and enters it in the ledger in one step, ``retry`` moves it before its first event,
``began`` and ``finish`` tell how it went. Every ticket is finished exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from router.dialect.base import SessionSource, Work
from router.errors import ConnectFailed, UpstreamError, UpstreamStatus
from router.policy.view import RouteRequest
from router.state.beliefs import Beliefs
from router.state.cache.prefix_index import PrefixIndex
from router.state.estimate import EstimateParameters, continues, estimate
from router.state.fleet.calls import ruled
from router.state.fleet.fleet import Fleet
from router.state.fleet.homes import home_after, is_usable, reason_of
from router.state.fleet.ledger import Ledger
from router.state.fleet.turns import check_turn
from router.state.history import History, Outcome, RequestRecord
from router.state.members.answers import Return
from router.state.members.members import Members
from router.state.operating import Operating
from router.state.rates.tokens import AnswerShare, TokenRatio
from router.state.sessions.pins import Pins
from router.state.sessions.tails import Tails
from router.state.shared.peers import Peers
from router.ticket import Ticket, prefill_of

if TYPE_CHECKING:
    import random

    from router.dialect.base import PromptFacts, Usage
    from router.errors import RouterError
    from router.policy.view import Policy, Ranking
    from router.state.estimate import Estimate
    from router.state.fleet.candidates import View
    from router.state.fleet.ledger import Entry
    from router.state.fleet.replica import Replica
    from router.state.members.conduct import StateListener
    from router.state.sessions.pins import Pin

_CHAIN: Final = SessionSource.CHAIN
_SOURCE_NAMES: Final = {source: source.value for source in SessionSource}
_OTHER: Final = Work.OTHER


@dataclass(slots=True, frozen=True)
class CoreParameters:
    """Bounds and constants of the core.

    ``inflight_max`` limits each replica that states no limit of its own. ``away_max`` branch
    requests of a session in a row that are served by one other replica make that its home.
    ``live_s`` and ``pin_ttl_s``: how long an idle session counts as live, and is remembered.
    """

    inflight_max: int | None = None
    away_max: int = 3
    live_s: float = 600.0
    pin_ttl_s: float = 14_400.0
    pins_max: int = 200_000
    estimate: EstimateParameters = field(default_factory=EstimateParameters)


class RouterCore:
    """Everything the router knows and decides."""

    def __init__(
        self,
        policy: Policy,
        dice: random.Random,
        parameters: CoreParameters | None = None,
        *,
        on_state: StateListener | None = None,
    ) -> None:
        self.parameters = self._p = parameters or CoreParameters()
        self.policy = policy
        self.dice = dice
        self.serial = 0
        self.ledger = Ledger()
        self.pins = Pins(live_s=self._p.live_s, ttl_s=self._p.pin_ttl_s, pins_max=self._p.pins_max)
        self.fleet = Fleet(self.ledger, self.pins, inflight_max=self._p.inflight_max)
        self.index = PrefixIndex()
        self.ratio = TokenRatio()
        self.answers = AnswerShare()
        self.beliefs = Beliefs(self.index, self.pins)
        self._members = Members(self.fleet, self.index, self.ratio, self.beliefs, on_state)
        # What others use; a core that is recorded puts its own here.
        self.members = self._members
        self.operating = Operating(self.fleet, self.pins, self.index)
        self.tails = Tails()
        self.peers = Peers(self.fleet, self.pins, self.index)
        self.history = History()

    def tick(self, now_s: float) -> list[str]:
        """Let time pass: pins age, leases end. Answers the replicas whose lease ran out."""
        self.pins.expire(now_s)
        self.peers.expire(now_s)
        return self._members.expire(now_s)

    @property
    def is_ready(self) -> bool:
        """Some replica may take a request, were it not for limits."""
        return bool(self.fleet.eligible())

    @property
    def retry_after_s(self) -> float:
        """When a replica may have room again: the least backlog of prefill, at least a second."""
        return self._members.retry_after_s

    def arrive(self, facts: PromptFacts, now_s: float, *, may_wait: bool = False) -> Ticket:
        """Decide where a request goes and enter it as dispatched there.

        Raises:
            AwaitsTurn: it had better wait while a replica computes another long prompt; only if it ``may_wait``.
            Refused: no replica may take it (``no-replica-ready``), or all are at their limit
                (``saturated``, with the time after which one is expected to be free); or the one that
                the request is bound to, whose limit does not count, is not there.
        """
        key = facts.session_key
        if facts.session_source is _CHAIN:
            key = self.tails.find(facts.chain, facts.head_segments, facts.scope) or key
        pin = self.pins.get(key)
        home_id = None if pin is None else pin.home_id
        is_turn = facts.is_turn
        view = self.fleet.view(home_id=home_id, model=facts.model)
        if view.is_empty or facts.bound_to:
            self._members.check(facts.model, facts.bound_to)
        self.serial += 1
        request, guess = self._route_request(facts, key, pin, now_s)
        ranking = None
        if not is_turn or facts.bound_to or (pin is not None and pin.fixed_id):
            ranking = ruled(request, view, pin, now_s, bound_to=facts.bound_to, is_turn=is_turn)
        if ranking is None:
            ranking = self.policy.rank(request, view, self.dice)
        if may_wait and ranking.takes_turns:
            check_turn(request, self.fleet.get(ranking.ranked[0]), view)
        record = RequestRecord(
            key,
            _SOURCE_NAMES[facts.session_source],
            facts.dialect,
            facts.model,
            facts.is_stream,
            reason_of(ranking.reason, home_id, self.fleet),
            arrived_s=now_s,
            prompt_tokens=request.prompt_tokens,
            prices=ranking.prices,
            tenant=facts.tenant,
            is_turn=is_turn,
        )
        replica, entry = self._place(request, record, ranking, None)
        held, continues_it = guess.cached_tokens, guess.continues
        marks = held.marks(replica.replica_id, replica.holdings)
        back = None
        if continues_it and pin is not None and pin.served == _place_of(replica):
            back = Return(now_s - pin.used_s, pin.prompt_tokens)
        ticket = Ticket(
            record, facts, request, held, entry, continues_it, replica.spec, marks, back
        )
        if is_turn:
            ticket.job = replica.learner.given(*prefill_of(record))
        self._bind(ticket, pin, now_s)
        if record.reason == "split":
            self.history.totals.splits += 1
        if is_turn:
            self.history.add(record)
        return ticket

    def retry(self, ticket: Ticket, error: UpstreamError, now_s: float) -> bool:
        """A placed request failed before its first event: place it anew on a replica not yet tried.

        Answers False if there is none; the ticket is then still open and to be finished.
        """
        self._members.blame(ticket.replica_id, error, now_s)
        facts = ticket.facts
        if facts.bound_to:
            return False
        if facts.work is _OTHER and not isinstance(error, (ConnectFailed, UpstreamStatus)):
            return False  # it may have started, and nobody here knows what it does
        ticket.tried = (*ticket.tried, ticket.replica_id)
        pin = self.pins.get(ticket.session_key)
        home_id, model = None if pin is None else pin.home_id, ticket.facts.model
        view = self.fleet.view(ticket.tried, home_id=home_id, model=model)
        if view.is_empty or not self._has_moving(view):
            return False
        request, record = ticket.request, ticket.record
        request.session_inflight = 0
        request.cached_tokens = ticket.held.anew(self.index.match(ticket.facts.chain))
        ranking = ruled(
            request, view, pin, now_s, bound_to=facts.bound_to, is_turn=facts.is_turn
        ) or self.policy.rank(request, view, self.dice)
        record.n_tries += 1
        record.reason = "retry"
        replica, _ = self._place(request, record, ranking, ticket.entry)
        ticket.spec, ticket.held = replica.spec, request.cached_tokens
        ticket.marks = ticket.held.marks(replica.replica_id, replica.holdings)
        if ticket.job is not None:
            ticket.job.is_gone = True
            ticket.job = replica.learner.given(*prefill_of(record))
        self._bind(ticket, pin, now_s)
        return True

    def has_elsewhere(self, ticket: Ticket) -> bool:
        """Another replica might take a request that has not begun."""
        if ticket.facts.bound_to:
            return False
        tried = (*ticket.tried, ticket.replica_id)
        return self._has_moving(self.fleet.view(tried, model=ticket.facts.model))

    def _has_moving(self, view: View) -> bool:
        """Some candidate does not stand still itself."""
        found = (self.fleet.get(candidate.replica_id) for candidate in view.candidates)
        return any(replica is not None and not replica.load.is_lost for replica in found)

    def blame(self, ticket: Ticket, error: UpstreamError, now_s: float) -> None:
        """A replica failed a request that is not tried again. Being full is no fault of its health."""
        self._members.blame(ticket.replica_id, error, now_s)

    def began(self, ticket: Ticket, now_s: float) -> None:
        """The first model event came: the prompt is computed, and cached where it was computed."""
        record, facts = ticket.record, ticket.facts
        if ticket.is_over or record.began_s is not None or not record.is_turn:
            return
        record.began_s = now_s
        if ticket.job is not None:
            ticket.job.has_begun = True
        self.ledger.began(ticket.entry)
        ticket.place = self.index.hold(
            record.replica_id, facts.chain, facts.ends_bytes, ticket.held.place
        )
        replica = self.fleet.get(record.replica_id)
        if replica is not None:
            self._members.conduct.succeeded(replica, now_s)

    def finish(
        self,
        ticket: Ticket,
        outcome: Outcome,
        now_s: float,
        *,
        usage: Usage | None = None,
        error: RouterError | None = None,
    ) -> RequestRecord:
        """The request is over; its ledger entry is released. Repeating it changes nothing."""
        record = ticket.record
        if ticket.is_over:
            return record
        ticket.is_over = True
        if ticket.job is not None:
            ticket.job.is_gone = not ticket.job.has_begun
        self.ledger.close(ticket.entry)
        record.outcome, record.ended_s = outcome, now_s
        replica = self.fleet.get(record.replica_id)
        if usage is not None:
            self._learn(ticket, usage, replica)
        if error is not None:
            record.error_code = error.code
            if isinstance(error, UpstreamError) and record.began_s is not None:
                self._members.blame(record.replica_id, error, now_s)
        self.history.ended(record)
        if replica is not None:
            if record.began_s is not None:
                self._members.conduct.ended(replica, now_s)
            counters = replica.counters
            counters.requests += 1
            counters.prompt_tokens += record.reported_prompt_tokens or 0
            counters.cached_tokens += record.reported_cached_tokens or 0
        return record

    def _route_request(
        self, facts: PromptFacts, key: str, pin: Pin | None, now_s: float
    ) -> tuple[RouteRequest, Estimate]:
        if pin is not None and pin.claim_id:
            self.peers.show(pin, facts)
        match = self.beliefs.match(facts, pin)
        guess = estimate(facts, pin, match, self.ratio, self.answers, parameters=self._p.estimate)
        home_id = None if pin is None else pin.home_id
        request = RouteRequest(
            key,
            guess.prompt_tokens,
            guess.output_tokens,
            self.serial,
            home_id,
            0.0 if pin is None else now_s - pin.homed_s,
            0 if home_id is None else self.ledger.session_inflight(key, home_id),
            guess.is_auxiliary,
            guess.cached_tokens,
            guess.head_key,
            self.peers.is_apart,
        )
        return request, guess

    def as_ranked(self, request: RouteRequest) -> RouteRequest:
        """A request that is only asked about, as the policy would be given it."""
        return request

    def _place(
        self, request: RouteRequest, record: RequestRecord, ranking: Ranking, entry: Entry | None
    ) -> tuple[Replica, Entry]:
        """Enter a ranking's first replica in the record and in the ledger."""
        ranked = ranking.ranked
        replica_id = ranked[0]
        replica = self.fleet.get(replica_id)
        assert replica is not None, f"the policy named {replica_id!r}, which is no candidate"
        record.replica_id = replica_id
        record.ranked, record.prices = ranked, ranking.prices
        cached = request.cached_tokens.get(replica_id)
        record.predicted_cached_tokens = cached
        new_tokens = request.prompt_tokens - cached
        prefill_s = replica.rate.prefill_s(new_tokens, cached)
        if entry is not None:
            self.ledger.move(entry, replica_id, prefill_s=prefill_s, prefill_tokens=new_tokens)
            return replica, entry
        entry = self.ledger.open(
            replica_id,
            record.session_key if record.is_turn else "",
            tokens=request.prompt_tokens + request.output_tokens,
            prefill_s=prefill_s,
            prefill_tokens=new_tokens,
        )
        return replica, entry

    def _bind(self, ticket: Ticket, pin: Pin | None, now_s: float) -> None:
        """Touch the session's pin, if it has one yet; its home changes if this decision says so."""
        record, request = ticket.record, ticket.request
        if request.is_auxiliary:
            return
        home_id = record.replica_id
        tokens = request.prompt_tokens + request.output_tokens
        if pin is not None:
            home_id = home_after(pin, home_id, record.reason, self.fleet, away_max=self._p.away_max)
            if not ticket.continues and pin.tokens > tokens:
                tokens = pin.tokens
            if home_id != pin.home_id:
                if is_usable(self.fleet, pin.home_id):
                    self.history.totals.moves += 1
                else:
                    self.history.totals.rehomes += 1
        has_home = pin is not None and pin.home_id == home_id
        pin = self.pins.touch(record.session_key, home_id, now_s, tokens=tokens)
        if self.pins.news is not None:
            pin.told_by = ""
            if not has_home:
                self.pins.news[pin.key] = pin
        if pin.n_requests == 0:
            pin.source = record.session_source
            pin.parent_key = ticket.facts.parent_key
        pin.n_requests += record.n_tries == 1

    def _learn(self, ticket: Ticket, usage: Usage, replica: Replica | None) -> None:
        """An engine reported its counts: correct the ratio, the pin and the session's tail."""
        record, facts = ticket.record, ticket.facts
        cached_tokens, prompt_tokens = usage.cached_tokens, usage.prompt_tokens
        if cached_tokens is None and replica is not None and replica.reports_cached:
            cached_tokens = 0
        record.reported_prompt_tokens, record.reported_cached_tokens = prompt_tokens, cached_tokens
        record.output_tokens = output_tokens = usage.output_tokens
        prompt_bytes, chain = facts.prompt_bytes, facts.chain
        self.ratio.learn(
            facts.model, facts.dialect, prompt_bytes=prompt_bytes, prompt_tokens=prompt_tokens
        )
        if cached_tokens is not None and replica is not None:
            back = ticket.back if record.n_tries == 1 else None
            self._members.reported(replica, record, ticket.held, ticket.marks, back)
        pin = self.pins.get(record.session_key)
        if pin is None or ticket.request.is_auxiliary or not chain:
            return
        is_branch = not ticket.continues and pin.prompt_tokens > prompt_tokens
        if is_branch and record.replica_id != pin.home_id:
            return
        # Another request of the session may have ended since this one came: it may go on from that.
        if cached_tokens and prompt_tokens > pin.prompt_tokens and continues(facts, pin):
            self.answers.learn(
                facts.model,
                facts.dialect,
                answered_tokens=pin.output_tokens,
                beyond_tokens=cached_tokens - pin.prompt_tokens,
            )
        if facts.session_source is _CHAIN:
            self.tails.move(pin.key, pin.tail, chain[-1], facts.scope)
        pin.tail, pin.tail_segments, pin.place = chain[-1], len(chain), ticket.place
        pin.served = None if replica is None else _place_of(replica)
        pin.prompt_bytes, pin.prompt_tokens = prompt_bytes, prompt_tokens
        pin.output_tokens, pin.turn, pin.claim_id = output_tokens, pin.n_requests, ""
        if self.pins.news is not None:
            pin.told_by = ""  # a word of the turn before may have come since this one was bound
            self.pins.news[pin.key] = pin


def _place_of(replica: Replica) -> tuple[str, int]:
    """A replica, and how often it has lost all that it held."""
    holdings = replica.holdings
    return replica.replica_id, 0 if holdings is None else holdings.epoch
