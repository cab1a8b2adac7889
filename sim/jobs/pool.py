"""Many runs on all cores: processes that end with us, results in order, the first failure ends it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, NamedTuple

from sim.jobs.errors import RunError
from sim.jobs.running import Done, run_job
from sim.scenario.errors import ScenarioError
from sim.workload.traces.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sim.jobs.running import Job


def run_all(
    jobs: Sequence[Job], *, n_processes: int, done: Callable[[int, Done], None]
) -> list[Done]:
    """Run all; ``done`` hears the number of each that has ended, in any order.

    With one process or one job they run in this one.

    Raises:
        RunError: the first run that failed; the others are given up.
        KeyboardInterrupt: as usual; the processes are ended.
    """
    results: dict[int, Done] = {}
    n_processes = min(n_processes, len(jobs))
    ended = _here(jobs) if n_processes <= 1 else _in_processes(jobs, n_processes)
    for index, result in ended:
        results[index] = result
        done(index, result)
    return [results[index] for index in range(len(jobs))]


def _here(jobs: Sequence[Job]) -> Iterator[tuple[int, Done]]:
    for index, job in enumerate(jobs):
        yield index, _checked(job, _attempt(job))


def _in_processes(jobs: Sequence[Job], n_processes: int) -> Iterator[tuple[int, Done]]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(n_processes, context, initializer=_begin) as pool:
        try:
            waiting = {pool.submit(_attempt, job): index for index, job in enumerate(jobs)}
            while waiting:
                ended, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in sorted(ended, key=waiting.__getitem__):
                    index = waiting.pop(future)
                    yield index, _checked(jobs[index], future.result())
        except BaseException as failure:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.kill()
            if isinstance(failure, BrokenProcessPool):
                words = "a process ended suddenly; perhaps memory ran out: try --jobs 1"
                raise RunError(words) from failure
            raise


class _Failure(NamedTuple):
    """A failure as it crosses processes: exceptions need not survive that."""

    words: str
    is_input: bool


def _attempt(job: Job) -> Done | _Failure:
    try:
        return run_job(job)
    except (TraceError, ScenarioError, OSError) as failure:
        return _Failure(str(failure), is_input=True)
    except MemoryError:
        return _Failure(f"{job.words}: not enough memory", is_input=False)
    except Exception as failure:  # noqa: BLE001 - whatever it is, the command says which run it was
        place = extract_tb(failure.__traceback__)[-1]
        words = " ".join(str(failure).split()).partition(" To repeat: ")[0]
        where = f"{Path(place.filename).name}:{place.lineno}"
        said = f"{job.words}: {type(failure).__name__}: {words} ({where})"
        return _Failure(said, is_input=False)


def _checked(job: Job, outcome: Done | _Failure) -> Done:
    if isinstance(outcome, _Failure):
        raise RunError(outcome.words, repeat=job.repeat, is_input=outcome.is_input)
    return outcome


def _begin() -> None:
    """In a new process: leave Ctrl-C to the parent, and end when it ends, however that happens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
