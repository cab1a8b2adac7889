"""A replica's cache in its simplest form, for the core's tests: it tells every change, and the truth.

Prompts are lists of token ids; a page is named as an engine names it. What is held is a set of pages
that is closed towards the front, as engines keep it.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from hashing.pages import page_numbers
from router.state.cache.feeds import Feeding, Said
from router.state.cache.pages import Change, Kind, Medium

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from router.core import RouterCore

PAGE_TOKENS = 16


class PagedReplica:
    """One replica of a core; whatever happens to its cache is told to the core at once."""

    def __init__(self, core: RouterCore, replica_id: str) -> None:
        self.core = core
        self.replica_id = replica_id
        self.prompts: list[array[int]] = []
        self.held: set[int] = set()

    def said(self, said: Said, now_s: float = 0.0) -> None:
        self.core.members.fed(self.replica_id, Feeding(said, PAGE_TOKENS), now_s)

    def tell(self, *changes: Change, now_s: float = 0.0) -> bool:
        return self.core.members.paged(self.replica_id, 0, changes, now_s)

    def cached_tokens(self, tokens: Sequence[int]) -> int:
        """What it has of a prompt; the last token is always computed."""
        pages = page_numbers(tokens[:-1], PAGE_TOKENS)
        n = next((i for i, page in enumerate(pages) if page not in self.held), len(pages))
        return n * PAGE_TOKENS

    def compute(self, tokens: Sequence[int]) -> array[int]:
        """Compute a prompt: all its whole pages are stored. Answers them."""
        pages = page_numbers(tokens, PAGE_TOKENS)
        n = next((i for i, page in enumerate(pages) if page not in self.held), len(pages))
        if n < len(pages):
            parent = pages[n - 1] if n else None
            self.tell(Change(Kind.STORED, Medium.GPU, parent, pages[n:]))
        self.held.update(pages)
        self.prompts.append(pages)
        return pages

    def evict(self, dice: random.Random) -> None:
        """Give up the end of some prompt, and of all that go on from there."""
        if not self.prompts:
            return
        pages = dice.choice(self.prompts)
        if not pages:
            return
        gone = pages[dice.randrange(len(pages))]
        lost: dict[int, None] = {}
        for other in self.prompts:
            if gone in other:
                lost.update(dict.fromkeys(other[other.index(gone) :]))
        kept = [page for page in lost if page in self.held]
        self.held.difference_update(kept)
        self.tell(Change(Kind.REMOVED, Medium.GPU, None, array("q", kept)))

    def flush(self) -> None:
        """Give up everything."""
        self.held.clear()
        self.tell(Change(Kind.CLEARED))

    def restart(self) -> None:
        """Another process behind the same address."""
        self.held.clear()
        self.said(Said.BEGUN)
        self.tell(Change(Kind.CLEARED))
        self.said(Said.WHOLE)
