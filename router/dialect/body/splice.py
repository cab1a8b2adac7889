"""Changing one place of a JSON body and no other byte.

A decoded value does not tell where it stood, so its place is found by its exact bytes, and only
where these occur exactly once: then the one occurrence is the value. Elsewhere the top level is
built anew from the values' own bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BLANKS: Final = b" \t\r\n"
_COMMA: Final = ord(",")


class EditKind(StrEnum):
    """What is done to the body."""

    APPEND_MEMBER = "append-member"
    REMOVE_ELEMENT = "remove-element"
    REPLACE = "replace"
    REBUILD = "rebuild"


@dataclass(slots=True, frozen=True)
class Edit:
    """One change of a body that was read as a JSON object with at least one member.

    ``old`` is what is there now (an array's element, or any bytes), ``new`` what takes its place
    (for ``append-member``: ``"key":value``). ``rebuild`` needs neither.
    """

    kind: EditKind
    old: bytes = b""
    new: bytes = b""


def edited(
    body: bytes, edit: Edit, *, key: str, value: Callable[[msgspec.Raw], msgspec.Raw]
) -> bytes:
    """The body with the edit made: in place, or with the member ``key`` rewritten by ``value``.

    The body itself if the edit's place is not certain and its members cannot be told apart either
    (bytes that are no UTF-8 in a member that nobody reads).
    """
    changed = spliced(body, edit)
    if changed is not None:
        return changed
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        fields[key] = value(fields[key])
    except msgspec.DecodeError:
        return body
    return rebuilt(fields)


def spliced(body: bytes, edit: Edit) -> bytes | None:
    """The body with the edit made, None if its place cannot be told for certain."""
    if edit.kind is EditKind.APPEND_MEMBER:
        end = body.rfind(b"}")  # of a JSON object the last non-blank byte
        return _joined(body, end, b"," + edit.new, end)
    if edit.kind is EditKind.REBUILD:
        return None
    start = body.rfind(edit.old)
    if start < 0 or body.find(edit.old) != start:
        return None
    end = start + len(edit.old)
    if edit.kind is EditKind.REMOVE_ELEMENT:
        start, end = _with_comma(body, start, end)
    return _joined(body, start, edit.new, end)


def _joined(body: bytes, start: int, new: bytes, end: int) -> bytes:
    view = memoryview(body)  # slices of it are not copied twice
    return b"".join((view[:start], new, view[end:]))


def _with_comma(body: bytes, start: int, end: int) -> tuple[int, int]:
    """An element's extent with one comma beside it: the one behind, else the one before."""
    behind = end
    while body[behind] in _BLANKS:
        behind += 1
    if body[behind] == _COMMA:
        return start, behind + 1
    before = start
    while body[before - 1] in _BLANKS:
        before -= 1
    if body[before - 1] == _COMMA:
        return before - 1, end
    return start, end


def rebuilt(fields: Mapping[str, msgspec.Raw]) -> bytes:
    """A JSON object with these members; every value keeps its own bytes."""
    return b"{" + b",".join([_member(key, value) for key, value in fields.items()]) + b"}"


def _member(key: str, value: msgspec.Raw) -> bytes:
    return msgspec.json.encode(key) + b":" + bytes(value)


class _Named(msgspec.Struct):
    model: msgspec.Raw = msgspec.Raw()


_decode_named: Final = msgspec.json.Decoder(_Named).decode


def renamed(body: bytes, model: str) -> bytes:
    """The body with another model named in it; the body itself if it is no JSON object."""
    try:
        old = bytes(_decode_named(body).model)
    except (msgspec.DecodeError, RecursionError):
        return body
    new = msgspec.Raw(msgspec.json.encode(model))
    if old:
        edit = Edit(EditKind.REPLACE, old, bytes(new))
        return edited(body, edit, key="model", value=lambda _: new)
    if body.rstrip()[:-1].rstrip()[-1:] == b"{":
        return rebuilt({"model": new})
    return edited(
        body, Edit(EditKind.APPEND_MEMBER, new=_member("model", new)), key="model",
        value=lambda _: new,
    )  # fmt: skip
