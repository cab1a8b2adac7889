"""Heads and chunks as bytes, and the headers that may cross a proxy."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.framing.events import HeaderList

HOP_BY_HOP: Final = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""Headers that belong to one connection (RFC 9110, 7.6.1)."""

KEYS: Final = frozenset((b"authorization", b"x-api-key"))
"""What a client shows who it is by."""

_OVERRIDES: Final = frozenset(
    b"x-override-" + name
    for name in (
        b"bootstrap-host",
        b"bootstrap-port",
        b"bootstrap-room",
        b"conversation-id",
        b"disagg-prefill-dp-rank",
        b"priority",
        b"rid",
        b"routed-dp-rank",
    )
)
"""What SGLang lets a router decide (``SGLANG_ENABLE_REQUEST_HEADER_OVERRIDES``), and no client."""

NOT_FORWARDED: Final = (
    HOP_BY_HOP
    | _OVERRIDES
    | {
        b"accept-encoding",  # a compressed answer would blind the tap
        b"content-length",
        b"expect",
        b"host",
        b"x-request-id",
    }
)
"""Headers of a request that the router writes anew or keeps to itself."""

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"

_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


def status_line(status: int) -> bytes:
    """The first line of an answer."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


def chunk(data: bytes) -> bytes:
    """``data`` as one chunk; ``data`` is not empty (an empty chunk would end the body)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def end_to_end(headers: HeaderList, drop: frozenset[bytes]) -> HeaderList:
    """The headers that may be passed on: not hop-by-hop, not named by Connection, not in ``drop``.

    ``drop`` contains :data:`HOP_BY_HOP`.
    """
    kept = [line for line in headers if line[0] not in drop]
    for name, value in headers:
        if name == b"connection":
            named = {part.strip().lower() for part in value.split(b",")}
            kept = [line for line in kept if line[0] not in named]
    return kept


def lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Header lines as bytes, each with its CRLF; the values must be clean (see :func:`clean`)."""
    return b"".join([b"%b: %b\r\n" % line for line in headers])


def clean(text: str) -> bytes:
    """``text`` as a header's value: visible ASCII and blanks, anything else as a question mark."""
    if text.isascii() and text.isprintable():
        return text.encode("ascii")
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text).encode("ascii")
