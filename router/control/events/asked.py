"""What the translations of bodies to chats share: reading what a client sent, which may be anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class UnclearError(Exception):
    """What the engine makes of a prompt is not certain."""


def as_list(value: object) -> list[Any]:
    """A list.

    Raises:
        UnclearError: it is none.
    """
    if not isinstance(value, list):
        raise UnclearError
    return value


def as_object(value: object) -> dict[str, Any]:
    """An object.

    Raises:
        UnclearError: it is none.
    """
    if not isinstance(value, dict):
        raise UnclearError
    return value


def texts_of(blocks: object, kinds: tuple[str, ...] = ("text",)) -> Iterator[str]:
    """The texts of a list of blocks that are nothing else.

    Raises:
        UnclearError: one of them is.
    """
    for block in map(as_object, as_list(blocks)):
        if block.get("type") not in kinds or not isinstance(block.get("text"), str):
            raise UnclearError
        yield block["text"]


def parts_of(texts: list[str]) -> str | list[dict[str, str]]:
    """Texts as a chat message's content: one is plain."""
    return texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]
