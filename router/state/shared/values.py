"""A session as it is stored and told: a MessagePack array, small, and readable by other versions.

The first three members are the form, the version of the session's home and the number of its turn, in every
form there will be: by these a store tells newer from older, whoever wrote it. Within a form fields are only
added at the end, with a default; a reader leaves out what it does not know. A value of another form
is as good as none.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from hashing.rendezvous import rank
from router.state.shared.peers import ToldPin

if TYPE_CHECKING:
    from router.state.sessions.pins import Pin

FORM: Final = 1

VALUE_BYTES_MAX: Final = 2_048
"""More than any value of ours has; what is larger was not written by a router."""

_KEY_BYTES: Final = 16

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Word = Annotated[int, msgspec.Meta(ge=0)]
Id = Annotated[str, msgspec.Meta(max_length=256)]


class PinValue(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """What is stored of a session; ``used_s`` and ``fixed_until_s`` are seconds since 1970, 0 for no end."""

    form: int
    version: Count
    turn: Count
    home_id: Id
    served_id: Id
    used_s: Count
    tokens: Count
    prompt_tokens: Count
    prompt_bytes: Count
    output_tokens: Count
    tail: Word
    tail_segments: Count
    source: Annotated[str, msgspec.Meta(max_length=32)] = ""
    fixed_id: Id = ""
    fixed_until_s: Count = 0


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(PinValue).decode


def pin_key(session_key: str) -> str:
    """A session's name in a store: 32 hex digits that do not tell what its client calls it."""
    return blake2b(session_key.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).hexdigest()


def packed(pin: Pin, *, now_s: float, wall_s: float) -> bytes:
    """A pin as its value; ``wall_s`` is the present time since 1970."""
    fixed_id = pin.fixed_to(now_s)
    is_endless = pin.fixed_until_s == float("inf")
    until_s = 0 if not fixed_id or is_endless else int(wall_s + pin.fixed_until_s - now_s) + 1
    return _encode(
        PinValue(
            FORM,
            pin.version,
            pin.turn,
            pin.home_id,
            pin.claim_id or ("" if pin.served is None else pin.served[0]),
            max(0, int(wall_s + pin.used_s - now_s)),
            max(0, pin.tokens),
            pin.prompt_tokens,
            pin.prompt_bytes,
            pin.output_tokens,
            pin.tail,
            pin.tail_segments,
            pin.source,
            fixed_id,
            until_s,
        )
    )


def unpacked(data: bytes) -> PinValue | None:
    """A value; None if it is of another form, or none at all."""
    if len(data) > VALUE_BYTES_MAX:
        return None
    try:
        value = _decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if value.form == FORM else None


def told(key: str, value: PinValue, *, wall_s: float, home_id: str | None, told_by: str) -> ToldPin:
    """A value as the core is told of it; ``home_id`` is what is known here, which a tie is decided against."""
    wins = home_id is not None and home_id != value.home_id
    wins = wins and rank(key, [home_id or "", value.home_id])[0] == value.home_id
    left_s = value.fixed_until_s - wall_s
    is_fixed = bool(value.fixed_id) and (not value.fixed_until_s or left_s > 0.0)
    return ToldPin(
        key=key,
        home_id=value.home_id,
        version=value.version,
        turn=value.turn,
        tokens=value.tokens,
        prompt_tokens=value.prompt_tokens,
        prompt_bytes=value.prompt_bytes,
        output_tokens=value.output_tokens,
        tail=value.tail,
        tail_segments=value.tail_segments,
        served_id=value.served_id,
        # Another machine's clock may be ahead of ours.
        age_s=max(0.0, wall_s - value.used_s),
        source=value.source,
        wins=wins,
        told_by=told_by,
        fixed_id=value.fixed_id if is_fixed else "",
        fixed_for_s=left_s if is_fixed and value.fixed_until_s else None,
    )
