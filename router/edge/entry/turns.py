"""Accepting in turns: workers share one listening socket, and each leaves a connection to whoever has fewer.

A socket that several processes wait for wakes all of them, or the same one again and again; who
accepts what it can would have most connections. So a worker accepts while no sibling has fewer. Else it
looks away for a moment, and accepts what then is still there: a sibling that is busy or stuck keeps no client
waiting for long.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from router.tasks import spawn

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

_log: Final = logging.getLogger("homeport.edge")

_STEP_S: Final = 0.002
"""A sibling has so long for each connection that it has fewer; one that idles takes a hundredth of it."""
_PATIENCE_S_MAX: Final = 0.02
_AT_ONCE_MAX: Final = 16
_REST_S: Final = 0.2
"""After the system refused to accept: mostly, no file is left."""
_SETTLED_S: Final = 1.0


class Share(Protocol):
    """How connections are spread over the workers."""

    def has(self, connections: int, accepted: int) -> None:
        """This worker has so many connections now, and has accepted so many since it began."""

    def others(self) -> list[tuple[int, int]]:
        """The same of every sibling that serves."""


@dataclass(slots=True)
class _Door:
    """One listening socket; ``since_s``: from when on a sibling was left a connection."""

    sock: socket.socket
    since_s: float | None = None
    mark: int = 0


class Turns:
    """Accepts on the shared sockets from the start until :meth:`stop`."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        share: Share,
        make: Callable[[], asyncio.Protocol],
        count: Callable[[], int],
        secured: dict[str, Any],
    ) -> None:
        """``count`` answers how many connections are open; ``secured`` is what TLS needs."""
        self._loop = asyncio.get_running_loop()
        self._doors = [_Door(sock) for sock in sockets]
        self._share = share
        self._make = make
        self._count = count
        self._secured = secured
        self._entering: set[asyncio.Task[None]] = set()
        self._accepted = 0
        self._is_open = True
        for door in self._doors:
            self._watch(door)

    def tell(self) -> None:
        """Let the siblings know how many connections there are."""
        self._share.has(self._n, self._accepted)

    async def stop(self) -> None:
        """Accept nothing more; those that came in before are there when this is over, if they ever are."""
        if self._is_open:
            self._is_open = False
            for door in self._doors:
                self._loop.remove_reader(door.sock.fileno())
                door.sock.close()
        if self._entering:
            await asyncio.wait(self._entering, timeout=_SETTLED_S)

    @property
    def _n(self) -> int:
        return self._count() + len(self._entering)

    def _watch(self, door: _Door) -> None:
        if self._is_open:
            self._loop.add_reader(door.sock.fileno(), self._come, door)

    def _look_away(self, door: _Door, wait_s: float) -> None:
        self._loop.remove_reader(door.sock.fileno())
        self._loop.call_later(wait_s, self._watch, door)

    def _come(self, door: _Door) -> None:
        """Somebody waits at a door, unless a sibling was faster."""
        for _ in range(_AT_ONCE_MAX):
            if (wait_s := self._wait_s(door)) > 0.0:
                self._look_away(door, wait_s)
                return
            try:
                sock, _ = door.sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                door.since_s = None
                return
            except OSError as failure:
                _log.warning("accept-failed reason=%s", failure)
                self._look_away(door, _REST_S)
                return
            door.since_s = None
            sock.setblocking(False)  # noqa: FBT003  (its only form)
            self._accepted += 1
            task = spawn(self._enter(sock), name="enter")
            self._entering.add(task)
            task.add_done_callback(self._entering.discard)
            self.tell()

    def _wait_s(self, door: _Door) -> float:
        """How long to leave this one to a sibling yet."""
        others = self._share.others()
        if not others:
            return 0.0
        fewest, accepted = min(others)
        excess = self._n - fewest
        if excess == 0 and self._accepted > accepted:
            excess = 1  # connections that soon close again are spread as well
        if excess <= 0:
            return 0.0
        now_s, mark = self._loop.time(), sum(accepted for _, accepted in others)
        if door.since_s is None or door.mark != mark:
            door.since_s, door.mark = now_s, mark
        return door.since_s + min(excess * _STEP_S, _PATIENCE_S_MAX) - now_s

    async def _enter(self, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, sock, **self._secured)
        except (OSError, asyncio.CancelledError):  # gone again, or no TLS
            sock.close()
