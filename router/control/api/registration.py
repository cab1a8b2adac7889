"""What a replica is named with, by itself or in a file, checked field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from router.errors import ClientError
from router.state.fleet.addresses import parse_url
from router.state.fleet.replica import ReplicaSpec
from router.state.rates.prefill import PrefillRate

if TYPE_CHECKING:
    from router.state.members.roster import Source

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._:\[\]-]{1,128}$")]
ApiKey = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,4096}$")]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=10**12)]
Term = Annotated[float, msgspec.Meta(ge=0, le=1)]
InflightMax = Annotated[
    int, msgspec.Meta(ge=1, le=100_000, description="requests in flight at most")
]
Why = Annotated[
    str, msgspec.Meta(max_length=500, description="why the change is made, for the log")
]


class PrefillFields(msgspec.Struct, forbid_unknown_fields=True):
    """Seconds of prefill of ``n`` new tokens behind ``p``: fixed + linear n + cross n p + half n n / 2."""

    fixed_s: Term
    linear_s: Annotated[float, msgspec.Meta(gt=0, le=1)]
    cross_s: Term
    half_s: Term


class ReplicaFields(msgspec.Struct, forbid_unknown_fields=True):
    """What a replica may be named with, wherever it is."""

    url: Annotated[str, msgspec.Meta(max_length=512)]
    id: Name | None = None
    capacity_tokens: Tokens | None = None
    profile: Annotated[str, msgspec.Meta(max_length=128)] | None = None
    inflight_max: InflightMax | None = None
    api_key: ApiKey | None = None
    prefill: PrefillFields | None = None


class Registration(ReplicaFields, forbid_unknown_fields=True):
    """A replica that registers itself, or that an operator adds."""

    lease_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] | None = None
    source: Literal["registered", "operator"] = "registered"
    why: Why | None = None


def registration_of(body: bytes) -> Registration:
    """A registration.

    Raises:
        ClientError: ``bad-request``, naming the field.
    """
    try:
        return msgspec.json.decode(body, type=Registration)
    except (msgspec.DecodeError, RecursionError) as failure:
        raise ClientError("bad-request", f"registration: {failure}") from None


def spec_of(row: ReplicaFields, source: Source, *, lease_s: float | None = None) -> ReplicaSpec:
    """The facts of a replica that a source names with these fields.

    Raises:
        ClientError: ``bad-request``: its URL is none.
    """
    address = parse_url(row.url)
    if address is None:
        shown = row.url.rpartition("@")[2]  # what stands before may be a password
        raise ClientError(
            "bad-request",
            f"url: {shown!r} is not of the form http://HOST:PORT or https://HOST:PORT",
        )
    host, port, is_tls = address
    told = row.prefill
    rate = None
    if told is not None:
        rate = PrefillRate(told.fixed_s, told.linear_s, told.cross_s, told.half_s)
    return ReplicaSpec(
        row.id or f"{host}:{port}",
        host,
        port,
        source=source.value,
        capacity_tokens=row.capacity_tokens,
        profile=row.profile,
        inflight_max=row.inflight_max,
        lease_s=lease_s,
        is_tls=is_tls,
        rate=rate,
        api_key=row.api_key,
    )
