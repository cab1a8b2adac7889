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

from collections import deque
from typing import TYPE_CHECKING

from sim.engine.pool import KvPool
from sim.engine.requests import (
    Began,
    Ended,
    EndReason,
    EngineRequest,
    Event,
    Loads,
    Progress,
    PromptTooLong,
    QueueFull,
)
from sim.engine.stretch import Job, PrefillStep, Stretch, stretch_of

if TYPE_CHECKING:
    import random

    from replica.hardware.profiles import EngineFacts
    from sim.engine.pool import Holding


class _Totals:
    """Counters that only grow."""

    __slots__ = (
        "aborted",
        "cached_tokens",
        "decode_busy_s",
        "ended",
        "generated_tokens",
        "host_tokens",
        "prefill_busy_s",
        "prefill_tokens",
        "prompt_tokens",
        "verify_steps",
    )

    def __init__(self) -> None:
        self.prompt_tokens = self.cached_tokens = self.host_tokens = 0
        self.prefill_tokens = self.generated_tokens = self.verify_steps = 0
        self.ended = self.aborted = 0
        self.prefill_busy_s = self.decode_busy_s = 0.0


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
        assert 1.0 <= facts.accept_length <= facts.verify_tokens, "accept length out of range"
        assert max_queued_requests is None or max_queued_requests >= 1, "a queue of 0 takes nothing"
        self.facts = facts
        self.pool = KvPool(
            capacity_pages=facts.capacity_tokens // facts.page_tokens,
            host_pages=facts.host_capacity_tokens // facts.page_tokens,
        )
        self._max_queued_requests = max_queued_requests
        self._dice = dice
        self._now_s: float | None = None
        self._jobs: dict[str, Job] = {}  # those whose last event is not out
        self._waiting: deque[Job] = deque()
        self._partial: Job | None = None  # the prompt that the prefill step in progress cuts
        self._decoding: list[Job] = []
        self._step: PrefillStep | Stretch | None = None
        self._events: list[Event] = []
        self._totals = _Totals()
        self._waiting_uncached_tokens = 0

    def submit(self, request: EngineRequest, now_s: float) -> None:
        """Take a request; it is matched again when it is admitted.

        Raises:
            QueueFull: as many requests wait as may.
            PromptTooLong: prompt and output exceed the context window or the device pool.
            ValueError: the request is malformed, or its ``rid`` is active.
        """
        self._run(now_s)
        self._refuse_impossible(request)
        limit = self._max_queued_requests
        if limit is not None and len(self._waiting) >= limit:
            raise QueueFull(f"{limit} requests wait already, as many as may; try another replica")
        found = self.pool.match(request.pages, self._cacheable_pages(request))
        uncached = request.prompt_tokens - found * self.facts.page_tokens
        job = Job(request, uncached_tokens=uncached)
        self._jobs[request.rid] = job
        self._waiting.append(job)
        self._waiting_uncached_tokens += uncached
        if len(self._waiting) == 1:
            self._reconsider(now_s)

    def cancel(self, rid: str, now_s: float) -> bool:
        """End a request wherever it is; False if it is not active.

        Its last event is out at once; a step in progress still ends before its pages are free. They
        stay cached as far as they were computed.
        """
        self._run(now_s)
        job = self._jobs.get(rid)
        if job is None:
            return False
        self._end(job, now_s, self._tokens_by(job, now_s), EndReason.ABORT)
        if job.holding is None:
            was_head = self._waiting[0] is job
            self._waiting.remove(job)
            self._waiting_uncached_tokens -= job.uncached_tokens
            if not was_head:
                return True
        self._reconsider(now_s)
        return True

    def next_at(self) -> float | None:
        """When a request may next begin or end, or the schedule changes; None while idle."""
        return None if self._step is None else self._step.end_s

    def advance(self, now_s: float, *, with_progress: bool = True) -> list[Event]:
        """Everything since the last call up to ``now_s``, in order of time.

        With ``with_progress`` the tokens generated until ``now_s`` and not told yet come last, one
        event for each running request that has some.
        """
        self._run(now_s)
        events = self._events
        if with_progress:
            for job in self._decoding:
                if job.ended_tokens is None:
                    tokens = self._tokens_by(job, now_s)
                    if tokens > job.reported:
                        events.append(Progress(job.request.rid, now_s, tokens - job.reported))
                        job.reported = tokens
        self._events = []
        return events

    def flush(self, now_s: float) -> bool:
        """Drop both cache tiers; False, and nothing dropped, unless the engine is idle."""
        self._run(now_s)
        if self._step is not None or self._waiting:
            return False
        self.pool.clear()
        return True

    def loads(self, now_s: float) -> Loads:
        """State and counters at ``now_s``."""
        self._run(now_s)
        page = self.facts.page_tokens
        pool = self.pool
        totals = self._totals
        generated = totals.generated_tokens
        for job in self._decoding:
            if job.ended_tokens is None:
                generated += self._tokens_by(job, now_s)
        return Loads(
            running=self._n_admitted(),
            waiting=len(self._waiting),
            waiting_uncached_tokens=self._waiting_uncached_tokens,
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

    def holdings(self) -> list[Holding]:
        """What each admitted request holds of the pool, for the checks."""
        jobs = list(self._decoding)
        if isinstance(self._step, PrefillStep):
            jobs += [job for job, _ in self._step.parts]
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
        if request.rid in self._jobs:
            raise ValueError(f"request id {request.rid!r} is active: ids must differ")
        if prompt + output > facts.context_tokens_max:
            raise PromptTooLong(
                f"{prompt} prompt and {output} output tokens exceed the context window of "
                f"{facts.context_tokens_max}: shorten the prompt or ask for less output"
            )
        if self._total_pages(request) > self.pool.capacity_pages:
            raise PromptTooLong(
                f"{prompt} prompt and {output} output tokens exceed the KV pool of "
                f"{facts.capacity_tokens}: shorten the prompt or use a larger replica"
            )

    def _total_pages(self, request: EngineRequest) -> int:
        return -(-(request.prompt_tokens + request.output_tokens) // self.facts.page_tokens)

    def _cacheable_pages(self, request: EngineRequest) -> int:
        """Pages that may be matched: at least one token of every prompt is computed."""
        return min(len(request.pages), (request.prompt_tokens - 1) // self.facts.page_tokens)

    def _n_admitted(self) -> int:
        step = self._step
        return len(self._decoding) + (len(step.parts) if isinstance(step, PrefillStep) else 0)

    def _tokens_by(self, job: Job, now_s: float) -> int:
        """Output tokens of a job at ``now_s``, up to which the model has run."""
        if not job.reported:
            return 0
        steps = job.steps
        if isinstance(self._step, Stretch):
            steps += self._step.finished_by(now_s)
        return job.tokens_after(steps)

    def _run(self, now_s: float) -> None:
        """Let all steps end that do so by ``now_s``, and start what follows each."""
        before_s = now_s if self._now_s is None else self._now_s
        assert now_s >= before_s, f"time went back from {before_s} to {now_s}"
        self._now_s = now_s
        step = self._step
        while step is not None and step.end_s <= now_s:
            if isinstance(step, PrefillStep):
                self._finish_prefill(step)
            else:
                self._finish_stretch(step)
            step = self._start_step(step.end_s)

    def _reconsider(self, now_s: float) -> None:
        """The schedule may change: as soon as the step in progress has ended."""
        if self._step is None:
            self._start_step(now_s)
        elif isinstance(self._step, Stretch):
            self._step.cut(now_s)
            self._run(now_s)

    def _start_step(self, at_s: float) -> PrefillStep | Stretch | None:
        """Begin the next step, if there is anything to do."""
        self._step = self._form_prefill(at_s)
        if self._step is None and self._decoding:
            self._step = stretch_of(self._decoding, self.facts, at_s)
        return self._step

    def _form_prefill(self, at_s: float) -> PrefillStep | None:
        """The next prefill step: the prompt that was cut, then as many waiting ones as fit."""
        page = self.facts.page_tokens
        budget = self.facts.chunk_tokens
        admitted = len(self._decoding)
        parts: list[tuple[Job, int]] = []
        job = self._partial
        self._partial = None
        while budget >= page:
            if job is None:
                job = self._admit_next(admitted)
                if job is None:
                    break
            left = job.request.prompt_tokens - job.computed_tokens
            n_tokens = left if left <= budget else budget // page * page
            parts.append((job, n_tokens))
            admitted += 1
            if n_tokens < left:
                self._partial = job
                break
            budget -= n_tokens
            job = None
        if not parts:
            return None
        duration_s = self.facts.times.prefill_batch_s(
            [(n_tokens, job.computed_tokens) for job, n_tokens in parts]
        )
        for job, n_tokens in parts:
            duration_s += job.host_load_s
            job.host_load_s = 0.0
            self._allocate_to(job, job.computed_tokens + n_tokens)
        return PrefillStep(at_s, at_s + duration_s, parts)

    def _admit_next(self, admitted: int) -> Job | None:
        """The first waiting job, taken into the pool; None if there is none or it does not fit."""
        if not self._waiting or admitted >= self.facts.max_running_requests:
            return None
        job = self._waiting[0]
        request = job.request
        holding = self.pool.admit(
            request.pages, self._cacheable_pages(request), self._total_pages(request)
        )
        if holding is None:
            return None
        self._waiting.popleft()
        self._waiting_uncached_tokens -= job.uncached_tokens
        page = self.facts.page_tokens
        job.holding = holding
        job.computed_tokens = holding.stored * page
        job.host_load_s = holding.host_pages * page * self.facts.host_load_s_per_token
        self._totals.prompt_tokens += request.prompt_tokens
        self._totals.cached_tokens += job.computed_tokens
        self._totals.host_tokens += holding.host_pages * page
        return job

    def _allocate_to(self, job: Job, n_tokens: int) -> None:
        """Have pages for the first ``n_tokens`` of the job's sequence."""
        holding = job.holding
        assert holding is not None, "only admitted jobs get pages"
        pages = -(-n_tokens // self.facts.page_tokens)
        self.pool.allocate(holding, pages - holding.stored - holding.private)

    def _finish_prefill(self, step: PrefillStep) -> None:
        page = self.facts.page_tokens
        totals = self._totals
        totals.prefill_busy_s += step.end_s - step.start_s
        for job, n_tokens in step.parts:
            request, holding = job.request, job.holding
            assert holding is not None, "a prefill step holds admitted jobs only"
            totals.prefill_tokens += n_tokens
            job.computed_tokens += n_tokens
            pages = min(len(request.pages), job.computed_tokens // page)
            self.pool.store(holding, request.pages, pages)
            if job.ended_tokens is not None:
                self.pool.release(holding)
                if self._partial is job:
                    self._partial = None
            elif job.computed_tokens == request.prompt_tokens:
                self._begin(job, holding, step.end_s)

    def _begin(self, job: Job, holding: Holding, at_s: float) -> None:
        """The first token is out; pages for the rest are allocated."""
        page = self.facts.page_tokens
        cached = (holding.device_pages + holding.host_pages) * page
        self._events.append(Began(job.request.rid, at_s, cached, holding.host_pages * page))
        job.begin(self._accept_length())
        self.pool.allocate(holding, holding.reserved)
        if job.steps_total:
            self._decoding.append(job)
        else:
            self._end(job, at_s, 1, EndReason.STOP)
            self._release(job)

    def _finish_stretch(self, stretch: Stretch) -> None:
        self._totals.verify_steps += stretch.n_steps
        self._totals.decode_busy_s += stretch.end_s - stretch.start_s
        still: list[Job] = []
        for job in self._decoding:
            job.steps += stretch.n_steps
            if job.ended_tokens is None and job.steps == job.steps_total:
                self._end(job, stretch.end_s, job.request.output_tokens, EndReason.STOP)
            if job.ended_tokens is None:
                still.append(job)
            else:
                self._release(job)
        self._decoding = still

    def _end(self, job: Job, at_s: float, tokens: int, reason: EndReason) -> None:
        """Emit the last event of a job."""
        rid = job.request.rid
        del self._jobs[rid]
        job.ended_tokens = tokens
        self._totals.generated_tokens += tokens
        self._totals.ended += 1
        self._totals.aborted += reason is EndReason.ABORT
        self._events.append(Ended(rid, at_s, tokens - job.reported, tokens, reason))

    def _release(self, job: Job) -> None:
        """Store the pages that the output filled, and free the rest."""
        request, holding = job.request, job.holding
        assert holding is not None, "only admitted jobs are released"
        assert job.ended_tokens is not None, "the last event comes before the release"
        page = self.facts.page_tokens
        prompt_pages = request.prompt_tokens // page
        # The last token was sampled but never fed back: it has no KV.
        filled = (request.prompt_tokens + job.ended_tokens - 1) // page - prompt_pages
        filled = min(filled, len(request.output_pages))
        if filled > 0 and len(request.pages) == prompt_pages:
            pages = request.pages + request.output_pages[:filled]
            self.pool.store(holding, pages, len(pages))
        self.pool.release(holding)

    def _accept_length(self) -> float:
        """Tokens a step yields for a request that begins now."""
        mean = self.facts.accept_length
        if self._dice is None:
            return mean
        spread = min(mean - 1.0, self.facts.verify_tokens - mean) / 2
        return self._dice.uniform(mean - spread, mean + spread)
