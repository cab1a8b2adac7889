"""What the heads of one client have in common, worked out once for all that are alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from router.edge.exchange.tenancy import Visit, let_in
from router.edge.wire.answers import request_id
from router.framing.forwarding import Announced

if TYPE_CHECKING:
    from router.edge.context import Door
    from router.edge.routes.routes import Route
    from router.framing.alike import Alike
    from router.framing.events import HeaderList, RequestHead
    from router.tenants.accounts import Account


@dataclass(slots=True, frozen=True)
class Known:
    """Where such heads lead, whose they are, and what a replica is told of them.

    ``account`` is None where the door is open to all; ``n_changes`` is the gate's when it was found.
    ``request_id`` is the client's own, None if it gives none.
    """

    route: Route
    account: Account | None
    n_changes: int
    announced: Announced
    request_id: str | None

    def visit(self, head: RequestHead, door: Door) -> tuple[Visit | None, Route]:
        """Count one more of them against its tenant's limits; the route has an error if it may not come now."""
        account, gate = self.account, door.gate
        if account is None or gate is None:
            return None, self.route
        visit = Visit(account, head.content_length or 0, is_isolated=gate.is_isolated)
        error = let_in(door, visit, head)
        return visit, self.route if error is None else replace(self.route, error=error)


def known_of(head: RequestHead, alike: Alike, door: Door) -> Known | None:
    """What is known of such heads; None if nothing is, or if it may not hold for this one."""
    known = alike.told
    if not isinstance(known, Known) or (head.content_length or 0) > door.limits.body_bytes_max:
        return None
    if door.gate is not None and known.n_changes != door.gate.n_changes:
        return None
    return known


def remember(
    head: RequestHead, sent: HeaderList, found: Route, visit: Visit | None, door: Door
) -> None:
    """Keep what was found out of a head that is passed on, where all that are alike are passed on so.

    ``sent`` are its lines as they came.
    """
    announced = head.headers
    if head.alike is None or head.is_watched or head.content_coding or head.trace_id:
        return
    if isinstance(announced, Announced):
        head.alike.told = Known(
            found,
            None if visit is None else visit.account,
            0 if door.gate is None else door.gate.n_changes,
            announced,
            request_id(sent),
        )
