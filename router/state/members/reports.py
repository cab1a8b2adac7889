"""What a load report says: foreign load, how fast the replica computes, whether its scheduler moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.state.health.progress import longest_step_s
from router.state.health.table import TAKING, Event, State

if TYPE_CHECKING:
    from router.state.fleet.fleet import Fleet
    from router.state.fleet.replica import Observation, Replica
    from router.state.members.conduct import Conduct

_WATCHED: Final = TAKING | {State.FULL, State.SUSPECT}
_LOST: Final = frozenset((State.STALLED, State.DOWN))
_FOREIGN_S: Final = 10.0
_IDLE_SLACK_S: Final = 1.5
"""An idle engine tells about once a second; it is asked less often than a busy one."""


def observed(replica: Replica, seen: Observation, *, fleet: Fleet, conduct: Conduct) -> None:
    """A replica's load report was read: a new one, or the last one once more.

    The report contains our own requests. What it says beyond them stays true while ours come and go, so the
    wait there is the report's, plus what we dispatched since, less what ended since. The last report
    read again changes nothing of that: our share was another when it was made.
    """
    now_s, heard_s = seen.seen_s, seen.heard_s
    longest_s = _longest_s(replica, now_s)
    load, is_new = replica.load, replica.progress.reported(seen.stamp, heard_s, longest_s, now_s)
    if is_new:
        load.is_lost = load.is_lost and replica.state in _LOST
        load.given_tokens = load.prefill_tokens
        if not load.inflight:
            load.deepest_tokens, load.has_taken_back = 0, False
        replica.observed = replica.report = seen
        _foreign(replica, seen, fleet)
        _learn(replica, seen, fleet)
    is_stalled = replica.progress.is_stalled(heard_s, longest_s, now_s)
    if replica.state is State.STALLED:
        # That less is expected of it, as its requests leave it, is no sign of life.
        if not is_stalled and (is_new or heard_s > replica.stalled_s):
            conduct.heard(replica, Event.MOVE, now_s)
    elif is_stalled and replica.state in _WATCHED:
        conduct.heard(replica, Event.STALL, now_s)


def _foreign(replica: Replica, seen: Observation, fleet: Fleet) -> None:
    """Only what exceeds our own share is new to the ledger."""
    inflight = seen.running + seen.waiting - seen.ours
    if inflight > 0:
        replica.foreign_s = seen.seen_s
        reported_s = replica.rate.linear_s * seen.waiting_uncached_tokens
        fleet.set_foreign(replica, inflight, max(0.0, reported_s - seen.ours_backlog_s))
    elif replica.foreign_inflight or replica.foreign_backlog_s:
        fleet.set_foreign(replica, 0, 0.0)


def _learn(replica: Replica, seen: Observation, fleet: Fleet) -> None:
    rate = replica.learner.reported(seen.prefill_tokens, seen.prefill_busy_us)
    if rate is not None:
        fleet.set_rate(replica, rate)


def _longest_s(replica: Replica, now_s: float) -> float:
    """What the longest step may take of all that the replica was given since its last report."""
    # What we sent before a report was read hides others' requests in it: they are believed for a while.
    load, is_foreign = replica.load, now_s - replica.foreign_s < _FOREIGN_S
    longest_s = longest_step_s(
        load,
        replica.rate,
        is_rate_known=replica.is_rate_known,
        chunk_tokens=replica.chunk_tokens,
        is_foreign=is_foreign,
    )
    if not load.inflight and not is_foreign:
        longest_s += _IDLE_SLACK_S
    return longest_s
