"""A core that tells a journal what it is told and what it answers.

It decides as the plain core does, but for one thing: where a session's key or a link of its chain
decides (rendezvous ranks, rings), the sealed one does, so that a core that only ever sees sealed ones
decides alike.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from typing_extensions import override

from router.core import RouterCore
from router.errors import Refused
from router.recording.chains import ChainMemory, lengths_of
from router.recording.faults import fault_of, status_of
from router.recording.recorded_members import RecordedMembers
from router.recording.recorded_operating import RecordedOperating
from router.recording.recorded_peers import RecordedPeers
from router.recording.records import (
    Arrive,
    Began,
    Blame,
    Finish,
    Placed,
    Refusal,
    Retry,
    Stayed,
    Tick,
)
from router.recording.seal import name_of

if TYPE_CHECKING:
    import random

    from router.core import CoreParameters
    from router.dialect.base import PromptFacts, Usage
    from router.errors import RouterError, UpstreamError
    from router.policy.view import Policy, RouteRequest
    from router.recording.journal import Journal
    from router.recording.seal import Seal
    from router.state.estimate import Estimate
    from router.state.history import Outcome, RequestRecord
    from router.state.members.conduct import StateListener
    from router.state.sessions.pins import Pin
    from router.ticket import Ticket

_NUMBER_MAX = 1 << 53
_NEW_SEGMENTS_MAX = 50_000
"""Of one prompt: 200 MB, or a body made to hold up the loop while its links are sealed."""


class RecordedCore(RouterCore):
    """A core whose every input and output is written to a journal while that is open."""

    def __init__(
        self,
        policy: Policy,
        dice: random.Random,
        parameters: CoreParameters | None = None,
        *,
        on_state: StateListener | None = None,
        seal: Seal,
        journal: Journal,
        chains: ChainMemory | None = None,
    ) -> None:
        super().__init__(policy, dice, parameters, on_state=on_state)
        self._seal = seal
        self._journal = journal
        self._chains = chains or ChainMemory()
        self.members = RecordedMembers(self, seal, journal, on_state)
        self.operating = RecordedOperating(self, seal, journal)
        self.peers = RecordedPeers(self, seal, journal)

    @override
    def tick(self, now_s: float) -> list[str]:
        """Let time pass, and write it down."""
        ended = super().tick(now_s)
        if self._journal.is_open:
            self._journal.write(Tick(now_s, tuple(ended)))
        else:
            self._chains.clear()
        return ended

    @override
    def arrive(self, facts: PromptFacts, now_s: float, *, may_wait: bool = False) -> Ticket:
        """Decide where a request goes, and write it down.

        Raises:
            Refused: as the plain core does.
        """
        journal = self._journal
        if journal.is_open:
            self._write_arrival(facts, now_s, may_wait=may_wait)
        try:
            ticket = super().arrive(facts, now_s, may_wait=may_wait)
        except Refused as refused:
            if journal.is_open:
                journal.write(Refusal(refused.code, refused.retry_after_s))
            raise
        if journal.is_open:
            journal.write(placed(ticket, ticket.request.serial))
        return ticket

    @override
    def retry(self, ticket: Ticket, error: UpstreamError, now_s: float) -> bool:
        """Place a failed request anew, and write it down."""
        number = ticket.request.serial
        if self._journal.is_open:
            self._journal.write(Retry(number, now_s, fault_of(error), error.code, status_of(error)))
        has_moved = super().retry(ticket, error, now_s)
        if self._journal.is_open:
            self._journal.write(placed(ticket, number) if has_moved else Stayed(number))
        return has_moved

    @override
    def blame(self, ticket: Ticket, error: UpstreamError, now_s: float) -> None:
        """A replica failed a request: write it down."""
        if self._journal.is_open:
            number = ticket.request.serial
            self._journal.write(Blame(number, now_s, fault_of(error), error.code, status_of(error)))
        super().blame(ticket, error, now_s)

    @override
    def began(self, ticket: Ticket, now_s: float) -> None:
        """The first model event came: write it down, unless it is told again."""
        if self._journal.is_open and not ticket.is_over and ticket.record.began_s is None:
            self._journal.write(Began(ticket.request.serial, now_s))
        super().began(ticket, now_s)

    @override
    def finish(
        self,
        ticket: Ticket,
        outcome: Outcome,
        now_s: float,
        *,
        usage: Usage | None = None,
        error: RouterError | None = None,
    ) -> RequestRecord:
        """The request is over: write it down, unless it is told again."""
        if self._journal.is_open and not ticket.is_over:
            self._journal.write(
                Finish(
                    ticket=ticket.request.serial,
                    now_s=now_s,
                    outcome=outcome,
                    prompt_tokens=None if usage is None else usage.prompt_tokens,
                    output_tokens=None if usage is None else usage.output_tokens,
                    cached_tokens=None if usage is None else usage.cached_tokens,
                    fault=None if error is None else fault_of(error),
                    code=None if error is None else error.code,
                    http_status=status_of(error),
                )
            )
        return super().finish(ticket, outcome, now_s, usage=usage, error=error)

    @override
    def _route_request(
        self, facts: PromptFacts, key: str, pin: Pin | None, now_s: float
    ) -> tuple[RouteRequest, Estimate]:
        request, guess = super()._route_request(facts, key, pin, now_s)
        return self.as_ranked(request), guess

    @override
    def as_ranked(self, request: RouteRequest) -> RouteRequest:
        """By the sealed names: these decide where a name does."""
        request.session_key = name_of(self._seal.session(request.session_key))
        if request.head_key:
            links = self._seal.links(array("Q", (request.head_key,)))
            request.head_key = int.from_bytes(links, "little")
        return request

    def _write_arrival(self, facts: PromptFacts, now_s: float, *, may_wait: bool) -> None:
        seal = self._seal
        session = seal.session(facts.session_key)
        shared = self._chains.shorten(session, facts.chain, facts.ends_bytes)
        new = facts.chain[shared.common :]
        if len(new) > _NEW_SEGMENTS_MAX:
            self._journal.stop(f"a prompt of {len(new)} new segments is over {_NEW_SEGMENTS_MAX}")
            return
        output_max = facts.output_tokens_max
        self._journal.write(
            Arrive(
                now_s=now_s,
                dialect=facts.dialect,
                model=seal.model(facts.model),
                session=session,
                source=facts.session_source,
                parent=None if facts.parent_key is None else seal.session(facts.parent_key),
                is_stream=facts.is_stream,
                is_readable=facts.is_readable,
                output_tokens_max=None if output_max is None else min(output_max, _NUMBER_MAX),
                head_segments=facts.head_segments,
                n_messages=facts.n_messages,
                back=shared.back,
                common=shared.common,
                links=seal.links(new),
                lengths_bytes=lengths_of(facts.ends_bytes, shared),
                tenant=seal.session(facts.tenant) if facts.tenant else None,
                work=facts.work,
                is_any_model=not facts.model,
                bound_to=facts.bound_to,
                may_wait=may_wait,
            )
        )


def placed(ticket: Ticket, number: int) -> Placed:
    """Where a ticket was placed last, as a record with this number."""
    record = ticket.record
    return Placed(
        ticket=number,
        ranked=record.ranked,
        reason=record.reason,
        home_id=ticket.request.home_id,
        prompt_tokens=record.prompt_tokens,
        cached_tokens=record.predicted_cached_tokens,
    )
