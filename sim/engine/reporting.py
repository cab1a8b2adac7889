"""When the engine tells its load, and what it says then: the source of ``/v1/loads``.

As SGLang does, it tells at the end of every prefill step, at every 15th generation step since, and on
falling idle; in between, a reader sees the last report (``publish_load_snapshot`` in its
``managers/scheduler.py``, with the overlap schedule: a step's result is seen once the next has begun).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from sim.engine.requests import LoadReport
from sim.engine.stretch import PrefillStep

if TYPE_CHECKING:
    from replica.hardware.profiles import EngineFacts
    from sim.engine.orders import WaitingQueue
    from sim.engine.pool import KvPool
    from sim.engine.stretch import Job, Stretch

REPORT_STEPS: Final = 15
"""Generation steps between two reports (``--load-snapshot-publish-interval``)."""

HIT_WINDOW_S: Final = 15.0
"""How long a prefill step counts for the estimate of what waiting prompts find cached."""

_NO_MOMENTS: Final = (0.0,) * 6


class Totals:
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
        "retracted",
        "verify_steps",
    )

    def __init__(self) -> None:
        self.prompt_tokens = self.cached_tokens = self.host_tokens = 0
        self.prefill_tokens = self.generated_tokens = self.verify_steps = 0
        self.ended = self.aborted = self.retracted = 0
        self.prefill_busy_s = self.decode_busy_s = 0.0


class Schedule(Protocol):
    """What a report reads of a schedule."""

    facts: EngineFacts
    pool: KvPool
    totals: Totals
    step: PrefillStep | Stretch | None
    decoding: list[Job]
    waiting: WaitingQueue

    @property
    def partial(self) -> Job | None:
        """The job whose prompt the step in progress cuts."""

    def needed_after(self, steps: int) -> int:
        """Pages that running jobs lack for the step that follows ``steps`` more."""


class Reporter:
    """The last report of one schedule, and what it takes to make the next."""

    def __init__(self) -> None:
        self._told: tuple[Any, ...] = (0.0,)  # the last report's fields: few of them are ever read
        # Of a later one, which is made when the schedule is going to lose what it says, or when asked.
        self._due_state: tuple[float, int, int, int, float] | None = None
        self._steps = 0  # generation steps since the last report, before the stretch in progress
        self._due_step = 0  # of that stretch, whose end makes the next report due; 0: of none
        self._generated_per_s = 0.0
        self._hit_ratio = 0.0
        self._recent: deque[tuple[float, int, int]] = deque()
        self._recent_hit = self._recent_total = 0
        self._moments: tuple[float, ...] | None = None

    def last(self, schedule: Schedule, idle_s: float | None) -> LoadReport:
        """The last report; it is of ``idle_s`` where the engine is idle then."""
        if self._due_state is not None:
            self._make(schedule)
        report = LoadReport(*self._told)
        if idle_s is not None:
            report.at_s = idle_s
        return report

    def prefilled(self, at_s: float, *, hit_tokens: int, new_tokens: int) -> None:
        """A prefill step ended that computed ``new_tokens`` behind newly found ``hit_tokens``."""
        self._steps = 0
        recent = self._recent
        total = hit_tokens + new_tokens
        self._hit_ratio = hit_tokens / total
        recent.append((at_s, hit_tokens, total))
        self._recent_hit += hit_tokens
        self._recent_total += total
        old_s = at_s - HIT_WINDOW_S
        while recent[0][0] <= old_s:
            _, hit, gone = recent.popleft()
            self._recent_hit -= hit
            self._recent_total -= gone

    def tell(self, schedule: Schedule, at_s: float, *, tokens: int, busy_s: float) -> None:
        """Report at the end of a step; ``tokens`` and ``busy_s`` are the prefill counters to say."""
        waiting = schedule.waiting
        self._due_state = (at_s, len(waiting.jobs), waiting.waiting_tokens, tokens, busy_s)
        if schedule.step is None:
            self._steps = 0
            self._generated_per_s = 0.0
            self._make(schedule)

    def pass_chunks(self, schedule: Schedule, step: PrefillStep, until_s: float) -> None:
        """Count the chunks of a step that have ended by ``until_s``, at least one, but not its last.

        The pool is told later, but for where it takes that to know what it frees.
        """
        facts, totals, later_s = schedule.facts, schedule.totals, step.later_s
        ((job, chunk),) = step.parts
        holding = job.holding
        assert holding is not None, "a prefill step holds admitted jobs only"
        found_tokens = (holding.device_pages + holding.host_pages) * facts.page_tokens
        hit_tokens = found_tokens if job.computed_tokens == found_tokens else 0
        n_chunks = 0
        busy_s = totals.prefill_busy_s
        while later_s and step.end_s <= until_s:
            n_chunks += 1
            busy_s = totals.prefill_busy_s
            totals.prefill_busy_s += step.end_s - step.start_s
            self.prefilled(step.end_s, hit_tokens=hit_tokens, new_tokens=chunk)
            hit_tokens = 0
            step.start_s = step.end_s
            step.end_s = later_s.popleft()
        job.computed_tokens += n_chunks * chunk
        step.owed_chunks += n_chunks
        if holding.node.children or schedule.pool.host.is_shared:  # others may hold these as well
            step.settle(schedule.pool, facts)
        tokens = totals.prefill_tokens + (n_chunks - 1) * chunk
        totals.prefill_tokens = tokens + chunk
        if step.end_s > until_s:
            self.tell(schedule, step.start_s, tokens=tokens, busy_s=busy_s)

    def stretch_began(self) -> None:
        """Find out when the first report within a stretch is due."""
        self._due_step = REPORT_STEPS - self._steps

    def follow(self, schedule: Schedule, stretch: Stretch, now_s: float) -> None:
        """Make the last report that fell due within a stretch in progress until ``now_s``."""
        due_step = self._due_step
        if not 0 < due_step <= stretch.n_steps or now_s < stretch.end_of(due_step):
            return
        behind = (stretch.finished_by(now_s) - due_step) // REPORT_STEPS * REPORT_STEPS
        step = due_step + behind
        at_s = stretch.end_of(step)
        lasted_s = at_s - stretch.start_s
        totals = schedule.totals
        waiting = schedule.waiting
        moments = self._moments
        self._add(stretch, step, lasted_s)
        self._due_state = (
            at_s,
            len(waiting.jobs),
            waiting.waiting_tokens,
            totals.prefill_tokens,
            totals.prefill_busy_s,
        )
        self._make(schedule, step)
        self._moments = moments  # those of a stretch stay when it has ended
        self._due_step = step + REPORT_STEPS

    def stretch_ended(self, schedule: Schedule, stretch: Stretch) -> None:
        """Take a stretch that has ended, before its results are applied."""
        self.follow(schedule, stretch, stretch.end_s)
        if self._due_state is not None:
            self._make(schedule)
        self._add(stretch, stretch.n_steps, stretch.end_s - stretch.start_s)
        self._steps = (self._steps + stretch.n_steps) % REPORT_STEPS
        self._due_step = 0

    def _add(self, stretch: Stretch, steps: int, lasted_s: float) -> None:
        """Add the first steps of a stretch to the sums; they took ``lasted_s``."""
        if not steps:
            return
        batch, us = stretch.batch, lasted_s * 1e6
        new_tokens = stretch.tokens_per_step * steps
        count, batches, total_us, squares, products, tokens = self._moments or _NO_MOMENTS
        self._moments = (
            count + steps,
            batches + batch * steps,
            total_us + us,
            squares + batch * batch * steps,
            products + batch * us,
            tokens + new_tokens,
        )
        self._generated_per_s = new_tokens / lasted_s

    def _make(self, schedule: Schedule, steps: int = 0) -> None:
        """Make the report that is due, after ``steps`` of the stretch in progress."""
        assert self._due_state is not None, "a report is made when one is due"
        at_s, n_waiting, waiting_tokens, tokens, busy_s = self._due_state
        self._due_state = None
        pages = schedule.pool.used_pages
        if isinstance(schedule.step, PrefillStep):
            pages += schedule.step.owed_pages(schedule.facts)
        if steps:  # until the stretch ends, what it needs after its first step is not allocated
            pages += schedule.needed_after(steps)
        uncached = 0
        if waiting_tokens:
            hit = self._recent_hit / self._recent_total if self._recent_total else 0.0
            uncached = int(waiting_tokens * (1.0 - hit))
        cut = schedule.partial
        if cut is not None:
            uncached += cut.fill_tokens - cut.computed_tokens
        self._told = (
            at_s,
            len(schedule.decoding),
            n_waiting,
            waiting_tokens,
            uncached,
            pages * schedule.facts.page_tokens,
            self._generated_per_s,
            self._hit_ratio,
            tokens,
            busy_s,
            self._moments,
        )
