"""The control API's client: what `homeport fleet` asks a router with."""

from __future__ import annotations

import errno
import os
import ssl
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from router.control.api.changes import ACTOR_HEADER, REASON_HEADER
from router.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from router.settings.admin import AdminAccess

_CALL_S_MAX: Final = 15.0
_ANSWER_BYTES_MAX: Final = 64 << 20
_CHUNK_BYTES: Final = 1 << 16
_ERROR_FROM: Final = 400
_UNAUTHORIZED: Final = 401


class AdminError(Exception):
    """A call that was refused or did not arrive; its words say what to do. ``code`` is the router's, if any."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class AdminClient:
    """One router's control API, for the length of an ``async with``.

    ``actor`` and ``reason`` go with every call; a router notes them where something changes.
    Entering raises ``ConfigError`` where a file of certificates cannot be used.
    """

    def __init__(self, access: AdminAccess, *, actor: str, reason: str | None = None) -> None:
        self._access = access
        self._headers = {ACTOR_HEADER: actor}
        if reason is not None:
            self._headers[REASON_HEADER] = reason
        if access.key is not None:
            self._headers["authorization"] = f"Bearer {access.key}"
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._tls())
        timeout = aiohttp.ClientTimeout(total=_CALL_S_MAX)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(
        self,
        method: str,
        *path: str,
        body: dict[str, Any] | None = None,
        query: Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        """Make one call; ``path`` are the parts between slashes. Answers the JSON, {} if there is none.

        Raises:
            AdminError: the router refused, cannot be reached, or is no router.
        """
        assert self._session is not None, "used within `async with`"
        where = "/".join(quote(part, safe="") for part in path)
        url = URL(f"{self._access.url}/{where}", encoded=True)
        if query:
            url = url.with_query({name: str(value) for name, value in query.items()})
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with self._session.request(
                method, url, data=data, headers=self._headers, allow_redirects=False
            ) as answer:
                status, content = answer.status, await _bounded(answer)
        except TimeoutError:
            raise AdminError(
                f"the router at {self._access.url} did not answer within {_CALL_S_MAX:g} s: look whether it hangs"
            ) from None
        except (aiohttp.ClientError, OSError, ssl.SSLError) as failure:
            raise AdminError(
                f"cannot reach the router's control API at {self._access.url}: {_words(failure)}; is it running,"
                " and is this its control port? (--url or HOMEPORT_ADMIN_URL)"
            ) from None
        return self._read(status, content)

    def _read(self, status: int, content: bytes) -> dict[str, Any]:
        try:
            said = msgspec.json.decode(content) if content else {}
        except (msgspec.DecodeError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise AdminError(
                f"{self._access.url} answers {status} without JSON: it is no router's control port"
            )
        if status < _ERROR_FROM:
            return said
        error = said.get("error")
        error = error if isinstance(error, dict) else {}
        code, message = str(error.get("code", "")), str(error.get("message", ""))
        if status == _UNAUTHORIZED:
            message = (
                f"the router at {self._access.url} wants its admin key: set HOMEPORT_ADMIN_KEY_FILE or"
                " --key-file to a file that holds it"
                if "authorization" not in self._headers
                else f"the router at {self._access.url} does not know this admin key"
            )
        elif code in ("unknown-path", "method-not-allowed", ""):
            message = (
                f"{self._access.url} answers {status}: it is not the control port of a router of this version"
                " (`homeport serve` prints that as admin_url)"
            )
        raise AdminError(" ".join(message.split()), code)

    def _tls(self) -> ssl.SSLContext | bool:
        access = self._access
        if not access.url.startswith("https"):
            return True
        try:
            context = ssl.create_default_context(cafile=access.ca_file)
            if access.cert_file is not None:
                context.load_cert_chain(access.cert_file, access.cert_key_file)
        except (OSError, ssl.SSLError) as failure:
            files = ", ".join(filter(None, (access.ca_file, access.cert_file)))
            raise ConfigError(
                f"cannot use the certificates in {files}: {_words(failure)}"
            ) from None
        return context


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    n_bytes = 0
    async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
        parts.append(chunk)
        n_bytes += len(chunk)
        if n_bytes > _ANSWER_BYTES_MAX:
            raise AdminError(f"the answer is larger than {_ANSWER_BYTES_MAX >> 20} MiB")
    return b"".join(parts)


def _words(failure: Exception) -> str:
    """The cause in a few words."""
    if isinstance(failure, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted ({failure.certificate_error}); name its CA with --ca-file"
    if isinstance(failure, aiohttp.ClientConnectorError):
        failure = failure.os_error
    number = failure.errno if isinstance(failure, OSError) else None
    # asyncio's own text of a refused connection names its call, not what happened.
    known = number is not None and number in errno.errorcode
    text = os.strerror(number) if known and number else str(failure) or type(failure).__name__
    return " ".join(str(text).split())
