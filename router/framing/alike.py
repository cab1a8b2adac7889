"""Heads that differ in nothing but the length of their body, as one client's or replica's mostly do.

A connection's heads come again and again, byte for byte but for the value of Content-Length. llhttp reads
every message all the same and decides where it ends: equal bytes, read from the start of a message, make it
call back with equal headers, so these are taken from the head that came before instead of from the callbacks.
"""

from __future__ import annotations

import re
from typing import Final

HeaderList = list[tuple[bytes, bytes]]

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*\r\n", re.IGNORECASE)
_NAME: Final = b"content-length"
_DIGITS_MAX: Final = 15
_ZERO: Final = 0x30
_HEAD_BYTES_MAX: Final = 4096
"""A larger head is not kept: there are as many of these as connections."""


class Alike:
    """One head that was read whole, and all that are like it.

    ``told`` is for what others work out of such a head; it must not depend on the body's length.
    """

    __slots__ = ("_at", "_before", "_behind", "_headers", "_start_bytes", "told")

    def __init__(self, before: bytes, behind: bytes, headers: HeaderList, at: int) -> None:
        """The bytes ``before`` and ``behind`` the length, whose line is ``headers[at]``."""
        self._before = before
        self._behind = behind
        self._start_bytes = len(before)
        self._headers = headers
        self._at = at
        self.told: object = None

    @classmethod
    def of(cls, data: bytes, headers: HeaderList) -> Alike | None:
        """The head that ``data`` begins with and that was read as these ``headers``; None if it is not kept."""
        end = data.find(_HEAD_END, 0, _HEAD_BYTES_MAX) + len(_HEAD_END)
        places = [at for at, line in enumerate(headers) if line[0] == _NAME]
        found = _LENGTH.search(data, 0, end)
        if len(places) != 1 or found is None or found[1] != headers[places[0]][1]:
            return None
        return cls(data[: found.start(1)], data[found.end(1) : end], headers, places[0])

    def read(self, data: bytes) -> tuple[int, bytes] | None:
        """Where the head ends that ``data`` begins with, and its length's digits; None if it is another one."""
        start = self._start_bytes
        if not data.startswith(self._before):
            return None
        stop = data.find(b"\r", start, start + _DIGITS_MAX + 1)
        digits = data[start:stop]
        if stop < 0 or not data.startswith(self._behind, stop) or not digits.isdigit():
            return None
        if digits[0] == _ZERO and len(digits) > 1:
            return None
        return stop + len(self._behind), digits

    def headers(self, digits: bytes) -> HeaderList:
        """The header lines of a head of this length."""
        headers = self._headers.copy()
        headers[self._at] = (_NAME, digits)
        return headers
