"""What a decision means for a session's home: whether it moves, or one request is only served away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.state.health.table import KEEPING, TAKING

if TYPE_CHECKING:
    from router.state.fleet.fleet import Fleet
    from router.state.sessions.pins import Pin

_USABLE: Final = TAKING | KEEPING
_AWAY: Final = frozenset({"split", "branch", "spill", "retry"})
"""Reasons to serve one request elsewhere while the session's home, if it is usable, stays."""


def is_usable(fleet: Fleet, replica_id: str) -> bool:
    """A home that its sessions may go on using, though perhaps not for this request."""
    replica = fleet.get(replica_id)
    return replica is not None and replica.state in _USABLE


def reason_of(reason: str, home_id: str | None, fleet: Fleet) -> str:
    """A policy's reason as it is recorded: a home that is full, not lost, is a spill."""
    if reason == "rehome" and home_id is not None and is_usable(fleet, home_id):
        return "spill"
    return reason


def home_after(pin: Pin, chosen_id: str, reason: str, fleet: Fleet, *, away_max: int) -> str:
    """The session's home once ``chosen_id`` was decided on for ``reason``; counts branches away.

    ``away_max`` branches in a row at one other replica make that the home: what is left of the
    session goes on over there (a compaction, a branch taken over).
    """
    if chosen_id == pin.home_id:
        pin.away_count = 0
        return chosen_id
    if reason not in _AWAY or not is_usable(fleet, pin.home_id):
        return chosen_id
    if reason == "branch":
        pin.away_count = pin.away_count + 1 if pin.away_id == chosen_id else 1
        pin.away_id = chosen_id
        if pin.away_count >= away_max:
            pin.away_count = 0
            return chosen_id
    return pin.home_id
