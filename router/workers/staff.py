"""One worker as the parent sees it: its process, its row, and the pipe by which it says that it is ready."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.workers.listening import private
from router.workers.place import address, told

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence

    from router.workers.board import Board


@dataclass(slots=True)
class Crew:
    """What all workers are started with; ``command`` and ``environment`` make a worker's process of a text."""

    board: Board
    fronts: Sequence[socket.socket]
    controls: Sequence[socket.socket]
    command: Sequence[str]
    environment: Callable[[str], dict[str, str]]


@dataclass(slots=True, eq=False)
class Worker:
    """One process; ``is_leaving``: it was told to end."""

    slot: int
    serial: int
    process: subprocess.Popen[bytes]
    ready_fd: int
    started_s: float
    is_ready: bool = False
    is_leaving: bool = False

    def read(self) -> bool:
        """Whether it has just said that it is ready."""
        try:
            said = os.read(self.ready_fd, 64)
        except (BlockingIOError, OSError):
            return False
        if not said or self.is_ready:
            return False
        self.is_ready = True
        return True

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal, if it is there."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def close(self) -> None:
        """It is gone."""
        os.close(self.ready_fd)


def started(crew: Crew, slot: int, serial: int, now_s: float) -> Worker:
    """Start a worker in a process group of its own, so that a terminal's signals reach the parent alone.

    Raises:
        OSError: no process can be started.
    """
    board = crew.board
    board.clear(slot, serial)
    calls = private(socket.SOCK_STREAM, address(board.token, serial, "calls"))
    words = private(socket.SOCK_DGRAM, address(board.token, serial, "words"))
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    text, fds = told(
        board,
        slot=slot,
        serial=serial,
        fronts=crew.fronts,
        controls=crew.controls,
        calls=calls,
        words=words,
        ready_fd=writing,
    )
    try:
        process = subprocess.Popen(  # noqa: S603  (this very program)
            crew.command, env=crew.environment(text), pass_fds=fds, process_group=0
        )
    except OSError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
        calls.close()
        words.close()
    return Worker(slot, serial, process, reading, now_s)
