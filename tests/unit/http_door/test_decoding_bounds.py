"""Decoding takes no more memory than it may, whatever the body claims."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import ClientError
from router.framing.decoding import CODINGS, decoded

MIB = 1024 * 1024
names = st.sampled_from(CODINGS.split(b", "))


@pytest.mark.parametrize("coding", CODINGS.decode().split(", "))
def test_a_bomb_is_noticed_before_it_has_grown(coding: str) -> None:
    plain = bytes(64 * MIB)
    if coding == "zstd":
        bomb = bytes(pytest.importorskip("backports.zstd").compress(plain))
    else:
        bomb = gzip.compress(plain, 1) if coding == "gzip" else zlib.compress(plain, 1)
    del plain
    tracemalloc.start()
    with pytest.raises(ClientError) as caught:
        decoded(bomb, coding.encode(), bytes_max=2 * MIB, ratio_max=1e6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.http_status == 413
    assert peak < 4 * MIB


@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_the_bound_is_exact(excess: int) -> None:
    body = gzip.compress(b"a" * (2 * MIB + excess))
    if excess > 0:
        with pytest.raises(ClientError):
            decoded(body, b"gzip", bytes_max=2 * MIB, ratio_max=1e6)
    else:
        assert len(decoded(body, b"gzip", bytes_max=2 * MIB, ratio_max=1e6)) == 2 * MIB + excess


def test_the_ratio_counts_beyond_the_first_mib() -> None:
    body = gzip.compress(bytes(MIB))
    assert len(decoded(body, b"gzip", bytes_max=64 * MIB, ratio_max=1)) == MIB
    with pytest.raises(ClientError) as caught:
        decoded(gzip.compress(bytes(MIB + 1)), b"gzip", bytes_max=64 * MIB, ratio_max=1)
    assert caught.value.http_status == 413


@settings(deadline=None)
@given(st.lists(st.binary(max_size=300_000), max_size=3), st.integers(0, 2**32))
def test_members_that_follow_each_other_are_one_body(parts: list[bytes], cut: int) -> None:
    body = b"".join(gzip.compress(part, 1) for part in parts)
    assert decoded(body, b"gzip", bytes_max=MIB * 2, ratio_max=1e6) == b"".join(parts)
    if body:
        with pytest.raises(ClientError):
            decoded(body[: -1 - cut % 17], b"gzip", bytes_max=MIB * 2, ratio_max=1e6)


@settings(deadline=None)
@given(names, st.binary(max_size=400))
def test_any_bytes_decode_or_are_refused(coding: bytes, body: bytes) -> None:
    status = 200
    try:
        size = len(decoded(body, coding, bytes_max=MIB, ratio_max=100))
    except ClientError as error:
        size, status = 0, error.http_status
    assert size <= MIB
    assert status in (200, 400, 413)
