"""The file's format: whatever way its bytes come, and whatever is wrong with them."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.core import CoreParameters
from router.dialect.base import SessionSource
from router.recording.codec import (
    MAGIC,
    RECORD_BYTES_MAX,
    Packer,
    Recording,
    RecordTooLargeError,
    framed,
)
from router.recording.errors import RecordingError
from router.recording.records import (
    Arrive,
    Began,
    Blame,
    Described,
    Drain,
    End,
    Finish,
    Header,
    Heard,
    Join,
    Leave,
    Observed,
    Placed,
    Refusal,
    Renew,
    Retry,
    Stayed,
    Tick,
    Undrain,
)
from router.state.health.table import Event
from router.state.history import Outcome
from tests.doubles.recordings import packed, reading

if TYPE_CHECKING:
    from router.recording.records import Record

HEADER = Header("homeport test", "home", 7, CoreParameters(), 1000)
ROWS: list[Record] = [HEADER, *(Began(n, n / 7) for n in range(400))]

_int = st.integers(0, 2**62)
_seconds = st.floats(0, 1e9)
_text = st.text(max_size=12)
_sealed = st.binary(min_size=8, max_size=8)
_maybe_int = st.none() | _int
RECORDS = st.one_of(
    st.builds(
        Join, _seconds, _text, _text, _int, _text, _maybe_int, st.none() | _text, _maybe_int,
        st.none() | _seconds,
    ),
    st.builds(Leave, _text),
    st.builds(Renew, _seconds, _text),
    st.builds(
        Described,
        _text,
        _maybe_int,
        st.none() | _text,
        st.lists(_sealed).map(tuple),
        st.booleans(),
    ),
    st.builds(Heard, _seconds, _text, st.sampled_from(Event)),
    st.builds(Observed, _text, _int, _int, _int, _seconds, _int, _seconds),
    st.builds(Tick, _seconds, st.lists(_text, max_size=3).map(tuple)),
    st.builds(
        Arrive, _seconds, _text, _sealed, _sealed, st.sampled_from(SessionSource),
        st.none() | _sealed, st.booleans(), st.booleans(), _maybe_int, _int, _int, _int, _int,
        st.binary(max_size=40), st.lists(_int, max_size=5).map(tuple),
    ),
    st.builds(Retry, _int, _seconds, _text, _text),
    st.builds(Blame, _int, _seconds, _text, _text),
    st.builds(Began, _int, _seconds),
    st.builds(
        Finish, _int, _seconds, st.sampled_from(Outcome), _maybe_int, _maybe_int, _maybe_int,
        st.none() | _text, st.none() | _text,
    ),
    st.builds(
        Placed, _int, st.lists(_text, max_size=4).map(tuple), _text, st.none() | _text, _int, _int
    ),
    st.builds(Drain, _seconds, _text, st.none() | _seconds, st.booleans()),
    st.builds(Undrain, _seconds, _text),
    st.builds(Refusal, _text, st.none() | _seconds),
    st.builds(Stayed, _int),
)  # fmt: skip


def bodies_of(*bodies: bytes) -> bytes:
    """A file of records that are these bytes."""
    frames = b"".join(len(body).to_bytes(4, "little") + body for body in bodies)
    return MAGIC + zlib.compress(frames)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(RECORDS, max_size=30),
    cuts=st.lists(st.integers(1, 200), min_size=1, max_size=8),
    batch=st.integers(1, 40),
)
def test_records_come_back_as_they_were_wherever_the_bytes_are_cut(
    rows: list[Record], cuts: list[int], batch: int
) -> None:
    data = packed([HEADER, *rows], batch=batch)
    chunks: list[bytes] = []
    at = 0
    while at < len(data):
        size = cuts[len(chunks) % len(cuts)]
        chunks.append(data[at : at + size])
        at += size
    recording = Recording(chunks)
    assert recording.header == HEADER
    assert list(recording) == [*rows, End("closed")]
    assert (recording.is_truncated, recording.end_reason) == (False, "closed")
    assert (recording.n_records, recording.n_bytes) == (len(rows) + 2, len(data))


@settings(deadline=None, max_examples=60)
@given(lost=st.integers(1, 1_500))
def test_a_file_that_is_cut_off_gives_what_it_holds_and_says_so(lost: int) -> None:
    data = packed(ROWS, batch=20)
    recording = reading(data[:-lost])
    found = [row for row in recording if not isinstance(row, End)]
    assert found == ROWS[1 : 1 + len(found)]
    assert len(found) > 19
    assert recording.is_truncated


def test_what_was_flushed_before_a_crash_is_there() -> None:
    packer = Packer()
    first = packer.batch(b"".join(framed(row) for row in ROWS[:100]))
    packer.batch(b"".join(framed(row) for row in ROWS[100:]))  # never reached the disk
    assert list(reading(first)) == ROWS[1:100]


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_another_version_and_another_file_are_told_apart(step: int) -> None:
    later = packed(ROWS).replace(MAGIC, b"homeport-recording 27\n")
    with pytest.raises(RecordingError, match=r"has version 27 of the format.* reads version 1"):
        reading(later, step=step)
    for other in (b"", b"\n", b"PK\x03\x04", b"homeport-recording x\n", b"a" * 5000, MAGIC[:-1]):
        with pytest.raises(RecordingError, match=r"no recording: it begins with .*--record"):
            reading(other, step=step)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (MAGIC, "ends before its header"),
        (packed(ROWS[1:5]), "does not begin with its header"),
        (packed([]), "does not begin with its header"),
        (packed([HEADER, HEADER]), "record 2 is a second header"),
        (packed([HEADER, End("x"), ROWS[1]]), "a record follows the last one"),
        (packed(ROWS) + b"more", "bytes follow its end"),
        (MAGIC + b"this is not deflated", "incorrect header check"),
        (bodies_of(b"\xc1"), "record 1 cannot be read"),
        (bodies_of(b""), "record 1 cannot be read"),
        (bodies_of(msgspec.msgpack.encode([11, -1])), "record 1 cannot be read"),
        (bodies_of(msgspec.msgpack.encode([99, 1])), "record 1 cannot be read"),
        (bodies_of(b"\x91" * 100_000 + b"\x00"), "record 1 cannot be read"),
        (MAGIC + zlib.compress(b"\xff\xff\xff\x7f"), "says it has 2147483647 bytes"),
    ],
)  # fmt: skip
def test_damage_is_one_error_that_says_what_and_where(data: bytes, said: str) -> None:
    with pytest.raises(RecordingError, match=said) as refused:
        list(reading(data, step=50))
    assert "\n" not in str(refused.value)


@settings(deadline=None, max_examples=150)
@given(at=st.integers(0, 1_800), flip=st.integers(1, 255), step=st.integers(1, 5000))
def test_no_flipped_byte_does_more_than_raise(at: int, flip: int, step: int) -> None:
    data = bytearray(packed(ROWS, batch=100))
    data[at % len(data)] ^= flip
    try:
        rows = list(reading(bytes(data), step=step))
    except RecordingError:
        return
    assert len(rows) <= len(ROWS) + 1


def test_a_bomb_is_refused_before_it_fills_the_memory() -> None:
    frame = framed(Leave("r" * 200_000))
    bomb = MAGIC + zlib.compress(framed(HEADER) + frame * 500, 9)  # 100 MB of nothing
    assert len(bomb) < 300_000
    with pytest.raises(RecordingError, match="expands over 200 times"):
        for _ in reading(bomb, step=4096):
            pass


def test_a_record_over_the_limit_is_not_written() -> None:
    with pytest.raises(RecordTooLargeError, match=f"over {RECORD_BYTES_MAX}"):
        framed(Leave("r" * (RECORD_BYTES_MAX + 1)))
