"""A rendered part -> canonical bytes.

A part is a mark, its kind (one letter) and its fields, each behind a mark of its own; a message is
one or more parts and an end mark. The marks are bytes that never occur in UTF-8, and fields are
valid UTF-8, so no text can imitate a mark and equal bytes mean equal parts. Lengths are left out
on purpose: a length in front of a text would change the first bytes of a text that only grew at
its end, and the prefix that two prompts share would be lost.
"""

from __future__ import annotations

from typing import Final

import xxhash

VERSION: Final = 2
"""Grows with every change of the canonical form; chains of different versions never match."""

PART: Final = b"\xff"
FIELD: Final = b"\xfe"
END: Final = b"\xfd"


def part(kind: str, *fields: bytes) -> bytes:
    """One part: ``kind`` is one ASCII letter, ``fields`` are valid UTF-8 in a fixed order."""
    return b"".join((PART, kind.encode(), *[FIELD + field for field in fields]))


def message(*parts: bytes) -> bytes:
    """Parts that the engine renders as one closed message, with the mark of its end."""
    return b"".join((*parts, END))


def fingerprint(data: bytes) -> str:
    """32 hexadecimal digits that stand for ``data`` (xxh3-128; equal for equal bytes)."""
    return xxhash.xxh3_128_hexdigest(data)
