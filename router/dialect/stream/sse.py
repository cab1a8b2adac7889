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
_LF: Final = 10
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
            end = first_end(buffer)
            if end == 0:
                return self._skipped(buffer), b""
            self._is_skipping = False
            opaque, buffer, n_scanned = buffer[:end], buffer[end:], 0
        end = last_end(buffer, max(0, n_scanned + 1 - _END_BYTES_MAX))
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


def first_end(buffer: bytes, start: int = 0) -> int:
    """Where the first event that ends behind ``start`` ends, 0 if none does."""
    if b"\r" not in buffer:
        at = buffer.find(b"\n\n", start)
        return at + 2 if at >= 0 else 0
    match = _END.search(buffer, start)
    return match.end() if match else 0


def last_end(buffer: bytes, start: int = 0, stop: int | None = None) -> int:
    """Where the last event that ends between ``start`` and ``stop`` ends, 0 if none does."""
    stop = len(buffer) if stop is None else stop
    if b"\r" not in buffer:
        at = buffer.rfind(b"\n\n", start, stop)
        if at < 0:
            return 0
        run = at  # empty lines in a row end their events two by two, from the first on
        while run > start and buffer[run - 1] == _LF:
            run -= 1
        return run + (at + 2 - run) // 2 * 2
    end = 0
    for match in _END.finditer(buffer, start, stop):
        end = match.end()
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
