"""Taps: they follow an answer, pass it on, and read what the engine says of its work.

Here is what all APIs share; ``chat_tap`` and ``messages_tap`` read their own events. A stream that
is not to be changed passes through as it arrives, byte for byte. After the first event a chunk is
only searched for the few words that make an event worth decoding: quoted as JSON keys they cannot
occur inside a string, where the quote would be escaped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.dialect.stream.sse import (
    EVENT_BYTES_MAX,
    EventSplitter,
    event_data,
    first_end,
    last_end,
    split_events,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.dialect.base import StreamFault, Usage

BODY_BYTES_MAX: Final = 4 << 20
"""A longer answer that is not streamed is passed on without being read."""

_END: Final = b"\n\n"
_STATUS_MIN: Final = 400
_STATUS_MAX: Final = 599


class Reading:
    """What was seen of one answer; changed by the function that reads its API's events."""

    __slots__ = ("fault", "has_begun", "is_complete", "kept_id", "usage")

    def __init__(self) -> None:
        self.has_begun = False
        self.fault: StreamFault | None = None
        self.is_complete = False
        self.usage: Usage | None = None
        self.kept_id = ""

    def note_fault(self, fault: StreamFault) -> None:
        """Keep the first error."""
        if self.fault is None:
            self.fault = fault


class EventTap(Reading):
    """Follows a stream of events.

    ``read_event`` takes the data of one event and this tap, notes what it says, and answers
    whether the event is only there because the router asked for its usage. Events without any of
    the ``words`` are not shown to it once the answer has begun. With ``is_stripping`` those events
    are taken out, and an incomplete event is held back until its end is there.
    """

    __slots__ = ("_event_bytes_max", "_is_stripping", "_read_event", "_splitter", "_words")

    def __init__(
        self,
        read_event: Callable[[bytes, Reading], bool],
        words: tuple[bytes, ...],
        *,
        is_stripping: bool = False,
        event_bytes_max: int = EVENT_BYTES_MAX,
    ) -> None:
        super().__init__()
        self._read_event = read_event
        self._words = words
        self._is_stripping = is_stripping
        self._event_bytes_max = event_bytes_max
        self._splitter = EventSplitter(event_bytes_max)

    def feed(self, data: bytes) -> bytes:
        """Take the next body bytes; answer the bytes to pass on now (may be empty)."""
        if self.has_begun and data.endswith(_END) and not self._splitter.rest:
            # Whole events, as nearly every read of a stream is: pass on what holds no word.
            for word in self._words:
                if data.rfind(word) >= 0:  # half of what `in` costs
                    break
            else:
                return data
        opaque, events = self._splitter.feed(data)
        if opaque:
            self.has_begun = True
        if events:
            events = self._look(events)
        if not self._is_stripping:
            return data
        return opaque + events if opaque else events

    def finish(self) -> bytes:
        """The body has ended; answer the bytes that were held back."""
        rest, self._splitter.rest = self._splitter.rest, b""
        kept = self._read([rest]) if rest else b""
        return kept if self._is_stripping else b""

    def _look(self, block: bytes) -> bytes:
        """Look at whole events; answer those to pass on.

        Until the answer has begun each one is read; then only from the first on that holds a word.
        """
        begun_at = 0
        kept = b""
        while not self.has_begun and begun_at < len(block):
            end = first_end(block, begun_at) or len(block)
            kept += self._read([block[begun_at:end]])
            begun_at = end
        word_at = len(block)
        for word in self._words:
            # Searching backwards is twice as fast, and nearly always finds nothing.
            if block.rfind(word, begun_at, word_at) >= 0:
                word_at = block.find(word, begun_at, word_at)
        if word_at == len(block):
            return kept + block[begun_at:] if begun_at else block
        # The event that holds the word begins after the last end before it.
        start = last_end(block, begun_at, word_at) or begun_at
        return kept + block[begun_at:start] + self._read(split_events(block[start:]))

    def _read(self, events: list[bytes]) -> bytes:
        """Look at each event; answer those to pass on."""
        kept = []
        for event in events:
            if len(event) > self._event_bytes_max:
                self.has_begun = True
            else:
                data = event_data(event)
                if data is not None and self._read_event(data, self):
                    continue
            kept.append(event)
        return b"".join(kept)


class BodyTap(Reading):
    """Follows an answer that is one JSON document; it is read when it has ended.

    ``read_body`` takes the whole body and this tap, and answers whether it is a whole document.
    """

    __slots__ = ("_chunks", "_n_bytes", "_read_body", "_tail")

    def __init__(self, read_body: Callable[[bytes, Reading], bool]) -> None:
        super().__init__()
        self._read_body = read_body
        self._chunks: list[bytes] = []
        self._n_bytes = 0
        self._tail = b""

    def feed(self, data: bytes) -> bytes:
        """Take the next body bytes; they are passed on at once."""
        if data:
            self.has_begun = True
            self._n_bytes += len(data)
            if self._n_bytes <= BODY_BYTES_MAX:
                self._chunks.append(data)
            else:
                self._chunks.clear()
            self._tail = data.rstrip()[-1:] or self._tail
        return data

    def finish(self) -> bytes:
        """The body has ended; nothing was held back."""
        if self._n_bytes > BODY_BYTES_MAX:
            self.is_complete = self._tail == b"}"
        elif self._n_bytes:
            self.is_complete = self._read_body(b"".join(self._chunks), self)
            self._chunks.clear()
        return b""


def status_of(code: object) -> int:
    """An error's ``code`` as an HTTP status; 500 if it is none."""
    if isinstance(code, str) and code.isascii() and code.isdigit():
        code = int(code[:4])
    if isinstance(code, int) and _STATUS_MIN <= code <= _STATUS_MAX:
        return code
    return 500
