"""Canonical messages -> segments of at most 4 KB, each with its digest.

Every message begins a new segment, so a prompt that only grew keeps all its earlier segments, and
a digest can be remembered per message and joined to a chain later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable

SEGMENT_BYTES_MAX: Final = 4096


class Segments(NamedTuple):
    """Consecutive segments: 8-byte digests and lengths in bytes (1 to 4,096), one each."""

    digests: tuple[bytes, ...] = ()
    lengths_bytes: tuple[int, ...] = ()


def cut(rendered: bytes) -> list[bytes]:
    """The segments of one canonical message: all of 4 KB but the last; none for no bytes."""
    return [
        rendered[start : start + SEGMENT_BYTES_MAX]
        for start in range(0, len(rendered), SEGMENT_BYTES_MAX)
    ]


def segments_of(messages: Iterable[bytes]) -> Segments:
    """The segments of canonical messages, in order."""
    pieces = [piece for rendered in messages for piece in cut(rendered)]
    return Segments(
        tuple([xxhash.xxh3_64_digest(piece) for piece in pieces]),
        tuple([len(piece) for piece in pieces]),
    )
