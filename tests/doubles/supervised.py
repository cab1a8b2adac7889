"""``homeport replica run`` as a process, over the emulated engine, for tests of what it does.

The emulated engine answers with real bodies over HTTP at many times the speed, so that a whole life of
a replica takes seconds. ``Supervisor.family`` are all processes that belong to it.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from tests.doubles.marked import NAME, Known, known, marked, new_mark, none_left
from tests.doubles.processes import READY_S_MAX, end, start

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator

    from tests.doubles.processes import Running

EMULATED = ("kimi-k2.6-nvfp4", "--engine", "emulated")
COMMON = ("--port", "0", "--no-metrics")
QUICK = ("--lease", "2", "--stop-timeout", "2", "--drain-timeout", "10")
END_S_MAX = 20.0
_LOOK_S = 0.05


class Supervisor:
    """One supervisor that runs."""

    def __init__(self, running: Running, mark: str) -> None:
        self.running = running
        self.mark = mark
        self._known: set[Known] = set()

    @property
    def pid(self) -> int:
        """The supervisor's own process."""
        return next(pid for pid, words in self.family().items() if "replica run" in words)

    @property
    def output(self) -> str:
        """All it has printed."""
        return "\n".join(self.running.lines)

    def family(self) -> dict[int, str]:
        """Itself, guardians and engines."""
        self._known |= known(self.mark)
        return marked(self.mark)

    def engines(self) -> list[int]:
        """The engines' first processes."""
        return self.named("cli emulate")

    def named(self, part: str) -> list[int]:
        """Processes of the family whose command line has this in it, without guardians."""
        return [
            pid
            for pid, words in self.family().items()
            if part in words and "guardian.py" not in words
        ]

    def guardians(self) -> list[int]:
        """The guardians."""
        return [pid for pid, words in self.family().items() if "guardian.py" in words]

    def signal(self, number: signal.Signals) -> None:
        """To the supervisor alone."""
        os.kill(self.running.process.pid, number)

    def wait_ended(self, within_s: float = END_S_MAX) -> int:
        """Its exit code, once all that it printed has been read."""
        return self.running.wait(within_s)

    def left(self) -> dict[int, str]:
        """What is still there after a while."""
        return none_left(self.mark, self._known)

    def wait_ready(self, count: int = 1, *, within_s: float = READY_S_MAX) -> None:
        """Until replicas have said that they are ready so many times, restarts included."""
        until_s = time.monotonic() + within_s
        while len(self.running.ready) < count:
            assert self.running.process.poll() is None, self.output
            assert time.monotonic() < until_s, self.output
            time.sleep(_LOOK_S)

    def wait_said(self, words: str, *, within_s: float = 10.0) -> None:
        """Until it has printed a line with these words."""
        until_s = time.monotonic() + within_s
        while not any(words in line for line in self.running.lines):
            assert time.monotonic() < until_s, self.output
            time.sleep(_LOOK_S)


@contextlib.contextmanager
def supervised(
    *flags: str,
    count: int = 1,
    time_scale: float = 20.0,
    words: tuple[str, ...] = EMULATED,
    common: tuple[str, ...] = COMMON,
    within_s: float = READY_S_MAX,
) -> Iterator[Supervisor]:
    """A supervisor whose ``count`` replicas are ready; nothing is left of it behind the block."""
    mark = new_mark()
    scale = ("--time-scale", f"{time_scale:g}")
    os.environ[NAME] = mark
    try:
        running = start("replica", "run", *words, *scale, *common, *QUICK, *flags)
    finally:
        del os.environ[NAME]
    supervisor = Supervisor(running, mark)
    try:
        supervisor.wait_ready(count, within_s=within_s)
        yield supervisor
    finally:
        end(running)
        left = supervisor.left()
        assert left == {}, left
