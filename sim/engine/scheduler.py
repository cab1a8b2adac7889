"""When what happens inside one replica: admission, prefill steps, generation steps.

Decisions are made between steps only; ``step`` is the one in progress. The rules are those in the
docstring of :mod:`sim.engine.replica_model`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sim.engine.pool import KvPool
from sim.engine.reporting import Reporter, Totals
from sim.engine.requests import Began, Ended, EndReason
from sim.engine.stretch import Job, PrefillStep, Stretch, stretch_of

if TYPE_CHECKING:
    import random

    from replica.hardware.profiles import EngineFacts
    from sim.engine.pool import Holding
    from sim.engine.requests import EngineRequest, Event


class Scheduler:
    """The schedule of one replica, with all that depends on it.

    ``jobs`` are those whose last event is not out; ``waiting`` the ones not admitted yet, in order
    of arrival; ``partial`` the one whose prompt the prefill step in progress cuts; ``events`` what
    happened since the driver last took them; ``now_s`` how far it ran.
    """

    def __init__(self, facts: EngineFacts, dice: random.Random | None) -> None:
        self.facts = facts
        self.pool = KvPool(
            capacity_pages=facts.capacity_tokens // facts.page_tokens,
            host_pages=facts.host_capacity_tokens // facts.page_tokens,
        )
        self.now_s: float | None = None
        self.step: PrefillStep | Stretch | None = None
        self.jobs: dict[str, Job] = {}
        self.waiting: deque[Job] = deque()
        self.decoding: list[Job] = []
        self.events: list[Event] = []
        self.totals = Totals()
        self.waiting_tokens = self.waiting_uncached_tokens = 0
        self.partial: Job | None = None
        self.reporter = Reporter()
        self._has_leaving = False  # some of the decoding jobs have ended and hold pages still
        self._dice = dice

    def run(self, now_s: float) -> None:
        """Let all steps end that do so by ``now_s``, and start what follows each."""
        before_s = now_s if self.now_s is None else self.now_s
        assert now_s >= before_s, f"time went back from {before_s} to {now_s}"
        self.now_s = now_s
        while self.step is not None and self.step.end_s <= now_s:
            self._finish(self.step)
        if isinstance(self.step, Stretch):
            self.reporter.follow(self, self.step, now_s)

    def _finish(self, step: PrefillStep | Stretch) -> None:
        """Apply a step that has ended, start the next one, and report where a report is due."""
        totals = self.totals
        tokens, busy_s = totals.prefill_tokens, totals.prefill_busy_s
        if isinstance(step, PrefillStep):
            self._finish_prefill(step)
        else:
            self.reporter.stretch_ended(self, step)
            self._finish_stretch(step)
        self._start_step(step.end_s)
        if self.step is None:
            tokens, busy_s = totals.prefill_tokens, totals.prefill_busy_s
        if self.step is None or isinstance(step, PrefillStep):
            self.reporter.tell(self, step.end_s, tokens=tokens, busy_s=busy_s)

    def enqueue(self, request: EngineRequest, now_s: float) -> None:
        """Take a valid request at ``now_s``, up to which the schedule has run."""
        found = self.pool.match(request.pages, self._cacheable_pages(request))
        uncached = request.prompt_tokens - found * self.facts.page_tokens
        job = Job(request, uncached_tokens=uncached)
        self.jobs[request.rid] = job
        self.waiting.append(job)
        self.waiting_tokens += request.prompt_tokens
        self.waiting_uncached_tokens += uncached
        if len(self.waiting) == 1:
            self._reconsider(now_s)

    def abort(self, job: Job, now_s: float) -> None:
        """End an active job at ``now_s``, up to which the schedule has run."""
        self._end(job, now_s, self.tokens_by(job, now_s), EndReason.ABORT)
        if job.holding is None:
            was_head = self.waiting[0] is job
            self.waiting.remove(job)
            self.waiting_tokens -= job.request.prompt_tokens
            self.waiting_uncached_tokens -= job.uncached_tokens
            if not was_head:
                return
        self._has_leaving = True
        self._reconsider(now_s)

    def total_pages(self, request: EngineRequest) -> int:
        """Pages of the whole sequence, the last one counted in full."""
        return -(-(request.prompt_tokens + request.output_tokens) // self.facts.page_tokens)

    @property
    def n_admitted(self) -> int:
        """Jobs in prefill or decode, with those that leave at the end of the step."""
        step = self.step
        return len(self.decoding) + (len(step.parts) if isinstance(step, PrefillStep) else 0)

    def tokens_by(self, job: Job, now_s: float) -> int:
        """Output tokens of an active job at ``now_s``, up to which the schedule has run."""
        if not job.reported:
            return 0
        steps = job.steps
        if isinstance(self.step, Stretch):
            steps += self.step.finished_by(now_s)
        return job.tokens_after(steps)

    def _reconsider(self, now_s: float) -> None:
        """The schedule may change: as soon as the step in progress has ended."""
        if self.step is None:
            self._start_step(now_s)
        elif isinstance(self.step, Stretch):
            self.step.cut(now_s)
            self.run(now_s)

    def _start_step(self, at_s: float) -> None:
        """Begin the next step, if there is anything to do, after freeing what has ended."""
        if self._has_leaving:
            self._has_leaving = False
            staying = [job for job in self.decoding if job.ended_tokens is None]
            for job in self.decoding:
                if job.ended_tokens is not None:
                    self._release(job)
            self.decoding = staying
        self.step = self._form_prefill(at_s)
        if self.step is None and self.decoding:
            self.step = stretch_of(self.decoding, self.facts, at_s)
            self.reporter.stretch_began(self.step)

    def _form_prefill(self, at_s: float) -> PrefillStep | None:
        """The next prefill step: the prompt that was cut, then as many waiting ones as fit."""
        page = self.facts.page_tokens
        budget = self.facts.chunk_tokens
        admitted = len(self.decoding)
        parts: list[tuple[Job, int]] = []
        job = self.partial
        self.partial = None
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
                self.partial = job
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
        if not self.waiting or admitted >= self.facts.max_running_requests:
            return None
        job = self.waiting[0]
        request = job.request
        holding = self.pool.admit(
            request.pages, self._cacheable_pages(request), self.total_pages(request)
        )
        if holding is None:
            return None
        self.waiting.popleft()
        self.waiting_tokens -= request.prompt_tokens
        self.waiting_uncached_tokens -= job.uncached_tokens
        page = self.facts.page_tokens
        job.holding = holding
        job.computed_tokens = holding.stored * page
        job.host_load_s = holding.host_pages * page * self.facts.host_load_s_per_token
        self.totals.prompt_tokens += request.prompt_tokens
        self.totals.cached_tokens += job.computed_tokens
        self.totals.host_tokens += holding.host_pages * page
        return job

    def _cacheable_pages(self, request: EngineRequest) -> int:
        """Pages that may be matched: at least one token of every prompt is computed."""
        return min(len(request.pages), (request.prompt_tokens - 1) // self.facts.page_tokens)

    def _allocate_to(self, job: Job, n_tokens: int) -> None:
        """Have pages for the first ``n_tokens`` of the job's sequence."""
        holding = job.holding
        assert holding is not None, "only admitted jobs get pages"
        pages = -(-n_tokens // self.facts.page_tokens)
        self.pool.allocate(holding, pages - holding.stored - holding.private)

    def _finish_prefill(self, step: PrefillStep) -> None:
        page = self.facts.page_tokens
        totals = self.totals
        totals.prefill_busy_s += step.end_s - step.start_s
        hit_tokens = new_tokens = 0
        for job, n_tokens in step.parts:
            request, holding = job.request, job.holding
            assert holding is not None, "a prefill step holds admitted jobs only"
            new_tokens += n_tokens
            found_tokens = (holding.device_pages + holding.host_pages) * page
            if job.computed_tokens == found_tokens:
                hit_tokens += found_tokens
            if job.ended_tokens is not None and self.partial is job:
                # As SGLang does: of a prompt that is cut and left, this step's part is thrown away.
                self.partial = None
                self.pool.release(holding)
                continue
            job.computed_tokens += n_tokens
            pages = min(len(request.pages), job.computed_tokens // page)
            self.pool.store(holding, request.pages, pages)
            if job.ended_tokens is not None:
                self.pool.release(holding)
            elif job.computed_tokens == request.prompt_tokens:
                self._begin(job, holding, step.end_s)
        totals.prefill_tokens += new_tokens
        self.reporter.prefilled(step.end_s, hit_tokens=hit_tokens, new_tokens=new_tokens)

    def _begin(self, job: Job, holding: Holding, at_s: float) -> None:
        """The first token is out; pages for the rest are allocated."""
        page = self.facts.page_tokens
        cached = (holding.device_pages + holding.host_pages) * page
        self.events.append(Began(job.request.rid, at_s, cached, holding.host_pages * page))
        job.begin(self._accept_length())
        self.pool.allocate(holding, holding.reserved)
        if job.steps_total:
            self.decoding.append(job)
        else:
            self._end(job, at_s, 1, EndReason.STOP)
            self._release(job)

    def _finish_stretch(self, stretch: Stretch) -> None:
        self.totals.verify_steps += stretch.n_steps
        self.totals.decode_busy_s += stretch.end_s - stretch.start_s
        for job in self.decoding:
            job.steps += stretch.n_steps
            if job.ended_tokens is None and job.steps == job.steps_total:
                self._end(job, stretch.end_s, job.request.output_tokens, EndReason.STOP)
                self._has_leaving = True

    def _end(self, job: Job, at_s: float, tokens: int, reason: EndReason) -> None:
        """Emit the last event of a job."""
        rid = job.request.rid
        del self.jobs[rid]
        job.ended_tokens = tokens
        self.totals.generated_tokens += tokens
        self.totals.ended += 1
        self.totals.aborted += reason is EndReason.ABORT
        self.events.append(Ended(rid, at_s, tokens - job.reported, tokens, reason))

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
