"""Child processes that end with us: own process groups, a parent-death signal, a kill deadline."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

HOMEPORT: Final = (sys.executable, "-P", "-m", "router.cli")
"""The one command, run by this interpreter; ``-P``: no stray ``router.py`` of the folder."""

_STOP_S_MAX: Final = 5.0
_READY_S_MAX: Final = 45.0
_LOG_LINES: Final = 20
_LINE_BYTES_MAX: Final = 1 << 20
_PR_SET_PDEATHSIG: Final = 1  # prctl(2)
_libc = ctypes.CDLL(None)


class ChildError(Exception):
    """A child process died or did not become ready; the message holds its last lines."""


class Child:
    """One running child; ``ready`` holds the fields of each ``<what> ready key=value ...`` line."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.ready: list[dict[str, str]] = []
        self._changed = asyncio.Event()
        self._lines: deque[str] = deque(maxlen=_LOG_LINES)

    async def wait_ready(self, count: int) -> list[dict[str, str]]:
        """The fields of the first ``count`` ready lines.

        Raises:
            ChildError: they did not come in time.
        """
        try:
            async with asyncio.timeout(_READY_S_MAX):
                while len(self.ready) < count:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            raise ChildError(
                self.failure(f"{len(self.ready)} of {count} ready after {_READY_S_MAX:.0f} s")
            ) from error
        return self.ready[:count]

    def failure(self, what: str) -> str:
        """``what`` happened to this child, with its last lines of output."""
        output = "\n".join(f"  | {line}" for line in self._lines) or "  (it printed nothing)"
        return f"{self.name} (pid {self.process.pid}): {what}; its last lines:\n{output}"

    async def follow(self) -> None:
        """Read the child's output until it ends."""
        stdout = self.process.stdout
        assert stdout is not None
        while True:
            try:
                raw = await stdout.readline()
            except ValueError:  # a line over the limit; the reader has dropped it
                continue
            if not raw:
                return
            line = raw.decode(errors="replace").rstrip()
            self._lines.append(line[:500])
            words = line.split()
            if words[1:2] == ["ready"]:
                self.ready.append(dict(w.split("=", 1) for w in words[2:] if "=" in w))
                self._changed.set()


class Children:
    """Starts child processes and ends them all on leaving the ``async with`` block.

    A child that dies on its own ends the block with a :class:`ChildError`, in an exception group.
    """

    def __init__(
        self, command: Sequence[str] = HOMEPORT, *, stop_s_max: float = _STOP_S_MAX
    ) -> None:
        self._command = tuple(command)
        self._stop_s_max = stop_s_max
        self._children: list[Child] = []
        self._is_stopping = False
        self._tasks = asyncio.TaskGroup()

    async def start(self, name: str, arguments: Sequence[str]) -> Child:
        """Start the command, ``homeport`` unless told otherwise, with these arguments."""
        process = await asyncio.create_subprocess_exec(
            *(*self._command, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(_die_with_parent, os.getpid()),
            limit=_LINE_BYTES_MAX,
        )
        child = Child(name, process)
        self._children.append(child)
        self._tasks.create_task(self._watch(child), name=f"watch-{name}")
        return child

    async def stop(self) -> None:
        """SIGTERM to every group, SIGKILL to what is left after ``stop_s_max``; may be repeated."""
        self._is_stopping = True
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._stop_s_max):
                for child in self._children:
                    await child.process.wait()
        self._signal(signal.SIGKILL)
        for child in self._children:
            await child.process.wait()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.stop()
        finally:
            await self._tasks.__aexit__(kind, error, traceback)

    async def _watch(self, child: Child) -> None:
        await child.follow()
        code = await child.process.wait()
        if not self._is_stopping:
            raise ChildError(child.failure(f"ended with {_exit_text(code)}"))

    def _signal(self, number: signal.Signals) -> None:
        for child in self._children:
            # The group outlives its leader while a grandchild runs.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.process.pid, number)


def child_failures(group: BaseExceptionGroup[ChildError]) -> list[str]:
    """The texts of all child failures in a group, however deep."""
    texts: list[str] = []
    for error in group.exceptions:
        texts += child_failures(error) if isinstance(error, BaseExceptionGroup) else [str(error)]
    return texts


def _exit_text(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _die_with_parent(parent_pid: int) -> None:
    """Run in the child before exec: the kernel kills it when its parent is gone."""
    if hasattr(_libc, "prctl"):  # Linux; elsewhere only a clean exit ends the children
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)
