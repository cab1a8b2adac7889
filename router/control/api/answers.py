"""How the control API answers: JSON, errors of one shape, and the codes that only it has."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import HttpVersion11, web

from router.errors import CODES, ClientError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_log = logging.getLogger("homeport.control")
BODY_BYTES_MAX: Final = 64 * 1024
BODY_S: Final = 10.0
"""A call is answered within that; only its body can take so long to come."""

CONTROL_CODES: Final[dict[str, int]] = {
    "unknown-session": 404,
    "unknown-replica": 404,
    "replica-not-usable": 409,
    "weight-unused": 409,
    "drained-by-source": 409,
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
    """Every error in the API's one shape; a body that does not come in time is one."""
    try:
        async with asyncio.timeout(BODY_S):
            return await handler(request)
    except ClientError as failure:
        return _refused(failure)
    except web.HTTPException as failure:
        return _by_aiohttp(request, failure)
    except (web.RequestPayloadError, ConnectionError, TimeoutError) as failure:
        return _unread(failure)
    except Exception:  # noqa: BLE001  (logged, and told in the shape of every error)
        _log.exception("call-failed method=%s path=%r", request.method, request.path[:200])
        return error_answer(500, "internal", "the router failed on this call; its log says why")


async def expectation(request: web.Request) -> web.Response | None:
    """Answer an ``Expect`` header: go on, or refuse what is not known."""
    asked = request.headers.get("expect", "")
    if request.version < HttpVersion11:
        return None
    if asked.lower() != "100-continue":
        what = f"Expect: {asked[:40]!r} is not known; leave the header out"
        return _last(error_answer(417, "expectation-failed", what))
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # nothing of the answer itself has been sent
    return None


def _refused(failure: ClientError) -> web.Response:
    answer = error_answer(failure.http_status, failure.code, failure.message)
    if failure.http_status == HTTPStatus.UNAUTHORIZED:
        answer.headers["www-authenticate"] = 'Bearer realm="homeport control"'
    return answer


def _unread(failure: Exception) -> web.Response:
    """A body that is not what its head says, or does not come; the connection is of no more use."""
    if isinstance(failure, TimeoutError):
        what = f"the body did not arrive whole within {BODY_S:g} s"
        return _last(error_answer(408, "request-timeout", what))
    what = f"the body cannot be read: {type(failure.__cause__ or failure).__name__}"
    return _last(error_answer(400, "bad-request", what))


def _by_aiohttp(request: web.Request, failure: web.HTTPException) -> web.Response:
    """What aiohttp refuses on its own, in the API's shape."""
    if isinstance(failure, web.HTTPNotFound):
        what = f"the control API has no {request.path}; GET /openapi.json has all"
        return error_answer(404, "unknown-path", what)
    if isinstance(failure, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(failure.allowed_methods))
        answer = error_answer(405, "method-not-allowed", f"{request.path} takes {allowed}")
        answer.headers["allow"] = allowed
        return answer
    if isinstance(failure, web.HTTPRequestEntityTooLarge):
        return error_answer(413, "too-large", f"a body here has at most {BODY_BYTES_MAX} bytes")
    return error_answer(failure.status, "bad-request", failure.reason)


def _last(answer: web.Response) -> web.Response:
    """The connection is of no more use after it."""
    answer.force_close()
    return answer
