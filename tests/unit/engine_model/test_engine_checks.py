"""The invariants' checks notice what they are there for."""

from __future__ import annotations

from array import array

import pytest

from replica.hardware.profiles import profile_named
from sim.engine.checks import check_events, check_state, check_tree
from sim.engine.replica_model import ReplicaModel
from sim.engine.requests import Began, Ended, EndReason, EngineRequest, Event, Progress

TAKEN = EngineRequest("a", 100, 10)
BEGAN = Began("a", 1.0, 0, 0)
STOPPED = Ended("a", 2.0, 9, 10, EndReason.STOP)


def model_at_work() -> ReplicaModel:
    model = ReplicaModel(profile_named("b200-tp4-fp8"))
    model.submit(EngineRequest("a", 20_000, 500, array("Q", range(312))), 0.0)
    model.advance(1.0)
    check_state(model)
    return model


def test_wrong_counts_are_noticed() -> None:
    model = model_at_work()
    model.pool.private_pages += 1
    with pytest.raises(AssertionError, match="1: "):
        check_state(model)


def test_lost_pins_are_noticed() -> None:
    model = model_at_work()
    next(model.pool.tree.nodes()).pins += 1
    with pytest.raises(AssertionError, match="3: pins differ"):
        check_state(model)


def test_an_overfull_pool_is_noticed() -> None:
    model = model_at_work()
    model.pool.capacity_pages = 100
    with pytest.raises(AssertionError, match="2: 313 pages of 100 on the device"):
        check_state(model)


def test_a_page_missing_in_a_run_is_noticed() -> None:
    model = model_at_work()
    next(model.pool.host.tree.nodes()).start += 1
    with pytest.raises(AssertionError, match="4: a run does not begin where"):
        check_tree(model.pool.host.tree)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([], "a never ended"),
        ([BEGAN, STOPPED, STOPPED], "after the end"),
        ([BEGAN, BEGAN, STOPPED], "began twice"),
        ([Progress("a", 1.0, 1), STOPPED], "before the beginning"),
        ([BEGAN, Progress("a", 1.5, 0), STOPPED], "tells nothing"),
        ([BEGAN, Progress("a", 1.5, 3), STOPPED], "but 13 tokens were told"),
        ([BEGAN, Progress("a", 3.0, 3), STOPPED], "out of order"),
        ([BEGAN, Ended("a", 2.0, 8, 9, EndReason.STOP)], "stopped early"),
        ([BEGAN, Ended("a", 2.0, 10, 11, EndReason.ABORT)], "of 10"),
        ([BEGAN, STOPPED, Ended("b", 3.0, 0, 0, EndReason.ABORT)], "without being submitted"),
    ],
)
def test_events_that_do_not_add_up_are_noticed(events: list[Event], message: str) -> None:
    check_events([TAKEN], [BEGAN, STOPPED])
    with pytest.raises(AssertionError, match=message):
        check_events([TAKEN], events)
