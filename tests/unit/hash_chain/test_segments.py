"""Segments of at most 4 KB, each message beginning a new one."""

from __future__ import annotations

import pytest
import xxhash

from hashing.segments import SEGMENT_BYTES_MAX, cut, segments_of


@pytest.mark.parametrize("length", [0, 1, 4095, 4096, 4097, 8192, 10_000])
def test_cut(length: int) -> None:
    rendered = bytes(range(256)) * (length // 256 + 1)
    pieces = cut(rendered[:length])

    assert b"".join(pieces) == rendered[:length]
    assert all(len(piece) == SEGMENT_BYTES_MAX for piece in pieces[:-1])
    assert all(1 <= len(piece) <= SEGMENT_BYTES_MAX for piece in pieces)


def test_each_message_begins_a_segment() -> None:
    found = segments_of([b"a" * 5000, b"b"])

    assert found.lengths_bytes == (4096, 904, 1)
    assert found.digests[2] == xxhash.xxh3_64_digest(b"b")
    assert segments_of([]) == ((), ())


@pytest.mark.parametrize("at", [0, 4000, 4095, 4096, 8191, 8192, 9999])
def test_every_byte_counts_in_its_own_segment(at: int) -> None:
    rendered = bytearray(10_000)
    before = segments_of([bytes(rendered)]).digests
    rendered[at] = 1
    after = segments_of([bytes(rendered)]).digests

    different = [
        n for n, (one, other) in enumerate(zip(before, after, strict=True)) if one != other
    ]
    assert different == [at // SEGMENT_BYTES_MAX]
