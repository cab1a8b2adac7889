"""Claude Code's billing line, which changes with every request and is no part of the prompt.

SGLang renders it as the first line of the system message, where it makes the whole conversation
cold on each turn. It is a system block of its own; as a first line of a longer text it is known
too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from router.dialect.body.splice import Edit, EditKind

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFIX: Final = "x-anthropic-billing-header:"
_PREFIX_BYTES: Final = PREFIX.encode()


def without_line(text: str) -> str:
    """The text without the billing line that it begins with, if it does."""
    return text.partition("\n")[2] if text.startswith(PREFIX) else text


def cleaned_block(data: bytes) -> bytes | None:
    """A system block without its billing line: None if nothing is left of it.

    A block without such a line keeps its own bytes.

    Raises:
        msgspec.DecodeError: the block is not valid JSON.
    """
    if _PREFIX_BYTES not in data:
        return data
    block: Any = msgspec.json.decode(data)
    text = block.get("text") if isinstance(block, dict) else None
    if not isinstance(text, str) or not text.startswith(PREFIX):
        return data
    block["text"] = without_line(text)
    return _without_line_bytes(data, block) if block["text"] else None


def _without_line_bytes(data: bytes, wanted: dict[str, Any]) -> bytes:
    """The block's bytes without the line's; written anew if they do not decode as ``wanted``."""
    start = data.find(b'"' + _PREFIX_BYTES) + 1
    end = data.find(b"\\n", start) + 2
    candidate = data[:start] + data[end:]
    try:
        is_right = msgspec.json.decode(candidate) == wanted
    except msgspec.DecodeError:
        is_right = False
    return candidate if is_right else msgspec.json.encode(wanted)


def cleaned_system(raw: msgspec.Raw) -> msgspec.Raw:
    """A whole ``system`` member without billing lines; blocks without one keep their bytes.

    Raises:
        msgspec.DecodeError: it is neither a string nor a list.
    """
    system = msgspec.json.decode(raw, type=list[msgspec.Raw] | str)
    if isinstance(system, str):
        return msgspec.Raw(msgspec.json.encode(without_line(system)))
    blocks = [cleaned_block(bytes(block)) for block in system]
    return msgspec.Raw(b"[" + b",".join([block for block in blocks if block is not None]) + b"]")


def block_edit(sent: Sequence[bytes], cleaned: Sequence[bytes | None]) -> Edit | None:
    """The edit that turns system blocks into their cleaned form; None if they are the same."""
    changes = [pair for pair in zip(sent, cleaned, strict=True) if pair[0] is not pair[1]]
    if not changes:
        return None
    if len(changes) > 1:
        return Edit(EditKind.REBUILD)
    old, new = changes[0]
    if new is None:
        return Edit(EditKind.REMOVE_ELEMENT, old)
    return Edit(EditKind.REPLACE, old, new)


def text_edit(system: str) -> Edit | None:
    """The edit for a ``system`` string, None if it has no billing line."""
    return Edit(EditKind.REBUILD) if system.startswith(PREFIX) else None
