"""When an engine is suspected, and when it is taken for hung."""

from __future__ import annotations

from replica.supervise.talk.probe import Load
from replica.supervise.talk.watch import Progress


def report(stamp: float) -> Load:
    return Load((stamp,), 1, 0)


def test_a_report_that_changes_is_movement() -> None:
    progress = Progress(patience_s=10.0, moved_s=0.0)
    for now_s in range(100):
        progress.read(report(float(now_s)), float(now_s))
        assert not progress.is_suspect(float(now_s))


def test_one_that_stands_still_is_suspect_soon_and_hung_after_the_longest_step() -> None:
    progress = Progress(patience_s=17.0, moved_s=0.0)
    for now_s in range(17):
        progress.read(report(1.0), float(now_s))
        assert progress.is_suspect(float(now_s)) is (now_s >= 4)
        assert not progress.is_hung(float(now_s))
    progress.read(report(1.0), 17.0)
    assert progress.is_hung(17.0)


def test_a_server_that_does_not_answer_is_no_movement() -> None:
    progress = Progress(patience_s=5.0, moved_s=0.0)
    for now_s in range(6):
        progress.read(None, float(now_s))
    assert progress.is_hung(5.0)


def test_a_token_is_movement() -> None:
    progress = Progress(patience_s=5.0, moved_s=0.0)
    progress.made_token(4.0)
    assert not progress.is_hung(5.0)


def test_a_machine_that_slept_accuses_nobody() -> None:
    progress = Progress(patience_s=5.0, moved_s=0.0)
    progress.read(report(1.0), 1.0)
    progress.read(report(1.0), 3_600.0)
    assert not progress.is_suspect(3_600.0)
