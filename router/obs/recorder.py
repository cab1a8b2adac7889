"""The core's journal as a file: framed on the loop, packed and written by a thread of its own.

A request is never held up: what cannot be taken ends the recording, with one warning, and the router
goes on. A recording has no holes, so that it can be replayed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from router.errors import ConfigError
from router.recording.codec import Packer, framed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from router.recording.records import Header, Record

_log = logging.getLogger("homeport.recorder")
_FLUSH_S: Final = 1.0
"""How much of a recording a crash may lose."""
_CLOSE_S: Final = 10.0
_QUEUE_BYTES_MAX: Final = 32 << 20
_EAGER_BYTES: Final = 1 << 20
_BATCH_BYTES: Final = 256 << 10
_RESERVE_BYTES: Final = 4096
"""Kept free below the limit for the last record and what packing adds to incompressible bytes."""


class Recorder:
    """Takes a core's records until it is closed, the file is full, or writing fails.

    ``write`` and ``stop`` are for the event loop's thread; they never wait.
    """

    def __init__(self, path: Path, header: Header, *, bytes_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._taken_bytes = 0
        self._is_open = True
        self._reason = "closed"
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self.n_records = 0
        self.n_bytes = 0
        self.write(header)

    @property
    def is_open(self) -> bool:
        """It takes records."""
        return self._is_open

    def write(self, record: Record) -> None:
        """Take one record; one that cannot be taken ends the recording."""
        if not self._is_open:
            return
        try:
            frame = framed(record)
        except Exception as failure:  # noqa: BLE001  (no record may fail the request it is about)
            self.stop(f"a {type(record).__name__} record cannot be written: {failure}")
            return
        waiting_bytes = self._queued_bytes - self._taken_bytes
        if waiting_bytes + len(frame) > _QUEUE_BYTES_MAX:
            self.stop(f"the file takes less than it is given; {waiting_bytes} bytes wait")
            return
        self._queue.append(frame)
        self._queued_bytes += len(frame)
        self.n_records += 1
        if waiting_bytes > _EAGER_BYTES and not self._wake.is_set():
            self._wake.set()

    def stop(self, reason: str) -> None:
        """End the recording: what comes next cannot be a part of it."""
        if self._is_open:
            self._is_open = False
            self._reason = reason
            _log.warning("recording-ended path=%s reason=%r", self._path, reason)

    def start(self) -> None:
        """Make the file and begin to write; blocks, so call it in a thread.

        Raises:
            ConfigError: the file exists, or cannot be made.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        try:
            descriptor = os.open(self._path, flags, 0o600)
        except OSError as failure:
            raise ConfigError(f"record = {str(self._path)!r}: {_explain(failure)}") from None
        self._thread = threading.Thread(
            target=self._run, args=(descriptor,), name="recorder", daemon=True
        )
        self._wake.set()  # so that even a short recording has its header
        self._thread.start()
        _log.info("recording path=%s", self._path)

    def close(self) -> None:
        """Write what was taken, and the end; blocks for 10 s at most, so call it in a thread."""
        self._is_open = False
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def discard(self) -> None:
        """Close, and remove the file if it was made here; blocks as ``close`` does."""
        self.close()
        if self._thread is not None:
            self._path.unlink(missing_ok=True)

    # In the thread

    def _run(self, descriptor: int) -> None:
        packer = Packer()
        try:
            try:
                is_last = False
                while not is_last:
                    self._wake.wait(_FLUSH_S)
                    self._wake.clear()
                    is_last = not self._is_open
                    for frames in self._batches():
                        if self.n_bytes + len(frames) + _RESERVE_BYTES > self._bytes_max:
                            self.stop(f"the file is at record_mib_max, {self._bytes_max} bytes")
                            is_last = True
                            break
                        self._put(descriptor, packer.batch(frames))
                self._put(descriptor, packer.end(self._reason))
            finally:
                os.close(descriptor)
        except OSError as failure:
            self.stop(f"writing failed: {failure.strerror or failure}")
        self._queue.clear()

    def _batches(self) -> Iterator[bytes]:
        """What waits, in parts of about ``_BATCH_BYTES``."""
        queue = self._queue
        while queue:
            frames: list[bytes] = []
            size = 0
            while queue and size < _BATCH_BYTES:
                frame = queue.popleft()
                frames.append(frame)
                size += len(frame)
            self._taken_bytes += size
            yield b"".join(frames)

    def _put(self, descriptor: int, data: bytes) -> None:
        left = memoryview(data)
        while left:
            n = os.write(descriptor, left)
            left = left[n:]
            self.n_bytes += n


def _explain(failure: OSError) -> str:
    if isinstance(failure, FileExistsError):
        return "the file exists, and recordings are never appended to; name a new one"
    if isinstance(failure, FileNotFoundError):
        return "its folder does not exist; make it first"
    return f"{failure.strerror or failure}; name a file that can be made"
