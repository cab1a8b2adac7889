"""Who may use the control API: whoever knows its key, where it has one."""

from __future__ import annotations

import hashlib
import hmac
import logging
from typing import TYPE_CHECKING, Final

from aiohttp import web
from aiohttp.http import HttpProcessingError

from router.errors import ClientError

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

_OPEN: Final = frozenset(("/healthz", "/readyz"))
_METRICS: Final = "/metrics"


class Guard:
    """Asks for the key on every path but those that tell nothing.

    ``key`` None lets everybody in, which the settings allow on loopback only.
    ``is_metrics_open``: a scrape needs no key.
    """

    def __init__(self, key: str | None, *, is_metrics_open: bool) -> None:
        self._digest = None if key is None else _digest(key)
        self._open = _OPEN | {_METRICS} if is_metrics_open else _OPEN

    def check(self, request: web.Request) -> None:
        """Let a request pass.

        Raises:
            ClientError: ``bad-api-key``, in the same words whatever is wrong with the key.
        """
        if self._digest is None or request.path in self._open:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        offered = (
            given.strip() if scheme.lower() == "bearer" else "",
            request.headers.get("x-api-key", ""),
        )
        # Digests are compared, so that neither the key's text nor its length shows in the time.
        found = [hmac.compare_digest(_digest(key), self._digest) for key in offered if key]
        if not any(found):
            raise ClientError(
                "bad-api-key",
                "The control API needs its key: send `Authorization: Bearer KEY`, the key being"
                " the router's admin_key.",
            )

    @property
    def middleware(self) -> Middleware:
        """The check as aiohttp calls it, before any path is looked at."""

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            self.check(request)
            return await handler(request)

        return guarded


def wordless(record: logging.LogRecord) -> bool:
    """A filter of logs: bytes that are no HTTP are not repeated, for there may be a key in them."""
    fault = record.exc_info[1] if record.exc_info else None
    if isinstance(fault, HttpProcessingError):
        record.exc_info = None
        record.msg, record.args = "not-http fault=%s", (type(fault).__name__,)
        record.levelno, record.levelname = logging.INFO, "INFO"
    return True


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
