"""The list of operators' changes: bounded, newest first, one log line each."""

from __future__ import annotations

import logging
from collections import defaultdict
from itertools import count

import pytest

from router.control.api.changes import CHANGES_MAX, Author, Changes


@pytest.fixture
def counts() -> defaultdict[str, int]:
    return defaultdict(int)


@pytest.fixture
def changes(counts: defaultdict[str, int]) -> Changes:
    clock = count(1)
    return Changes(counts, lambda: float(next(clock)))


def test_only_the_newest_are_kept_and_all_are_counted(
    changes: Changes, counts: defaultdict[str, int]
) -> None:
    for n in range(CHANGES_MAX + 5):
        changes.note("change", Author("ada"), replica="r1", before={"weight": n}, after={})
    kept = changes.recent(CHANGES_MAX + 100)
    assert [row.number for row in kept] == list(range(CHANGES_MAX + 5, 5, -1))
    assert [row.at_s for row in changes.recent(2)] == [CHANGES_MAX + 5.0, CHANGES_MAX + 4.0]
    assert counts == {"change": CHANGES_MAX + 5}


def test_what_changes_nothing_is_not_noted(
    changes: Changes, counts: defaultdict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "homeport.operator"):
        changes.note("drain", Author("ada"), replica="r1", before={"a": 1}, after={"a": 1})
    assert (changes.recent(9), dict(counts), caplog.messages) == ([], {}, [])


def test_no_text_of_a_caller_begins_a_line_of_the_log(
    changes: Changes, caplog: pytest.LogCaptureFixture
) -> None:
    forged = 'x"\n2026-01-01 ERROR'
    with caplog.at_level(logging.INFO, "homeport.operator"):
        changes.note("pin", Author(forged, forged), session=forged, before={}, after={"a": forged})
    [message] = caplog.messages
    assert "\n" not in message
    assert message.startswith('operator event=pin replica=- session="x\\"\\n2026')
