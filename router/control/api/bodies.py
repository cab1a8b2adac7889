"""What an operator sends, checked field by field; unknown keys are refused."""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from router.control.api.registration import InflightMax, Name, Why
from router.errors import ClientError
from router.state.wishes import WEIGHT_MAX, WEIGHT_MIN

_DAY_S: Final = 86_400

Weight = Annotated[
    float,
    msgspec.Meta(
        ge=WEIGHT_MIN, le=WEIGHT_MAX, description="share of the work next to a peer with 1"
    ),
]


class Reason(msgspec.Struct, forbid_unknown_fields=True):
    """Why a change is made; for the log."""

    why: Why | None = None


class DrainOrder(Reason, forbid_unknown_fields=True):
    """How a drain ends: by removal once nothing is in flight, at the latest ``deadline_s`` from now."""

    deadline_s: Annotated[float, msgspec.Meta(ge=0, le=_DAY_S)] | None = None
    remove: bool = False


class ReplicaChange(Reason, forbid_unknown_fields=True):
    """What is to be changed of a replica; ``inflight_max`` null takes the operator's limit back."""

    weight: Weight | UnsetType = UNSET
    inflight_max: InflightMax | UnsetType | None = UNSET


class PinOrder(msgspec.Struct, forbid_unknown_fields=True):
    """Where a session is pinned to, and for how long; without ``for_s`` until it is unpinned or forgotten."""

    replica: Name
    for_s: Annotated[float, msgspec.Meta(ge=1, le=30 * _DAY_S)] | None = None
    why: Why | None = None


class MoveOrder(msgspec.Struct, forbid_unknown_fields=True):
    """Where a session's home is to be from now on."""

    replica: Name
    why: Why | None = None


Body = TypeVar("Body")


def decoded(body: bytes, kind: type[Body], *, what: str) -> Body:
    """A body as what it should be; an empty one is an empty object.

    Raises:
        ClientError: ``bad-request``, naming the field.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, RecursionError) as failure:
        raise ClientError("bad-request", f"{what}: {failure}") from None
