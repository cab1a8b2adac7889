"""Stands between the supervisor and one engine, so that none of its processes is ever left behind.

Run as a file, by ``python -I -S guardian.py FD PROGRAM ARGUMENT ...``: standard library only, and no
import of ours. The engine is its child, in a session of its own. Whatever the engine starts stays
below the guardian, a subreaper, however it detaches itself. Everything is killed when the engine's
first process ends, when the supervisor says so, and when the supervisor is gone: the other end of FD
is then closed, whatever ended it. Should the guardian itself be killed, the kernel kills the engine.

Over FD it says ``started PID``, ``failed ERRNO`` (it could not be executed) and ``exited CODE``
(negative: the signal), one a line, and takes single bytes: ``T`` and ``I`` are SIGTERM and SIGINT to
the engine's first process, ``K`` ends everything. FD is closed when no process is left.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h; kept across exec
_PR_SET_CHILD_SUBREAPER: Final = 36
_AGAIN_MS: Final = 50
_AGAIN_MS_MAX: Final = 1_000
_SIGNALS: Final = {ord("T"): signal.SIGTERM, ord("I"): signal.SIGINT}
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):  # Linux; elsewhere only the engine's own session is killed
        libc.prctl(option, value, 0, 0, 0)


class Guardian:
    """One engine and all that descends from it."""

    def __init__(self, control: int) -> None:
        self._control = control
        self._pid = 0
        self._is_running = False
        self._is_ending = False
        self._is_heard = True
        self._woken, waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)

    def start(self, argv: list[str]) -> None:
        """Fork the engine and execute it."""
        guardian = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            self._become(argv, guardian)
        self._is_running = True
        # The log's pipe ends with the engine, and not with its guardian.
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        self._say(f"started {self._pid}")

    def _become(self, argv: list[str], guardian: int) -> None:
        try:
            os.setsid()
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != guardian:
                os._exit(1)
            signal.set_wakeup_fd(-1)
            for number in (*_IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.execvp(argv[0], argv)  # noqa: S606  (no shell is wanted)
        except OSError as failure:
            self._say(f"failed {failure.errno}")
        finally:
            os._exit(127)

    def run(self) -> None:
        """Until no process is left."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        wait_ms = _AGAIN_MS
        while self._reap():
            if self._is_ending:
                self._kill_all()
            for descriptor, _ in poll.poll(wait_ms if self._is_ending else None):
                if descriptor == self._woken:
                    _drain(self._woken)
                elif not self._obey():
                    poll.unregister(self._control)
            if self._is_ending:
                wait_ms = min(2 * wait_ms, _AGAIN_MS_MAX)

    def _obey(self) -> bool:
        """Take commands; False when the supervisor is gone."""
        try:
            commands = os.read(self._control, 64)
        except OSError:
            commands = b""
        if not commands:
            self._is_ending, self._is_heard = True, False
            return False
        for command in commands:
            number = _SIGNALS.get(command)
            if number is None:
                self._is_ending = True
            elif self._is_running:  # not yet reaped, so the number is nobody else's
                os.kill(self._pid, number)
        return True

    def _reap(self) -> bool:
        """Collect what has ended; False when nothing is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self._pid:
                self._is_running, self._is_ending = False, True
                self._say(f"exited {os.waitstatus_to_exitcode(status)}")

    def _kill_all(self) -> None:
        """SIGKILL to every descendant. What they start meanwhile is found the next time."""
        if self._is_running:  # the group's number is nobody else's
            _end(os.killpg, self._pid)
        for pid in descendants(os.getpid()):
            _end(os.kill, pid)

    def _say(self, line: str) -> None:
        if self._is_heard:
            try:
                os.write(self._control, f"{line}\n".encode())
            except OSError:
                self._is_heard = False


def descendants(root: int) -> list[int]:
    """Every process below this one, zombies too, as ``/proc`` shows them now; none where there is no such."""
    parents: dict[int, list[int]] = {}
    names = os.listdir("/proc") if os.path.isdir("/proc") else []  # noqa: PTH112, PTH208  (slow to import)
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
                    # The name in brackets may hold anything; the parent comes behind it.
                    parent = int(stat.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            parents.setdefault(parent, []).append(int(name))
    found: list[int] = []
    ahead = [root]
    while ahead:
        children = parents.pop(ahead.pop(), [])
        found += children
        ahead += children
    return found


def _end(send: Callable[[int, int], None], number: int) -> None:
    """SIGKILL to a process or a group that may be gone, or not be there yet."""
    try:
        send(number, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 512):
            pass
    except BlockingIOError:
        pass


def main(words: list[str]) -> int:
    """Guard one engine until it is gone."""
    control, *argv = words
    os.set_inheritable(int(control), False)  # noqa: FBT003  (positional only)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    guardian = Guardian(int(control))
    guardian.start(argv)
    guardian.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
