"""Long prompts take turns: one at a time is computed at a replica, others wait at the door.

An engine computes prompts one behind the other, so who waits at the door loses nothing, and whatever becomes
cheaper meanwhile is still open to it. A replica that has several long prompts at once lets its short turns wait
behind all of them; and where the caches are too full for all that live, each long prompt pushes others out, whose
next turns are long then: without turns, throughput collapses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.errors import AwaitsTurn
from router.state.fleet.ledger import LONG_TOKENS

if TYPE_CHECKING:
    from router.policy.view import FleetView, RouteRequest
    from router.state.fleet.replica import Replica


def check_turn(request: RouteRequest, replica: Replica | None, fleet: FleetView) -> None:
    """Look whether a request may be sent to the replica that was chosen for it now.

    Raises:
        AwaitsTurn: much of its prompt is to be computed there, and another long one is.
    """
    if replica is not None and awaits_turn(request, replica):
        raise AwaitsTurn(
            replica.replica_id,
            retry_after_s=max(1.0, replica.prefill_ahead_s),
            new_tokens=request.prompt_tokens - request.cached_tokens.get(replica.replica_id),
            is_short_first=replica.is_short_first,
            fill_ratio=fleet.fill_ratio,
        )


def awaits_turn(request: RouteRequest, replica: Replica) -> bool:
    """Much of its prompt is to be computed at this replica, and another long one is."""
    if has_turn(replica):
        return False
    return request.prompt_tokens - request.cached_tokens.get(replica.replica_id) >= LONG_TOKENS


def has_turn(replica: Replica | None) -> bool:
    """No long prompt of ours waits to be answered there; a replica that left keeps nobody waiting."""
    return replica is None or not replica.load.long_prefills
