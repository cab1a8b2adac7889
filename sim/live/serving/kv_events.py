"""SGLang's KV events: an emulated replica's cache published over ZeroMQ, with replays.

One step is published for all that changed in one turn of the event loop. Token ids are left out: nobody
who knows a page's number needs them.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec
import zmq

from sim.engine.published import publish
from sim.live.serving.wire import epoch_s

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from sim.engine.pool import KvPool

TOPIC: Final = "kv-events"
_BUFFER_STEPS: Final = 10_000
_QUEUE_MAX: Final = 100_000
_SEQUENCE_BYTES: Final = 8
_END: Final = (-1).to_bytes(_SEQUENCE_BYTES, "big", signed=True)
_REPLAY_FRAMES: Final = 3
_POLL_S: Final = 0.1
_JOIN_S: Final = 2.0
_SIGN: Final = 1 << 63


class KvEvents:
    """The publisher of one replica; :meth:`info` is what ``/server_info`` tells of it."""

    def __init__(self, pool: KvPool, page_tokens: int, host: str) -> None:
        """Binds two free ports.

        Raises:
            ZMQError: the address cannot be listened on.
        """
        self._page_tokens = page_tokens
        self._loop = asyncio.get_running_loop()
        self._step: list[dict[str, Any]] = []
        self._steps: queue.Queue[bytes | None] = queue.Queue(_QUEUE_MAX)
        self._context = zmq.Context()
        self._pub = self._context.socket(zmq.PUB)
        self._router = self._context.socket(zmq.ROUTER)
        self._port, self._replay_port = (_bound(s, host) for s in (self._pub, self._router))
        self._thread = threading.Thread(target=self._run, name="kv-events", daemon=True)
        publish(pool, _Tier(self, "GPU"), _Tier(self, "CPU_PINNED"))
        self.add({"type": "AllBlocksCleared"})
        self._thread.start()

    def info(self) -> dict[str, Any]:
        """Where it publishes."""
        return {
            "publisher": "zmq",
            "endpoint_host": "*",
            "endpoint_port_base": self._port,
            "topic": TOPIC,
            "block_size": self._page_tokens,
            "dp_size": 1,
            "replay_endpoint_port_base": self._replay_port,
        }

    def stop(self) -> None:
        """Publish nothing more, and close."""
        self._steps.put(None)
        self._thread.join(_JOIN_S)
        self._context.destroy(linger=0)

    def add(self, event: dict[str, Any]) -> None:
        """Publish an event with this turn's others."""
        if not self._step:
            self._loop.call_soon(self._flush)
        self._step.append(event)

    def stored(self, parent: int | None, pages: array[int], medium: str) -> None:
        """Pages were taken in."""
        before = {} if parent is None else {"parent_block_hash": _signed(parent)}
        self.add(
            {
                "type": "BlockStored",
                "block_hashes": [_signed(page) for page in pages],
                **before,
                "token_ids": [],
                "block_size": self._page_tokens,
                "medium": medium,
            }
        )

    def removed(self, pages: Sequence[int], medium: str) -> None:
        """Pages were given up."""
        hashes = [_signed(page) for page in pages]
        self.add({"type": "BlockRemoved", "block_hashes": hashes, "medium": medium})

    def _flush(self) -> None:
        step, self._step = self._step, []
        self._steps.put_nowait(msgspec.msgpack.encode([epoch_s(), step, 0]))

    # In the thread

    def _run(self) -> None:
        kept: deque[tuple[bytes, bytes]] = deque(maxlen=_BUFFER_STEPS)
        number = 0
        while True:
            while self._router.poll(0):
                self._replay(kept)
            try:
                payload = self._steps.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if payload is None:
                return
            numbered = number.to_bytes(_SEQUENCE_BYTES, "big")
            self._pub.send_multipart([TOPIC.encode(), numbered, payload])
            kept.append((numbered, payload))
            number += 1

    def _replay(self, kept: deque[tuple[bytes, bytes]]) -> None:
        frames = self._router.recv_multipart()
        if len(frames) != _REPLAY_FRAMES:
            return
        who, _, start = frames
        for numbered, payload in kept:
            if numbered >= start:  # of one length and big-endian, they compare as numbers do
                self._router.send_multipart([who, b"", TOPIC.encode(), numbered, payload])
        self._router.send_multipart([who, b"", b"", _END, b""])


class _Tier:
    """One tier's listener."""

    def __init__(self, events: KvEvents, medium: str) -> None:
        self._events = events
        self._medium = medium

    def stored(self, parent: int | None, pages: array[int]) -> None:
        self._events.stored(parent, pages, self._medium)

    def removed(self, pages: Sequence[int]) -> None:
        self._events.removed(pages, self._medium)

    def cleared(self) -> None:
        if self._medium == "GPU":  # one event tells of all tiers
            self._events.add({"type": "AllBlocksCleared"})


def _signed(page: int) -> int:
    return page - 2 * _SIGN if page >= _SIGN else page


def _bound(socket: zmq.Socket[bytes], host: str) -> int:
    socket.setsockopt(zmq.LINGER, 0)
    at = f"[{host}]" if ":" in host else host
    socket.setsockopt(zmq.IPV6, int(":" in host))
    return int(socket.bind_to_random_port(f"tcp://{at}"))
