"""One replica's engine: admission, chunked prefill, speculative decode, prefix cache.

Rules, each a simplification of SGLang's scheduler:

- Requests are admitted in order of arrival, between steps, while prompt and output of all that are
  admitted fit the device pool (shared pages count once) and fewer than the maximum run.
- Prefill goes first, chunk by chunk; decode waits. One step's chunk is shared by the prompts that
  fit; at most one prompt is cut by it, and goes on in the next step.
- Everybody decodes together; a step yields ``accept_length`` tokens for each.
- What arrives or leaves during a step takes effect at its end.

Times are engine seconds on the caller's clock. Cost is a few operations a schedule change, none a
token; how often the caller asks changes no outcome.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sim.engine.requests import Loads, Progress, PromptTooLong, QueueFull
from sim.engine.scheduler import Scheduler
from sim.engine.stretch import PrefillStep

if TYPE_CHECKING:
    import random

    from replica.hardware.profiles import EngineFacts
    from sim.engine.pool import Holding, KvPool
    from sim.engine.requests import EngineRequest, Event, LoadReport


class ReplicaModel:
    """The engine of one replica as a synchronous object without clock or I/O.

    Every method takes ``now_s``, which may not go back; the first one seen is the beginning. With
    ``dice`` each request's accept length is drawn evenly around the mean; without, it is the mean.
    ``max_queued_requests`` bounds the requests that wait, None leaves that to the caller.
    """

    def __init__(
        self,
        facts: EngineFacts,
        *,
        max_queued_requests: int | None = None,
        dice: random.Random | None = None,
    ) -> None:
        assert facts.chunk_tokens % facts.page_tokens == 0, "a chunk is a whole number of pages"
        assert facts.chunk_tokens >= facts.page_tokens, "a chunk is at least a page"
        assert facts.max_running_requests >= 1, "a replica runs at least one request"
        assert 1.0 <= facts.accept_length <= facts.verify_tokens, "accept length out of range"
        assert max_queued_requests is None or max_queued_requests >= 1, "a queue of 0 takes nothing"
        self.facts = facts
        self._max_queued_requests = max_queued_requests
        self._scheduler = Scheduler(facts, dice)

    @property
    def pool(self) -> KvPool:
        """The KV memory, for the checks; read only."""
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
        if limit is not None and len(scheduler.waiting) >= limit:
            raise QueueFull(f"{limit} requests wait already, as many as may; try another replica")
        scheduler.enqueue(request, now_s)

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
        """When to call :meth:`advance` next: a request may begin or end, or the schedule changes.

        The time of the last call if events of it wait to be fetched; None while idle.
        """
        if self._scheduler.events:
            return self._scheduler.now_s
        step = self._scheduler.step
        return None if step is None else step.end_s

    def advance(self, now_s: float, *, with_progress: bool = True) -> list[Event]:
        """Everything since the last call up to ``now_s``, in order of time.

        With ``with_progress`` the tokens generated until ``now_s`` and not told yet come last, one
        event for each running request that has some.
        """
        scheduler = self._scheduler
        scheduler.run(now_s)
        events = scheduler.events
        scheduler.events = []
        if with_progress:
            for job in scheduler.decoding:
                if job.ended_tokens is None:
                    tokens = scheduler.tokens_by(job, now_s)
                    if tokens > job.reported:
                        events.append(Progress(job.request.rid, now_s, tokens - job.reported))
                        job.reported = tokens
        return events

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
        generated = totals.generated_tokens
        for job in scheduler.decoding:
            if job.ended_tokens is None:
                generated += scheduler.tokens_by(job, now_s)
        return Loads(
            running=scheduler.n_admitted,
            waiting=len(scheduler.waiting),
            waiting_uncached_tokens=scheduler.waiting_uncached_tokens,
            used_tokens=pool.used_pages * page,
            cached_tokens=(pool.tree.n_pages - pool.tree.pinned_pages) * page,
            capacity_tokens=pool.capacity_pages * page,
            host_tokens=pool.host.tree.n_pages * page,
            host_capacity_tokens=pool.host.capacity_pages * page,
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
        )

    def report(self, now_s: float) -> LoadReport:
        """What the engine told last of itself; while idle it tells all the time."""
        scheduler = self._scheduler
        scheduler.run(now_s)
        last = scheduler.reporter.last
        return replace(last, at_s=now_s) if scheduler.step is None else last

    def holdings(self) -> list[Holding]:
        """What each admitted request holds of the pool, for the checks."""
        jobs = list(self._scheduler.decoding)
        step = self._scheduler.step
        if isinstance(step, PrefillStep):
            jobs += [job for job, _ in step.parts]
        return [job.holding for job in jobs if job.holding is not None]

    def _refuse_impossible(self, request: EngineRequest) -> None:
        prompt, output, facts = request.prompt_tokens, request.output_tokens, self.facts
        if prompt < 1 or output < 1:
            raise ValueError(
                f"prompt of {prompt} and output of {output} tokens: each is at least 1"
            )
        if len(request.pages) > prompt // facts.page_tokens:
            raise ValueError(
                f"{len(request.pages)} page ids for {prompt} prompt tokens: "
                f"give one a full page of {facts.page_tokens}"
            )
        if request.rid in self._scheduler.jobs:
            raise ValueError(f"request id {request.rid!r} is active: ids must differ")
        if prompt + output > facts.context_tokens_max:
            raise PromptTooLong(
                f"{prompt} prompt and {output} output tokens exceed the context window of "
                f"{facts.context_tokens_max}: shorten the prompt or ask for less output"
            )
        if self._scheduler.total_pages(request) > self.pool.capacity_pages:
            raise PromptTooLong(
                f"{prompt} prompt and {output} output tokens exceed the KV pool of "
                f"{facts.capacity_tokens}: shorten the prompt or use a larger replica"
            )
