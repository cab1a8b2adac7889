"""What the workers of one router write for each other to read: one row each, in memory that they share.

A row has one writer, its worker; the parent writes the head and what workers that are gone had counted. A
reader takes what stands there, and nothing if it is being written: there are no locks, and a worker
that is killed while it writes leaves no more than its own row unreadable.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

_TOKEN_BYTES: Final = 16
_HEAD: Final = struct.Struct("<16sIIII")  # token, rows, workers wanted, is stopping, died
_STOPPING_AT: Final = 24
_DIED_AT: Final = 28
_ROW: Final = struct.Struct("<IIIIdQ")  # serial, state, pid, connections, beat, accepted
_TEXT: Final = struct.Struct(
    "<QII"
)  # writings begun and ended (odd while one runs), length, checksum
_PAGE: Final = 4096
VECTOR_BYTES_MAX: Final = 256 << 10
"""Two thousand replicas take a third of it."""
TEXT_BYTES_MAX: Final = 4 << 20
"""The counters of a thousand replicas; memory that is not written is not taken."""
_ROW_BYTES: Final = _PAGE + VECTOR_BYTES_MAX + _PAGE + TEXT_BYTES_MAX
_TRIES: Final = 3


class Stage(IntEnum):
    """How far a worker has come."""

    EMPTY = 0
    STARTING = 1
    LISTENING = 2
    """It hears its siblings, and learns from them."""
    READY = 3
    LEAVING = 4


@dataclass(slots=True, frozen=True)
class Row:
    """What a worker says of itself; ``beat_s`` is when it last did, by the machine's monotonic clock."""

    slot: int
    serial: int
    stage: Stage
    pid: int
    connections: int
    beat_s: float
    accepted: int


class Board:
    """The shared memory: ``token`` is known to the workers of this router alone."""

    def __init__(self, fd: int, *, rows: int, wanted: int, token: bytes | None = None) -> None:
        """Use :func:`made` or :func:`opened`."""
        self.fd = fd
        self.rows = rows
        self._map = mmap.mmap(fd, size_of(rows))
        if token is not None:
            _HEAD.pack_into(self._map, 0, token, rows, wanted, 0, 0)
        self.token: bytes
        self.token, _, self.wanted, _, _ = _HEAD.unpack_from(self._map, 0)

    def close(self) -> None:
        """Let go of the memory."""
        self._map.close()
        os.close(self.fd)

    # The parent's

    @property
    def is_stopping(self) -> bool:
        """All workers are to end, not one alone."""
        stopping: int = struct.unpack_from("<I", self._map, _STOPPING_AT)[0]
        return stopping == 1

    def stop(self) -> None:
        """All workers are about to be told to end."""
        struct.pack_into("<I", self._map, _STOPPING_AT, 1)

    @property
    def died(self) -> int:
        """Workers that ended unasked so far."""
        died: int = struct.unpack_from("<I", self._map, _DIED_AT)[0]
        return died

    def count_death(self) -> None:
        """One more has."""
        struct.pack_into("<I", self._map, _DIED_AT, self.died + 1)

    def clear(self, slot: int, serial: int = 0) -> None:
        """A row is free, or a new worker's; nobody writes there."""
        at = self._row(slot)
        for text_at in (at + _PAGE // 2, at + _PAGE + VECTOR_BYTES_MAX):
            _TEXT.pack_into(self._map, text_at, 0, 0, 0)
        stage = Stage.STARTING if serial else Stage.EMPTY
        _ROW.pack_into(self._map, at, serial, stage, 0, 0, 0.0, 0)

    def keep_gone(self, text: bytes) -> bool:
        """What workers that are gone had counted; False if it is too long."""
        return self._write(_PAGE, text, TEXT_BYTES_MAX)

    @property
    def gone(self) -> bytes:
        """What workers that are gone had counted."""
        return self._read(_PAGE, TEXT_BYTES_MAX) or b""

    # A worker's

    def say(self, row: Row) -> None:
        """Write a worker's own row."""
        _ROW.pack_into(
            self._map,
            self._row(row.slot),
            row.serial,
            row.stage,
            row.pid,
            row.connections,
            row.beat_s,
            row.accepted,
        )

    def row(self, slot: int) -> Row:
        """What stands in a row; numbers that change together may be a moment apart."""
        serial, stage, pid, connections, beat_s, accepted = _ROW.unpack_from(
            self._map, self._row(slot)
        )
        return Row(slot, serial, Stage(stage), pid, connections, beat_s, accepted)

    def keep_vector(self, slot: int, vector: bytes) -> bool:
        """What the worker has in flight, as it tells other routers; False if it is too long."""
        return self._write(self._row(slot) + _PAGE // 2, vector, VECTOR_BYTES_MAX)

    def vector(self, slot: int) -> bytes | None:
        """A worker's last word of that; None while it is written, and where there is none."""
        return self._read(self._row(slot) + _PAGE // 2, VECTOR_BYTES_MAX)

    def keep_counts(self, slot: int, text: bytes) -> bool:
        """What the worker has counted, as it was told; False if it is too long."""
        return self._write(self._row(slot) + _PAGE + VECTOR_BYTES_MAX, text, TEXT_BYTES_MAX)

    def counts(self, slot: int) -> bytes | None:
        """A worker's last word of that."""
        return self._read(self._row(slot) + _PAGE + VECTOR_BYTES_MAX, TEXT_BYTES_MAX)

    def siblings(self, slot: int) -> list[Row]:
        """The other workers' rows, in the order in which they were started."""
        rows = [self.row(other) for other in range(self.rows) if other != slot]
        return sorted((row for row in rows if row.stage), key=lambda row: row.serial)

    # Parts

    def _row(self, slot: int) -> int:
        assert 0 <= slot < self.rows, slot
        return _PAGE + _PAGE + TEXT_BYTES_MAX + slot * _ROW_BYTES

    def _write(self, at: int, text: bytes, bytes_max: int) -> bool:
        if len(text) > bytes_max - _TEXT.size:
            return False
        number: int = _TEXT.unpack_from(self._map, at)[0] | 1
        _TEXT.pack_into(self._map, at, number, 0, 0)
        begin = at + _TEXT.size
        self._map[begin : begin + len(text)] = text
        _TEXT.pack_into(self._map, at, number + 1, len(text), zlib.crc32(text))
        return True

    def _read(self, at: int, bytes_max: int) -> bytes | None:
        for _ in range(_TRIES):
            number, length, checksum = _TEXT.unpack_from(self._map, at)
            if not number or number % 2 or length > bytes_max:
                continue
            text = self._map[at + _TEXT.size : at + _TEXT.size + length]
            if _TEXT.unpack_from(self._map, at)[0] == number and zlib.crc32(text) == checksum:
                return text
        return None


def size_of(rows: int) -> int:
    """The memory that so many rows may take at most, in bytes."""
    return _PAGE + _PAGE + TEXT_BYTES_MAX + rows * _ROW_BYTES


def made(rows: int, wanted: int) -> Board:
    """A new board, in memory that has no name.

    Raises:
        OSError: there is no memory for it.
    """
    fd = os.memfd_create("homeport-workers")
    os.ftruncate(fd, size_of(rows))
    return Board(fd, rows=rows, wanted=wanted, token=secrets.token_bytes(_TOKEN_BYTES))


def opened(fd: int) -> Board:
    """The board that the parent made."""
    token, rows, wanted, _, _ = _HEAD.unpack(os.pread(fd, _HEAD.size, 0))
    assert len(token) == _TOKEN_BYTES, "a board begins with its token"
    return Board(fd, rows=rows, wanted=wanted)
