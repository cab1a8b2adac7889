"""Marks of load reports from a feed and from being asked, in one order."""

from __future__ import annotations

import pytest

from router.control.observe.asking import Kind
from router.control.observe.stamps import Stamps

FEED, LOADS, METRICS = Kind.FEED, Kind.LOADS, Kind.METRICS
Step = tuple[Kind, tuple[float, ...], bool]


@pytest.mark.parametrize(
    "steps",
    [
        # Each step: source, its own mark, whether that is told as the report before it.
        [(LOADS, (10.0,), False), (LOADS, (10.0,), True), (LOADS, (11.0,), False)],
        [(LOADS, (), False), (LOADS, (), False)],
        # A feed that fell silent: what is read in its place is no news until it moves.
        [(FEED, (1.0,), False), (LOADS, (50.0,), True), (LOADS, (50.0,), True)],
        [(FEED, (1.0,), False), (LOADS, (50.0,), True), (LOADS, (51.0,), False)],
        # The same of each of several ranks.
        [
            (FEED, (1.0, 4.0), False),
            (LOADS, (50.0, 60.0), True),
            (LOADS, (50.0, 61.0), False),
            (LOADS, (50.0, 61.0), True),
            (LOADS, (51.0, 61.0), False),
        ],
        # A feed's reading is news.
        [(LOADS, (50.0,), False), (FEED, (1.0,), False), (FEED, (2.0,), False)],
        [(FEED, (1.0,), False), (LOADS, (9.0,), True), (FEED, (2.0,), False)],
        # Other numbers of ranks, and pages without marks, are not compared.
        [(FEED, (1.0,), False), (LOADS, (9.0, 9.0), False), (LOADS, (9.0,), False)],
        [(LOADS, (9.0,), False), (METRICS, (), False), (LOADS, (9.0,), False)],
    ],
)
def test_a_report_is_news_where_something_moved(steps: list[Step]) -> None:
    stamps = Stamps()
    before: tuple[float, ...] = ()
    for kind, stamp, is_same in steps:
        told = stamps.told(kind, stamp)
        assert stamps.is_same is is_same
        assert (bool(told) and told == before) is is_same
        assert len(told) == len(stamp)
        before = told
