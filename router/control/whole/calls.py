"""Calls from worker to worker: each serves its part of the control API on a socket for its siblings alone."""

from __future__ import annotations

import asyncio
import hmac
import socket
from typing import TYPE_CHECKING, Final, NamedTuple

import aiohttp
from aiohttp import web
from typing_extensions import override

from router.errors import ClientError
from router.workers.place import address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.tracing import Trace
    from aiohttp.typedefs import Handler, Middleware

    from router.workers.board import Row
    from router.workers.place import Place

CALL_S_MAX: Final = 2.0
LEADS: Final = "x-homeport-worker-leads"
"""The worker that is asked is to make the change for all, not for itself alone."""
REJOIN: Final = "/worker/rejoin"
"""Asks a worker to learn anew what operators and registrations said: it missed some of it."""
_KNOWN_BY: Final = "x-homeport-worker"
_CHUNK_BYTES: Final = 1 << 16


class Said(NamedTuple):
    """A sibling's answer."""

    status: int
    body: bytes
    content_type: str


class SiblingAway(Exception):  # noqa: N818  (what happened, as the other errors of this floor)
    """A sibling did not answer in time, or not at all."""


class _Connector(aiohttp.UnixConnector):
    """Connects to a name that no file has, which the event loop's own call does not take."""

    @override
    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.setblocking(False)  # noqa: FBT003  (its only form)
            sock.connect(self.path)
            loop = asyncio.get_running_loop()
            _, protocol = await loop.create_unix_connection(self._factory, sock=sock)
        except OSError as failure:
            sock.close()
            raise aiohttp.ClientConnectionError(str(failure)) from failure
        return protocol


class Calls:
    """Asks siblings."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._token = place.board.token.hex()

    async def ask(
        self,
        sibling: Row,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Said:
        """One answer.

        Raises:
            SiblingAway: none came in time.
        """
        try:
            async with (
                self._session(sibling, CALL_S_MAX) as session,
                session.request(
                    method, _url(path), data=body or None, headers=headers, allow_redirects=False
                ) as answer,
            ):
                return Said(answer.status, await answer.read(), answer.content_type)
        except (aiohttp.ClientError, TimeoutError, OSError) as failure:
            raise SiblingAway(f"worker {sibling.serial}: {failure!r}") from failure

    async def chunks(self, sibling: Row, path: str, limit_s: float) -> AsyncIterator[bytes]:
        """A long answer as it comes.

        Raises:
            SiblingAway: it did not come whole in time.
        """
        try:
            async with (
                self._session(sibling, limit_s) as session,
                session.get(_url(path), raise_for_status=True) as answer,
            ):
                async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as failure:
            raise SiblingAway(f"worker {sibling.serial}: {failure!r}") from failure

    def _session(self, sibling: Row, limit_s: float) -> aiohttp.ClientSession:
        path = address(self._place.board.token, sibling.serial, "calls")
        return aiohttp.ClientSession(
            connector=_Connector(path=path, force_close=True),
            timeout=aiohttp.ClientTimeout(total=limit_s),
            headers={_KNOWN_BY: self._token},
            auto_decompress=False,
        )


def _url(path: str) -> str:
    return f"http://worker{path}"


def siblings_only(place: Place) -> Middleware:
    """Lets in who knows the token of this router's workers, and nobody else of this machine."""
    token = place.board.token.hex()

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not hmac.compare_digest(request.headers.get(_KNOWN_BY, "").encode(), token.encode()):
            raise ClientError("bad-api-key", "This socket is for the workers of one router.")
        return await handler(request)

    return guarded
