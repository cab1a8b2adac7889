"""One replica's engine: admission, chunked prefill, speculative decode, prefix cache.

Rules, those of SGLang's scheduler (:mod:`sim.engine.admission` and :mod:`sim.engine.orders` name its
functions):

- Requests are admitted between steps in the order of :class:`~sim.engine.rules.EngineRules`, while
  their prompt and what all are expected to generate fit the device pool (shared pages count once), and
  fewer than the maximum run.
- Prefill goes first, chunk by chunk; decode waits, rides along where chunks are mixed, or has its number of
  steps between two of prefill. One step's
  chunk is shared by the prompts that fit; at most one prompt is cut by it, and goes on in the next.
- Everybody decodes together; a step yields a request's own accept length in tokens.
- Where memory runs out, requests are retracted: they wait again, and what they generated becomes part
  of their prompt. Their events tell nothing of it but a pause.
- What arrives or leaves during a step takes effect at its end.

Times are engine seconds on the caller's clock. Cost is a few operations a schedule change, none a
token; how often the caller asks changes no outcome.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sim.engine.prefill_step import PrefillStep
from sim.engine.requests import Loads, Progress, PromptTooLong, QueueFull
from sim.engine.rules import SHORTEST_PREFILL, EngineRules
from sim.engine.scheduler import Scheduler
from sim.engine.stretch import Stretch

if TYPE_CHECKING:
    import random
    from array import array

    from replica.hardware.profiles import EngineFacts
    from sim.engine.job import Job
    from sim.engine.pool import KvPool, SharedPrefixes
    from sim.engine.requests import EngineRequest, Event, LoadReport


class ReplicaModel:
    """The engine of one replica as a synchronous object without clock or I/O.

    Every method takes ``now_s``, which may not go back; the first one seen is the beginning. With
    ``dice`` each request's accept length is drawn evenly around the mean; without, it is the mean.
    ``max_queued_requests`` bounds the requests that wait, None leaves that to the caller. ``shared``
    makes it one of several that hold what any of them has computed.
    """

    def __init__(
        self,
        facts: EngineFacts,
        *,
        rules: EngineRules | None = None,
        max_queued_requests: int | None = None,
        dice: random.Random | None = None,
        shared: SharedPrefixes | None = None,
    ) -> None:
        assert facts.chunk_tokens % facts.page_tokens == 0, "a chunk is a whole number of pages"
        assert facts.chunk_tokens >= facts.page_tokens, "a chunk is at least a page"
        assert facts.max_running_requests >= 1, "a replica runs at least one request"
        assert 1.0 <= facts.accept_length <= facts.verify_tokens, "accept length out of range"
        assert 0.0 <= facts.accept_spread_ratio <= 1.0, "the accept length's spread is a share"
        assert max_queued_requests is None or max_queued_requests >= 1, "a queue of 0 takes nothing"
        self.facts = facts
        self.rules = rules or EngineRules()
        self._max_queued_requests = max_queued_requests
        self._scheduler = Scheduler(facts, self.rules, dice=dice, shared=shared)

    @property
    def schedule(self) -> Scheduler:
        """What happens inside, for the checks; read only."""
        self._scheduler.settle()
        return self._scheduler

    @property
    def pool(self) -> KvPool:
        """The KV memory, for the checks; read only."""
        self._scheduler.settle()
        return self._scheduler.pool

    def submit(self, request: EngineRequest, now_s: float) -> None:
        """Take a request; it is matched again when it is admitted.

        Raises:
            QueueFull: as many requests wait as may.
            PromptTooLong: prompt and output exceed the context window or the device pool.
            ValueError: the request is malformed, or its ``rid`` is active.
        """
        scheduler = self._scheduler
        scheduler.run(now_s)
        self._refuse_impossible(request)
        limit = self._max_queued_requests
        if limit is not None and len(scheduler.waiting.jobs) >= limit:
            raise QueueFull(f"{limit} requests wait already, as many as may; try another replica")
        scheduler.enqueue(request, now_s)

    def warm(self, pages: array[int], tokens: int, now_s: float) -> None:
        """Hold the whole pages of the first ``tokens`` of a prompt, as if they had been computed just now.

        ``pages`` as of an :class:`~sim.engine.requests.EngineRequest`. What does not fit is left out.
        """
        self._scheduler.run(now_s)
        self._scheduler.pool.warm(pages, min(len(pages), tokens // self.facts.page_tokens))

    def cancel(self, rid: str, now_s: float) -> bool:
        """End a request wherever it is; False if it is not active.

        Its last event is out at once; a step in progress still ends before its pages are free. They
        stay cached as far as they were computed, but for the step in progress of a longer prompt.
        """
        self._scheduler.run(now_s)
        job = self._scheduler.jobs.get(rid)
        if job is None:
            return False
        self._scheduler.abort(job, now_s)
        return True

    def next_at(self) -> float | None:
        """When to call :meth:`advance` next: nobody begins or ends before, if nothing is asked till then.

        The time of the last call if events of it wait to be fetched; None while idle. Steps that only
        work on one long prompt are passed over.
        """
        scheduler = self._scheduler
        if scheduler.events:
            return scheduler.now_s
        step = scheduler.step
        if step is None:
            return None
        if isinstance(step, Stretch):
            return step.end_s
        if step.is_silent:
            rules = scheduler.rules
            can_pass = rules.order == SHORTEST_PREFILL and scheduler.waiting.jobs
            is_alone = not (rules.is_chunk_mixed or rules.prefill_decode_interval)
            if not can_pass and (is_alone or not scheduler.decoding):
                return self._quiet_until_s(step)
        return step.end_s

    def advance(self, now_s: float, *, with_progress: bool = True) -> list[Event]:
        """Everything since the last call up to ``now_s``, in order of time.

        With ``with_progress`` the tokens generated until ``now_s`` and not told yet come last, one
        event for each request that has some.
        """
        scheduler = self._scheduler
        scheduler.run(now_s)
        events = scheduler.events
        scheduler.events = []
        if with_progress:
            for job in scheduler.jobs.values():
                tokens = scheduler.tokens_by(job, now_s)
                if tokens > job.reported:
                    events.append(Progress(job.request.rid, now_s, tokens - job.reported))
                    job.reported = tokens
        return events

    def slow(self, factor: float, now_s: float) -> None:
        """From the next step on everything takes ``factor`` times as long; 1 is as it was.

        Raises:
            ValueError: ``factor`` is not above 0.
        """
        if not factor > 0.0:
            raise ValueError(f"factor {factor}: a step takes some time")
        self._scheduler.run(now_s)
        self._scheduler.slow(factor, now_s)

    def crash(self, now_s: float) -> list[Event]:
        """The process dies: everything since the last call, and the end of every active request.

        What is left is an empty engine with the counters of before, as fast as it was built.
        """
        self._scheduler.run(now_s)
        self._scheduler.drop_all(now_s)
        events = self._scheduler.events
        self._scheduler.events = []
        return events

    def prefill_left_s(self, now_s: float) -> float:
        """Seconds of prefill still to do at ``now_s``: what is in progress and what waits.

        With what each prompt finds cached now, and as if each was computed alone.
        """
        scheduler = self._scheduler
        scheduler.run(now_s)
        step = scheduler.step
        left_s = later_s = 0.0
        cut = scheduler.admission.partial
        if isinstance(step, PrefillStep):
            left_s = self._quiet_until_s(step) - now_s
        elif cut is not None:
            left_s = self.facts.prefill_s(
                cut.fill_tokens - cut.computed_tokens, cut.computed_tokens
            )
            left_s *= scheduler.slowness
        for job in scheduler.waiting.jobs:
            lookup = job.lookup
            if (
                job.priced_version != lookup.version
                or lookup.device_version != lookup.device.version
                or lookup.host_version != lookup.host.version
            ):
                self._price(job)
            later_s += job.prefill_s
        return left_s + later_s * scheduler.slowness

    def flush(self, now_s: float) -> bool:
        """Drop both cache tiers; False, and nothing dropped, unless the engine is idle."""
        self._scheduler.run(now_s)
        if self._scheduler.step is not None:
            return False
        self._scheduler.pool.clear()
        return True

    def loads(self, now_s: float) -> Loads:
        """State and counters at ``now_s``."""
        scheduler = self._scheduler
        scheduler.run(now_s)
        page = self.facts.page_tokens
        pool = scheduler.pool
        totals = scheduler.totals
        used_pages = pool.used_pages
        if isinstance(scheduler.step, Stretch):
            used_pages += scheduler.needed_after(scheduler.step.finished_by(now_s))
        generated = totals.generated_tokens
        for job in scheduler.jobs.values():
            generated += scheduler.tokens_by(job, now_s)
        return Loads(
            running=len(scheduler.admitted()),
            waiting=len(scheduler.waiting.jobs),
            waiting_uncached_tokens=scheduler.waiting.uncached_tokens,
            used_tokens=used_pages * page,
            cached_tokens=(pool.tree.n_pages - pool.tree.pinned_pages) * page,
            capacity_tokens=pool.capacity_pages * page,
            host_tokens=0 if pool.host.is_shared else pool.host.tree.n_pages * page,
            host_capacity_tokens=0 if pool.host.is_shared else pool.host.capacity_pages * page,
            max_running_requests=self.facts.max_running_requests,
            total_prefill_uncached_tokens=totals.prefill_tokens,
            total_prefill_busy_s=totals.prefill_busy_s,
            total_decode_busy_s=totals.decode_busy_s,
            total_verify_steps=totals.verify_steps,
            total_prompt_tokens=totals.prompt_tokens,
            total_cached_tokens=totals.cached_tokens,
            total_host_tokens=totals.host_tokens,
            total_generated_tokens=generated,
            total_ended=totals.ended,
            total_aborted=totals.aborted,
            total_retracted=totals.retracted,
        )

    def report(self, now_s: float) -> LoadReport:
        """What the engine told last of itself; while idle it tells each second."""
        scheduler = self._scheduler
        scheduler.run(now_s, sys.maxsize)
        step, reporter = scheduler.step, scheduler.reporter
        if isinstance(step, Stretch):
            reporter.follow(scheduler, step, now_s)
        return reporter.last(now_s if step is None else step.start_s)

    def _quiet_until_s(self, step: PrefillStep) -> float:
        """When the prompt that a step cuts, if it goes on, is done at the earliest, or the step ends.

        Summed as the steps will be, so that it is not later by a rounding.
        """
        scheduler, facts = self._scheduler, self.facts
        job = scheduler.admission.partial
        if job is None or job.ended_tokens is not None:
            return step.end_s
        if step.quiet_until_s is None:
            later_s = step.later_s
            at_s = later_s[0] if later_s else step.end_s
            done = job.computed_tokens + sum(n for other, n in step.parts if other is job)
            done += len(later_s) * facts.chunk_tokens
            while done < job.fill_tokens:
                n_tokens = min(facts.chunk_tokens, job.fill_tokens - done)
                at_s += facts.times.prefill_s(n_tokens, done) * scheduler.slowness
                done += n_tokens
            step.quiet_until_s = at_s
        return step.quiet_until_s

    def _price(self, job: Job) -> None:
        """Find out what the prompt of a job that waits takes, with what it finds cached now."""
        facts, pool, lookup = self.facts, self._scheduler.pool, job.lookup
        page = facts.page_tokens
        pages = pool.look(lookup)
        job.priced_version = lookup.version
        if pages != job.priced_pages:
            job.priced_pages = pages
            job.compute_s = facts.prefill_s(job.fill_tokens - pages * page, pages * page)
        job.prefill_s = job.compute_s
        if lookup.device_pages < pages and not pool.host.is_shared:
            load_s = (pages - lookup.device_pages) * page * facts.host_load_s_per_token
            job.prefill_s = facts.loading_s(job.compute_s, load_s)

    def _refuse_impossible(self, request: EngineRequest) -> None:
        prompt, output, facts = request.prompt_tokens, request.output_tokens, self.facts
        if prompt < 1 or output < 1:
            raise ValueError(
                f"prompt of {prompt} and output of {output} tokens: each is at least 1"
            )
        if request.rid in self._scheduler.jobs:
            raise ValueError(f"request id {request.rid!r} is active: ids must differ")
        if prompt + output > facts.context_tokens_max:
            raise PromptTooLong(
                f"{prompt} prompt and {output} output tokens exceed the context window of "
                f"{facts.context_tokens_max}: shorten the prompt or ask for less output"
            )
        asked = request.output_tokens_max
        if asked is not None and asked < output:
            raise ValueError(f"output of {output} tokens, but at most {asked} were asked for")
        if -(-(prompt + output) // facts.page_tokens) > self._scheduler.pool.capacity_pages:
            raise PromptTooLong(
                f"{prompt} prompt and {output} output tokens exceed the KV pool of "
                f"{facts.capacity_tokens}: shorten the prompt or use a larger replica"
            )
