"""When what happens inside one replica: prefill steps, generation steps, retraction.

Decisions are made between steps only; ``step`` is the one in progress. The rules are those in the
docstring of :mod:`sim.engine.replica_model`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.engine.admission import Admission
from sim.engine.job import Job
from sim.engine.pool import HostTier, KvPool
from sim.engine.prefill_step import PrefillStep, taken_up
from sim.engine.reporting import Reporter, Totals
from sim.engine.requests import Began, Ended, EndReason
from sim.engine.stretch import (
    Stretch,
    accept_lengths,
    grow_for_step,
    limit_to_room,
    pages_lacking,
    release,
    stepped,
    stretch_of,
)

if TYPE_CHECKING:
    import random

    from replica.hardware.profiles import EngineFacts
    from sim.engine.pool import Holding, SharedPrefixes
    from sim.engine.requests import EngineRequest, Event
    from sim.engine.rules import EngineRules


class Scheduler:
    """The schedule of one replica, with all that depends on it.

    ``jobs`` are those whose last event is not out; ``waiting`` the ones that are not admitted,
    ``decoding`` the ones that generate; ``events`` what happened since the driver last took them;
    ``now_s`` how far it ran. ``rounds_left`` generation steps come before the next prefill step.
    Steps that begin from now on take ``slowness`` times as long.
    """

    def __init__(
        self,
        facts: EngineFacts,
        rules: EngineRules,
        *,
        dice: random.Random | None = None,
        shared: SharedPrefixes | None = None,
    ) -> None:
        self.facts = facts
        self.rules = rules
        self.pool = KvPool(
            capacity_pages=facts.capacity_tokens // facts.page_tokens,
            host=shared or HostTier(facts.host_capacity_tokens // facts.page_tokens),
        )
        self.now_s: float | None = None
        self.step: PrefillStep | Stretch | None = None
        self.jobs: dict[str, Job] = {}
        self.decoding: list[Job] = []
        self.events: list[Event] = []
        self.totals = Totals()
        self.rounds_left = 0
        self.slowness = 1.0
        self.admission = Admission(facts, rules, self.pool)
        self.waiting = self.admission.waiting
        self.reporter = Reporter()
        # Overlapped speculative steps hold pages for two windows (get_alloc_reserve_per_decode).
        self.reserve_tokens = 2 * facts.verify_tokens if facts.verify_tokens > 1 else 1
        # Pages that a job lacks at most for its next step: it has those of all that was fed back.
        self._step_pages = -(-self.reserve_tokens // facts.page_tokens)
        self._has_leaving = False  # some of the decoding jobs have ended and hold pages still
        self._draw_accept = accept_lengths(facts, dice)

    def admitted(self) -> list[Job]:
        """Jobs in prefill or decode, with those that leave at the end of the step."""
        step, cut = self.step, self.admission.partial
        if isinstance(step, PrefillStep):
            return self.decoding + [job for job, _ in step.parts]
        return [*self.decoding, cut] if cut is not None else list(self.decoding)

    def run(self, now_s: float, owed_chunks_max: int = 0) -> None:
        """Let all steps end that do so by ``now_s``, and start what follows each.

        The pool need not know yet of so many chunks of a prompt that goes on.
        """
        before_s = self.now_s
        assert before_s is None or now_s >= before_s, f"time went back from {before_s} to {now_s}"
        self.now_s = now_s
        while (step := self.step) is not None:
            # The interpreter reads attributes faster where a line sees objects of one class.
            if isinstance(step, Stretch):
                if step.end_s > now_s:
                    return
                self._finish_stretch(step)
            else:
                if step.end_s > now_s:
                    if step.owed_chunks > owed_chunks_max:
                        self.settle()
                    return
                self._finish_prefill(step, now_s)

    def settle(self) -> None:
        """Let the pool know of all chunks that have ended."""
        if isinstance(self.step, PrefillStep):
            self.step.settle(self.pool, self.facts)

    def enqueue(self, request: EngineRequest, now_s: float) -> None:
        """Take a valid request at ``now_s``, up to which the schedule has run."""
        step, page = self.step, self.facts.page_tokens
        if isinstance(step, Stretch):
            self.reporter.follow(self, step, now_s)
        # At least one token of every prompt is computed.
        cacheable = (request.prompt_tokens - 1) // page
        if cacheable > len(request.pages):
            cacheable = len(request.pages)
        total = -(-(request.prompt_tokens + request.output_tokens) // page)
        lookup = self.pool.find(request.pages, cacheable)
        job = Job(request, lookup, total_pages=total, accept=self._draw_accept())
        self.jobs[request.rid] = job
        self.waiting.add(job)
        if self.waiting.is_preemptive:
            self.admission.is_full = False
        if not (self.admission.is_full or self.rounds_left or isinstance(step, PrefillStep)):
            self.reconsider(now_s)

    def abort(self, job: Job, now_s: float) -> None:
        """End an active job at ``now_s``, up to which the schedule has run."""
        if isinstance(self.step, Stretch):
            self.reporter.follow(self, self.step, now_s)
        self._end(job, now_s, self.tokens_by(job, now_s), EndReason.ABORT)
        self.totals.aborted += 1
        if job.holding is None:
            self.waiting.remove(job)
            return
        self._has_leaving = True
        self.reconsider(now_s)

    def retract(self, job: Job) -> None:
        """Send a running job back to wait (``release_req``).

        Its prompt's pages stay cached, those of its output are freed, and what it has generated is
        prefilled again.
        """
        assert job.holding is not None, "only running jobs are retracted"
        self.decoding.remove(job)
        self.pool.release(job.holding)
        pages, cacheable = job.restart(self.facts.page_tokens)
        job.lookup = self.pool.find(pages, cacheable)
        self.totals.retracted += 1
        self.waiting.add(job)

    def drop_all(self, now_s: float) -> None:
        """The process dies at ``now_s``, up to which the schedule has run: nothing is left of it."""
        for job in list(self.jobs.values()):
            self._end(job, now_s, self.tokens_by(job, now_s), EndReason.CRASH)
        for job in self.admitted():
            if job.holding is not None:
                self.pool.release(job.holding)
        self.pool.clear()
        self.decoding = []
        self.step = None
        self._has_leaving = False
        self.rounds_left = 0
        self.slowness = 1.0
        self.admission = Admission(self.facts, self.rules, self.pool)
        self.waiting = self.admission.waiting
        self.reporter = Reporter()

    def tokens_by(self, job: Job, now_s: float) -> int:
        """Output tokens of an active job at ``now_s``, up to which the schedule has run."""
        if job.is_running and isinstance(self.step, Stretch):
            return job.tokens_after(job.steps + self.step.finished_by(now_s))
        return job.tokens

    def slow(self, factor: float, now_s: float) -> None:
        """Let steps that begin after ``now_s``, up to which the schedule has run, take so much longer."""
        self.slowness = factor
        if isinstance(self.step, PrefillStep):
            self.step.quiet_until_s = None
        self.reconsider(now_s)

    def reconsider(self, now_s: float) -> None:
        """The schedule may change: as soon as the step in progress has ended."""
        if self.step is None:
            self._start_step(now_s)
        elif isinstance(self.step, Stretch):
            self.step.cut(now_s)
            if self.step.end_s <= now_s:
                self.run(now_s)
        else:
            self.step.cut()

    def _start_step(self, at_s: float) -> None:
        """Begin the next step, if there is anything to do, after freeing what has ended."""
        admission = self.admission
        if self._has_leaving:
            self._free()
        if not self.decoding:
            admission.is_full = False
            self.rounds_left = 0
        step: PrefillStep | Stretch | None = None
        if self.rounds_left:
            step = self._form_stretch(at_s)
            if step is None:
                self._start_step(at_s)
                return
        elif admission.partial is not None or (not admission.is_full and admission.waiting.jobs):
            step = self._form_prefill(at_s)
        if step is None:
            if self.decoding:
                step = self._form_stretch(at_s)
            else:
                admission.guess.reset()
        self.step = step

    def _free(self) -> None:
        """Let those go that have ended."""
        self._has_leaving = False
        staying: list[Job] = []
        for job in self.decoding:
            if job.ended_tokens is None:
                staying.append(job)
            else:
                release(self.pool, job, self.facts.page_tokens)
        self.decoding = staying
        self.admission.let_go()

    def _form_prefill(self, at_s: float) -> PrefillStep | None:
        """The next prefill step, with the running jobs along where chunks are mixed."""
        parts = self.admission.form(self, self.totals)
        if not parts:
            return None
        page = self.facts.page_tokens
        load_s, is_silent, work = taken_up(parts, self.pool, page_tokens=page)
        riders: list[Job] = []
        if self.rules.is_chunk_mixed and self._has_room_for_step():
            riders = list(self.decoding)
            is_silent = is_silent and not riders
            work += [(1, job.prompt_tokens + job.tokens) for job in riders]
            grow_for_step(self.pool, riders, page_tokens=page, reserve=self.reserve_tokens)
        duration_s = self.facts.times.prefill_batch_s(work)
        if load_s:
            duration_s = self.facts.loading_s(duration_s, load_s)
        step = PrefillStep(at_s, at_s + duration_s * self.slowness, parts, riders, is_silent)
        if isinstance(self.step, PrefillStep):
            step.go_on_from(self.step, self.facts.chunk_tokens)
        is_broken_up = self.decoding and self.rules.prefill_decode_interval
        if len(parts) == 1 and step.is_silent and not is_broken_up:
            self.admission.prolong(step, len(self.decoding), self.slowness)
        return step

    def _form_stretch(self, at_s: float) -> Stretch | None:
        """Generation steps until one ends, as far as there is memory; retracts where there is none.

        None if a prompt that was cut has left none even for the last of them, which is given up
        (the end of ``retract_decode``).
        """
        assert self.rounds_left or self.admission.partial is None, "6: a prompt is to go on first"
        pool, facts, reserve, jobs = self.pool, self.facts, self.reserve_tokens, self.decoding
        room_pages = pool.capacity_pages - pool.tree.pinned_pages - pool.private_pages
        if room_pages < len(jobs) * self._step_pages and not self._has_room_for_step():
            if not self.admission.make_room(self, self._has_room_for_step):
                (job,) = jobs
                self._end(job, at_s, job.tokens, EndReason.ABORT)
                self.totals.aborted += 1
                self._has_leaving = True
                return None
            room_pages = pool.room_pages
        stretch, taken = stretch_of(jobs, facts, at_s, reserve=reserve, slowness=self.slowness)
        if taken:
            pool.private_pages += taken
            pool.make_room()
        # No job yields more a step, and none lacks more than that and a page or two that it begins.
        page = facts.page_tokens
        if room_pages - taken < stretch.batch * (stretch.n_steps * facts.verify_tokens // page + 2):
            limit_to_room(stretch, jobs, pool, page_tokens=page, reserve=reserve)
        if self.rounds_left:
            stretch.limit(self.rounds_left)
        elif self.waiting.jobs and not self.admission.is_full:
            stretch.limit(1)
        return stretch

    def _has_room_for_step(self) -> bool:
        """Is there memory for one more step of all that run?"""
        return self.needed_after(0) <= self.pool.room_pages

    def needed_after(self, steps: int) -> int:
        """Pages that running jobs lack for the step that follows ``steps`` more."""
        return pages_lacking(
            self.decoding, steps, page_tokens=self.facts.page_tokens, reserve=self.reserve_tokens
        )

    def _finish_prefill(self, step: PrefillStep, until_s: float) -> None:
        """Apply a prefill step that has ended, or chunks of it, and start what follows.

        A report that the next step, ended by ``until_s``, replaces is not made.
        """
        totals, reporter = self.totals, self.reporter
        if step.later_s:
            reporter.pass_chunks(self, step, until_s)
            if step.end_s > until_s:
                return
        if step.owed_chunks:
            step.settle(self.pool, self.facts)
        tokens, busy_s = totals.prefill_tokens, totals.prefill_busy_s
        self._apply_prefill(step)
        self._start_step(step.end_s)
        following = self.step
        if following is None:
            reporter.tell(self, step.end_s, totals.prefill_tokens, totals.prefill_busy_s)
        elif isinstance(following, Stretch) or following.end_s > until_s:
            reporter.tell(self, step.end_s, tokens, busy_s)

    def _apply_prefill(self, step: PrefillStep) -> None:
        page, totals = self.facts.page_tokens, self.totals
        totals.prefill_busy_s += step.end_s - step.start_s
        hit_tokens = new_tokens = 0
        for job, n_tokens in step.parts:
            holding = job.holding
            assert holding is not None, "a prefill step holds admitted jobs only"
            new_tokens += n_tokens
            found_tokens = (holding.device_pages + holding.host_pages) * page
            if job.computed_tokens == found_tokens:
                hit_tokens += found_tokens
            if job.ended_tokens is not None and self.admission.partial is job:
                # As SGLang does: of a prompt that is cut and left, this step's part is thrown away.
                self.admission.partial = None
                self.admission.is_full = False
                self.pool.release(holding)
                continue
            job.computed_tokens += n_tokens
            pages, stored = job.lookup.pages, job.computed_tokens // page
            if stored > len(pages):
                stored = len(pages)
            self.pool.store(holding, pages, stored)
            if job.ended_tokens is not None:
                self.admission.is_full = False
                self.pool.release(holding)
            elif job.computed_tokens == job.fill_tokens:
                self._begin(job, holding, step.end_s)
        for job in step.riders:
            if job.ended_tokens is None:
                job.yielded()
                if not job.steps_total:
                    self._stop(job, step.end_s)
        totals.prefill_tokens += new_tokens
        self.rounds_left = self.rules.prefill_decode_interval
        self.reporter.prefilled(step.end_s, hit_tokens, new_tokens)

    def _begin(self, job: Job, holding: Holding, at_s: float) -> None:
        """A token is out, the first one but for a retracted request."""
        if not job.reported:
            page = self.facts.page_tokens
            cached = (holding.device_pages + holding.host_pages) * page
            self.events.append(Began(job.request.rid, at_s, cached, holding.host_pages * page))
            job.reported = 1
        job.yielded()
        job.is_running = True
        self.decoding.append(job)
        if not job.steps_total:
            self._stop(job, at_s)

    def _finish_stretch(self, stretch: Stretch) -> None:
        """Apply a stretch that has ended, and start what follows."""
        n_steps, end_s = stretch.n_steps, stretch.end_s
        self.rounds_left = max(0, self.rounds_left - n_steps)
        totals = self.totals
        self.reporter.stretch_ended(self, stretch)
        totals.verify_steps += n_steps
        totals.decode_busy_s += end_s - stretch.start_s
        self.admission.guess.decay(n_steps)
        done, n_pages = stepped(self.decoding, n_steps, page_tokens=self.facts.page_tokens)
        for job in done:
            self._stop(job, end_s)
        self.pool.private_pages += n_pages
        if n_pages:
            self.pool.make_room()
        self._start_step(end_s)
        if self.step is None:
            self.reporter.tell(self, end_s, totals.prefill_tokens, totals.prefill_busy_s)

    def _stop(self, job: Job, at_s: float) -> None:
        """A job has all its tokens."""
        self._end(job, at_s, job.tokens, EndReason.STOP)
        self._has_leaving = True

    def _end(self, job: Job, at_s: float, tokens: int, reason: EndReason) -> None:
        """Emit the last event of a job."""
        rid = job.request.rid
        del self.jobs[rid]
        job.ended_tokens = tokens
        totals = self.totals
        totals.generated_tokens += tokens
        totals.ended += 1
        self.events.append(Ended(rid, at_s, tokens - job.reported, tokens, reason))
