"""What one whole request asks for, and what a replica is to be sent for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from router.dialect.body.splice import renamed
from router.edge.routes.naming import settle
from router.edge.wire.answers import forwarded_fields

if TYPE_CHECKING:
    from router.dialect.base import Dialect, PromptFacts
    from router.edge.context import Door
    from router.edge.exchange.tenancy import Visit
    from router.framing.events import RequestHead


class Opening(NamedTuple):
    """``body`` and ``fields`` go to the replica; ``strip_usage``: take the usage from the answer."""

    facts: PromptFacts
    body: bytes
    strip_usage: bool
    fields: bytes


def opened(
    door: Door,
    dialect: Dialect,
    request: RequestHead,
    body: bytes,
    request_id: str,
    *,
    visit: Visit | None,
    kept_id: str = "",
) -> Opening:
    """Read a whole request; ``kept_id`` is the response that its path is about.

    Raises:
        ClientError: the body cannot be read, or asks for what its tenant may not have.
    """
    facts = dialect.read(body, request.headers)
    about = kept_id or facts.previous_id
    is_unnamed = facts.session_key in ("", about)
    name = settle(facts, door.names) if visit is None else visit.claim(facts, door.names)
    if about:
        find = door.core.fleet.get
        door.holders.bind(facts, about, find, owner=facts.tenant, is_unnamed=is_unnamed)
    changed, strip_usage = dialect.outgoing(body, facts)
    if name is not None:
        changed = renamed(changed, name)
    if visit is not None:
        changed = visit.outgoing(changed)
    fields = forwarded_fields(
        request.headers,
        body_bytes=len(changed),
        request_id=request_id,
        door_id=door.door_id,
        has_key=door.keys.is_client_forwarded,
    )
    return Opening(facts, changed, strip_usage, fields)
