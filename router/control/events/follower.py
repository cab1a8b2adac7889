"""One thread that follows every cache that is published: sockets, polling, replays.

Nothing here waits for the event loop, nor the event loop for this. What came is handed over in bounded
batches; while a cache's batches are not taken, its sockets are not read, so that what is too much is
dropped by its publisher, found missing, and replayed. One publisher's trouble delays no other.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

import zmq

from router.clock import now_s
from router.control.events.line import Line

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.control.events.frames import Endpoint
    from router.control.events.line import Item, Key
    from router.control.events.story import What

_log = logging.getLogger("homeport.events")
_TICK_S: Final = 0.5
_PAUSED_TICK_S: Final = 0.02
_SOCKETS_MAX: Final = 8_192
_ANEW_S: Final = 30.0
"""After a fault that nobody thought of, until a cache is followed anew."""
_JOIN_S: Final = 5.0


class Follower:
    """Follows caches by key, from a thread of its own; ``deliver`` and ``count`` are called in it."""

    def __init__(
        self,
        deliver: Callable[[Key, list[Item]], None],
        count: Callable[[Key, What], None],
        now_s: Callable[[], float] = now_s,
        *,
        sockets_max: int = _SOCKETS_MAX,
    ) -> None:
        self._deliver = deliver
        self._count = count
        self._now_s = now_s
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, sockets_max)
        address = "inproc://wake"
        self._woken = self._context.socket(zmq.PULL)
        self._woken.bind(address)
        self._wake = self._context.socket(zmq.PUSH)
        self._wake.connect(address)
        self._wishes: deque[Callable[[], None]] = deque()
        self._lines: dict[Key, Line] = {}
        self._by_socket: dict[zmq.Socket[bytes], Line] = {}
        self._failed: dict[Key, tuple[float, Endpoint, int]] = {}
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="kv-events", daemon=True)

    def start(self) -> None:
        """Begin; the thread ends with ``stop``, or with the process."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close every socket; waits a few seconds at most."""
        self._is_over = True
        self._do(lambda: None)
        self._thread.join(_JOIN_S)
        self._wake.close(linger=0)
        if not self._thread.is_alive():
            # ``term`` alone waits for ever for a socket that somebody left open.
            self._context.destroy(linger=0)

    @property
    def is_alive(self) -> bool:
        """The thread runs."""
        return self._thread.is_alive()

    # What is wished, from the event loop

    def follow(self, key: Key, endpoint: Endpoint) -> None:
        """Follow a cache from now on."""
        self._do(lambda: self._open(key, endpoint))

    def leave(self, key: Key) -> None:
        """Follow it no more."""
        self._do(lambda: self._close(key))

    def begin_anew(self, key: Key) -> None:
        """Tell its story again from the beginning."""
        self._do(lambda: self._begin(key))

    def taken(self, key: Key, n_batches: int) -> None:
        """So many of its batches were taken in all."""
        line = self._lines.get(key)
        if line is not None:
            line.n_taken = n_batches

    def _do(self, wish: Callable[[], None]) -> None:
        self._wishes.append(wish)
        try:
            self._wake.send(b"", zmq.DONTWAIT)
        except zmq.ZMQError:
            return  # it is awake, or ended

    # In the thread

    def _run(self) -> None:
        try:
            while not self._is_over:
                self._turn()
        except Exception:  # noqa: BLE001  (said, and seen to by who asks whether it is alive)
            _log.exception("events-thread-failed (beliefs fall back to what answers report)")
        finally:
            for key in list(self._lines):
                self._close(key)
            self._woken.close(linger=0)

    def _turn(self) -> None:
        """Wait for something, and see to it; what is due is done at least twice a second."""
        poller = zmq.Poller()
        poller.register(self._woken, zmq.POLLIN)
        self._by_socket.clear()
        is_paused = False
        for line in self._lines.values():
            is_paused |= line.is_paused
            for socket in line.wanted():
                poller.register(socket, zmq.POLLIN)
                self._by_socket[socket] = line
        timeout_s = _PAUSED_TICK_S if is_paused else _TICK_S
        ready = dict(poller.poll(int(timeout_s * 1_000)))
        if self._woken in ready:
            while self._woken.poll(0):
                self._woken.recv()
        while self._wishes:
            self._wishes.popleft()()
        now = self._now_s()
        served = {line.key: line for socket, line in self._by_socket.items() if socket in ready}
        for line in (*served.values(), *self._lines.values()):
            # A wish may just have closed it, and opened another one in its place.
            if self._lines.get(line.key) is line:
                self._serve(line, now, is_ready=served.get(line.key) is line)
        for key, (due_s, endpoint, n_sent) in list(self._failed.items()):
            if now >= due_s:
                self._open(key, endpoint, n_sent)

    def _serve(self, line: Line, now_s: float, *, is_ready: bool) -> None:
        """Serve one; its trouble is its own."""
        try:
            line.serve(now_s, is_ready=is_ready)
        except Exception:  # noqa: BLE001  (what nobody thought of must not end the others)
            key = line.key
            _log.exception("events-line-failed replica=%s rank=%d", *key)
            del self._lines[key]
            self._failed[key] = now_s + _ANEW_S, line.endpoint, line.give_up()

    def _open(self, key: Key, endpoint: Endpoint, n_sent: int = 0) -> None:
        self._close(key)
        try:
            self._lines[key] = Line(
                self._context, key, endpoint, self._deliver, self._count, n_sent=n_sent
            )
        except zmq.ZMQError as failure:
            said = (key[0], endpoint.live, f"{failure}")
            _log.warning("events-unreachable replica=%s url=%r reason=%r", *said)

    def _close(self, key: Key) -> None:
        self._failed.pop(key, None)
        line = self._lines.pop(key, None)
        if line is not None:
            line.close()

    def _begin(self, key: Key) -> None:
        line = self._lines.get(key)
        if line is not None:
            line.begin_anew()
