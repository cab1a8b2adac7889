"""Where requests go that generate nothing: they fill no cache and are no turn of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.policy.view import Ranking

if TYPE_CHECKING:
    from router.policy.view import RouteRequest
    from router.state.fleet.candidates import View


def ranked_call(request: RouteRequest, view: View) -> Ranking:
    """The session's home where nobody waits longer than elsewhere, else the least in flight."""
    home = None if request.home_id is None else view.candidate(request.home_id)
    if home is not None and home.backlog_s <= view.least_backlog_s:
        return Ranking((home.replica_id,), "home", {})
    [least] = view.least_inflight(1, request.session_key)
    return Ranking((least.replica_id,), "least-load", {})
