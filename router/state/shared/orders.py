"""What all routers are to know of a replica: that it registered, and what an operator wants of it. Pure.

Values are kept as sessions are: forms, and fields that are only added at the end. That something is not
there says nothing, for a store may have been emptied: what is taken back is said.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, TypeVar

import msgspec

from router.state.fleet.replica import ReplicaSpec
from router.state.rates.prefill import PrefillRate
from router.state.shared.values import Count, Id

FORM: Final = 1
_VALUE_BYTES_MAX: Final = 8_192
_YEAR_S: Final = 366 * 86_400.0

Terms = tuple[float, float, float, float]
Span = Annotated[float, msgspec.Meta(gt=0, le=_YEAR_S)]


class Wish(StrEnum):
    """What an operator wants of a replica."""

    DRAIN = "drain"
    UNDRAIN = "undrain"
    REMOVE = "remove"


class LeaseValue(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A replica that registered with some router."""

    form: int
    replica_id: Id
    host: Id
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]
    is_tls: bool
    lease_s: Span | None
    capacity_tokens: Count | None = None
    profile: Id | None = None
    inflight_max: Annotated[int, msgspec.Meta(ge=1)] | None = None
    rate: Terms | None = None


class OrderValue(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """An operator's last word on a replica, the ``number``-th; ``until_s`` since 1970, 0 for no end."""

    form: int
    number: Count
    wish: Wish
    leaves: bool = False
    until_s: float = 0.0


_encode: Final = msgspec.msgpack.Encoder().encode
_lease: Final = msgspec.msgpack.Decoder(LeaseValue)
_order: Final = msgspec.msgpack.Decoder(OrderValue)
T = TypeVar("T", LeaseValue, OrderValue)


def lease_of(spec: ReplicaSpec) -> bytes:
    """A registration as its value; its key is never in it."""
    return _encode(
        LeaseValue(
            FORM,
            spec.replica_id,
            spec.host,
            spec.port,
            spec.is_tls,
            spec.lease_s,
            spec.capacity_tokens,
            spec.profile,
            spec.inflight_max,
            None if spec.rate is None else spec.rate.terms,
        )
    )


def spec_in(data: bytes) -> ReplicaSpec | None:
    """The replica of a lease; None if it cannot be read."""
    value = _read(_lease, data)
    if value is None:
        return None
    return ReplicaSpec(
        value.replica_id,
        value.host,
        value.port,
        source="registered",
        capacity_tokens=value.capacity_tokens,
        profile=value.profile,
        inflight_max=value.inflight_max,
        lease_s=value.lease_s,
        is_tls=value.is_tls,
        rate=None if value.rate is None else PrefillRate(*value.rate),
    )


def order_after(
    before: bytes | None, wish: Wish, *, leaves: bool = False, until_s: float = 0.0
) -> bytes:
    """The value of an operator's next word."""
    known = None if before is None else order_in(before)
    number = 1 if known is None else known.number + 1
    return _encode(OrderValue(FORM, number, wish, leaves, until_s))


def order_in(data: bytes) -> OrderValue | None:
    """An order; None if it cannot be read."""
    return _read(_order, data)


def _read(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T | None:
    if len(data) > _VALUE_BYTES_MAX:
        return None
    try:
        value = decoder.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if value.form == FORM else None
