"""Which replicas tell what their caches hold, and what they told.

A replica has one cache for each data-parallel rank. Its *feed* is live while all of them are followed
without a gap; only then is what it told believed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from router.state.cache.pages import Kind, PageCache

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Sequence

    from router.state.cache.pages import Change

RANKS_MAX: Final = 64


class Said(StrEnum):
    """What is told of following one cache."""

    BEGUN = "begun"
    """Its story begins anew: what was known of it is forgotten."""
    WHOLE = "whole"
    """All that it holds is known, from here on without a gap."""
    PARTIAL = "partial"
    """It is followed without a gap, but what it held before is not known."""
    LOST = "lost"
    """It is not followed now; what was told is kept until its story goes on or begins anew."""


@dataclass(slots=True, frozen=True)
class Feeding:
    """What is told of one cache of a replica; ``page_tokens`` is the size of its pages."""

    said: Said
    page_tokens: int
    rank: int = 0
    n_ranks: int = 1


@dataclass(slots=True)
class Feed:
    """One replica's caches by rank; ``heard_s`` is when it was last heard of.

    ``begun`` are the ranks whose story is known from where it began, ``followed`` those where it goes on,
    ``caught_up`` those that were followed since it began: what they tell happened after that.
    """

    page_tokens: int
    caches: list[PageCache]
    begun: set[int] = field(default_factory=set)
    followed: set[int] = field(default_factory=set)
    caught_up: set[int] = field(default_factory=set)
    heard_s: float = 0.0
    is_live: bool = False

    @property
    def n_pages(self) -> int:
        """Pages that its caches hold."""
        return sum(map(len, self.caches))

    def leading(self, pages: array[int], n: int) -> int:
        """How many of the first ``n`` pages it holds; which cache will serve is not known, so the most."""
        caches = self.caches
        if len(caches) == 1:
            return caches[0].leading(pages, n)
        return max(cache.leading(pages, n) for cache in caches)

    def following(self, page: int, limit: int) -> int:
        """How many pages follow one, at most ``limit``."""
        return max(cache.following(page, limit) for cache in self.caches)

    @property
    def is_whole(self) -> bool:
        """What is not known of it is not there."""
        return all(cache.is_whole for cache in self.caches)

    @property
    def epoch(self) -> int:
        """Grows each time that one of its caches begins anew."""
        return sum(cache.epoch for cache in self.caches)


class Feeds:
    """The feeds of all replicas; ``n_live`` of them are believed."""

    def __init__(self) -> None:
        self._feeds: dict[str, Feed] = {}
        self._n_begun = 0
        self.n_live = 0

    def live(self, replica_id: str) -> Feed | None:
        """A replica's feed, if it is to be believed."""
        feed = self._feeds.get(replica_id)
        return feed if feed is not None and feed.is_live else None

    def get(self, replica_id: str) -> Feed | None:
        """A replica's feed, live or not."""
        return self._feeds.get(replica_id)

    def all_live(self) -> Iterator[tuple[str, Feed]]:
        """Every feed that is believed, with its replica."""
        return ((key, feed) for key, feed in self._feeds.items() if feed.is_live)

    def fed(self, replica_id: str, told: Feeding, now_s: float) -> None:
        """One cache is followed from now on, or no more."""
        feed = self._feeds.get(replica_id)
        n_ranks = min(max(told.n_ranks, 1), RANKS_MAX)
        if told.page_tokens <= 0 or not 0 <= told.rank < n_ranks:
            return
        shape = (told.page_tokens, n_ranks)
        if feed is None or (feed.page_tokens, len(feed.caches)) != shape:
            if told.said is Said.LOST:
                return
            self.forget(replica_id)
            feed = Feed(told.page_tokens, [PageCache() for _ in range(n_ranks)])
            self._feeds[replica_id] = feed
        cache = feed.caches[told.rank]
        feed.heard_s = now_s
        if told.said is Said.BEGUN:
            self._forget(feed, told.rank)
            feed.begun.add(told.rank)
        elif told.said is Said.LOST:
            feed.followed.discard(told.rank)
        elif told.rank in feed.begun:
            cache.is_whole = told.said is Said.WHOLE
            feed.followed.add(told.rank)
            feed.caught_up.add(told.rank)
        self._weigh(feed)

    def paged(
        self, replica_id: str, rank: int, changes: Sequence[Change], now_s: float
    ) -> tuple[bool, bool]:
        """A cache told what changed; whether it was taken, and whether the replica has just lost all.

        More than is kept, or from a cache that nobody follows, is not taken: it is to begin anew.
        """
        feed = self._feeds.get(replica_id)
        if feed is None or rank not in feed.begun:
            return False, False
        feed.heard_s = now_s
        cache, is_empty = feed.caches[rank], False
        for change in changes:
            if not cache.apply(change):
                self._forget(feed, rank)
                self._weigh(feed)
                return False, False
            if change.kind is Kind.CLEARED and rank in feed.caught_up:
                # What is replayed of the time before says nothing of requests that were placed since.
                is_empty = not feed.n_pages
        return True, is_empty

    def lost(self, replica_id: str) -> None:
        """A replica is gone or hung: what it told is forgotten until it is followed anew."""
        feed = self._feeds.get(replica_id)
        if feed is None:
            return
        for rank in range(len(feed.caches)):
            self._forget(feed, rank)
        self._weigh(feed)

    def forget(self, replica_id: str) -> None:
        """A replica left the fleet."""
        feed = self._feeds.pop(replica_id, None)
        if feed is not None and feed.is_live:
            self.n_live -= 1

    def _forget(self, feed: Feed, rank: int) -> None:
        self._n_begun += 1
        feed.caches[rank].begin(self._n_begun)
        for ranks in (feed.begun, feed.followed, feed.caught_up):
            ranks.discard(rank)

    def _weigh(self, feed: Feed) -> None:
        is_live = len(feed.followed) == len(feed.caches)
        self.n_live += is_live - feed.is_live
        feed.is_live = is_live
