"""The product's own commands as processes, for tests that need the real thing.

``running("serve", "--port", "0", ...)`` yields a process that has said it is ready; it is ended, with
its whole group, when the block is left. ``stack(...)`` is a router with emulated replicas, each in a
process of its own, so that one can be killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMMAND = (sys.executable, "-P", "-m", "router.cli")
READY_S_MAX = 40.0
END_S_MAX = 10.0
HOLDS_S_MAX = 15.0


def tied(python: str = sys.executable) -> tuple[str, ...]:
    """What goes before a program's words so that it dies with this process, even with one cut off."""
    script = Path(__file__).with_name("tied.py")
    return (python, "-P", str(script), str(os.getpid()))


@dataclass
class Running:
    """One process; ``ready`` are the key=value fields of its ready lines, ``lines`` all it printed."""

    process: subprocess.Popen[str]
    ready: list[dict[str, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    _said: threading.Event = field(default_factory=threading.Event)
    _wanted: int = 1
    _reader: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The first URL it said it listens on."""
        return self.ready[0]["url"]

    @property
    def admin_url(self) -> str:
        """The router's control API."""
        return self.ready[0]["admin_url"]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """``kill -9``, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait(END_S_MAX)

    def wait(self, within_s: float = END_S_MAX) -> int:
        """Wait until it has ended and all that it printed is in ``lines``; answers its exit code."""
        code = self.process.wait(within_s)
        if self._reader is not None:
            self._reader.join(END_S_MAX)
        return code

    def wait_said(self, *words: str) -> None:
        """Wait for a line that has all these words: a line is read a little after it was written."""
        until(lambda: any(all(word in line for word in words) for line in self.lines))

    def follow(self) -> None:
        """Begin to read what it prints."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            words = line.split()
            if words[1:2] == ["ready"]:
                self.ready.append(dict(word.split("=", 1) for word in words[2:] if "=" in word))
                if len(self.ready) >= self._wanted:
                    self._said.set()
        self._said.set()

    def wait_ready(self) -> None:
        """Wait for the ready lines; fails with what it printed instead."""
        self._said.wait(READY_S_MAX)
        assert len(self.ready) >= self._wanted, "\n".join(self.lines)


def start(*arguments: str, count: int = 1) -> Running:
    """Start a command; ``count`` is how many ready lines it will print."""
    process = subprocess.Popen(
        [*tied(), *COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    running = Running(process, _wanted=count)
    running.follow()
    return running


def end(running: Running) -> None:
    """SIGTERM, then SIGKILL what is left."""
    running.signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.process.wait(END_S_MAX)
    running.kill()
    if running.process.stdout is not None:
        running.process.stdout.close()


@contextlib.contextmanager
def running(*arguments: str, count: int = 1) -> Iterator[Running]:
    """A command that is ready, for the length of the block."""
    process = start(*arguments, count=count)
    try:
        process.wait_ready()
        yield process
    finally:
        end(process)


def until(holds: Callable[[], object]) -> None:
    """Poll a condition that another process makes true."""
    give_up_s = time.monotonic() + HOLDS_S_MAX
    while not holds():
        assert time.monotonic() < give_up_s, "it did not come true"
        time.sleep(0.02)


def emulate(*more: str, port: int = 0, time_scale: float = 20.0) -> Running:
    """One emulated replica in a process of its own; not yet waited for."""
    scale = f"{time_scale:g}"
    return start("emulate", "--port", str(port), "--count", "1", "--time-scale", scale, *more)


@dataclass
class Stack:
    """A router and its replicas."""

    router: Running
    replicas: list[Running]


@contextlib.contextmanager
def stack(
    replicas: int = 2,
    *router_flags: str,
    time_scale: float = 20.0,
    replica_flags: tuple[str, ...] = (),
) -> Iterator[Stack]:
    """A router in front of emulated replicas, all ready."""
    members = [emulate(*replica_flags, time_scale=time_scale) for _ in range(replicas)]
    try:
        for member in members:
            member.wait_ready()
        named = [flag for member in members for flag in ("--replica", member.url)]
        ports = ("--port", "0", "--admin-port", "0")
        with running("serve", *ports, *named, *router_flags) as router:
            yield Stack(router, members)
    finally:
        for member in members:
            end(member)
