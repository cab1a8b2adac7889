"""The sockets to one published cache, and the batches in which its story is handed over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from router.control.events.frames import (
    END,
    SEQUENCE_BYTES,
    portions,
    read_frame,
    sequence_of,
)
from router.control.events.story import Story, What
from router.state.cache.feeds import Said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from router.control.events.frames import Endpoint
    from router.state.cache.pages import Change

    Key = tuple[str, int]
    """A replica and the rank of its cache."""
    Item = Said | list[Change]

_STEPS_WAITING_MAX: Final = 256
"""Steps in a socket's queue: each may carry the token ids of a long prompt."""
_REPLAY_WAITING_MAX: Final = 1_024
_STEP_BYTES_MAX: Final = 4 << 20
"""One part of a message: the token ids of a prompt of 250,000 tokens are 1.3 MB."""
_STEPS_AT_ONCE: Final = 64
_BATCH_PAGES: Final = 2_048
_BATCHES_MAX: Final = 64
_ANSWER_S: Final = 5.0
_IDLE_S: Final = 15.0
_AGAIN_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
_HEARTBEAT_MS: Final = 5_000
_SILENCE_MS: Final = 15_000
_RECONNECT_MS: Final = 100
_RECONNECT_MS_MAX: Final = 5_000
_LIVE_FRAMES: Final = 3
_REPLAYED_FRAMES: Final = 4


class Line:
    """One cache that is followed. Used in the follower's thread; ``n_taken`` alone is set from outside."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        key: Key,
        endpoint: Endpoint,
        deliver: Callable[[Key, list[Item]], None],
        count: Callable[[Key, What], None],
        *,
        n_sent: int = 0,
    ) -> None:
        """Connects in the background. ``n_sent`` batches were sent for this cache by an earlier line.

        Raises:
            ZMQError: the address is none.
        """
        self.key = key
        self.n_taken = n_sent
        self._context = context
        self.endpoint = endpoint
        self._deliver = deliver
        self._count = count
        self._outbox: list[Item] = []
        self._n_sent = n_sent
        self._n_failed = 0
        self._heard_s = self._asked_s = 0.0
        self._again_s: float | None = None
        self._is_connected = False
        self._replay: zmq.Socket[bytes] | None = None
        self._wanted_from: int | None = None
        self._story = Story(self, has_replay=bool(endpoint.replay))
        self._monitor: zmq.Socket[bytes] | None = None
        self._live = self._socket(zmq.SUB, _STEPS_WAITING_MAX)
        try:
            self._monitor = self._live.get_monitor_socket(
                zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
            )
            self._live.subscribe(endpoint.topic)
            self._live.connect(endpoint.live)
        except zmq.ZMQError:
            self.close()
            raise

    def _socket(self, kind: int, waiting_max: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.IPV6, 1),
            (zmq.RCVHWM, waiting_max),
            (zmq.MAXMSGSIZE, _STEP_BYTES_MAX),
            (zmq.HEARTBEAT_IVL, _HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, _SILENCE_MS),
            (zmq.RECONNECT_IVL, _RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, _RECONNECT_MS_MAX),
        ):
            socket.setsockopt(option, value)
        return socket

    def close(self) -> None:
        """Close its sockets."""
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            self._live.disable_monitor()
            monitor.close(linger=0)
        self._live.close(linger=0)
        self._end_replay()

    def give_up(self) -> int:
        """Close it and tell that its story broke off; answers how many batches were sent for its cache."""
        self.close()
        self._count(self.key, What.BREAK)
        self._n_sent += 1
        self._deliver(self.key, [Said.LOST])
        return self._n_sent

    # For the thread

    @property
    def is_paused(self) -> bool:
        """So many batches are not taken yet that nothing more is read."""
        return self._n_sent - self.n_taken >= _BATCHES_MAX

    def wanted(self) -> Iterator[zmq.Socket[bytes]]:
        """The sockets on which something is waited for now."""
        if self._monitor is not None:
            yield self._monitor
        if not self.is_paused:
            yield self._live
            if self._replay is not None:
                yield self._replay

    def begin_anew(self) -> None:
        """Tell its story again, from its first event that can be had."""
        if self._is_connected:
            self._story.begin()

    def serve(self, now_s: float, *, is_ready: bool) -> None:
        """Read what came, and do what is due."""
        if is_ready:
            self._follow_connection(now_s)
            if not self.is_paused:
                self._read_replay(now_s)
                self._read_live(now_s)
        self._see_to_replay(now_s)
        self._hand_over()

    # What the story wants of its line

    def changed(self, changes: list[Change]) -> None:
        """The next changes, in order."""
        self._outbox.extend(portions(changes, _BATCH_PAGES))

    def said(self, said: Said) -> None:
        """Where the story stands, in order with the changes."""
        self._outbox.append(said)

    def counted(self, what: What) -> None:
        """Something happened to it."""
        self._count(self.key, what)

    def ask(self, start: int) -> None:
        """Ask for a replay from this number on; what was asked before is not read to its end."""
        self._end_replay()
        self._wanted_from = start

    # Reading

    def _follow_connection(self, now_s: float) -> None:
        while self._monitor is not None and self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._is_connected, self._n_failed = True, 0
                self._heard_s = now_s
                self._end_replay()
                self._story.is_asking = False
                self._story.connected()
            elif self._is_connected:
                self._is_connected = False
                self._end_replay()
                self._story.broke()

    def _read_live(self, now_s: float) -> None:
        for _ in range(_STEPS_AT_ONCE):
            parts = _received(self._live)
            if parts is None:
                return
            self._heard_s = now_s
            if len(parts) != _LIVE_FRAMES:
                self.counted(What.MALFORMED)
                continue
            self._step(parts[1], parts[2], is_replayed=False)

    def _read_replay(self, now_s: float) -> None:
        for _ in range(_STEPS_AT_ONCE):
            parts = None if self._replay is None else _received(self._replay)
            if parts is None:
                return
            self._heard_s = self._asked_s = now_s
            if len(parts) != _REPLAYED_FRAMES or parts[0]:
                self.counted(What.MALFORMED)
            elif parts[2] == END:
                self._n_failed = 0
                self._end_replay()
                self._story.replay_ended()
                return
            else:
                self._step(parts[2], parts[3], is_replayed=True)

    def _step(self, sequence: bytes, payload: bytes, *, is_replayed: bool) -> None:
        number = sequence_of(sequence)
        if number is None:
            self.counted(What.MALFORMED)
            return
        frame = read_frame(payload, self.endpoint.page_tokens)
        if frame is None:
            self._story.skipped(number)
        elif is_replayed:
            self._story.replayed(number, frame)
        else:
            self._story.live(number, frame)

    # Replaying

    def _see_to_replay(self, now_s: float) -> None:
        """Ask what is to be asked; give up a question that nobody answers, and ask again later."""
        if self._wanted_from is not None:
            start, self._wanted_from = self._wanted_from, None
            self._question(start, now_s)
        elif self._replay is not None:
            if self.is_paused:
                self._asked_s = now_s
            elif now_s - self._asked_s > _ANSWER_S:
                self._unanswered(now_s)
        elif not self._is_connected:
            return
        elif self._again_s is not None:
            if now_s >= self._again_s:
                self._again_s = None
                self._story.connected()
        elif now_s - self._heard_s > _IDLE_S:
            self._heard_s = now_s
            self._story.check()

    def _unanswered(self, now_s: float) -> None:
        self._end_replay()
        self._story.broke()
        self._again_s = now_s + _AGAIN_S[min(self._n_failed, len(_AGAIN_S) - 1)]
        self._n_failed += 1

    def _question(self, start: int, now_s: float) -> None:
        self._end_replay()
        self._asked_s = now_s
        try:
            self._replay = self._socket(zmq.DEALER, _REPLAY_WAITING_MAX)
            self._replay.connect(self.endpoint.replay)
            self._replay.send_multipart([b"", start.to_bytes(SEQUENCE_BYTES, "big")], zmq.DONTWAIT)
        except zmq.ZMQError:
            if self._replay is None:  # there is no socket left: asked again when there may be one
                self._unanswered(now_s)
            # else nobody will answer, which is seen to

    def _end_replay(self) -> None:
        self._again_s = None
        if self._replay is not None:
            self._replay.close(linger=0)
            self._replay = None

    # Handing over

    def _hand_over(self) -> None:
        """Send what came, in order, in batches of so many pages."""
        while self._outbox and not self.is_paused:
            n, n_pages = 0, 0
            while n < len(self._outbox) and n_pages < _BATCH_PAGES:
                item = self._outbox[n]
                if not isinstance(item, Said):
                    n_pages += sum(len(change.pages) + 1 for change in item)
                n += 1
            batch, self._outbox = self._outbox[:n], self._outbox[n:]
            self._n_sent += 1
            self._deliver(self.key, batch)


def _received(socket: zmq.Socket[bytes]) -> list[bytes] | None:
    """A message that is there; None if none is."""
    try:
        return socket.recv_multipart(zmq.DONTWAIT)
    except zmq.ZMQError:
        return None
