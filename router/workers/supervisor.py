"""The parent: binds once, starts the workers, replaces those that end unasked, and renews them one by one.

It does nothing for a request. Signals wake it, and the pipes by which workers say that they are ready.
"""

from __future__ import annotations

import logging
import selectors
import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from router.clock import now_s
from router.workers.staff import started
from router.workers.sums import counted

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from router.workers.staff import Crew, Worker

_log: Final = logging.getLogger("homeport.workers")

START_S_MAX: Final = 120.0
"""Until a worker has asked all replicas once and serves; one that takes longer is ended."""
_PAUSES_S: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Before a worker is replaced, by how many in a row ended before they were ready, or soon after."""
_SOON_S: Final = 10.0
_FAILED_MAX: Final = 10
"""Starts in a row that failed while no worker serves: then the parent gives up."""
_KILL_S: Final = 5.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class Supervisor:
    """Runs workers until it is told to end."""

    def __init__(self, crew: Crew, n_workers: int, announce: Callable[[], None]) -> None:
        self._crew = crew
        self._n_workers = n_workers
        self._announce = announce
        self._workers: list[Worker] = []
        self._serial = 0
        self._n_failed = 0
        self._start_from_s = 0.0
        self._renewing: list[Worker] = []  # in the order in which they are renewed
        self._is_announced = False
        self._is_stopping = False
        self._is_cut = False
        self._kill_s: float | None = None
        self._code = 0
        self._got: list[int] = []
        self._selector = selectors.DefaultSelector()

    def run(self) -> int:
        """Supervise; answers the exit code once no worker is left."""
        waking, woken = socket.socketpair()
        for sock in (waking, woken):
            sock.setblocking(False)  # noqa: FBT003  (its only form)
        self._selector.register(woken, selectors.EVENT_READ)
        for number in _SIGNALS:
            signal.signal(number, self._note)
        signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        while not (self._is_stopping and not self._workers):
            self._staff(now_s())
            for key, _ in self._selector.select(self._wait_s(now_s())):
                if key.data is None:
                    with suppress(BlockingIOError):
                        woken.recv(4096)
                elif key.data.read():
                    self._ready(key.data)
            while self._got:
                self._obey(self._got.pop(0))
            self._bury()
            self._end_late(now_s())
        signal.set_wakeup_fd(-1)
        return self._code

    # Signals

    def _note(self, number: int, _: FrameType | None) -> None:
        self._got.append(number)

    def _obey(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop()
        elif number == signal.SIGHUP:
            self._renew()

    def _stop(self) -> None:
        if self._is_stopping and not self._is_cut:
            self._is_cut, self._code, self._kill_s = True, 1, now_s() + _KILL_S
        if not self._is_stopping:
            _log.info("draining workers=%d", len(self._workers))
        self._is_stopping = True
        self._renewing.clear()
        self._crew.board.stop()
        for worker in self._workers:
            if worker.is_ready or self._is_cut:
                # One that is asked twice ends at once, which a worker that leaves already is not to do.
                if self._is_cut or not worker.is_leaving:
                    worker.tell(signal.SIGTERM)
            else:
                worker.tell(signal.SIGKILL)  # it serves nothing yet
            worker.is_leaving = True

    def _renew(self) -> None:
        if self._is_stopping:
            return
        self._renewing = [worker for worker in self._workers if not worker.is_leaving]
        _log.info("renewing workers=%d", len(self._renewing))
        self._start_from_s = 0.0

    # Workers

    @property
    def _staying(self) -> list[Worker]:
        return [worker for worker in self._workers if not worker.is_leaving]

    def _staff(self, now_s: float) -> None:
        """Start who is missing, or is to take the place of one that is renewed; of these, one at a time."""
        if self._is_stopping or now_s < self._start_from_s:
            return
        wanted = self._n_workers
        is_one_leaving = any(worker.is_leaving for worker in self._workers)
        if self._renewing and not is_one_leaving:
            wanted += 1
        while len(self._staying) < wanted and not self._is_stopping:
            if len(self._staying) >= self._n_workers and len(self._workers) > self._n_workers:
                return
            slots = {worker.slot for worker in self._workers}
            slot = next(slot for slot in range(self._crew.board.rows) if slot not in slots)
            self._serial += 1
            try:
                worker = started(self._crew, slot, self._serial, now_s)
            except OSError as failure:
                _log.error("worker-unstarted reason=%s", failure)
                self._failed(now_s)
                return
            self._workers.append(worker)
            self._selector.register(worker.ready_fd, selectors.EVENT_READ, worker)
            _log.info("worker-started worker=%d pid=%d", worker.serial, worker.process.pid)

    def _ready(self, worker: Worker) -> None:
        _log.info("worker-ready worker=%d pid=%d", worker.serial, worker.process.pid)
        if not self._is_announced and all(w.is_ready for w in self._staying):
            self._is_announced = True
            self._announce()
        if self._renewing and len([w for w in self._staying if w.is_ready]) > self._n_workers:
            old = self._renewing.pop(0)
            _log.info("worker-renewed worker=%d by=%d", old.serial, worker.serial)
            old.is_leaving = True
            old.tell(signal.SIGTERM)

    def _bury(self) -> None:
        """See which workers have ended, and why."""
        for worker in list(self._workers):
            code = worker.process.poll()
            if code is None:
                continue
            worker.read()
            self._selector.unregister(worker.ready_fd)
            worker.close()
            self._workers.remove(worker)
            if worker in self._renewing:
                self._renewing.remove(worker)
            board = self._crew.board
            counts = board.counts(worker.slot)
            if counts is not None:
                board.keep_gone(counted([board.gone, counts]))
            board.clear(worker.slot)
            self._judge(worker, code)

    def _judge(self, worker: Worker, code: int) -> None:
        now = now_s()
        if worker.is_leaving:
            _log.info("worker-ended worker=%d code=%d", worker.serial, code)
            return
        self._crew.board.count_death()
        _log.error("worker-died worker=%d code=%d ready=%d", worker.serial, code, worker.is_ready)
        if not self._is_announced and not worker.is_ready:
            self._code = code if code > 0 else 1  # it has said itself what is wrong
            self._stop()
            return
        if self._renewing and not worker.is_ready:
            _log.error("renewal-ended (the new worker did not start; those that run stay)")
            self._renewing.clear()
        if worker.is_ready and now - worker.started_s > _SOON_S:
            self._n_failed = 0
        self._failed(now)

    def _failed(self, now_s: float) -> None:
        pause_s = _PAUSES_S[min(self._n_failed, len(_PAUSES_S) - 1)]
        self._start_from_s = now_s + pause_s
        self._n_failed += 1
        if self._n_failed >= _FAILED_MAX and not any(w.is_ready for w in self._workers):
            _log.error("given-up starts=%d (no worker stays up)", self._n_failed)
            self._code = 1
            self._stop()

    # Time

    def _wait_s(self, now_s: float) -> float | None:
        times = [w.started_s + START_S_MAX for w in self._workers if not w.is_ready]
        if self._kill_s is not None:
            times.append(self._kill_s)
        if len(self._staying) < self._n_workers and not self._is_stopping:
            times.append(self._start_from_s)
        return max(0.0, min(times) - now_s) if times else None

    def _end_late(self, now_s: float) -> None:
        is_over = self._kill_s is not None and now_s >= self._kill_s
        for worker in self._workers:
            is_late = not worker.is_ready and now_s - worker.started_s >= START_S_MAX
            if is_over or is_late:
                worker.tell(signal.SIGKILL)
        if is_over:
            self._kill_s = now_s + _KILL_S
