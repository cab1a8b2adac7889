"""An engine's output as lines: bounded in length, progress bars thinned out, the last ones kept.

Pure: bytes in, lines out.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_LINE_BYTES_MAX: Final = 8_192
_SHOWN_CHARS: Final = 500
_PROGRESS_S: Final = 1.0


class Lines:
    """Cuts a stream of bytes into lines.

    A line that ends with a carriage return alone is a progress bar's: one a second is passed on. A
    longer line than 8 KiB is cut there, and its rest is left out.
    """

    def __init__(self) -> None:
        self._part = b""
        self._is_cut = False
        self._after_return = False
        self._progress_s = float("-inf")

    def take(self, data: bytes, now_s: float) -> list[str]:
        """The lines that are whole now."""
        found: list[str] = []
        if self._after_return and data[:1] == b"\n":
            data = data[1:]
        if data:
            self._after_return = data[-1:] == b"\r"
        # ``bytes.splitlines`` cuts at these two ends only.
        for piece in data.replace(b"\r\n", b"\n").splitlines(keepends=True):
            end = piece[-1:]
            if end not in (b"\n", b"\r"):
                self._grow(piece)
                continue
            self._grow(piece[:-1])
            line, self._part, self._is_cut = self._part, b"", False
            if end == b"\r":
                if now_s - self._progress_s < _PROGRESS_S:
                    continue
                self._progress_s = now_s
            text = line.decode(errors="replace").rstrip()
            if text:
                found.append(text)
        return found

    def rest(self) -> list[str]:
        """What came last, without an end of line."""
        text = self._part.decode(errors="replace").rstrip()
        self._part = b""
        return [text] if text else []

    def _grow(self, piece: bytes) -> None:
        room = _LINE_BYTES_MAX - len(self._part)
        if len(piece) > room and not self._is_cut:
            self._is_cut = True
            piece = piece[:room] + b" ... (cut)"
        elif self._is_cut:
            return
        self._part += piece


class LastLines:
    """The last lines of one engine, for an error's text and for finding its cause."""

    def __init__(self, count: int = 400) -> None:
        self._lines: deque[str] = deque(maxlen=count)

    def add(self, line: str) -> None:
        """One more; the oldest goes."""
        self._lines.append(line[:_SHOWN_CHARS])

    def all(self) -> list[str]:
        """Those that are kept, oldest first."""
        return list(self._lines)

    def clear(self) -> None:
        """Another engine begins."""
        self._lines.clear()
