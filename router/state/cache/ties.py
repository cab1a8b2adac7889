"""Prompts whose pages are known: what ties a chain of ours to the pages that engines tell of.

A *tie* is made once a prompt's pages were learned, after its turn was placed. The next turn of the
session continues its chain, and so its pages. What sessions have in common at their heads is tied, too:
for a session's first turn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from array import array

    from router.state.cache.feeds import Feeds
    from router.state.history import RequestRecord

PAGES_MAX: Final = 8_000_000
"""Of all ties: 64 MB."""
_TIES_MAX: Final = 50_000
_HEADS_MAX: Final = 1_024
_PLACES_MAX: Final = 8
_MARKS_MAX: Final = 64


@dataclass(slots=True, eq=False)
class Tie:
    """One session's last tied prompt.

    ``marks`` are segments behind which the tokens are known, with the tokens, in order; the last is the
    whole prompt. ``places`` are
    replicas that were seen to hold a part of it, each with the epoch of what it tells; ``record`` is the
    request whose prompt it is, until the engine has counted that.
    """

    record: RequestRecord | None
    chain: array[int]
    ends_bytes: array[int]
    page_tokens: int
    pages: array[int]
    marks: list[tuple[int, int]]
    places: dict[str, int] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Tokens of the whole prompt."""
        return self.marks[-1][1]

    def common(self, chain: array[int]) -> int:
        """How many leading segments another chain shares: a value stands for all before it."""
        mine, high = self.chain, min(len(self.chain), len(chain))
        if not high or mine[high - 1] == chain[high - 1]:
            return high
        low, high = 0, high - 1
        while low < high:
            middle = (low + high) // 2
            if mine[middle] == chain[middle]:
                low = middle + 1
            else:
                high = middle
        return low

    def tokens_at(self, segments: int) -> int:
        """Tokens of the first segments: counted where they were, and by their bytes between."""
        if not segments:
            return 0
        at = bisect_right(self.marks, segments, key=_segments_of)
        before, before_tokens = self.marks[at - 1] if at else (0, 0)
        if before == segments:
            return before_tokens
        ends = self.ends_bytes
        after, after_tokens = self.marks[at]
        start = ends[before - 1] if before else 0
        share = (ends[segments - 1] - start) / max(1, ends[after - 1] - start)
        return before_tokens + int((after_tokens - before_tokens) * share)

    def pages_at(self, segments: int) -> int:
        """Whole pages within the first segments."""
        return min(len(self.pages), self.tokens_at(segments) // self.page_tokens)

    def segments_within(self, n_pages: int) -> int:
        """How many leading segments lie within the first pages; all of them within all pages."""
        if n_pages >= len(self.pages):
            return len(self.chain)
        tokens = n_pages * self.page_tokens
        return bisect_right(range(1, len(self.chain) + 1), tokens, key=self.tokens_at)

    def segments_at_most(self, n_pages: int) -> int:
        """How many leading segments may be there where just the first pages are, told by the marks alone.

        Where tokens were not counted nothing is certain; and a segment may end within the page behind, which
        is not whole, or goes on otherwise.
        """
        if n_pages >= len(self.pages):
            return len(self.chain)
        tokens = (n_pages + 1) * self.page_tokens - 1
        at = bisect_right(self.marks, tokens, key=_tokens_of)
        return self.marks[at][0] - 1 if at < len(self.marks) else len(self.chain)

    def seen_at(self, replica_id: str, epoch: int) -> None:
        """A replica was seen to hold a part of it; the longest not seen is forgotten."""
        self.places.pop(replica_id, None)
        self.places[replica_id] = epoch
        if len(self.places) > _PLACES_MAX:
            del self.places[next(iter(self.places))]


def _segments_of(mark: tuple[int, int]) -> int:
    return mark[0]


def _tokens_of(mark: tuple[int, int]) -> int:
    return mark[1]


@dataclass(slots=True)
class Head:
    """The ``n_pages`` that prompts with one head have in common.

    A guess by bytes from the one prompt that is known, ``tie``, until another one is.
    """

    page_tokens: int
    pages: array[int]
    n_pages: int
    tie: Tie | None


class Tied:
    """One prompt's leading pages, and what each replica that tells of its pages holds of them."""

    __slots__ = (
        "_feeds",
        "_is_known",
        "_n",
        "_n_shared",
        "_pages",
        "page_tokens",
        "segments",
        "tie",
        "tokens",
    )

    def __init__(
        self,
        feeds: Feeds,
        pages: array[int],
        page_tokens: int,
        *,
        n_pages: int,
        segments: int,
        tie: Tie | None,
        n_shared: int = 0,
        is_known: bool = True,
    ) -> None:
        """The first ``n_pages`` of ``pages`` are those of the first ``segments``.

        Behind the first ``n_shared`` pages, those of other sessions follow as well. ``is_known`` is False
        where the last of them may be another prompt's.
        """
        self._feeds = feeds
        self._pages = pages
        self.page_tokens = page_tokens
        self._n = n_pages
        self._n_shared = n_shared
        self._is_known = is_known
        self.tie = tie
        self.segments = segments
        self.tokens = n_pages * page_tokens
        if tie is not None and segments == len(tie.chain):
            self.tokens = tie.tokens

    def knows(self, replica_id: str) -> bool:
        """Whether a replica tells of its pages, so that nothing else is believed of it."""
        return self._feeds.live(replica_id) is not None

    def live_ids(self) -> list[str]:
        """The replicas that tell of their pages."""
        return [replica_id for replica_id, _ in self._feeds.all_live()]

    def held_tokens(
        self, replica_id: str, *, segments: int, assumed_tokens: int, answered: int, tokens_max: int
    ) -> int:
        """The tokens that a replica holds, where the index has its ``segments`` and ``assumed_tokens``.

        ``answered`` tokens of the last answer stand behind the tied prompt; what is held is at most
        ``tokens_max``, which is an estimate, or all but the last token of what is tied.
        """
        feed = self._feeds.live(replica_id)
        if feed is None or feed.page_tokens != self.page_tokens:
            return assumed_tokens
        page_tokens, n = self.page_tokens, self._n
        found = feed.leading(self._pages, n)
        if found < n:
            tokens = found * page_tokens
            is_certain = self._is_known and (feed.is_whole or self._is_told(replica_id, feed.epoch))
            return tokens if is_certain else max(tokens, assumed_tokens)
        if answered and n > self._n_shared:
            limit = (self.tokens + answered) // page_tokens - n
            found += feed.following(self._pages[n - 1], limit)
        tokens = found * page_tokens
        if segments > self.segments:
            # A newer prompt of the session is there, whose pages are not known yet.
            tokens = max(tokens, assumed_tokens) if self._is_known else assumed_tokens
        most = max(tokens_max, self.tokens - 1)
        return min(tokens, most // page_tokens * page_tokens)

    def _is_told(self, replica_id: str, epoch: int) -> bool:
        return self.tie is not None and self.tie.places.get(replica_id) == epoch


class Ties:
    """All ties, the longest unused first, and the heads that prompts share; both bounded by pages."""

    def __init__(self, pages_max: int = PAGES_MAX) -> None:
        self._pages_max = pages_max
        self._ties: OrderedDict[Tie, None] = OrderedDict()
        self._heads: OrderedDict[int, Head] = OrderedDict()
        self.n_pages = 0

    def __len__(self) -> int:
        return len(self._ties)

    def __contains__(self, tie: Tie) -> bool:
        return tie in self._ties

    def use(self, tie: Tie, *, is_used: bool = True) -> bool:
        """Use a tie now, if it is not only looked at; False if it was given up."""
        if tie not in self._ties:
            return False
        if is_used:
            self._ties.move_to_end(tie)
        return True

    def head(self, key: int, *, is_used: bool = True) -> Head | None:
        """What prompts of this head have in common, if that is known."""
        head = self._heads.get(key)
        if head is not None and is_used:
            self._heads.move_to_end(key)
        return head

    def add(self, tie: Tie, head_segments: int) -> None:
        """Keep a tie, and learn its head; the longest unused make room."""
        self._ties[tie] = None
        self.n_pages += len(tie.pages)
        while len(self._ties) > 1 and (
            self.n_pages > self._pages_max or len(self._ties) > _TIES_MAX
        ):
            self.drop(next(iter(self._ties)))
        if 0 < head_segments <= len(tie.chain):
            self._learn(tie, head_segments)

    def drop(self, tie: Tie) -> None:
        """Give a tie up."""
        if tie in self._ties:
            del self._ties[tie]
            self.n_pages -= len(tie.pages)
            tie.pages = tie.pages[:0]
            tie.record = None

    def _learn(self, tie: Tie, head_segments: int) -> None:
        heads, key = self._heads, tie.chain[head_segments - 1]
        head = heads.get(key)
        if head is None or head.page_tokens != tie.page_tokens:
            n_pages = tie.pages_at(head_segments)
            heads[key] = Head(tie.page_tokens, tie.pages, n_pages, tie)
        elif head.tie is None or head.tie.common(tie.chain) == head_segments:
            # Two prompts that part behind the head: what they share is the head, to the page.
            shared = common_pages(head.pages, tie.pages)
            if shared < len(head.pages):
                head.pages = head.pages[:shared]
            head.n_pages, head.tie = shared, None
        heads.move_to_end(key)
        if len(heads) > _HEADS_MAX:
            heads.popitem(last=False)


def common_pages(one: array[int], other: array[int]) -> int:
    """How many leading pages two prompts share: a page stands for all before it."""
    high = min(len(one), len(other))
    if not high or one[high - 1] == other[high - 1]:
        return high
    low, high = 0, high - 1
    while low < high:
        middle = (low + high) // 2
        if one[middle] == other[middle]:
            low = middle + 1
        else:
            high = middle
    return low


def marks_of(
    before: Tie | None, chain: array[int], tokens: int, head: tuple[int, int] | None
) -> list[tuple[int, int]]:
    """Where tokens are known within a prompt: where the last one's were, and at its end."""
    marks: list[tuple[int, int]] = []
    if before is not None:
        shared = before.common(chain)
        marks = [mark for mark in before.marks if mark[0] <= shared and mark[1] < tokens]
    elif head is not None and head[1] < tokens:
        marks = [head]
    marks = [mark for mark in marks if mark[0] < len(chain)]
    return [*marks[-_MARKS_MAX:], (len(chain), tokens)]
