"""A request that is answered with an error and never placed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.dialect.clients.agents import told_to
from router.edge.exchange.tenancy import challenge
from router.edge.routes.routes import allowed
from router.edge.wire.answers import error_fields
from router.framing.events import RequestHead

if TYPE_CHECKING:
    from router.edge.context import Door
    from router.edge.exchange.tenancy import Visit
    from router.edge.routes.routes import Route
    from router.errors import RouterError


NO_HEAD: Final = RequestHead(
    method=b"GET",
    target=b"",
    headers=[],
    content_length=None,
    is_chunked=False,
    keep_alive=False,
    expects_continue=False,
    http_version="1.1",
)
"""Stands for a request whose head could not be read."""


def refused(
    door: Door,
    error: RouterError,
    head: RequestHead,
    request_id: str,
    *,
    found: Route | None,
    visit: Visit | None,
) -> tuple[bytes, bytes]:
    """Count it and write its line; answers the error's head and body in the client's dialect.

    ``found`` and ``visit`` are None where the request was not read so far.
    """
    dialect = found.dialect if found is not None else door.routes.nearest("")
    path = found.path if found is not None else ""
    is_known = found is not None and found.is_forwarded
    door.observer.turned_away(
        code=error.code,
        dialect=dialect.name if is_known else "",
        target=path,
        tenant=visit.account.name if visit is not None else "",
    )
    told, more = told_to(head.headers, path, error)
    fields = error_fields(told, request_id or door.new_id())
    return fields + more + allowed(error, found) + challenge(error), dialect.error_body(told)
