"""Records <-> bytes: a line that names the format, then a zlib stream of records.

Each record is its length (4 bytes, little-endian) and its MessagePack. The writer ends a block of
the stream after each batch, so that a recording that is cut off loses its last batch at most; what
is read is bounded in every step.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import msgspec

from router.recording.errors import RecordingError
from router.recording.records import End, Header, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

VERSION: Final = 1
MAGIC: Final = b"homeport-recording %d\n" % VERSION
_NAME: Final = b"homeport-recording "
_MAGIC_BYTES_MAX: Final = len(_NAME) + 12

RECORD_BYTES_MAX: Final = 8 << 20
"""A prompt of 600,000 new segments; nothing else comes near."""

_LENGTH_BYTES: Final = 4
_STEP_BYTES: Final = 256 << 10
_LEVEL: Final = 6
_RATIO_MAX: Final = 200
"""Recordings shrink to a third or a fifth; deflate can reach 1,000."""
_RATIO_FREE_BYTES: Final = 16 << 20

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Record).decode


class RecordTooLargeError(ValueError):
    """A record is over what a recording may hold."""


def framed(record: Record) -> bytes:
    """One record with its length.

    Raises:
        RecordTooLargeError: it has over ``RECORD_BYTES_MAX`` bytes.
        OverflowError: a number in it does not fit into 64 bits.
    """
    body = _encode(record)
    if len(body) > RECORD_BYTES_MAX:
        raise RecordTooLargeError(f"a record of {len(body)} bytes, over {RECORD_BYTES_MAX}")
    return len(body).to_bytes(_LENGTH_BYTES, "little") + body


class Packer:
    """Framed records -> the bytes of a file, batch by batch."""

    def __init__(self) -> None:
        self._zlib = zlib.compressobj(_LEVEL)
        self._has_begun = False

    def batch(self, frames: bytes) -> bytes:
        """Everything that was not written yet, ``frames`` with it; readable up to here if cut."""
        return self._opening() + self._zlib.compress(frames) + self._zlib.flush(zlib.Z_SYNC_FLUSH)

    def end(self, reason: str) -> bytes:
        """The last bytes of the file."""
        return self._opening() + self._zlib.compress(framed(End(reason))) + self._zlib.flush()

    def _opening(self) -> bytes:
        has_begun, self._has_begun = self._has_begun, True
        return b"" if has_begun else MAGIC


class Recording:
    """A recording that is being read; iterating yields the records behind the header, once.

    ``is_truncated`` holds once all was read if the file ends before its own end: a router that was
    killed, or that still writes it. ``end_reason`` is why it was ended, "" if it was not.
    ``n_records`` counts the header, too.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        """Read the beginning; ``chunks`` are the file's bytes, cut anywhere.

        Raises:
            RecordingError: it is no recording, or one of another version.
        """
        self._chunks = iter(chunks)
        self._zlib = zlib.decompressobj()
        self._n_in = 0
        self._n_out = 0
        self.n_records = 0
        self.is_truncated = False
        self.end_reason = ""
        self._records = self._read(self._after_magic())
        first = next(self._records, None)
        if not isinstance(first, Header):
            what = "ends before its header" if first is None else "does not begin with its header"
            raise RecordingError(f"the recording {what}; there is nothing to replay")
        self.header = first

    @property
    def n_bytes(self) -> int:
        """Bytes of the file read so far."""
        return self._n_in

    def __iter__(self) -> Iterator[Record]:
        """The records behind the header.

        Raises:
            RecordingError: the bytes are damaged; the message says where.
        """
        return self._records

    def _after_magic(self) -> bytes:
        """Check the first line; answers the bytes behind it that were read with it."""
        data = b""
        while b"\n" not in data and len(data) < _MAGIC_BYTES_MAX:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            data += chunk
        line, newline, rest = data.partition(b"\n")
        if line + newline == MAGIC:
            self._n_in = len(MAGIC)
            return rest
        if newline and line.startswith(_NAME) and line.removeprefix(_NAME).isdigit():
            version = line.removeprefix(_NAME).decode()[:10]
            raise RecordingError(
                f"the recording has version {version} of the format, this program reads version "
                f"{VERSION}; replay it with the version of homeport that wrote it"
            )
        raise RecordingError(
            f"this is no recording: it begins with {data[:24]!r}, not with {MAGIC!r}; "
            "name a file that `homeport serve --record` wrote"
        )

    def _read(self, rest: bytes) -> Iterator[Record]:
        buffer = bytearray()
        for part in self._inflated(rest):
            buffer += part
            at = 0
            while len(buffer) - at >= _LENGTH_BYTES:
                size = int.from_bytes(buffer[at : at + _LENGTH_BYTES], "little")
                if size > RECORD_BYTES_MAX:
                    raise self._damaged(f"a record says it has {size} bytes")
                if len(buffer) - at - _LENGTH_BYTES < size:
                    break
                at += _LENGTH_BYTES
                record = self._decoded(memoryview(buffer)[at : at + size].tobytes())
                at += size
                yield record
            del buffer[:at]
        if not self._zlib.eof or buffer or not self.end_reason:
            self.is_truncated = True

    def _decoded(self, body: bytes) -> Record:
        if self.end_reason:
            raise self._damaged("a record follows the last one")
        try:
            record: Record = _decode(body)
        except (msgspec.DecodeError, RecursionError) as failure:
            raise self._damaged(f"record {self.n_records + 1} cannot be read: {failure}") from None
        if isinstance(record, Header) and self.n_records:
            raise self._damaged(f"record {self.n_records + 1} is a second header")
        self.n_records += 1
        if isinstance(record, End):
            self.end_reason = record.reason or "closed"
        return record

    def _inflated(self, rest: bytes) -> Iterator[bytes]:
        """What the file holds, in steps of bounded size."""
        for chunk in _with_first(rest, self._chunks):
            self._n_in += len(chunk)
            data, is_full = chunk, True
            while data or is_full:  # a full step may have left some behind
                part = self._step(data)
                data, is_full = self._zlib.unconsumed_tail, len(part) == _STEP_BYTES
                yield part
            if self._zlib.unused_data:
                raise self._damaged("bytes follow its end")

    def _step(self, data: bytes) -> bytes:
        try:
            part = self._zlib.decompress(data, _STEP_BYTES)
        except zlib.error as failure:
            raise self._damaged(str(failure)) from None
        self._n_out += len(part)
        if self._n_out > _RATIO_FREE_BYTES + _RATIO_MAX * self._n_in:
            raise self._damaged(f"it expands over {_RATIO_MAX} times")
        return part

    def _damaged(self, what: str) -> RecordingError:
        return RecordingError(
            f"the recording is damaged before byte {self._n_in}, behind record {self.n_records}: "
            f"{what}; copy it anew, or replay the part before it"
        )


def _with_first(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest
