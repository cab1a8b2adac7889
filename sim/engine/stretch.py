"""A stretch of generation steps as a span of time.

While the set of running requests stays the same, each generation step is longer than the one
before by the same amount (contexts grow evenly), so the end of step k is a quadratic in k and
nothing has to be done a step, let alone a token.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from math import floor, sqrt
from typing import TYPE_CHECKING

from sim.engine.job import ROUNDING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Sequence

    from replica.hardware.profiles import EngineFacts
    from sim.engine.job import Job
    from sim.engine.pool import KvPool


class Stretch:
    """``n_steps`` generation steps of one set of jobs from ``start_s`` on.

    Step 1 takes ``first_s``, each later one ``growth_s`` more than the one before. All jobs together
    are ``batch``, and yield ``tokens_per_step`` on average.
    """

    __slots__ = ("batch", "end_s", "first_s", "growth_s", "n_steps", "start_s", "tokens_per_step")

    def __init__(
        self,
        start_s: float,
        *,
        first_s: float,
        growth_s: float,
        n_steps: int,
        batch: int = 1,
        tokens_per_step: float = 1.0,
    ) -> None:
        assert first_s > 0.0, f"a step takes {first_s} s"
        assert 0.0 <= growth_s <= first_s, f"steps of {first_s} s grow by {growth_s} s"
        self.start_s = start_s
        self.first_s = first_s
        self.growth_s = growth_s
        self.n_steps = n_steps
        self.batch = batch
        self.tokens_per_step = tokens_per_step
        self.end_s = start_s + n_steps * (first_s + growth_s * (n_steps - 1) / 2)

    def end_of(self, step: int) -> float:
        """When step ``step`` (from 1) ends; the start for 0."""
        return self.start_s + step * (self.first_s + self.growth_s * (step - 1) / 2)

    def finished_by(self, now_s: float) -> int:
        """Steps that have ended at ``now_s``, which is not before the start."""
        if now_s >= self.end_s:
            return self.n_steps
        start_s, first_s, growth_s = self.start_s, self.first_s, self.growth_s
        elapsed = now_s - start_s
        linear = first_s - growth_s / 2
        steps = int(2 * elapsed / (linear + sqrt(linear * linear + 2 * growth_s * elapsed)))
        # The root is a float: settle by the end times, which are those of end_of.
        while start_s + (steps + 1) * (first_s + growth_s * steps / 2) <= now_s:
            steps += 1
        while steps and start_s + steps * (first_s + growth_s * (steps - 1) / 2) > now_s:
            steps -= 1
        return steps

    def cut(self, now_s: float) -> None:
        """End the stretch with the step in progress at ``now_s``; a step that ends now is the last."""
        steps = self.finished_by(now_s)
        if self.end_of(steps) < now_s:
            steps += 1
        self.limit(steps)

    def limit(self, n_steps: int) -> None:
        """Have at most that many steps."""
        if n_steps < self.n_steps:
            self.n_steps = n_steps
            self.end_s = self.end_of(n_steps)


def accept_lengths(facts: EngineFacts, dice: random.Random | None) -> Callable[[], float]:
    """Draws what a step yields for a new request, evenly around the mean; without dice the mean."""
    mean = facts.accept_length
    if dice is None:
        return lambda: mean
    spread = min(mean - 1.0, facts.verify_tokens - mean) * facts.accept_spread_ratio
    low, draw = mean - spread, dice.random
    width = mean + spread - low
    return lambda: low + width * draw()


def stretch_of(
    jobs: Sequence[Job],
    facts: EngineFacts,
    start_s: float,
    *,
    reserve: int = 1,
    slowness: float = 1.0,
) -> tuple[Stretch, int]:
    """The generation steps until the first of ``jobs`` (at least one) has all its tokens.

    The jobs get the pages that they lack for the first step. With it answers how many these are, for
    the caller to count and to evict others for.
    """
    page = facts.page_tokens
    ahead = reserve + page - 2
    batch = len(jobs)
    taken = 0
    context = growth = 0.0
    n_steps = sys.maxsize
    for job in jobs:
        accept = job.accept
        steps = job.steps
        context += job.start_tokens + accept * steps
        growth += accept
        left = job.steps_total - steps
        if left < n_steps:
            n_steps = left
        holding = job.holding
        assert holding is not None, "running jobs hold pages"
        pages = (job.prompt_tokens + job.tokens + ahead) // page
        has = holding.pages
        if pages > has:
            if pages > job.total_pages:
                pages = job.total_pages
            holding.pages = pages
            taken += pages - has
    assert batch, "a stretch needs running jobs"
    assert n_steps > 0, "a running job has a step to go"
    first_s, later_s = facts.steps_s(batch, context / batch, (context + growth) / batch)
    first_s *= slowness
    stretch = Stretch(
        start_s,
        first_s=first_s,
        growth_s=later_s * slowness - first_s,
        n_steps=n_steps,
        batch=batch,
        tokens_per_step=growth,
    )
    return stretch, taken


def stepped(jobs: Iterable[Job], n_steps: int, *, page_tokens: int) -> tuple[list[Job], int]:
    """Generation steps have ended: the jobs have their tokens, and the pages for all but the last of these.

    Answers those that have all their tokens, and how many pages the others took.
    """
    done: list[Job] = []
    n_pages = 0
    ahead = page_tokens - 2
    for job in jobs:
        steps = job.steps = job.steps + n_steps
        if job.ended_tokens is not None:
            continue
        if steps == job.steps_total:
            job.tokens = job.output_tokens
            done.append(job)
            continue
        new_tokens = floor(job.accept * steps + ROUNDING)
        job.tokens = job.base_tokens + new_tokens  # as tokens_after; they are not all
        holding = job.holding
        assert holding is not None, "running jobs hold pages"
        pages = (job.start_tokens + new_tokens + ahead) // page_tokens
        missing = pages - holding.pages
        if missing > 0:
            holding.pages = pages
            n_pages += missing
    return done, n_pages


def grow_for_step(pool: KvPool, jobs: Iterable[Job], *, page_tokens: int, reserve: int) -> None:
    """Allocate what :func:`pages_lacking` counts for the next step."""
    ahead = reserve + page_tokens - 2
    n_pages = 0
    for job in jobs:
        holding = job.holding
        assert holding is not None, "running jobs hold pages"
        pages = (job.prompt_tokens + job.tokens + ahead) // page_tokens
        has = holding.pages
        total = job.total_pages
        if pages > has < total:
            if pages > total:
                pages = total
            holding.pages = pages
            n_pages += pages - has
    pool.private_pages += n_pages
    pool.make_room()


def pages_lacking(jobs: Iterable[Job], steps: int, *, page_tokens: int, reserve: int) -> int:
    """Pages that running jobs lack for the step that follows ``steps`` more.

    It needs ``reserve`` tokens of memory behind what is fed back, which the last token is not yet; at
    most to a job's end, so that it does not matter here that a job's last step may yield less.
    """
    lacking = 0
    ahead = reserve + page_tokens - 2
    for job in jobs:
        holding = job.holding
        assert holding is not None, "running jobs hold pages"
        has = holding.pages
        total = job.total_pages
        if has < total:
            new_tokens = floor(job.accept * (job.steps + steps) + ROUNDING)
            pages = (job.start_tokens + new_tokens + ahead) // page_tokens
            if pages > has:
                lacking += (pages if pages < total else total) - has
    return lacking


def limit_to_room(
    stretch: Stretch, jobs: Iterable[Job], pool: KvPool, *, page_tokens: int, reserve: int
) -> None:
    """Have at most as many steps as have memory; the first one has."""

    def lacking(steps: int) -> int:
        return pages_lacking(jobs, steps, page_tokens=page_tokens, reserve=reserve)

    stretch.limit(bisect_right(range(1, stretch.n_steps), pool.room_pages, key=lacking) + 1)


def release(pool: KvPool, job: Job, page_tokens: int) -> None:
    """Store the pages that the output of a job that has ended filled, and free the rest."""
    request, holding = job.request, job.holding
    assert holding is not None, "only admitted jobs are released"
    assert job.ended_tokens is not None, "the last event comes before the release"
    prompt_pages = request.prompt_tokens // page_tokens
    if holding.stored >= prompt_pages:
        # The last token was sampled but never fed back: it has no KV.
        filled = (request.prompt_tokens + job.ended_tokens - 1) // page_tokens
        stop = prompt_pages + len(request.output_pages)
        if stop > filled:
            stop = filled
        if stop > holding.stored:
            pool.have(holding, filled)
            pool.store(holding, request.output_pages, stop, prompt_pages)
    pool.release(holding)
