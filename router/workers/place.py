"""What a worker is given by the parent: its row, its sockets, and how it says that it is ready."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from router.clock import now_s
from router.workers.board import Board, Row, Stage, opened

if TYPE_CHECKING:
    from collections.abc import Sequence

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_SILENT_S: Final = 1.0
DATAGRAM_BYTES_MAX: Final = 96 << 10
"""Under half of what a socket of Linux takes unless it is told otherwise."""


def address(token: bytes, serial: int, kind: str) -> str:
    """A worker's own socket among its siblings: a name that no file has. ``kind``: ``calls`` or ``words``."""
    return f"\0homeport-{token[:6].hex()}-{serial}-{kind}"


@dataclass(slots=True)
class Place:
    """One worker's place; ``calls`` and ``words`` are its own sockets, for siblings alone."""

    board: Board
    slot: int
    serial: int
    front: list[socket.socket]
    control: list[socket.socket]
    calls: socket.socket
    words: socket.socket
    ready_fd: int
    stage: Stage = Stage.STARTING
    connections: int = 0
    accepted: int = 0
    _pid: int = field(default_factory=os.getpid)

    @property
    def name(self) -> str:
        """The worker among those that share what they know."""
        return f"worker-{self.serial}"

    def beat(self, now_s: float) -> None:
        """Write this worker's row."""
        self.board.say(
            Row(
                self.slot,
                self.serial,
                self.stage,
                self._pid,
                self.connections,
                now_s,
                self.accepted,
            )
        )

    def has(self, connections: int, accepted: int) -> None:
        """This worker has so many clients' connections now, and has accepted so many since it began."""
        self.connections, self.accepted = connections, accepted
        self.beat(now_s())

    def others(self) -> list[tuple[int, int]]:
        """How many connections each sibling that serves has, and how many it has accepted.

        One that has not said anything for a while is stuck, and does not count.
        """
        since_s = now_s() - _SILENT_S
        rows = self.siblings(Stage.READY)
        return [(row.connections, row.accepted) for row in rows if row.beat_s >= since_s]

    def siblings(self, *stages: Stage) -> list[Row]:
        """The other workers that are in one of these stages, oldest first."""
        return [row for row in self.board.siblings(self.slot) if row.stage in stages]

    def ready(self) -> None:
        """Let the parent know that this worker serves."""
        os.write(self.ready_fd, b"ready\n")


def told(
    board: Board,
    *,
    slot: int,
    serial: int,
    fronts: Sequence[socket.socket],
    controls: Sequence[socket.socket],
    calls: socket.socket,
    words: socket.socket,
    ready_fd: int,
) -> tuple[str, list[int]]:
    """A place as a text for the environment, and the descriptors that are to be inherited."""
    lists = [
        [board.fd],
        [sock.fileno() for sock in fronts],
        [sock.fileno() for sock in controls],
        [calls.fileno(), words.fileno(), ready_fd],
    ]
    text = ";".join(",".join(map(str, numbers)) for numbers in lists)
    return f"{os.getpid()};{slot};{serial};{text}", [fd for numbers in lists for fd in numbers]


def taken(text: str) -> Place:
    """The place that the parent gave; from now on this process dies with it.

    Raises:
        SystemExit: the parent is gone already.
    """
    parent, slot, serial, board, fronts, controls, own = text.split(";")
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit("homeport serve: the process that started this worker is gone")
    calls_fd, words_fd, ready_fd = map(int, own.split(","))
    return Place(
        board=opened(int(board)),
        slot=int(slot),
        serial=int(serial),
        front=[socket.socket(fileno=int(fd)) for fd in fronts.split(",")],
        control=[socket.socket(fileno=int(fd)) for fd in controls.split(",")],
        calls=socket.socket(fileno=calls_fd),
        words=socket.socket(fileno=words_fd),
        ready_fd=ready_fd,
    )
