"""A request that is answered with an error and never placed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.edge.answers import error_fields
from router.edge.routes import allowed, nearest
from router.edge.tenancy import challenge
from router.framing.events import RequestHead

if TYPE_CHECKING:
    from router.edge.context import Door
    from router.edge.routes import Route
    from router.edge.tenancy import Visit
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
    door: Door, error: RouterError, found: Route | None, visit: Visit | None, request_id: str
) -> tuple[bytes, bytes]:
    """Count it and write its line; answers the error's head and body in the client's dialect.

    ``found`` and ``visit`` are None where the request was not read so far.
    """
    dialect = found.dialect if found is not None else nearest("", door.dialects)
    is_known = found is not None and found.is_generation
    door.observer.turned_away(
        code=error.code,
        dialect=dialect.name if is_known else "",
        target=found.path if found is not None else "",
        tenant=visit.account.name if visit is not None else "",
    )
    fields = error_fields(error, request_id or door.new_id())
    return fields + allowed(error, found) + challenge(error), dialect.error_body(error)
