"""Replays of recordings that do not fit themselves, or this program."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from router.core import CoreParameters
from router.errors import ConnectFailed
from router.recording.errors import RecordingError
from router.recording.player import Player
from router.recording.records import (
    Arrive,
    Began,
    Blame,
    Header,
    Leave,
    Observed,
    Placed,
    Retry,
    Stayed,
    Tick,
)
from router.recording.report import replayed
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import Event
from router.state.history import Outcome
from tests.doubles.core_drill import Drill
from tests.doubles.prompts import prompt
from tests.doubles.recordings import packed, recorded

if TYPE_CHECKING:
    from router.recording.records import Record


def one_turn() -> list[Record]:
    core, journal = recorded()
    for at in range(3):
        core.members.join(ReplicaSpec(f"r{at}", "127.0.0.1", 31_000 + at), 0.0)
        core.members.heard(f"r{at}", Event.PROBE_OK, 0.0)
    ticket = core.arrive(prompt([1, 2, 3], key="s"), 1.0)
    core.retry(ticket, ConnectFailed("connect-failed", "x"), 2.0)
    core.began(ticket, 3.0)
    core.finish(ticket, Outcome.DONE, 4.0)
    core.tick(5.0)
    return journal.records


def play(rows: list[Record]) -> list[str]:
    header = rows[0]
    assert isinstance(header, Header)
    return [str(difference) for difference in Player(header).play(rows[1:])]


def index_of(rows: list[Record], kind: type[Record]) -> int:
    return next(at for at, row in enumerate(rows) if isinstance(row, kind))


def test_a_whole_turn_replays() -> None:
    assert play(one_turn()) == []


@pytest.mark.parametrize("kind", [Placed, Arrive])
def test_a_hole_is_an_error_and_not_a_difference(kind: type[Record]) -> None:
    rows = one_turn()
    at = index_of(rows, kind)
    del rows[at]
    with pytest.raises(RecordingError, match=rf"record {at + 1} does not fit.*has a hole"):
        play(rows)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (Began(99, 1.0), "no request 99 is in flight"),
        (Blame(1, 1.0, "Explosion", "connect-failed"), "the error Explosion"),
        (Retry(1, 1.0, "Refused", "saturated"), "blames a replica"),
        (Stayed(1), "answers nothing that was asked"),
    ],
)
def test_a_record_that_cannot_follow_is_an_error(row: Record, said: str) -> None:
    rows = one_turn()
    at = index_of(rows, Began)
    rows.insert(at, row)
    with pytest.raises(RecordingError, match=rf"record {at + 1} does not fit: .*{said}"):
        play(rows)


def test_a_policy_that_is_gone_is_named() -> None:
    with pytest.raises(
        RecordingError, match=r"policy: 'nearest' is not known; choose one of .*home"
    ):
        Player(Header("x", "nearest", 1, CoreParameters(), 1))


def test_a_lease_that_ends_otherwise_is_a_difference() -> None:
    rows = one_turn()
    rows[-1] = Tick(5.0, ("r7",))
    (said,) = play(rows)
    assert "recorded Tick(now_s=5.0, ended=('r7',)); now Tick(now_s=5.0, ended=())" in said


def test_after_a_difference_the_replay_goes_on_as_far_as_it_can() -> None:
    rows = one_turn()
    rows.insert(1, Leave("r0"))  # unknown yet: changes nothing
    at = index_of(rows, Arrive)
    rows[at:at] = [Leave("r0"), Leave("r1"), Leave("r2")]
    found = play(rows)
    assert "now Refusal(code='no-replica-ready'" in found[0]
    assert len(found) == 2  # the retry has no answer, either


def test_a_core_that_fails_is_a_difference_and_the_end() -> None:
    rows = one_turn()
    at = index_of(rows, Arrive)
    rows.insert(at, Observed("r0", 1, 1, 0, 0.0, 0, -math.inf))
    rows.insert(at, Observed("r1", 1, 1, 0, 0.0, 0, -math.inf))
    rows.insert(at, Observed("r2", 1, 1, 0, 0.0, 0, -math.inf))
    (said,) = play(rows)
    assert "now the core fails with OverflowError" in said


def test_the_report_says_what_was_compared() -> None:
    core, journal = recorded(seed=3)
    drill = Drill(core, 3)
    drill.run(300)
    data = packed(journal.records)
    report = replayed([data], maker="homeport test", differences_max=5)
    assert report.n_differences == 0
    text = "\n".join(report.lines)
    assert text.startswith("recorded by homeport test, policy home\n")
    assert f"{drill.n_placed} placed, {drill.n_refused} refused, {drill.n_moved} sent" in text
    assert "end: closed" in text
    assert text.endswith("\nall equal")


def test_the_report_shows_the_first_differences_and_whose_recording_it_is() -> None:
    core, journal = recorded(seed=3)
    Drill(core, 3).run(300)
    rows = [
        Placed(row.ticket, row.ranked, "luck", row.home_id, 1, 0)
        if isinstance(row, Placed)
        else row
        for row in journal.records
    ]
    n = sum(isinstance(row, Placed) for row in rows)
    data = packed(rows, end=None)
    report = replayed([data], maker="homeport 9", differences_max=2)
    assert report.n_differences == n > 2
    text = "\n".join(report.lines)
    assert "end: cut off" in text
    assert "this is homeport 9: another version may rightly decide otherwise" in text
    assert f"{n} differences; the first 2:" in text
    assert text.count("'luck'") == 2
