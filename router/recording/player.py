"""A recording told to a fresh core: it must decide everything as was recorded.

Also the arrivals of a recording alone, for who wants its traffic and decides otherwise.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from typing_extensions import override

from router.core import RouterCore
from router.dialect.base import PromptFacts, Usage
from router.errors import ConfigError, Refused
from router.policy import registry
from router.recording.chains import ChainMemory
from router.recording.errors import RecordingError
from router.recording.faults import error_like, upstream_error_like
from router.recording.recorded_core import placed
from router.recording.records import (
    Arrive,
    Began,
    Blame,
    Emptied,
    End,
    Finish,
    Fixed,
    Header,
    Limited,
    Loaded,
    Moved,
    Parted,
    Pinned,
    Placed,
    Refusal,
    Retry,
    Stayed,
    Tick,
    Tied,
    Weighed,
)
from router.recording.seal import name_of
from router.recording.telling import pages_of, tell_member, tell_operating, tell_peers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from router.recording.records import Input, Output, Record
    from router.ticket import Ticket


_OVER_MAX: Final = 16_384
"""Requests that are over and whose pages may yet be told: those of two minutes at 100 a second."""


class Arrival(NamedTuple):
    """One request of a recording, whether it was placed or refused; names are sealed.

    ``number`` counts arrivals from 1.
    """

    number: int
    now_s: float
    facts: PromptFacts


@dataclass(slots=True, frozen=True)
class Difference:
    """Where the core did not answer as recorded; ``number`` counts records, the header is 1."""

    number: int
    recorded: str
    answered: str

    @override
    def __str__(self) -> str:
        return f"record {self.number}: recorded {self.recorded}; now {self.answered}"


@dataclass(slots=True)
class Tally:
    """What a replay has seen so far."""

    inputs: int = 0
    placed: int = 0
    refused: int = 0
    moved: int = 0
    stayed: int = 0

    @property
    def decisions(self) -> int:
        """All answers that were compared."""
        return self.placed + self.refused + self.moved + self.stayed


class ArrivalReader:
    """Turns ``Arrive`` records back into facts; it must see all of them, in order."""

    def __init__(self, header: Header) -> None:
        self._chains = ChainMemory(header.links_max)
        self._number = 0

    def read(self, row: Arrive) -> Arrival:
        """The request of one record.

        Raises:
            RecordingError: its chain continues one that is not known.
        """
        self._number += 1
        chain, ends_bytes = self._chains.restore(
            row.session, (row.back, row.common), row.links, row.lengths_bytes
        )
        facts = PromptFacts(
            dialect=row.dialect,
            model="" if row.is_any_model else name_of(row.model),
            is_stream=row.is_stream,
            is_readable=row.is_readable,
            output_tokens_max=row.output_tokens_max,
            session_key=name_of(row.session),
            session_source=row.source,
            parent_key=None if row.parent is None else name_of(row.parent),
            chain=chain,
            ends_bytes=ends_bytes,
            head_segments=row.head_segments,
            n_messages=row.n_messages,
            tenant="" if row.tenant is None else name_of(row.tenant),
            scope=0 if row.tenant is None else int.from_bytes(row.tenant, "little"),
            work=row.work,
            bound_to=row.bound_to,
        )
        return Arrival(self._number, row.now_s, facts)


def arrivals(header: Header, records: Iterable[Record]) -> Iterator[Arrival]:
    """The requests of a recording, without a core.

    Raises:
        RecordingError: a record does not fit the ones before it.
    """
    reader = ArrivalReader(header)
    for record in records:
        if isinstance(record, Arrive):
            yield reader.read(record)


class Player:
    """Tells one recording to one fresh core, once."""

    def __init__(self, header: Header) -> None:
        """Build the core that the header names.

        Raises:
            RecordingError: this version has no such policy.
        """
        try:
            policy = registry.make(header.policy)
        except ConfigError as failure:
            raise RecordingError(f"the recording's {failure}") from None
        dice = random.Random(header.seed)  # noqa: S311  (the same dice as were recorded)
        self.core = RouterCore(policy, dice, header.parameters)
        self.tally = Tally()
        self._arrivals = ArrivalReader(header)
        self._tickets: dict[int, Ticket] = {}
        self._over: OrderedDict[int, Ticket] = OrderedDict()
        self._placed: Ticket | None = None
        self._number = 1
        self._has_differed = False

    def play(self, records: Iterable[Record]) -> Iterator[Difference]:
        """Tell the core what it was told; yields each answer that is not the recorded one.

        After the first difference the two fleets part, and others follow from it.

        Raises:
            RecordingError: a record does not fit the ones before it.
        """
        answer: Output | Tick | None = None
        for record in records:
            self._number += 1
            if isinstance(record, (Header, End)):
                continue
            if isinstance(record, (Placed, Refusal, Stayed)):
                if record != answer:
                    yield self._differing(record, answer)
                self._count(record)
                answer = None
                continue
            if answer is not None and not self._has_differed:
                raise self._misfit("the question before it has no answer")
            self.tally.inputs += 1
            try:
                answer = self._told(record)
            except RecordingError as failure:
                raise self._misfit(str(failure)) from None
            except Exception as failure:  # noqa: BLE001  (a core that fails answers differently)
                yield Difference(self._number, f"{record}", f"the core fails with {failure!r}")
                return
            if isinstance(record, Tick):
                if record != answer:
                    yield self._differing(record, answer)
                answer = None

    def _differing(self, recorded: Output | Tick, answer: Output | Tick | None) -> Difference:
        if answer is None and not self._has_differed:
            raise self._misfit("it answers nothing that was asked")
        self._has_differed = True
        return Difference(self._number, f"{recorded}", f"{answer}")

    def _misfit(self, what: str) -> RecordingError:
        return RecordingError(
            f"record {self._number} does not fit: {what}; the recording has a hole or is damaged"
        )

    def _count(self, recorded: Output) -> None:
        """Count an answer; a request that was placed bears its recorded number from here on."""
        tally, ticket = self.tally, self._placed
        self._placed = None
        match recorded:
            case Refusal():
                tally.refused += 1
            case Stayed():
                tally.stayed += 1
            case Placed(reason="retry"):
                tally.moved += 1
            case Placed(ticket=number):
                tally.placed += 1
                if ticket is not None:
                    self._tickets[number] = ticket

    def _told(self, record: Input) -> Output | Tick | None:
        """Tell the core one thing; answers what it answers to that, None if that is nothing."""
        match record:
            case Arrive():
                return self._arrived(record)
            case Tick(now_s=now_s):
                return Tick(now_s, tuple(self.core.tick(now_s)))
            case Retry() | Blame() | Began() | Finish():
                ticket = self._tickets.get(record.ticket)
                if ticket is not None:
                    return self._went_on(record, ticket)
                if not self._has_differed:
                    raise RecordingError(f"no request {record.ticket} is in flight")
            case Weighed() | Limited() | Emptied() | Fixed() | Moved():
                tell_operating(self.core.operating, record)
            case Pinned() | Loaded() | Parted():
                tell_peers(self.core.peers, record)
            case Tied():
                self._tie(record)
            case _:
                tell_member(self.core.members, record)
        return None

    def _tie(self, record: Tied) -> None:
        """Tell the core of a prompt's pages, which may have been learned after its request was over."""
        turn = self._tickets.get(record.ticket) or self._over.get(record.ticket)
        if turn is None:
            if self._has_differed:
                return
            raise RecordingError(f"no request {record.ticket} was placed lately")
        pages, before = pages_of(record.pages), self.core.beliefs.tie_before(turn)
        if record.kept and before is not None:
            pages = before.pages[: record.kept] + pages
        self.core.members.tied(turn, record.tokens, record.page_tokens, pages)

    def _arrived(self, record: Arrive) -> Output:
        arrival = self._arrivals.read(record)
        try:
            ticket = self._placed = self.core.arrive(
                arrival.facts, arrival.now_s, may_wait=record.may_wait
            )
        except Refused as refused:
            return Refusal(refused.code, refused.retry_after_s)
        return placed(ticket, ticket.request.serial)

    def _went_on(self, record: Retry | Blame | Began | Finish, ticket: Ticket) -> Output | None:
        core, now_s = self.core, record.now_s
        match record:
            case Began():
                core.began(ticket, now_s)
            case Blame(fault=fault, code=code, http_status=status):
                core.blame(ticket, upstream_error_like(fault, code, status), now_s)
            case Retry(fault=fault, code=code, http_status=status):
                has_moved = core.retry(ticket, upstream_error_like(fault, code, status), now_s)
                return placed(ticket, record.ticket) if has_moved else Stayed(record.ticket)
            case Finish():
                self._over[record.ticket] = self._tickets.pop(record.ticket)
                if len(self._over) > _OVER_MAX:
                    self._over.popitem(last=False)
                usage = None
                if record.prompt_tokens is not None and record.output_tokens is not None:
                    usage = Usage(record.prompt_tokens, record.output_tokens, record.cached_tokens)
                error = None
                if record.fault is not None and record.code is not None:
                    error = error_like(record.fault, record.code, record.http_status)
                core.finish(ticket, record.outcome, now_s, usage=usage, error=error)
        return None
