"""How the control API answers: JSON, errors of one shape, and the codes that only it has."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

from router.errors import CODES, ClientError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BODY_BYTES_MAX: Final = 64 * 1024

CONTROL_CODES: Final[dict[str, int]] = {
    "unknown-session": 404,
    "unknown-replica": 404,
    "replica-not-usable": 409,
    "weight-unused": 409,
}
"""Codes that the front door does not have, and their statuses; ``docs/errors.md`` has the same rows."""


class ControlError(ClientError):
    """A request that the control API refuses."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message, http_status=status_of(code))


def status_of(code: str) -> int:
    """The status that a code is answered with."""
    return CONTROL_CODES.get(code) or CODES[code]


def unknown_replica(replica_id: str) -> ControlError:
    """No replica of this id is known."""
    return ControlError(
        "unknown-replica",
        f"no replica {replica_id!r} is known to this router; GET /fleet lists those that are, POST /replicas"
        " registers one",
    )


def unknown_session(key: str) -> ControlError:
    """This router does not know the session."""
    return ControlError(
        "unknown-session",
        f"no session {key!r} is known to this router; GET /sessions lists the recent ones (percent-encode"
        " the key)",
    )


def json_answer(body: object, *, status: int = 200) -> web.Response:
    """An answer of anything that msgspec encodes."""
    return web.Response(
        status=status, body=msgspec.json.encode(body), content_type="application/json"
    )


def error_answer(status: int, code: str, message: str) -> web.Response:
    """An error in the API's one shape."""
    return json_answer({"error": {"code": code, "message": message}}, status=status)


@web.middleware
async def errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Every error in the API's one shape."""
    try:
        return await handler(request)
    except ClientError as failure:
        answer = error_answer(failure.http_status, failure.code, failure.message)
        if failure.http_status == HTTPStatus.UNAUTHORIZED:
            answer.headers["www-authenticate"] = 'Bearer realm="homeport control"'
        return answer
    except web.HTTPNotFound:
        return error_answer(
            404, "unknown-path", f"the control API has no {request.path}; GET /openapi.json has all"
        )
    except web.HTTPMethodNotAllowed as failure:
        allowed = ", ".join(sorted(failure.allowed_methods))
        answer = error_answer(405, "method-not-allowed", f"{request.path} takes {allowed}")
        answer.headers["allow"] = allowed
        return answer
    except web.HTTPRequestEntityTooLarge:
        return error_answer(413, "too-large", f"a body here has at most {BODY_BYTES_MAX} bytes")
