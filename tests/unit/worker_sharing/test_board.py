"""The rows that workers write for each other: read whole or not at all."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from router.workers.board import TEXT_BYTES_MAX, VECTOR_BYTES_MAX, Row, Stage, made, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from router.workers.board import Board


@pytest.fixture
def board() -> Iterator[Board]:
    made_one = made(rows=3, wanted=2)
    yield made_one
    made_one.close()


def test_a_row_says_what_was_written_and_siblings_come_in_order(board: Board) -> None:
    board.clear(2, serial=4)
    board.clear(0, serial=7)
    row = Row(2, 4, Stage.READY, pid=99, connections=5, beat_s=1.5, accepted=1 << 40)
    board.say(row)
    assert board.row(2) == row
    assert [r.serial for r in board.siblings(1)] == [4, 7]
    assert [r.serial for r in board.siblings(2)] == [7]
    assert board.row(1).stage is Stage.EMPTY
    board.clear(2)
    assert [r.serial for r in board.siblings(1)] == [7]


def test_another_opening_sees_the_same(board: Board) -> None:
    board.keep_vector(1, b"vector")
    board.keep_counts(1, b"counts")
    board.keep_gone(b"gone")
    again = opened(os.dup(board.fd))
    try:
        assert (again.token, again.rows, again.wanted) == (board.token, 3, 2)
        assert (again.vector(1), again.counts(1), again.gone) == (b"vector", b"counts", b"gone")
        assert again.vector(0) is None
        again.keep_vector(1, b"v")
        assert board.vector(1) == b"v"
        board.stop()
        board.count_death()
        assert again.is_stopping
        assert again.died == 1
    finally:
        again.close()


def test_what_is_too_long_is_refused_and_what_stood_there_stays(board: Board) -> None:
    assert board.keep_vector(0, b"short")
    assert not board.keep_vector(0, b"x" * VECTOR_BYTES_MAX)
    assert board.vector(0) == b"short"
    assert not board.keep_counts(0, b"x" * TEXT_BYTES_MAX)


def test_rows_do_not_touch_each_other(board: Board) -> None:
    longest_vector, longest_text = b"v" * (VECTOR_BYTES_MAX - 16), b"t" * (TEXT_BYTES_MAX - 16)
    board.keep_gone(longest_text)
    for slot in range(3):
        board.say(Row(slot, slot + 1, Stage.READY, 1, 1, 1.0, 1))
        assert board.keep_vector(slot, longest_vector)
        assert board.keep_counts(slot, longest_text)
    for slot in range(3):
        assert board.row(slot).serial == slot + 1
        assert board.vector(slot) == longest_vector
        assert board.counts(slot) == longest_text
    assert board.gone == longest_text
    assert len(board.token) == 16
    board.clear(1)
    assert board.vector(1) is None
    assert board.counts(1) is None
    assert board.vector(2) == longest_vector


def test_a_reader_never_sees_a_half_of_two_writings(board: Board) -> None:
    is_over, seen = threading.Event(), set[bytes]()

    def write() -> None:
        n = 0
        while not is_over.is_set():
            n += 1
            board.keep_vector(0, bytes([n % 251]) * (1_000 + n % 3_000))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        end_s = time.monotonic() + 20.0
        while len(seen) < 100 and time.monotonic() < end_s:
            seen.add(board.vector(0) or b"")
    finally:
        is_over.set()
        writer.join()
    assert len(seen) == 100
    assert all(len(set(text)) <= 1 for text in seen)
