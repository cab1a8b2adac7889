"""What is believed of every replica's cache, and from what source.

The best source that there is counts: what the engine publishes of its pages (*events*), what its answers
report (*reported*), or the prefix index alone (*assumed*). Where pages are published, the index is
corrected by them as sessions come back, so that what it enumerates agrees with what is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from router.state.cache.feeds import Feeds
from router.state.cache.overlaid import Overlaid
from router.state.cache.ties import Tie, Tied, Ties, marks_of

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from router.policy.view import RouteRequest
    from router.state.cache.feeds import Feeding
    from router.state.cache.pages import Change
    from router.state.cache.prefix_index import Match, PrefixIndex
    from router.state.history import RequestRecord
    from router.state.sessions.pins import Pin, Pins

_TOKENS_MAX: Final = 1 << 31


class Source(StrEnum):
    """Where a belief about a cache comes from, the best first."""

    EVENTS = "events"
    REPORTED = "reported"
    ASSUMED = "assumed"


class Prompt(Protocol):
    """What is read of a request's facts."""

    chain: array[int]
    ends_bytes: array[int]
    head_segments: int


class Turn(Protocol):
    """What is read of a placed request."""

    @property
    def record(self) -> RequestRecord:
        """Its record."""

    @property
    def facts(self) -> Prompt:
        """Its prompt."""

    @property
    def request(self) -> RouteRequest:
        """What was decided on."""

    @property
    def continues(self) -> bool:
        """It goes on from its session's last prompt."""


@dataclass(slots=True)
class Accuracy:
    """How well the cached tokens of one replica were predicted; ``reported_s`` is the last report's time."""

    reports: int = 0
    error_tokens: int = 0
    reported_s: float | None = None


class Beliefs:
    """The feeds, the ties and the index, kept in step."""

    def __init__(self, index: PrefixIndex, pins: Pins) -> None:
        self._index = index
        self._pins = pins
        self.feeds = Feeds()
        self.ties = Ties()
        self._accuracy: dict[str, Accuracy] = {}

    # What is asked

    def match(self, prompt: Prompt, pin: Pin | None) -> Match:
        """What every replica holds of a prompt; the index agrees with the pages that are known."""
        near = None if pin is None else pin.place
        if not self.feeds.n_live:
            return self._index.match(prompt.chain, near)
        tied = self._tied(prompt, None if pin is None else pin.tie)
        match = self._index.match(prompt.chain, near)
        if tied is not None and tied.tie is not None:
            tie = tied.tie
            if self._settle(tie, tied.segments, list(tie.places), match):
                match = self._index.match(prompt.chain)
        match.tied = tied
        return match

    def look(self, prompt: Prompt, pin: Pin, changed: dict[str, int]) -> Match:
        """What :meth:`match` would answer, without that anything changes: the index stays as it is.

        ``changed`` are the segments that some replicas are to be taken to hold.
        """
        match = self._index.match(prompt.chain)
        if not self.feeds.n_live:
            return Overlaid(match, changed) if changed else match
        tied = self._tied(prompt, pin.tie, is_used=False)
        if tied is not None and tied.tie is not None:
            tie = tied.tie
            found = Overlaid(match, changed)
            changed |= {
                replica_id: held
                for replica_id, held, _ in self._corrections(
                    tie, tied.segments, list(tie.places), found, may_trim=True
                )
            }
        overlaid = Overlaid(match, changed)
        overlaid.tied = tied
        return overlaid

    def source(self, replica_id: str, *, reports_cached: bool) -> Source:
        """The best source that there is for a replica."""
        if self.feeds.live(replica_id) is not None:
            return Source.EVENTS
        accuracy = self._accuracy.get(replica_id)
        has_reported = accuracy is not None and accuracy.reports > 0
        return Source.REPORTED if reports_cached or has_reported else Source.ASSUMED

    def age_s(self, replica_id: str, now_s: float) -> float | None:
        """Seconds since the replica was last heard of by its present source; None if never."""
        feed = self.feeds.live(replica_id)
        if feed is not None:
            return now_s - feed.heard_s
        accuracy = self._accuracy.get(replica_id)
        if accuracy is None or accuracy.reported_s is None:
            return None
        return now_s - accuracy.reported_s

    def accuracy(self, replica_id: str) -> Accuracy:
        """How well its cached tokens were predicted."""
        return self._accuracy.get(replica_id) or Accuracy()

    def pages(self, replica_id: str) -> int:
        """The pages that a replica is known to hold, 0 where it does not tell."""
        feed = self.feeds.live(replica_id)
        return 0 if feed is None else feed.n_pages

    # What is told

    def fed(self, replica_id: str, told: Feeding, now_s: float) -> None:
        """One cache of a replica is followed from now on, or no more."""
        self.feeds.fed(replica_id, told, now_s)

    def paged(self, replica_id: str, rank: int, changes: Sequence[Change], now_s: float) -> bool:
        """A cache told what changed; False if it was not taken: its story is to begin anew."""
        is_taken, is_empty = self.feeds.paged(replica_id, rank, changes, now_s)
        if is_empty:
            self._index.clear(replica_id)
        return is_taken

    def tie_before(self, turn: Turn) -> Tie | None:
        """The last tie of a turn's session."""
        pin = self._pins.get(turn.record.session_key)
        return None if pin is None else pin.tie

    def tied(self, turn: Turn, tokens: int, page_tokens: int, pages: array[int]) -> bool:
        """A turn's prompt has so many tokens, in these pages; False if that is of no use."""
        record, facts = turn.record, turn.facts
        pin, chain = self._pins.get(record.session_key), facts.chain
        if pin is None or not chain or turn.request.is_auxiliary:
            return False
        if not 0 < tokens < _TOKENS_MAX or page_tokens <= 0 or len(pages) != tokens // page_tokens:
            return False
        if record.reported_prompt_tokens not in (None, tokens):
            return False
        feed = self.feeds.live(record.replica_id)
        # It has just computed them: where they are not there, they are not the prompt's.
        has_told = feed is not None and feed.is_whole and record.began_s is not None
        if has_told and feed is not None and feed.leading(pages, len(pages)) < len(pages):
            return False
        before = pin.tie
        is_branch = before is not None and not turn.continues and before.tokens > tokens
        if is_branch and record.replica_id != pin.home_id:
            return False  # a smaller one that ran elsewhere: the session does not go on from it
        head = self.ties.head(chain[facts.head_segments - 1]) if facts.head_segments else None
        mark = None
        if head is not None and head.tie is None:
            mark = (facts.head_segments, head.n_pages * head.page_tokens)
        is_alike = before is not None and before.page_tokens == page_tokens
        marks = marks_of(before if is_alike else None, chain, tokens, mark)
        is_open = record.reported_prompt_tokens is None
        tie = Tie(record if is_open else None, chain, facts.ends_bytes, page_tokens, pages, marks)
        if before is not None:
            self.ties.drop(before)
        pin.tie = tie
        self.ties.add(tie, facts.head_segments)
        self._place(tie, record.replica_id)
        return True

    def reported(self, record: RequestRecord) -> None:
        """A replica reported the tokens of a prompt, and how many of them it had cached."""
        cached_tokens, prompt_tokens = record.reported_cached_tokens, record.reported_prompt_tokens
        if cached_tokens is None or not prompt_tokens:
            return
        accuracy = self._accuracy.get(record.replica_id)
        if accuracy is None:
            accuracy = self._accuracy[record.replica_id] = Accuracy()
        accuracy.reports += 1
        accuracy.error_tokens += abs(record.predicted_cached_tokens - cached_tokens)
        accuracy.reported_s = record.ended_s
        pin = self._pins.get(record.session_key)
        tie = None if pin is None else pin.tie
        if pin is None or tie is None or tie.record is not record:
            return
        tie.record = None
        if tie.tokens != prompt_tokens:
            # It was tokenised otherwise than it was computed: its pages are of another prompt.
            self.ties.drop(tie)
            pin.tie = None

    def lost(self, replica_id: str) -> None:
        """A replica is gone or hung: what it told of its pages is forgotten."""
        self.feeds.lost(replica_id)

    def forget(self, replica_id: str) -> None:
        """A replica left the fleet."""
        self.feeds.forget(replica_id)
        self._accuracy.pop(replica_id, None)

    # Within

    def _tied(self, prompt: Prompt, tie: Tie | None, *, is_used: bool = True) -> Tied | None:
        chain, n_head = prompt.chain, prompt.head_segments
        head = None
        if 0 < n_head <= len(chain):
            head = self.ties.head(chain[n_head - 1], is_used=is_used)
        if tie is not None and self.ties.use(tie, is_used=is_used):
            shared = tie.common(chain)
            if shared > n_head:
                return Tied(
                    self.feeds,
                    tie.pages,
                    tie.page_tokens,
                    n_pages=tie.pages_at(shared),
                    segments=shared,
                    tie=tie,
                    n_shared=0 if head is None else head.n_pages,
                )
        if head is None:
            return None
        return Tied(
            self.feeds,
            head.pages,
            head.page_tokens,
            n_pages=head.n_pages,
            segments=n_head,
            tie=None,
            is_known=head.tie is None,
        )

    def _place(self, tie: Tie, replica_id: str) -> None:
        """Let the index agree with who holds a prompt that was just tied."""
        places = []
        for other_id, feed in self.feeds.all_live():
            if feed.page_tokens != tie.page_tokens:
                continue
            if other_id == replica_id and not feed.is_whole and len(feed.caches) == 1:
                feed.caches[0].know(tie.pages)  # it has just computed them
            if other_id == replica_id or feed.leading(tie.pages, len(tie.pages)):
                tie.seen_at(other_id, feed.epoch if other_id == replica_id else -1)
                places.append(other_id)
        # Others may be computing what the index has of them: only the next turn takes any of it back.
        self._settle(tie, len(tie.chain), places, self._index.match(tie.chain), may_trim=False)

    def _settle(
        self,
        tie: Tie,
        segments: int,
        places: Sequence[str],
        match: Match,
        *,
        may_trim: bool = True,
    ) -> bool:
        """Let the index agree with the pages of a tied prompt's first segments; True if it changed."""
        changes = self._corrections(tie, segments, places, match, may_trim=may_trim)
        for replica_id, held, is_less in changes:
            if is_less:
                self._index.trim(replica_id, tie.chain, held)
            else:
                self._index.hold(replica_id, tie.chain[:held], tie.ends_bytes[:held])
        return bool(changes)

    def _corrections(
        self, tie: Tie, segments: int, places: Sequence[str], match: Match, *, may_trim: bool
    ) -> list[tuple[str, int, bool]]:
        """Whom the index is to know to hold how many segments, and whether that is less than it has."""
        n_pages, changes = tie.pages_at(segments), []
        if not n_pages:
            return []
        for replica_id in places:
            feed = self.feeds.live(replica_id)
            if feed is None or feed.page_tokens != tie.page_tokens:
                continue
            found, assumed = feed.leading(tie.pages, n_pages), match.segments(replica_id)
            held = segments if found >= n_pages else min(segments, tie.segments_within(found))
            if assumed < held:
                changes.append((replica_id, held, False))
            elif may_trim and assumed > held and held < segments:
                is_certain = feed.is_whole or tie.places.get(replica_id) == feed.epoch
                most = tie.segments_at_most(found)
                if is_certain and assumed > most:
                    changes.append((replica_id, most, True))
        return changes
