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
_IDLE_SLACK_S: Final = 1.5
"""An idle engine tells about once a second; it is asked less often than a busy one."""


def observed(replica: Replica, seen: Observation, *, fleet: Fleet, conduct: Conduct) -> None:
    """A replica's load report was read: a new one, or the last one once more.

    The report contains our own requests. What it says beyond them stays true while ours come and go, so the
    wait there is the report's, plus what we dispatched since, less what ended since. The last report
    read again changes nothing of that: our share was another when it was made.
    """
    now_s = seen.seen_s
    if replica.progress.reported(seen.stamp, now_s):
        load = replica.load
        load.given_tokens = load.prefill_tokens
        if not load.inflight:
            load.deepest_tokens = 0
        replica.observed = replica.report = seen
        _foreign(replica, seen, fleet)
        _learn(replica, seen, fleet)
    if replica.state is State.STALLED:
        if not _is_stalled(replica, seen.heard_s, now_s):
            conduct.heard(replica, Event.MOVE, now_s)
    elif replica.state in _WATCHED and _is_stalled(replica, seen.heard_s, now_s):
        conduct.heard(replica, Event.STALL, now_s)


def _foreign(replica: Replica, seen: Observation, fleet: Fleet) -> None:
    """Only what exceeds our own share is new to the ledger."""
    inflight = seen.running + seen.waiting - seen.ours
    if inflight > 0:
        reported_s = replica.rate.linear_s * seen.waiting_uncached_tokens
        fleet.set_foreign(replica, inflight, max(0.0, reported_s - seen.ours_backlog_s))
    elif replica.foreign_inflight or replica.foreign_backlog_s:
        fleet.set_foreign(replica, 0, 0.0)


def _learn(replica: Replica, seen: Observation, fleet: Fleet) -> None:
    rate = replica.learner.reported(seen.prefill_tokens, seen.prefill_busy_us)
    if rate is not None:
        fleet.set_rate(replica, rate)


def _is_stalled(replica: Replica, heard_s: float, now_s: float) -> bool:
    load, is_foreign = replica.load, bool(replica.foreign_inflight)
    longest_s = longest_step_s(
        load,
        replica.rate,
        is_rate_known=replica.is_rate_known,
        chunk_tokens=replica.chunk_tokens,
        is_foreign=is_foreign,
    )
    if not load.inflight and not is_foreign:
        longest_s += _IDLE_SLACK_S
    return replica.progress.is_stalled(heard_s, longest_s, now_s)
