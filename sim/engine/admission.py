"""Who is admitted to a prefill step, and how much of each prompt it computes.

One pass, as SGLang 0.5.23's ``PrefillAdder`` (``managers/schedule_policy.py``) and
``_get_new_batch_prefill_raw`` (``managers/scheduler.py``) make it: the prompt that was cut goes on, then
waiting ones follow in their order until the chunk, the running limit or the memory is used up. Memory is
what can be freed less what the running requests will probably still generate. Where that guess was too
low, requests are retracted. A pass that met a limit is not repeated before a request has left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sim.engine.orders import QUEUES

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.hardware.profiles import EngineFacts
    from sim.engine.job import Job
    from sim.engine.pool import KvPool
    from sim.engine.prefill_step import PrefillStep
    from sim.engine.reporting import Totals
    from sim.engine.rules import EngineRules

    Part = tuple[Job, int]


class Running(Protocol):
    """The jobs that generate, of which some may be sent back to wait."""

    decoding: list[Job]

    def retract(self, job: Job) -> None:
        """Free all that the job holds and let it wait again."""


class OutputGuess:
    """Which share of what requests may still generate they will (``NewTokenRatioTracker``)."""

    def __init__(self, rules: EngineRules) -> None:
        self._rules = rules
        self._floor = rules.output_ratio * rules.output_ratio_floor
        self._decay = (rules.output_ratio - self._floor) / rules.decay_steps
        self.ratio = rules.output_ratio

    def decay(self, n_steps: int) -> None:
        """That many generation steps went well."""
        floor = self._floor
        if self.ratio != floor:
            ratio = self.ratio - self._decay * n_steps
            self.ratio = ratio if ratio > floor else floor

    def reset(self) -> None:
        """The engine fell idle."""
        self.ratio = self._rules.output_ratio

    def retracted(self, left: list[Job]) -> None:
        """Requests were sent back; ``left`` are those that go on."""
        tokens = sum(job.tokens for job in left) + self._rules.retract_steps * len(left)
        asked = sum(job.output_tokens_max for job in left)
        self.ratio = min(1.0, tokens / (asked + 1))


class _Pass:
    """What one pass has left: ``chunk`` tokens to compute, and memory beside the ``offset`` tokens."""

    __slots__ = ("_page", "_pool", "chunk", "offset", "parts")

    def __init__(self, pool: KvPool, page_tokens: int, *, chunk: int, offset: float) -> None:
        self._pool = pool
        self._page = page_tokens
        self.chunk = chunk
        self.offset = offset
        self.parts: list[Part] = []

    @property
    def remaining(self) -> float:
        """Tokens of memory that nobody is expected to need."""
        pool = self._pool
        room_pages = pool.capacity_pages - pool.tree.pinned_pages - pool.private_pages
        return room_pages * self._page - self.offset

    def add(self, job: Job, n_tokens: int, output_tokens: int) -> None:
        """Compute ``n_tokens`` of a job, of which ``output_tokens`` are expected to follow."""
        page = self._page
        charge = -(-n_tokens // page) * page
        self.chunk -= charge
        self.offset += charge + page + output_tokens
        self.parts.append((job, n_tokens))


class Admission:
    """The waiting requests and the way from there into prefill steps.

    ``partial`` is the job whose prompt the step in progress cuts. ``is_full``: the last pass met a limit
    that only a request's leaving changes (``batch_is_full``).
    """

    def __init__(self, facts: EngineFacts, rules: EngineRules, pool: KvPool) -> None:
        self.waiting = QUEUES[rules.order](pool, facts.page_tokens)
        self.partial: Job | None = None
        self.is_full = False
        self.guess = OutputGuess(rules)
        self._free_slots_min = rules.free_slots_for(
            facts.max_running_requests, has_draft=facts.verify_tokens > 1
        )
        self._facts = facts
        self._rules = rules
        self._pool = pool

    def form(self, running: Running, totals: Totals) -> list[Part]:
        """The parts of the next prefill step: jobs and how many tokens of each; empty if there is none.

        It is asked only while there is work.
        """
        cut = self.partial
        waiting = self.waiting
        decoding = running.decoding
        free = self._facts.max_running_requests - len(decoding)
        if cut is None and free < self._free_slots_min and self._has_too_few_slots(free, decoding):
            self.is_full = True
            return []
        if waiting.is_rearranged:
            waiting.arrange()
        if cut is not None and self._fills_chunk(cut, len(decoding)):
            return [(cut, self._facts.chunk_tokens)]
        clip = self._rules.output_clip_tokens
        expected = 0
        for job in decoding:
            left = job.output_tokens_max - job.tokens
            expected += left if left < clip else clip
        n_mixed = len(decoding) if self._rules.is_chunk_mixed else 0
        ahead = _Pass(
            self._pool,
            self._facts.page_tokens,
            chunk=self._facts.chunk_tokens - n_mixed,
            offset=n_mixed + expected * self.guess.ratio,
        )
        if cut is not None:
            self._continue(cut, ahead, running)
        if not self.is_full:
            self._take_waiting(ahead, running, totals)
        if not ahead.parts and decoding:
            self.is_full = True
        return ahead.parts

    def _has_too_few_slots(self, free: int, decoding: list[Job]) -> bool:
        """Is no prompt to be let in beside so many (``should_delay`` and the running limit)?"""
        if free <= 0:
            return not self.waiting.is_preemptive
        return bool(decoding)

    def _fills_chunk(self, cut: Job, n_running: int) -> bool:
        """Is it plain that a prompt that goes on takes the whole chunk, and more chunks behind it?

        Then the pass would end with it: there is memory whatever the others generate.
        """
        facts, pool, rules = self._facts, self._pool, self._rules
        chunk = facts.chunk_tokens
        if (
            cut.fill_tokens - cut.computed_tokens <= chunk
            or rules.is_chunk_mixed
            or self.waiting.has_chunk_limit
        ):
            return False
        room_pages = pool.capacity_pages - pool.tree.pinned_pages - pool.private_pages
        return room_pages * facts.page_tokens > chunk + n_running * rules.output_clip_tokens

    def prolong(self, step: PrefillStep, n_running: int, slowness: float) -> None:
        """Let a step of a whole chunk go on over those that are sure to follow, if nobody leaves.

        These are the ones for which :meth:`_fills_chunk` will be true, whoever comes: where waiting
        requests keep their order.
        """
        facts, pool, rules = self._facts, self._pool, self._rules
        chunk = facts.chunk_tokens
        ((job, n_tokens),) = step.parts
        done = job.computed_tokens + chunk
        left = job.fill_tokens - done
        if left <= chunk or n_tokens != chunk or rules.is_chunk_mixed or self.waiting.is_rearranged:
            return
        room_tokens = pool.room_pages * facts.page_tokens - n_running * rules.output_clip_tokens
        n_chunks = min((left - 1) // chunk, (room_tokens - 1) // chunk)
        prefill_s, at_s = facts.times.prefill_s, step.end_s
        for done_tokens in range(done, done + n_chunks * chunk, chunk):
            at_s += prefill_s(chunk, done_tokens) * slowness
            step.later_s.append(at_s)
        step.later_s.reverse()

    def make_room(self, running: Running, has_room: Callable[[], bool]) -> bool:
        """Retract running jobs until their next step has memory (``retract_decode``).

        False if the last one has none: a prompt that was cut holds it.
        """
        order = retraction_order(running.decoding)
        while not has_room() and len(order) > 1:
            running.retract(order.pop())
        self.guess.retracted(running.decoding)
        self.is_full = False
        has_some = has_room()
        assert has_some or self.partial is not None, "2: what was taken fits the pool alone"
        return has_some

    def let_go(self) -> None:
        """Somebody left: others may be let in. A prompt that was cut, and left between its chunks, is freed."""
        self.is_full = False
        cut = self.partial
        if cut is not None and cut.ended_tokens is not None:
            assert cut.holding is not None, "a prompt that was cut holds pages"
            self._pool.release(cut.holding)
            self.partial = None

    def _expected(self, job: Job) -> int:
        """The most a job may still generate, clipped."""
        left = job.output_tokens_max - job.tokens
        clip = self._rules.output_clip_tokens
        return left if left < clip else clip

    def _continue(self, job: Job, ahead: _Pass, running: Running) -> None:
        """Go on with the prompt that was cut (``add_chunked_req``)."""
        page = self._facts.page_tokens
        left = job.fill_tokens - job.computed_tokens
        budget = ahead.chunk
        remaining = int(ahead.remaining)
        if 0 < remaining < budget:
            budget = remaining
        limit = self.waiting.chunk_limit(left, ahead.chunk)
        if limit is not None and limit < budget:
            budget = limit
        budget = min(budget, self._room_for(job, running))
        n_tokens = left if left <= budget else min(left, max(page, budget // page * page))
        is_cut = n_tokens < left
        self.partial = job if is_cut else None
        ahead.add(job, n_tokens, 0 if is_cut else self._expected(job))

    def _room_for(self, job: Job, running: Running) -> int:
        """Tokens of its prompt for which there is memory, at least a page: others make room for it.

        Guesses can be too low; SGLang fails then.
        """
        holding = job.holding
        assert holding is not None, "a prompt that was cut holds pages"
        page = self._facts.page_tokens
        while True:
            tokens = (holding.pages + self._pool.room_pages) * page - job.computed_tokens
            if tokens >= page or not running.decoding:
                return tokens
            running.retract(retraction_order(running.decoding)[-1])

    def _take_waiting(self, ahead: _Pass, running: Running, totals: Totals) -> None:
        """Admit waiting jobs in their order until one is refused."""
        waiting = self.waiting
        slots = self._facts.max_running_requests
        while ahead.chunk > 0 and waiting.jobs:
            job = waiting.jobs[0]
            if len(ahead.parts) >= slots - len(running.decoding) and not (
                waiting.is_preemptive and self._preempt_for(job, ahead, running)
            ):
                self.is_full = True
                return
            if not self._admit(job, ahead, has_running=bool(running.decoding), totals=totals):
                return
            if ahead.remaining <= 0:
                self.is_full = True
                return

    def _admit(self, job: Job, ahead: _Pass, *, has_running: bool, totals: Totals) -> bool:
        """Take a waiting job into the pool and the step (``add_one_req``); False if it may not.

        Alone it may always: what was submitted fits an empty pool.
        """
        facts, pool = self._facts, self._pool
        page = facts.page_tokens
        output_tokens = job.output_tokens_max - job.tokens
        if output_tokens > self._rules.output_clip_tokens:
            output_tokens = self._rules.output_clip_tokens
        lookup = job.lookup
        if (
            lookup.device_version != lookup.device.version
            or lookup.host_version != lookup.host.version
        ):
            pool.look(lookup)
        found_pages = lookup.device_pages
        needed = job.fill_tokens - found_pages * page + output_tokens + page
        is_alone = not has_running and not ahead.parts
        if not is_alone and needed >= ahead.remaining:  # what it finds only leaves less when pinned
            pool.touch(lookup)
            self.is_full = True
            return False
        holding = pool.pin(lookup)
        if not is_alone and needed >= ahead.remaining:
            pool.release(holding)
            self.is_full = True
            return False
        n_tokens = job.fill_tokens - lookup.matched * page
        is_cut = -(-n_tokens // page) * page > ahead.chunk
        if is_cut:
            n_tokens = ahead.chunk // page * page
            if n_tokens <= 0 or self.partial is not None:  # only one unfinished prompt is tracked
                pool.release(holding)
                return False
            self.partial = job
        self.waiting.remove(job)
        if holding.host_stored > found_pages:
            host_tokens = pool.load(holding, lookup.pages) * page
            job.host_load_s = host_tokens * facts.host_load_s_per_token
            totals.host_tokens += host_tokens
        assert holding.stored == lookup.matched, "7: cached pages are not on the device"
        assert holding.device_pages == found_pages or pool.host.is_shared, (
            "7: host pages counted as HBM"
        )
        job.holding = holding
        job.computed_tokens = holding.stored * page
        totals.prompt_tokens += job.fill_tokens
        totals.cached_tokens += job.computed_tokens
        ahead.add(job, n_tokens, 0 if is_cut else output_tokens)
        return True

    def _preempt_for(self, job: Job, ahead: _Pass, running: Running) -> bool:
        """Send running jobs of far lower priority back until this one fits (``preempt_to_schedule``)."""
        lowest = sorted(
            running.decoding, key=lambda other: (other.request.priority, -other.queued_serial)
        )
        matched = job.lookup.matched * self._facts.page_tokens
        missing = job.fill_tokens - matched + self._expected(job) - ahead.remaining
        victims: list[Job] = []
        for other in lowest:
            if job.request.priority - other.request.priority <= self._rules.preemption_threshold:
                break
            victims.append(other)
            missing -= self._expected(other) * self.guess.ratio
            if missing <= 0:
                break
        if not victims or missing > 0:
            return False
        for victim in victims:
            ahead.offset -= self._expected(victim) * self.guess.ratio
            running.retract(victim)
        return True


def retraction_order(jobs: list[Job]) -> list[Job]:
    """Whom to keep longest first: most output, then the shorter prompt (``length_key``)."""
    return sorted(jobs, key=lambda job: (job.tokens, -job.request.prompt_tokens), reverse=True)
