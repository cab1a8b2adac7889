"""Faults that a test plans (``POST /emulator/fault``): of the next generations, or of the engine."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from aiohttp import web

FAULTS_MAX: Final = 10_000
GARBAGE: Final = b"\x00\xff\x13 this is not HTTP\r\n\r\n"


class FaultKind(StrEnum):
    """What goes wrong: silence, a reset, bytes that are no HTTP, an error event, a status.

    A hang is of the engine behind the HTTP server: it begins at once, and ends with ``count`` 0.
    """

    STALL = "stall"
    RESET = "reset"
    GARBAGE = "garbage"
    ERROR_EVENT = "error-event"
    STATUS = "status"
    HANG = "hang"


class Fault(msgspec.Struct, frozen=True):
    """One planned fault; it strikes ``count`` generations, each after ``after_events`` events.

    Without streaming there are no events, and it strikes in place of the answer.
    """

    kind: FaultKind
    status: int = 503
    count: int = 1
    after_events: int = 0


class FaultPlan:
    """The faults still to strike, in the order planned."""

    def __init__(self) -> None:
        self._left: deque[Fault] = deque(maxlen=FAULTS_MAX)

    def add(self, fault: Fault) -> None:
        """Plan a fault; ``count`` 0 withdraws all that are planned."""
        if fault.count <= 0:
            self._left.clear()
        self._left.extend([fault] * min(fault.count, FAULTS_MAX))

    def take(self) -> Fault | None:
        """The fault of the generation that starts now."""
        return self._left.popleft() if self._left else None


async def break_connection(kind: FaultKind, request: web.Request) -> None:
    """Let a connection stall, reset or carry garbage, and wait until it is gone.

    Never returns: a connection that is lost cancels its handler.
    """
    transport = request.transport
    if transport is not None and kind is FaultKind.RESET:
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    elif transport is not None and kind is FaultKind.GARBAGE:
        transport.write(GARBAGE)
        transport.close()
    await asyncio.Event().wait()
