"""Server-sent events as bytes: where one ends, and what it says.

The format is that of the WHATWG HTML standard, section "Server-sent events": lines end with LF,
CR or CRLF, an empty line ends an event, a line that begins with a colon is a comment.
"""

from __future__ import annotations

import re
from typing import Final

EVENT_BYTES_MAX: Final = 1 << 20
"""A longer event is passed on without being looked at."""

# A CR at the end of what has arrived may be half of a CRLF, so it ends a line only once the next
# byte is there.
_END: Final = re.compile(rb"(?:\r\n|\n|\r(?=[^\n])){2}")
_END_BYTES_MAX: Final = 4
_BOM: Final = b"\xef\xbb\xbf"


class EventSplitter:
    """Cuts a stream after its last whole event, wherever the reads were cut.

    All bytes come out again in order: both halves of each answer of ``feed``, then ``rest``. It
    keeps at most ``event_bytes_max`` bytes and one read.
    """

    __slots__ = ("_event_bytes_max", "_is_skipping", "rest")

    def __init__(self, event_bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._event_bytes_max = event_bytes_max
        self._is_skipping = False
        self.rest = b""
        """The beginning of an event whose end has not arrived."""

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Take the next bytes of the stream.

        Returns:
            Bytes of an event that is too long, then whole events one after the other, undivided
            (see :func:`split_events`).
        """
        n_scanned = len(self.rest)
        buffer = self.rest + data if n_scanned else data
        opaque = b""
        if self._is_skipping:
            end = _first_end(buffer)
            if end == 0:
                return self._skipped(buffer), b""
            self._is_skipping = False
            opaque, buffer, n_scanned = buffer[:end], buffer[end:], 0
        end = _last_end(buffer, n_scanned)
        if end == len(buffer):
            self.rest = b""
            return opaque, buffer
        if end == 0 and len(buffer) > self._event_bytes_max:
            self._is_skipping = True
            return opaque + self._skipped(buffer), b""
        self.rest = buffer[end:]
        return opaque, buffer[:end]

    def _skipped(self, buffer: bytes) -> bytes:
        """Give all but the bytes that may begin the end of the event."""
        self.rest = buffer[1 - _END_BYTES_MAX :]
        return buffer[: 1 - _END_BYTES_MAX]


def _first_end(buffer: bytes) -> int:
    match = _END.search(buffer)
    return match.end() if match else 0


def _last_end(buffer: bytes, n_scanned: int) -> int:
    """Where the last whole event ends, 0 if none does; ``n_scanned`` leading bytes hold no end."""
    end = 0
    if b"\r" in buffer:
        for match in _END.finditer(buffer, max(0, n_scanned + 1 - _END_BYTES_MAX)):
            end = match.end()
        return end
    at = buffer.find(b"\n\n", max(0, n_scanned - 1))
    while at >= 0:
        end = at + 2
        at = buffer.find(b"\n\n", end)
    return end


def split_events(block: bytes) -> list[bytes]:
    """Whole events, each with the empty line that ends it."""
    if b"\r" in block:
        ends = [match.end() for match in _END.finditer(block)]
    else:
        ends = []
        at = block.find(b"\n\n")
        while at >= 0:
            ends.append(at + 2)
            at = block.find(b"\n\n", at + 2)
    if not ends or ends[-1] != len(block):
        ends.append(len(block))
    return [block[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def event_data(event: bytes) -> bytes | None:
    """What the ``data`` lines of one event say together, None if it has none (a comment)."""
    if event.startswith(b"data: ") and event.find(b"\n") == len(event) - 2:
        return event[6:-2]
    values = [
        line[5:].removeprefix(b" ")
        for line in event.removeprefix(_BOM).splitlines()
        if line.startswith(b"data:")
    ]
    return b"\n".join(values) or None


def data_event(data: bytes, *, name: str | None = None) -> bytes:
    """One event of one ``data`` line; ``data`` holds no line break."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return b"".join((head, b"data: ", data, b"\n\n"))
