"""An engine's publisher of KV events under a test's control: real sockets, the frames of SGLang 0.5.23.

Every step is published and kept for replays (the newest ``kept_max``), unless a test says otherwise.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from router.control.events.frames import END, SEQUENCE_BYTES, Endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC = b"kv-events"
PAGE_TOKENS = 4


def stored(pages: Sequence[int], parent: int | None = None, medium: str = "GPU") -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": list(pages),
        "parent_block_hash": parent,
        "token_ids": list(range(PAGE_TOKENS * len(pages))),
        "block_size": PAGE_TOKENS,
        "medium": medium,
        "session_id": "s-1",
    }


def removed(pages: Sequence[int], medium: str = "GPU") -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": list(pages), "medium": medium}


CLEARED = {"type": "AllBlocksCleared"}

_clock = count(1)


@dataclass
class Publisher:
    """One engine process; ``publish`` and the rest are for the test's thread."""

    kept_max: int = 10_000
    is_answering: bool = True
    ports: tuple[int, int] = (0, 0)
    asked: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context = zmq.Context()
        self._lock = threading.Lock()
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=self.kept_max)
        self._next = 0
        self._pub = self.context.socket(zmq.XPUB)
        self._pub.setsockopt(zmq.LINGER, 0)
        self._replay = self.context.socket(zmq.ROUTER)
        self._replay.setsockopt(zmq.LINGER, 0)
        self.ports = (_bound(self._pub, self.ports[0]), _bound(self._replay, self.ports[1]))
        self.subscribed = threading.Event()
        self.questioned = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def endpoint(self, *, has_replay: bool = True) -> Endpoint:
        live, replay = (f"tcp://127.0.0.1:{port}" for port in self.ports)
        return Endpoint(live, replay if has_replay else "", TOPIC, PAGE_TOKENS, 0, 1)

    def publish(self, *events: dict[str, Any], is_sent: bool = True, is_kept: bool = True) -> int:
        """One step; answers its number."""
        return self.publish_raw(
            msgspec.msgpack.encode([float(next(_clock)), list(events), 0]),
            is_sent=is_sent,
            is_kept=is_kept,
        )

    def publish_raw(self, payload: bytes, *, is_sent: bool = True, is_kept: bool = True) -> int:
        with self._lock:
            number, self._next = self._next, self._next + 1
            if is_kept:
                self._kept.append((number, payload))
            if is_sent:
                self._pub.send_multipart([TOPIC, number.to_bytes(SEQUENCE_BYTES, "big"), payload])
            return number

    def send_frames(self, *frames: bytes) -> None:
        """Anything at all on the live socket."""
        with self._lock:
            self._pub.send_multipart([TOPIC, *frames])

    def stop(self) -> None:
        self._is_over = True
        self._thread.join(10)
        self._pub.close(linger=0)
        self._replay.close(linger=0)
        self.context.term()

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._replay, zmq.POLLIN)
        while not self._is_over:
            poller.poll(10)
            with self._lock:
                while self._pub.poll(0):
                    if self._pub.recv()[:1] == b"\x01":
                        self.subscribed.set()
                while self._replay.poll(0):
                    self._answer(*self._replay.recv_multipart())

    def _answer(self, who: bytes, _: bytes, start: bytes) -> None:
        first = int.from_bytes(start, "big")
        self.asked.append(first)
        if not self.is_answering:
            self.questioned.set()
            return
        for number, payload in self._kept:
            if number >= first:
                numbered = number.to_bytes(SEQUENCE_BYTES, "big")
                self._replay.send_multipart([who, b"", TOPIC, numbered, payload])
        self._replay.send_multipart([who, b"", b"", END, b""])


def _bound(socket: zmq.Socket[bytes], port: int) -> int:
    socket.bind(f"tcp://127.0.0.1:{port or '*'}")
    return int(socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
