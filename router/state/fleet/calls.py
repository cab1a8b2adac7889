"""Where requests go that no policy decides on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.policy.view import Ranking

if TYPE_CHECKING:
    from router.policy.view import RouteRequest
    from router.state.fleet.candidates import View
    from router.state.sessions.pins import Pin


def ruled(
    request: RouteRequest,
    view: View,
    pin: Pin | None,
    now_s: float,
    *,
    bound_to: str,
    is_turn: bool,
) -> Ranking | None:
    """To whoever alone can serve it (``bound_to``), or where an operator fixed its session.

    None where the policy decides. A fixed session goes by policy while its replica cannot take the request.
    """
    if bound_to:
        return Ranking((bound_to,), "holder", {})
    if not is_turn:
        return ranked_call(request, view)
    fixed_id = "" if pin is None else pin.fixed_to(now_s)
    if fixed_id and view.candidate(fixed_id) is not None:
        return Ranking((fixed_id,), "pinned", {})
    return None


def ranked_call(request: RouteRequest, view: View) -> Ranking:
    """A request that generates nothing, fills no cache and is no turn of a session.

    To the session's home where nobody waits longer than elsewhere, else to the least in flight.
    """
    home = None if request.home_id is None else view.candidate(request.home_id)
    if home is not None and home.backlog_s <= view.least_backlog_s:
        return Ranking((home.replica_id,), "home", {})
    [least] = view.least_inflight(1, request.session_key)
    return Ranking((least.replica_id,), "least-load", {})
