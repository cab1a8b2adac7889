"""One start of an engine: its guardian, its signals, its output, and the certainty that it is gone."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from replica.supervise.engine.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_GUARDIAN: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("guardian.py")))
_GUARDIANS: Final[set[int]] = set()
"""Those of this process that have not ended."""
_READ_BYTES: Final = 1 << 16
_SWEEP_S: Final = 0.05
_LOG_END_S_MAX: Final = 2.0
_PR_SET_CHILD_SUBREAPER: Final = 36


@dataclass(slots=True, frozen=True)
class Exit:
    """How an engine's first process ended.

    ``code`` is negative for a signal, None where its guardian was killed and nobody knows.
    ``not_executed`` is the error's number where the program could not be executed at all.
    """

    code: int | None
    not_executed: int | None = None
    was_killed: bool = False
    """By us."""


def adopt_orphans() -> None:
    """Let what descends from this process stay below it when its own parent ends."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class EngineProcess:
    """One engine with all its processes; start it with ``EngineProcess.start``."""

    def __init__(
        self,
        guardian: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        log: _Log,
        on_line: Callable[[str], None],
    ) -> None:
        self._guardian = guardian
        self._reader = reader
        self._writer = writer
        self._log = log
        self._on_line = on_line
        self._was_killed = False
        self.pid: int | None = None
        """The engine's first process, once it runs."""

    @classmethod
    async def start(
        cls, argv: Sequence[str], environment: Mapping[str, str], on_line: Callable[[str], None]
    ) -> EngineProcess:
        """Start a program below a guardian; ``on_line`` is told what it prints.

        Raises:
            OSError: no process can be started here.
        """
        ours, theirs = socket.socketpair()
        output, its_output = os.pipe()
        try:
            log = await _Log.opened(output)
            try:
                guardian = await asyncio.create_subprocess_exec(
                    *(*_GUARDIAN, str(theirs.fileno()), *argv),
                    pass_fds=(theirs.fileno(),),
                    env=dict(environment),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=its_output,
                    stderr=asyncio.subprocess.STDOUT,
                    start_new_session=True,
                )
                _GUARDIANS.add(guardian.pid)
                ours.setblocking(False)  # noqa: FBT003  (positional only)
                reader, writer = await asyncio.open_connection(sock=ours)
            except BaseException:
                log.close()
                raise
        except BaseException:
            ours.close()  # which ends a guardian that was started
            raise
        finally:
            theirs.close()
            os.close(its_output)
        return cls(guardian, reader, writer, log, on_line)

    def term(self) -> None:
        """SIGTERM to the engine's first process."""
        self._command(b"T")

    def kill(self) -> None:
        """End everything of it now."""
        self._was_killed = True
        self._command(b"K")

    async def ended(self) -> Exit:
        """Follow its output until none of its processes is left, and answer how it ended.

        Cancelled, it lets go of the engine: its guardian then kills everything.
        """
        code, not_executed = None, None
        async with asyncio.TaskGroup() as tasks:
            log = tasks.create_task(self._follow(), name="engine log")
            try:
                while line := await self._reader.readline():
                    what, _, number = line.decode().strip().partition(" ")
                    match what:
                        case "started":
                            self.pid = int(number)
                        case "exited":
                            code = int(number)
                        case "failed":
                            not_executed = int(number)
                        case _:
                            continue
                if code is None:
                    await self._sweep()
                # Something that left the engine long ago may hold its log's pipe: it is not waited for.
                await asyncio.wait([log], timeout=_LOG_END_S_MAX)
            finally:
                log.cancel()
                self._log.close()
                self._writer.close()
        await self._guardian.wait()
        _GUARDIANS.discard(self._guardian.pid)
        return Exit(code, not_executed, self._was_killed)

    def _command(self, command: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(command)

    async def _follow(self) -> None:
        """Read what it prints, always, so that it never waits for us."""
        lines, clock = Lines(), asyncio.get_running_loop().time
        while data := await self._log.reader.read(_READ_BYTES):
            for line in lines.take(data, clock()):
                self._on_line(line)
        for line in lines.rest():
            self._on_line(line)

    async def _sweep(self) -> None:
        """The guardian was killed, so the engine was: kill what else it guarded, which is now below us."""
        while left := [*_adopted(), *(_session_members(self.pid) if self.pid else ())]:
            for pid in left:
                _kill_and_collect(pid)
            await asyncio.sleep(_SWEEP_S)


def _kill_and_collect(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


class _Log:
    """The reading end of a pipe of our own: asyncio's would let a process end only with its pipes."""

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        self.reader = reader
        self._transport = transport

    @classmethod
    async def opened(cls, descriptor: int) -> _Log:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
        )
        return cls(reader, transport)

    def close(self) -> None:
        self._transport.close()


def _adopted() -> list[int]:
    """Direct children of this process that are no guardians: orphans that came to it, zombies too."""
    found = []
    ours = _words_of(os.getpid())
    for pid, parent, _, _ in _processes():
        if parent == os.getpid() and pid not in _GUARDIANS:
            words = _words_of(pid)
            # One that was forked just now still looks like us, or is a guardian not yet listed.
            if words != ours and _GUARDIAN[-1].encode() not in words:
                found.append(pid)
    return found


def _session_members(session: int) -> list[int]:
    """Processes of an engine's session, wherever they hang; not those that only wait to be collected."""
    return [pid for pid, _, its, state in _processes() if its == session and state != "Z"]


def _processes() -> Iterator[tuple[int, int, int, str]]:
    """Number, parent, session and the state's letter of every process here."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in brackets may hold anything; the numbers come behind it.
            behind = path.read_text().rpartition(")")[2].split()
            yield int(path.parent.name), int(behind[1]), int(behind[3]), behind[0]


def _words_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
