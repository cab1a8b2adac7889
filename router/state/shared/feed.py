"""What a router says to all others: what it has in flight, and the sessions that have news; one message each time.

Forms are as in ``values``: another one is not read. A message says its number, so that who misses one knows.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from router.state.fleet.replica import PeerLoad
from router.state.shared.values import Count, Id, PinValue

FORM: Final = 1

MESSAGE_BYTES_MAX: Final = 1 << 20
"""Five hundred sessions and two thousand replicas take a fifth of it."""

Key = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
LoadRow = tuple[Id, Count, Count, Count, Count, Count]
PinRow = tuple[Key, PinValue]


class Message(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """One router's word. ``loads`` hold for ``ttl_s``; rows are a replica's id and a ``PeerLoad``'s fields.

    ``renewed`` are replicas whose heartbeat came there, ``has_orders``: the table of the fleet has changed.
    """

    form: int
    router: Id
    number: Count
    ttl_s: Annotated[float, msgspec.Meta(gt=0, le=60)]
    loads: Annotated[list[LoadRow], msgspec.Meta(max_length=4_096)]
    pins: Annotated[list[PinRow], msgspec.Meta(max_length=4_096)]
    renewed: Annotated[list[Id], msgspec.Meta(max_length=4_096)] = []
    has_orders: bool = False


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Message).decode


def said(
    router: str,
    number: int,
    *,
    ttl_s: float,
    loads: list[LoadRow],
    pins: list[tuple[str, bytes]],
    renewed: list[str] | None = None,
    has_orders: bool = False,
) -> bytes:
    """A message's bytes; ``pins`` are session keys with their packed values."""
    rows = [(key, msgspec.Raw(value)) for key, value in pins]
    return _encode([FORM, router, number, ttl_s, loads, rows, renewed or [], has_orders])


def heard(data: bytes) -> Message | None:
    """A message; None if it is of another form, or none at all."""
    if len(data) > MESSAGE_BYTES_MAX:
        return None
    try:
        message = _decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    return message if message.form == FORM else None


def loads_of(message: Message) -> dict[str, PeerLoad]:
    """What the router has in flight, by replica."""
    return {row[0]: PeerLoad(*row[1:]) for row in message.loads}
