"""One prompt's tokens that each replica holds."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from array import array
    from collections.abc import Collection, Iterator

    from router.state.cache.prefix_index import Holdings, Mark, Match, Node
    from router.state.cache.ties import Tied

_PAGE_TOKENS: Final = 64
"""SGLang's page with its MLA backends: cached tokens come in whole pages."""


class Held:
    """The tokens of one prompt that each replica holds, worked out for those that are asked for."""

    __slots__ = (
        "_answered",
        "_asked_id",
        "_asked_tokens",
        "_bytes_per_token",
        "_ends",
        "_known",
        "_last",
        "_match",
        "_tied",
        "_tokens_max",
    )

    def __init__(
        self,
        match: Match,
        ends_bytes: array[int],
        *,
        bytes_per_token: float,
        prompt_tokens: int,
        last: tuple[int, int, int] | None,
        answered: int,
    ) -> None:
        """``last`` are the segments, bytes and tokens of the session's last prompt if this continues it.

        ``answered`` are the tokens of its answer that are expected to come back. Of replicas that tell of
        their pages, those of the match's tie count, and nothing else.
        """
        self._match = match
        self._ends = ends_bytes
        self._bytes_per_token = bytes_per_token
        self._tokens_max = prompt_tokens - 1
        self._last = last
        self._answered = answered
        self._known: dict[int, int] = {}
        self._tied = tied = match.tied
        self._asked_id: str | None = None
        self._asked_tokens: int | None = None
        if tied is not None:
            # The levels are of whole segments: those that are tied have their pages' tokens.
            tokens = self._tokens(tied.segments) if tied.segments else 0
            most = min(tied.tokens, self._tokens_max) // tied.page_tokens * tied.page_tokens
            self._known[tied.segments] = max(tokens, most)

    def anew(self, match: Match) -> Held:
        """The same prompt, matched again."""
        match.tied = self._tied
        tokens = self._tokens_max + 1
        return Held(
            match, self._ends, bytes_per_token=self._bytes_per_token, prompt_tokens=tokens,
            last=self._last, answered=self._answered,
        )  # fmt: skip

    def get(self, replica_id: str, default: int = 0, /) -> int:
        """The tokens of one replica."""
        # The home, and then the chosen one, are asked for several times in a row.
        if replica_id is not self._asked_id:
            segments = self._match.segments(replica_id)
            self._asked_id = replica_id
            self._asked_tokens = self._tokens(segments) if segments else None
            if self._tied is not None:
                self._asked_tokens = self._told(self._tied, replica_id, segments)
        tokens = self._asked_tokens
        return default if tokens is None else tokens

    def _told(self, tied: Tied, replica_id: str, segments: int) -> int | None:
        """The tokens of one replica by its pages, if it tells of them."""
        is_last = self._last is not None and tied.segments == self._last[0]
        tokens = tied.held_tokens(
            replica_id,
            segments=segments,
            assumed_tokens=self._asked_tokens or 0,
            answered=self._answered if is_last else 0,
            tokens_max=self._tokens_max,
        )
        return tokens or None

    def knows(self, replica_id: str) -> bool:
        """Whether what a replica holds of this prompt is told by its pages."""
        return self._tied is not None and self._tied.knows(replica_id)

    @property
    def place(self) -> Node:
        """Where the index had most of the prompt."""
        return self._match.node

    def marks(self, replica_id: str, holdings: Holdings | None) -> tuple[Mark, ...]:
        """When one replica last used what it holds; to be asked before the index changes."""
        return self._match.marks(replica_id, holdings)

    def segments_within(self, tokens: float) -> int:
        """How many leading segments have no more tokens than that."""
        return bisect_right(range(1, len(self._ends) + 1), tokens, key=self._tokens)

    @property
    def most(self) -> int:
        """The most that any replica may hold."""
        segments = self._match.most
        return self._tokens(segments) if segments else 0

    def levels(self) -> Iterator[tuple[int, Collection[str]]]:
        """Holders from those of the most on: the most that any of them may hold, and their ids."""
        for segments, ids in self._match.levels():
            yield self._tokens(segments), ids

    def everyone(self) -> dict[str, int]:
        """The tokens of all that hold any."""
        found = self._match.everyone()
        for segments in set(found.values()):
            self._tokens(segments)
        known = self._known
        tokens = {replica_id: known[segments] for replica_id, segments in found.items()}
        if self._tied is not None:
            for replica_id in self._tied.live_ids():
                if told := self.get(replica_id):
                    tokens[replica_id] = told
                else:
                    tokens.pop(replica_id, None)
        return tokens

    def _tokens(self, segments: int) -> int:
        """Tokens of the first ``segments``, in whole pages, never the whole prompt."""
        known = self._known.get(segments)
        if known is not None:
            return known
        held_bytes, last = self._ends[segments - 1], self._last
        if last is not None and segments >= last[0]:
            # What follows the last prompt begins with the last answer, or what is sent back of it.
            after = self._answered if segments == last[0] else 0
            tokens = last[2] + after + int((held_bytes - last[1]) / self._bytes_per_token)
        else:
            tokens = int(held_bytes / self._bytes_per_token)
        if tokens >= self._tokens_max:
            known = self._tokens_max // _PAGE_TOKENS * _PAGE_TOKENS
        else:
            known = tokens // _PAGE_TOKENS * _PAGE_TOKENS if tokens > 0 else 0
        self._known[segments] = known
        return known
