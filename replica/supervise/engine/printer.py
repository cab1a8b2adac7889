"""Passes lines on to this process's own output, without ever waiting for whoever reads that.

A thread writes; what it cannot write in time waits in a bounded queue and is then dropped, and counted.
So neither the supervisor nor an engine stands still because a pipe behind them is full.
"""

from __future__ import annotations

import os
import queue
import threading
from typing import Final

_LINES_MAX: Final = 4_000
STDOUT: Final = 1
STDERR: Final = 2


class Printer:
    """Writes to standard output and standard error, or other descriptors, in the order given."""

    def __init__(
        self, lines_max: int = _LINES_MAX, *, stdout: int = STDOUT, stderr: int = STDERR
    ) -> None:
        self._stdout, self._stderr = stdout, stderr
        self._queue: queue.Queue[tuple[int, bytes] | None] = queue.Queue(lines_max)
        self._thread = threading.Thread(target=self._write, name="printer", daemon=True)
        self._thread.start()
        self.dropped_total = 0

    def say(self, line: str) -> None:
        """A line on standard output: what a program that started this one waits for."""
        self._put(self._stdout, line)

    def note(self, line: str) -> None:
        """A line on standard error."""
        self._put(self._stderr, line)

    def close(self, within_s: float) -> None:
        """Write what still waits, for so long at most."""
        try:
            self._queue.put(None, timeout=within_s)
        except queue.Full:
            return
        self._thread.join(within_s)

    def _put(self, descriptor: int, line: str) -> None:
        try:
            self._queue.put_nowait((descriptor, f"{line}\n".encode(errors="replace")))
        except queue.Full:
            self.dropped_total += 1

    def _write(self) -> None:
        broken: set[int] = set()
        while (waiting := self._queue.get()) is not None:
            descriptor, data = waiting
            while data and descriptor not in broken:
                try:
                    data = data[os.write(descriptor, data) :]
                except BlockingIOError:  # somebody made our terminal non-blocking
                    os.set_blocking(descriptor, True)
                except OSError:  # nobody reads any more
                    broken.add(descriptor)
