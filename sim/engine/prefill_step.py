"""A prefill step as a span of time: which prompts it computes how much of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.hardware.profiles import EngineFacts
    from sim.engine.job import Job
    from sim.engine.pool import KvPool


@dataclass(slots=True)
class PrefillStep:
    """A prefill step: ``parts`` are jobs and the prompt tokens of each that it computes.

    It goes on over as many more chunks as ``later_s`` has ends, last first, each as long as the first,
    whose only part is of the prompt that all of them cut. ``start_s`` and ``end_s`` are those of the chunk in
    progress; the pool does not know of ``owed_chunks`` before it. ``riders`` are running jobs that get a token in it. ``is_silent``: nobody gets a
    token. ``quiet_until_s``: when the prompt that it cuts will be done at the earliest, once asked.
    """

    start_s: float
    end_s: float
    parts: list[tuple[Job, int]]
    riders: list[Job]
    is_silent: bool
    quiet_until_s: float | None = None
    later_s: list[float] = field(default_factory=list)
    owed_chunks: int = 0

    def cut(self) -> None:
        """End with the chunk in progress."""
        self.later_s.clear()

    def owed_pages(self, facts: EngineFacts) -> int:
        """Pages of chunks that have ended of which the pool does not know."""
        return self.owed_chunks * (facts.chunk_tokens // facts.page_tokens)

    def settle(self, pool: KvPool, facts: EngineFacts) -> None:
        """Let the pool know of all chunks that have ended."""
        n_chunks = self.owed_chunks
        if n_chunks:
            self.owed_chunks = 0
            ((job, _),) = self.parts
            assert job.holding is not None, "a prefill step holds admitted jobs only"
            chunk_pages = facts.chunk_tokens // facts.page_tokens
            start = job.computed_tokens // facts.page_tokens - n_chunks * chunk_pages
            pool.go_on(job.holding, job.lookup.pages, start, n_chunks, chunk_pages)

    def go_on_from(self, before: PrefillStep, chunk_tokens: int) -> None:
        """Take over what was foreseen for a prompt that goes on with a whole chunk."""
        job, n_tokens = self.parts[0]
        if self.is_silent and n_tokens == chunk_tokens and before.parts[-1][0] is job:
            self.quiet_until_s = before.quiet_until_s


def taken_up(
    parts: Sequence[tuple[Job, int]], pool: KvPool, *, page_tokens: int
) -> tuple[float, bool, list[tuple[int, int]]]:
    """The jobs of a prefill step get its pages.

    Answers the seconds of loading from the host tier, whether none of the prompts ends with it, and of each
    how many tokens it computes behind how many.
    """
    load_s, is_silent = 0.0, True
    work: list[tuple[int, int]] = []
    for job, n_tokens in parts:
        load_s += job.host_load_s
        job.host_load_s = 0.0
        computed = job.computed_tokens
        work.append((n_tokens, computed))
        reached = computed + n_tokens
        if reached == job.fill_tokens:
            is_silent = False
        assert job.holding is not None, "only admitted jobs get pages"
        pool.have(job.holding, -(-reached // page_tokens))
    return load_s, is_silent, work
