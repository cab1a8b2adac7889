"""Runs of a command: those that are kept are taken, the others run, and each is told on stderr's line."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sim.jobs.pool import run_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.jobs.keeping import Kept
    from sim.jobs.running import Done, Job

    Figures = dict[str, object]


def _nothing(job: Job, done: Done | None) -> str:
    del job, done
    return ""


class Batch(NamedTuple):
    """How runs are run: ``say`` is told how far it is, ``kept`` keeps what has ended.

    ``ended`` hears of each run that has ended, without what it gave where that was kept, and answers what is to be said with it.
    """

    n_processes: int
    say: Callable[[str], None]
    kept: Kept | None = None
    ended: Callable[[Job, Done | None], str] = _nothing

    def run(self, jobs: Sequence[Job]) -> list[Figures]:
        """The figures of all jobs, in their order.

        Raises:
            RunError: one failed.
            OSError: a result cannot be kept.
        """
        found: dict[int, Done] = {}
        for index, job in enumerate(jobs):
            was = None if self.kept is None else self.kept.find(job)
            if was is not None:
                found[index] = was
                self.ended(job, None)
        if found and self.kept is not None:
            self.say(f"{len(found)} of {len(jobs)} runs are in {self.kept.folder} already")
        open_jobs = [index for index in range(len(jobs)) if index not in found]
        n_ended = len(found)

        def done(number: int, result: Done) -> None:
            nonlocal n_ended
            n_ended += 1
            job = jobs[open_jobs[number]]
            if self.kept is not None:
                self.kept.keep(job, result)
            left = self.ended(job, result)
            self.say(f"[{n_ended}/{len(jobs)}] {job.words}: {_wall(result)}{left}")

        results = run_all(
            [jobs[index] for index in open_jobs], n_processes=self.n_processes, done=done
        )
        found.update(zip(open_jobs, results, strict=True))
        return [found[index].figures for index in range(len(jobs))]


def _wall(done: Done) -> str:
    figures = done.figures
    requests, wall_s, rate = (
        figures.get(key) for key in ("requests_total", "wall_s", "requests_per_wall_s")
    )
    if not isinstance(wall_s, float) or not isinstance(rate, float):
        return "done"
    return f"{requests:,} requests in {wall_s:.1f} s, {rate:,.0f}/s; loading {done.load_s:.1f} s"
