"""The heads the router writes: for its own answers and for those of a replica."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from router.framing.forwarding import Announced
from router.framing.writing import (
    HOP_BY_HOP,
    KEYS,
    NOT_FORWARDED,
    clean,
    end_to_end,
    lines,
    status_line,
)

if TYPE_CHECKING:
    from router.errors import RouterError
    from router.framing.events import HeaderList, ResponseHead
    from router.state.fleet.replica import ReplicaSpec
    from router.ticket import Ticket

JSON: Final = b"content-type: application/json\r\n"
REQUEST_ID: Final = b"x-request-id"
_VIA: Final = b"x-homeport-via"
_REQUEST_ID_BYTES_MAX: Final = 128
_NAMES_MAX: Final = 2048
"""Replicas' names and addresses that are kept as they are written."""

_OURS: Final = (
    b"x-homeport-replica",
    b"x-homeport-reason",
    b"x-homeport-price",
    b"x-homeport-cached-tokens",
    b"x-homeport-error",
)
_NOT_RELAYED: Final = HOP_BY_HOP | {b"content-length", REQUEST_ID, *_OURS}


def request_id(headers: HeaderList) -> str | None:
    """The id the client gave its request, if it is printable and short enough to be passed on."""
    for name, value in headers:
        if name == REQUEST_ID:
            if not 0 < len(value) <= _REQUEST_ID_BYTES_MAX or not value.isascii():
                return None
            text = value.decode("ascii")
            return text if text.isprintable() else None
    return None


def forwarded_fields(
    headers: HeaderList, *, body_bytes: int, request_id: str, door_id: str, has_key: bool = False
) -> bytes:
    """The header lines a replica gets, without Host and the blank line.

    ``has_key``: the client's own API key is among them.
    """
    if isinstance(headers, Announced):
        written = headers.written
    else:
        kept = end_to_end(headers, NOT_FORWARDED if has_key else NOT_FORWARDED | KEYS)
        written = lines(kept)
    return b"%bcontent-length: %d\r\nx-request-id: %b\r\nx-homeport-via: %b\r\n" % (
        written,
        body_bytes,
        request_id.encode("ascii"),
        door_id.encode("ascii"),
    )


def passed_through(headers: HeaderList, door_id: str) -> bool:
    """Whether a request has been forwarded by this door before; each door adds a line of its own."""
    return (_VIA, door_id.encode("ascii")) in headers


def request_head(method: bytes, target: bytes, spec: ReplicaSpec, fields: bytes) -> bytes:
    """A whole request head for one replica."""
    place = (method, target, _host_line(spec.host, spec.port), fields)
    return b"%b %b HTTP/1.1\r\n%b%b\r\n" % place


_kept_clean: Final = lru_cache(_NAMES_MAX)(clean)


@lru_cache(_NAMES_MAX)
def _host_line(host: str, port: int) -> bytes:
    name = f"[{host}]" if ":" in host else host
    return b"host: %b:%d\r\n" % (clean(name), port)


def placement_fields(ticket: Ticket, request_id: str) -> bytes:
    """Where a request went and why, as header lines."""
    price, record = ticket.price, ticket.record
    return (
        b"x-homeport-replica: %b\r\n"
        b"x-homeport-reason: %b\r\n"
        b"x-homeport-price: wait=%.3f prefill=%.3f interference=%.3f pressure=%.3f\r\n"
        b"x-homeport-cached-tokens: %d\r\n"
        b"x-request-id: %b\r\n"
        % (
            _kept_clean(record.replica_id),
            _kept_clean(record.reason),
            price.wait_s,
            price.prefill_s,
            price.interference_s,
            price.pressure_s,
            record.predicted_cached_tokens,
            request_id.encode("ascii"),
        )
    )


def relayed_fields(
    head: ResponseHead, ticket: Ticket, request_id: str, *, retry_after_s: float | None = None
) -> bytes:
    """Status line and header lines of a replica's answer, without framing and blank line.

    ``retry_after_s`` is said where the replica did not say when to come back.
    """
    come_back = b""
    if retry_after_s is not None and not any(name == b"retry-after" for name, _ in head.headers):
        come_back = _retry_after(retry_after_s)
    return b"%b%b%b%b" % (
        status_line(head.status),
        _relayed(head),
        come_back,
        placement_fields(ticket, request_id),
    )


def _relayed(head: ResponseHead) -> bytes:
    """The lines of a replica's head that a client gets; written once for all heads that are alike."""
    alike = head.alike
    if alike is not None and isinstance(alike.told, bytes):
        return alike.told
    written = lines(end_to_end(head.headers, _NOT_RELAYED))
    if alike is not None:
        alike.told = written
    return written


def waiting_fields(ticket: Ticket | None, request_id: str) -> bytes:
    """The head of a stream whose first event has not come yet; ``ticket``: None if not placed."""
    name = b"x-request-id: %b\r\n" % request_id.encode("ascii")
    return b"".join(
        (
            status_line(200),
            b"content-type: text/event-stream\r\ncache-control: no-cache\r\n",
            name if ticket is None else placement_fields(ticket, request_id),
        )
    )


def error_fields(error: RouterError, request_id: str, placement: bytes = b"") -> bytes:
    """Status line and header lines of an error of the router's own."""
    return b"".join(
        (
            status_line(error.http_status),
            JSON,
            b"x-homeport-error: %b\r\n" % clean(error.code),
            _retry_after(error.retry_after_s),
            placement or b"x-request-id: %b\r\n" % request_id.encode("ascii"),
        )
    )


def _retry_after(wait_s: float | None) -> bytes:
    """The header line in whole seconds, rounded up; nothing for None."""
    return b"" if wait_s is None else b"retry-after: %d\r\n" % max(0, math.ceil(wait_s))
