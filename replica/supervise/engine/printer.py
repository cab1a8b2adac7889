"""Passes lines on to this process's own output, without ever waiting for whoever reads that.

A thread writes; what it cannot write in time waits in a bounded queue and is then dropped, and counted.
So neither the supervisor nor an engine stands still because a pipe behind them is full. The supervisor's
own lines have a queue of their own and go first: a flood of an engine's drops none of them.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Final

_LINES_MAX: Final = 4_000
STDOUT: Final = 1
STDERR: Final = 2


class Printer:
    """Writes to standard output and standard error, or other descriptors: own lines in order, then others'."""

    def __init__(
        self, lines_max: int = _LINES_MAX, *, stdout: int = STDOUT, stderr: int = STDERR
    ) -> None:
        self._stdout, self._stderr = stdout, stderr
        self._lines_max = lines_max
        self._own: deque[tuple[int, bytes]] = deque()
        self._engines: deque[tuple[int, bytes]] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._write, name="printer", daemon=True)
        self._thread.start()
        self.dropped_total = 0

    def say(self, line: str) -> None:
        """A line on standard output: what a program that started this one waits for."""
        self._put(self._own, self._stdout, line)

    def note(self, line: str) -> None:
        """A line of the supervisor's own on standard error."""
        self._put(self._own, self._stderr, line)

    def pass_on(self, line: str) -> None:
        """A line of an engine's on standard error."""
        self._put(self._engines, self._stderr, line)

    def close(self, within_s: float) -> None:
        """Write what still waits, for so long at most."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(within_s)

    def _put(self, waiting: deque[tuple[int, bytes]], descriptor: int, line: str) -> None:
        data = f"{line}\n".encode(errors="replace")
        with self._changed:
            if len(waiting) >= self._lines_max:
                self.dropped_total += 1
                return
            waiting.append((descriptor, data))
            self._changed.notify()

    def _next(self) -> tuple[int, bytes] | None:
        """What is to be written now; None when there will be no more."""
        with self._changed:
            while True:
                for waiting in (self._own, self._engines):
                    if waiting:
                        return waiting.popleft()
                if self._is_closed:
                    return None
                self._changed.wait()

    def _write(self) -> None:
        broken: set[int] = set()
        while (waiting := self._next()) is not None:
            descriptor, data = waiting
            while data and descriptor not in broken:
                try:
                    data = data[os.write(descriptor, data) :]
                except BlockingIOError:  # somebody made our terminal non-blocking
                    os.set_blocking(descriptor, True)
                except OSError:  # nobody reads any more
                    broken.add(descriptor)
