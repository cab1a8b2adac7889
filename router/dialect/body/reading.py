"""From remembered parts to a chain, and what to say of a body that cannot be read.

Nothing here knows one API from another.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from hashing.chain import ends, kept_apart, link
from router.dialect.body.memo import RenderedPart, Turn
from router.dialect.body.render import ShapeError
from router.errors import ClientError

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

NULL: Final = b"null"
_SYSTEM: Final = Turn.SYSTEM  # reading a member of an enumeration costs as much as a call
_USER: Final = Turn.USER
_ANSWER: Final = Turn.ANSWER
_NUMBER_BYTES_MAX: Final = 20
_LONE_SURROGATE: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_TRUE: Final = frozenset(
    {b"true", b"1", b"1.0", b'"true"', b'"1"', b'"on"', b'"yes"', b'"y"', b'"t"'}
)
_TRUE_BYTES_MAX: Final = len(b'"true"')
_OPENING: Final = {
    b"[": "an array",
    b'"': "a string",
    b"t": "a boolean",
    b"f": "a boolean",
    b"n": "null",
}


class Assembled(NamedTuple):
    """A prompt's chain; ``opening`` is its value at the end of the first user message."""

    chain: array[int]
    ends_bytes: array[int]
    head_segments: int
    opening: int

    def apart(self, settings: bytes) -> Assembled:
        """The same prompt, where ``settings`` keep its cache apart from other ones."""
        values = kept_apart([*self.chain, self.opening], settings)
        return self._replace(chain=values[:-1], opening=values[-1])


def assembled(
    head: Sequence[RenderedPart], turns: Sequence[RenderedPart], *, seed: int
) -> Assembled:
    """Join parts in the order the engine renders them.

    ``head`` is tools and system text; leading system messages of ``turns`` are counted with it.

    Raises:
        ShapeError: there is no segment at all.
    """
    parts = [*head, *turns] if head else turns
    digests: list[bytes] = []
    lengths: list[int] = []
    for entry in parts:
        digests += entry.digests
        lengths += entry.lengths_bytes
    n_head = n_opening = sum([len(entry.digests) for entry in head]) if head else 0
    is_leading = True
    for entry in turns:
        n_opening += len(entry.digests)
        if is_leading and entry.turn is _SYSTEM:
            n_head = n_opening
        else:
            is_leading = False
        if entry.turn is _USER:
            break
    if not digests:
        raise ShapeError("an empty prompt")
    values = link(digests, seed=seed)
    return Assembled(values, ends(lengths), n_head, values[n_opening - 1])


def without_old_reasoning(turns: list[RenderedPart]) -> list[RenderedPart]:
    """Empty the reasoning of all messages up to the last answer without tool calls.

    So do Kimi K2's templates unless ``preserve_thinking`` is set.
    """
    for index in range(len(turns) - 1, -1, -1):
        if turns[index].turn is _ANSWER:
            return [entry.bare or entry for entry in turns[: index + 1]] + turns[index + 1 :]
    return turns


def fault(body: bytes, error: Exception) -> ClientError:
    """What is wrong with a body that is not JSON, and at which byte."""
    if isinstance(error, RecursionError):
        return ClientError(
            "bad-request", "the body's JSON is nested too deeply: send a flatter request"
        )
    text = str(error)
    if "(byte " not in text or "$" in text:
        text = _fault_text(body, text)
    return ClientError("bad-request", f"the body is not valid JSON: {text}")


def _fault_text(body: bytes, text: str) -> str:
    """The fault with its place in the whole body (a part's decoder knows only its own bytes)."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return f"{error.reason} in UTF-8 (byte {error.start})"
    try:
        msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        text = str(error)
    if "(byte " in text:
        return text
    lone = _LONE_SURROGATE.search(body)  # at the end of a body the decoder misses its other half
    return f"{text} (byte {len(body)})" if lone is None else f"lone surrogate (byte {lone.start()})"


def not_an_object(body: bytes) -> ClientError | None:
    """The complaint about a JSON body that is no object, None if it is one."""
    first = body.lstrip()[:1]
    if first == b"{":
        return None
    kind = _OPENING.get(first, "a number")
    return ClientError("bad-request", f"the body is {kind}: send a JSON object")


def is_true(raw: msgspec.Raw) -> bool:
    """Whether a raw JSON value counts as true where SGLang reads a boolean."""
    return bool(raw) and len(memoryview(raw)) <= _TRUE_BYTES_MAX and bytes(raw).lower() in _TRUE


def whole_number(raw: msgspec.Raw) -> int | None:
    """A raw JSON value as a count, None if it is none (or absurd)."""
    if not raw:
        return None
    text = bytes(raw) if len(memoryview(raw)) <= _NUMBER_BYTES_MAX else b""
    return int(text) if text.isdigit() else None


def is_given(raw: msgspec.Raw) -> bool:
    """Whether a member is there and not null."""
    return bool(raw) and (len(memoryview(raw)) != len(NULL) or bytes(raw) != NULL)


def decoded(raw: msgspec.Raw) -> Any:  # noqa: ANN401  # any JSON value
    """A member's value, None if it is absent.

    Raises:
        msgspec.DecodeError: it is not valid JSON.
    """
    return msgspec.json.decode(raw) if raw else None


def first_text(value: object) -> str:
    """A string, or the first one of a list that may hold nulls; "" if there is none."""
    items = value if isinstance(value, list) else [value]
    return next((item for item in items if isinstance(item, str) and item), "")


def adapter(model: str) -> str | None:
    """The LoRA adapter in a model name of the form ``base:adapter``."""
    return model.partition(":")[2] or None
