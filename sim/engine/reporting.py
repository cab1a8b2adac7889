"""When the engine tells its load, and what it says then: the source of ``/v1/loads``.

As SGLang does, it tells at the end of every prefill step, at every 15th generation step since, on
falling idle, and each second while idle; in between, a reader sees the last report (``publish_load_snapshot`` in its
``managers/scheduler.py``, with the overlap schedule: a step's result is seen once the next has begun).
"""

from __future__ import annotations

from collections import deque
from math import floor
from typing import TYPE_CHECKING, Final, Protocol

from sim.engine.prefill_step import PrefillStep
from sim.engine.requests import LoadReport
from sim.engine.stretch import pages_lacking

if TYPE_CHECKING:
    from replica.hardware.profiles import EngineFacts
    from sim.engine.job import Job
    from sim.engine.orders import WaitingQueue
    from sim.engine.pool import KvPool
    from sim.engine.stretch import Stretch

    Moments = tuple[float, ...]
    Steps = tuple[int, float, int, float, int]
    """Jobs, their tokens a step, steps and their seconds, and the pages that the jobs lack then."""

    Said = tuple[
        float,
        int,
        int,
        int,
        int,
        int,
        int,
        int,
        float,
        float,
        Moments | None,
        int,
        float,
        Steps | None,
    ]
    """A report's fields as they are found: see :meth:`Reporter.last`."""

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


class Cutting(Protocol):
    """What cuts prompts: ``partial`` is the job whose prompt the step in progress cuts."""

    partial: Job | None


class Schedule(Protocol):
    """What a report reads of a schedule."""

    facts: EngineFacts
    pool: KvPool
    totals: Totals
    step: PrefillStep | Stretch | None
    decoding: list[Job]
    waiting: WaitingQueue
    reserve_tokens: int

    @property
    def admission(self) -> Cutting:
        """What forms its prefill steps."""


class Reporter:
    """The last report of one schedule, and what it takes to make the next.

    Few reports are ever read: what was said is kept as it is found, and worked out when it is asked for.
    """

    def __init__(self) -> None:
        self._said: Said | None = None
        self._is_idle = False  # when it told the last one
        self._due_step = REPORT_STEPS  # of the stretch in progress, or of the next one
        self._generated_per_s = 0.0
        self._hit_ratio = 0.0
        self._recent: deque[tuple[float, int, int]] = deque()
        self._recent_hit = self._recent_total = 0
        self._moments: Moments | None = None

    def last(self, idle_until_s: float) -> LoadReport:
        """The last report; an idle engine repeats its last one each second, until ``idle_until_s``."""
        if self._said is None:
            return LoadReport(float(floor(idle_until_s)))
        (
            at_s,
            running,
            waiting,
            waiting_tokens,
            recent_hit,
            recent_total,
            left_tokens,
            used_tokens,
            generated_per_s,
            hit_ratio,
            moments,
            prefill_tokens,
            prefill_busy_s,
            stretch,
        ) = self._said
        if waiting_tokens:
            hit = recent_hit / recent_total if recent_total else 0.0
            left_tokens += int(waiting_tokens * (1.0 - hit))
        if stretch is not None:
            generated_per_s, moments = _with_steps(moments, *stretch[:4])
        return LoadReport(
            at_s + floor(idle_until_s - at_s) if self._is_idle else at_s,
            running,
            waiting,
            waiting_tokens,
            left_tokens,
            used_tokens,
            generated_per_s,
            hit_ratio,
            prefill_tokens,
            prefill_busy_s,
            moments,
        )

    def prefilled(self, at_s: float, hit_tokens: int, new_tokens: int) -> None:
        """A prefill step ended that computed ``new_tokens`` behind newly found ``hit_tokens``."""
        self._due_step = REPORT_STEPS
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

    def tell(
        self,
        schedule: Schedule,
        at_s: float,
        tokens: int,
        busy_s: float,
        stretch: Steps | None = None,
    ) -> None:
        """Report at the end of a step; ``tokens`` and ``busy_s`` are the prefill counters to say.

        Within a stretch, those steps of it are to be told, and the pages for more than its first step,
        which are not allocated before it ends.
        """
        step, pool, waiting = schedule.step, schedule.pool, schedule.waiting
        self._is_idle = step is None and stretch is None
        pages = pool.tree.pinned_pages + pool.private_pages
        if stretch is not None:
            pages += stretch[4]
        elif step is None:
            self._due_step = REPORT_STEPS
            self._generated_per_s = 0.0
        elif isinstance(step, PrefillStep) and step.owed_chunks:
            pages += step.owed_pages(schedule.facts)
        cut = schedule.admission.partial
        self._said = (
            at_s,
            len(schedule.decoding),
            len(waiting.jobs),
            waiting.waiting_tokens,
            self._recent_hit,
            self._recent_total,
            0 if cut is None else cut.fill_tokens - cut.computed_tokens,
            pages * schedule.facts.page_tokens,
            self._generated_per_s,
            self._hit_ratio,
            self._moments,
            tokens,
            busy_s,
            stretch,
        )

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
            self.prefilled(step.end_s, hit_tokens, chunk)
            hit_tokens = 0
            step.start_s = step.end_s
            step.end_s = later_s.pop()
        job.computed_tokens += n_chunks * chunk
        step.owed_chunks += n_chunks
        if holding.node.children or schedule.pool.host.is_shared:  # others may hold these as well
            step.settle(schedule.pool, facts)
        tokens = totals.prefill_tokens + (n_chunks - 1) * chunk
        totals.prefill_tokens = tokens + chunk
        if step.end_s > until_s:
            self.tell(schedule, step.start_s, tokens, busy_s)

    def follow(self, schedule: Schedule, stretch: Stretch, now_s: float) -> None:
        """Make the last report that fell due within a stretch in progress until ``now_s``."""
        due_step = self._due_step
        if due_step <= stretch.n_steps and now_s >= stretch.end_of(due_step):
            self._follow_steps(schedule, stretch, stretch.finished_by(now_s))

    def stretch_ended(self, schedule: Schedule, stretch: Stretch) -> None:
        """Take a stretch that has ended, before its results are applied."""
        n_steps = stretch.n_steps
        self._follow_steps(schedule, stretch, n_steps)
        if n_steps:
            self._due_step -= n_steps
            self._generated_per_s, self._moments = _with_steps(
                self._moments,
                stretch.batch,
                stretch.tokens_per_step,
                n_steps,
                stretch.end_s - stretch.start_s,
            )

    def _follow_steps(self, schedule: Schedule, stretch: Stretch, n_steps: int) -> None:
        """Make the last report that fell due within so many steps of a stretch."""
        step = self._due_step
        if step > n_steps:
            return
        step += (n_steps - step) // REPORT_STEPS * REPORT_STEPS
        self._due_step = step + REPORT_STEPS
        at_s = stretch.end_of(step)
        lacking = pages_lacking(
            schedule.decoding,
            step,
            page_tokens=schedule.facts.page_tokens,
            reserve=schedule.reserve_tokens,
        )
        totals = schedule.totals
        self.tell(
            schedule,
            at_s,
            totals.prefill_tokens,
            totals.prefill_busy_s,
            (stretch.batch, stretch.tokens_per_step, step, at_s - stretch.start_s, lacking),
        )


def _with_steps(
    moments: Moments | None,
    batch: int,
    tokens_per_step: float,
    steps: int,
    lasted_s: float,
) -> tuple[float, Moments]:
    """Tokens a second of the first steps of a stretch, which took ``lasted_s``, and the sums with them."""
    us = lasted_s * 1e6
    new_tokens = tokens_per_step * steps
    count, batches, total_us, squares, products, tokens = moments or _NO_MOMENTS
    return new_tokens / lasted_s, (
        count + steps,
        batches + batch * steps,
        total_us + us,
        squares + batch * batch * steps,
        products + batch * us,
        tokens + new_tokens,
    )
