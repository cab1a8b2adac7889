"""The health table, row by row where a row carries a promise."""

from __future__ import annotations

import pytest

from router.state.health.table import TABLE, Event, State, follow


@pytest.mark.parametrize(
    ("state", "event", "after"),
    [
        (State.STARTING, Event.PROBE_OK, State.READY),
        (State.READY, Event.PROBE_NOT_READY, State.NOT_READY),
        # An engine that drains still answers what it has: that does not make it ready again.
        (State.NOT_READY, Event.REQUEST_OK, State.NOT_READY),
        (State.NOT_READY, Event.REQUEST_FAILED, State.NOT_READY),
        (State.NOT_READY, Event.PROBE_OK, State.READY),
        (State.NOT_READY, Event.CONNECT_FAILED, State.DOWN),
        (State.DOWN, Event.PROBE_NOT_READY, State.STARTING),
        (State.STARTING, Event.REQUEST_OK, State.STARTING),
        (State.READY, Event.CONNECT_FAILED, State.DOWN),
        (State.READY, Event.REQUEST_FAILED, State.SUSPECT),
        (State.SUSPECT, Event.PROBE_OK, State.READY),
        (State.SUSPECT, Event.PROBE_FAILED, State.DOWN),
        (State.DOWN, Event.PROBE_OK, State.READY),
        (State.DOWN, Event.REQUEST_OK, State.DOWN),
        (State.READY, Event.REQUEST_OK, State.READY),
    ],
)
def test_moves(state: State, event: Event, after: State) -> None:
    assert follow(state, event) is after


def test_draining_is_left_by_nothing_that_happens_but_on_being_told() -> None:
    after = {event: follow(State.DRAINING, event) for event in Event}
    assert after.pop(Event.UNDRAIN) is State.STARTING
    assert set(after.values()) == {State.DRAINING}
    assert all(follow(state, Event.DRAIN) is State.DRAINING for state in State)
    assert all(
        follow(state, Event.UNDRAIN) is state for state in State if state is not State.DRAINING
    )


def test_every_state_can_become_ready_again() -> None:
    for state in State:
        reached = {state}
        for _ in State:
            reached |= {after for (before, _), after in TABLE.items() if before in reached}
        assert State.READY in reached
