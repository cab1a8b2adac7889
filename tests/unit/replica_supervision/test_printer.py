"""Passing lines on never waits for whoever reads them."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from replica.supervise.engine.printer import Printer

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def piped() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


def test_a_reader_that_stands_still_costs_lines_and_no_time() -> None:
    with piped() as (reading, writing):
        printer = Printer(lines_max=100, stderr=writing)
        began_s = time.monotonic()
        for n in range(20_000):
            printer.pass_on(f"line {n} " + "x" * 100)
        printer.close(0.1)
        assert time.monotonic() - began_s < 5.0
        assert printer.dropped_total > 10_000
        # What was not dropped is there, in order, once somebody reads.
        first = os.read(reading, 1 << 16).decode().splitlines()[:3]
        assert [line.split()[1] for line in first] == ["0", "1", "2"]


def test_lines_come_in_order_also_behind_one_that_nobody_reads_any_more() -> None:
    gone, broken = os.pipe()
    os.close(gone)
    with piped() as (reading, writing):
        printer = Printer(stdout=broken, stderr=writing)
        for n in range(10):
            printer.say(f"unread {n}")
            printer.note(f"line {n}")
        printer.close(5.0)
        assert os.read(reading, 1 << 16).decode() == "".join(f"line {n}\n" for n in range(10))
    os.close(broken)


def test_a_flood_of_an_engine_drops_no_line_of_the_supervisors_own() -> None:
    with piped() as (reading, writing):
        printer = Printer(lines_max=100, stdout=writing, stderr=writing)
        for n in range(5_000):
            printer.pass_on(f"line {n} " + "x" * 100)
            if n % 100 == 99:
                printer.say(f"own {n}")
        seen = b""
        while seen.count(b"own ") < 50:
            seen += os.read(reading, 1 << 16)
        printer.close(5.0)
        own = [line for line in seen.decode().splitlines() if line.startswith("own ")]
        assert own == [f"own {n}" for n in range(99, 5_000, 100)]
