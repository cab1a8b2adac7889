"""The orders in which waiting requests are tried, as SGLang 0.5.23's ``managers/schedule_policy.py``.

A pass calls :meth:`WaitingQueue.arrange`, then takes from the front until one does not fit.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from sim.engine.rules import FCFS, LONGEST_PREFIX, PRIORITY, SHORTEST_PREFILL

if TYPE_CHECKING:
    from sim.engine.job import Job
    from sim.engine.pool import KvPool

MATCHED_MAX: Final = 128
"""Requests whose match is looked up in one pass (``WAITING_QUEUE_PREFIX_MATCH_MAX``)."""


class WaitingQueue:
    """Requests in order of arrival: ``fcfs``. A retracted one comes anew.

    ``is_rearranged``: each pass may find another order. ``waiting_tokens`` and ``uncached_tokens`` are sums over them, the latter by the match at arrival.
    """

    is_preemptive = False
    is_rearranged = False
    has_chunk_limit = False

    def __init__(self, pool: KvPool, page_tokens: int) -> None:
        self.jobs: list[Job] = []
        self.waiting_tokens = 0
        self.uncached_tokens = 0
        self._pool = pool
        self._page_tokens = page_tokens
        self._serial = 0

    def add(self, job: Job) -> None:
        """Take a job whose look-up was made."""
        self._serial += 1
        job.queued_serial = self._serial
        job.sorted_pages = job.lookup.matched
        job.uncached_tokens = job.fill_tokens - job.sorted_pages * self._page_tokens
        self.waiting_tokens += job.fill_tokens
        self.uncached_tokens += job.uncached_tokens
        self._place(job)

    def remove(self, job: Job) -> None:
        """Let a job go, admitted or given up."""
        if self.jobs[0] is job:
            del self.jobs[0]
        else:
            self.jobs.remove(job)
        self.waiting_tokens -= job.fill_tokens
        self.uncached_tokens -= job.uncached_tokens

    def arrange(self) -> None:
        """Bring the jobs in the order of this pass."""

    def chunk_limit(self, left_tokens: int, budget_tokens: int) -> int | None:
        """The most tokens that a prompt in progress with ``left_tokens`` to go may have; None: all."""
        del left_tokens, budget_tokens
        return None

    def _place(self, job: Job) -> None:
        self.jobs.append(job)


class PriorityQueue(WaitingQueue):
    """Higher priority first, then in order of arrival: ``_sort_by_priority_and_fcfs``.

    Preemption is on with it, as ``--disable-priority-preemption`` is off by default.
    """

    is_preemptive = True

    @override
    def _place(self, job: Job) -> None:
        insort(self.jobs, job, key=_priority_key)


class LongestPrefixQueue(WaitingQueue):
    """Longest match first: ``_sort_by_longest_prefix``; fcfs with more than 128 waiting.

    A request that finds nothing, but begins like another that waits and finds nothing, goes last: the
    other one computes for both (``_compute_prefix_matches``). SGLang compares 32 tokens, this model
    whole pages. It sorts in place, so equals keep the order of the pass before.
    """

    is_rearranged = True
    _is_arranged = False  # nobody came or went since

    @override
    def arrange(self) -> None:
        """Look up and sort."""
        jobs = self.jobs
        if 1 < len(jobs) <= MATCHED_MAX and not self._is_current(jobs):
            deferred = self._deferred(jobs)
            jobs.sort(key=lambda job: 1 if job.queued_serial in deferred else -job.sorted_pages)
            self._is_arranged = True

    @override
    def remove(self, job: Job) -> None:
        super().remove(job)
        self._is_arranged = False

    @override
    def _place(self, job: Job) -> None:
        super()._place(job)
        self._is_arranged = False

    def _is_current(self, jobs: list[Job]) -> bool:
        """Make the matches current; answers whether the order is still that of the last pass."""
        look = self._pool.look
        is_current = self._is_arranged
        for job in jobs:
            lookup = job.lookup
            if (
                lookup.device_version != lookup.device.version
                or lookup.host_version != lookup.host.version
            ):
                look(lookup)
            if job.sorted_version != lookup.version:
                job.sorted_version = lookup.version
                job.sorted_pages = lookup.matched
                is_current = False
        return is_current

    def _deferred(self, jobs: list[Job]) -> set[int]:
        """Which jobs another one computes for."""
        heads: set[int] = set()
        deferred: set[int] = set()
        for job in jobs:
            lookup = job.lookup
            if not lookup.device_pages and lookup.limit:
                head = lookup.pages[0]
                if head in heads:
                    deferred.add(job.queued_serial)
                heads.add(head)
        return deferred


class ShortestPrefillQueue(LongestPrefixQueue):
    """Fewest uncached tokens first, then in order of arrival: ``_sort_by_shortest_prefill``.

    What another computes for goes last. There is no ageing. SGLang looks all of them up in every pass,
    this model the first 128 as they were last arranged, so that a pass stays bounded; the others keep
    the match they had.
    """

    has_chunk_limit = True

    @override
    def arrange(self) -> None:
        """Look up and sort."""
        jobs = self.jobs
        first = jobs if len(jobs) <= MATCHED_MAX else jobs[:MATCHED_MAX]
        if jobs and not self._is_current(first):
            self._is_arranged = first is jobs
            deferred = self._deferred(first)
            page = self._page_tokens
            keyed = [
                (
                    job.queued_serial in deferred,
                    job.fill_tokens - job.sorted_pages * page,
                    job.queued_serial,
                    job,
                )
                for job in jobs
            ]
            keyed.sort()
            jobs[:] = [job for *_, job in keyed]

    @override
    def chunk_limit(self, left_tokens: int, budget_tokens: int) -> int | None:
        """Leave room for shorter prompts that wait: ``shortest_prefill_chunk_limit``."""
        page = self._page_tokens
        if budget_tokens < 2 * page:
            return None
        reserved = 0
        for job in self.jobs:
            work = job.fill_tokens - job.sorted_pages * page
            charge = -(-work // page) * page
            if work >= left_tokens or reserved + charge > budget_tokens - page:
                break
            reserved += charge
        return (budget_tokens - reserved) // page * page if reserved else None


def _priority_key(job: Job) -> tuple[int, int]:
    return -job.request.priority, job.queued_serial


QUEUES: Final[dict[str, type[WaitingQueue]]] = {
    FCFS: WaitingQueue,
    LONGEST_PREFIX: LongestPrefixQueue,
    PRIORITY: PriorityQueue,
    SHORTEST_PREFILL: ShortestPrefillQueue,
}
"""The queue of each order in :data:`sim.engine.rules.ORDERS`."""
