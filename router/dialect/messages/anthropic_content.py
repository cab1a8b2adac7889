"""Messages of the Anthropic API -> template messages.

One message may become several: tool results are messages of their own, in the order of the blocks,
with the user's text before and after them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from hashing.segments import segments_of
from router.dialect.body import render
from router.dialect.body.memo import RenderedPart, Turn
from router.dialect.body.render import ShapeError, need_list, need_object, need_text

if TYPE_CHECKING:
    from collections.abc import Iterable

_TURN_OF_TEXT: Final = {"user": Turn.USER, "assistant": Turn.ANSWER, "system": Turn.SYSTEM}


def rendered_message(raw: msgspec.Raw, *, is_system_hoisted: bool) -> RenderedPart:
    """The template messages of one message, remembered as one part.

    Raises:
        ShapeError: a role or a kind of content that is not known here.
        msgspec.DecodeError: the message is not valid JSON.
    """
    fields = need_object(msgspec.json.decode(raw), "a message")
    role = need_text(fields.get("role"), "a message's role")
    turn = _TURN_OF_TEXT.get(role)
    if turn is None:
        raise ShapeError(f"a message of role {role!r}")
    content = fields.get("content")
    if turn is Turn.SYSTEM and is_system_hoisted:
        text = _stripped_text(content)
        return _entry([render.render_system(text)] if text else [], turn)
    if isinstance(content, str):
        return _entry([render.render_message(role, render.text_parts(content))], turn)
    blocks = [need_object(block, "a content block") for block in need_list(content, "content")]
    if turn is Turn.ANSWER:
        return _assistant(blocks)
    if turn is Turn.USER:
        return _user(blocks)
    gathered = _Content()
    for block in blocks:
        gathered.add(block)
    return _entry([render.render_message(role, gathered.taken())], turn)


def system_text(blocks: Iterable[bytes | msgspec.Raw]) -> str:
    """The text of a ``system`` list; blocks that are no text do not count.

    Raises:
        ShapeError: a block is not an object, or its text is not a string.
        msgspec.DecodeError: a block is not valid JSON.
    """
    return "\n".join(_texts([msgspec.json.decode(block) for block in blocks]))


def _texts(blocks: Iterable[object]) -> list[str]:
    fields = [need_object(block, "a system block") for block in blocks]
    texts = [block.get("text") or "" for block in fields if block.get("type") == "text"]
    return [need_text(text, "a system text") for text in texts if text]


def _stripped_text(content: object) -> str:
    """The text of an inline system message as SGLang joins it to the head."""
    if isinstance(content, str):
        return content.strip()
    texts = [text.strip() for text in _texts(need_list(content, "content"))]
    return "\n".join([text for text in texts if text])


def _entry(rendered: list[bytes], turn: Turn) -> RenderedPart:
    return RenderedPart(*segments_of(rendered), turn)


class _Content:
    """Gathers the texts (strings) and media (parts) of one template message."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: list[str | bytes] = []

    @property
    def has_any(self) -> bool:
        """Whether there is a block, if only an empty text."""
        return bool(self._items)

    def add(self, block: dict[str, Any]) -> None:
        """Take a block that is shown in place.

        Raises:
            ShapeError: a kind that is not known here.
        """
        kind = block.get("type")
        if kind == "text":
            if block.get("text") is not None:
                self.add_text(need_text(block["text"], "a text block"))
        elif kind == "image":
            part = _image(block.get("source"))
            if part is not None:
                self._items.append(part)
        else:
            raise ShapeError(f"content of kind {kind!r}")

    def add_text(self, text: str) -> None:
        """Take a text; an empty one counts as content too."""
        self._items.append(text)

    def put_first(self, text: str) -> None:
        """Take a text that stands before all others."""
        self._items.insert(0, text)

    @property
    def is_one_text(self) -> bool:
        """Whether SGLang makes it a plain string: one text, or nothing at all."""
        return not self._items or (len(self._items) == 1 and isinstance(self._items[0], str))

    def taken(self, *, separator: str = "") -> list[bytes]:
        """All parts, and begin anew; ``separator`` joins texts that stand alone."""
        items, self._items = self._items, []
        return render.joined_parts(items, separator=separator)


def _user(blocks: list[dict[str, Any]]) -> RenderedPart:
    rendered: list[bytes] = []
    pending = _Content()
    turn = Turn.OTHER
    for block in blocks:
        kind = block.get("type")
        if kind == "tool_result":
            if pending.has_any:
                rendered.append(render.render_message("user", pending.taken()))
            rendered += _tool_results(block)
        elif kind not in ("thinking", "redacted_thinking"):
            pending.add(block)
            turn = Turn.USER
    if pending.has_any:
        rendered.append(render.render_message("user", pending.taken()))
    return _entry(rendered, turn)


def _tool_results(block: dict[str, Any]) -> list[bytes]:
    """One tool message; references to tools and what stands between them have their own."""
    call_id = need_text(block.get("tool_use_id") or block.get("id") or "", "tool_use_id")
    content = block.get("content")
    if not isinstance(content, str):
        groups = _result_groups(need_list([] if content is None else content, "a tool result"))
    else:
        groups = [render.text_parts(content)]
    return [render.render_message("tool", group, call_id=call_id) for group in groups]


def _result_groups(items: list[Any]) -> list[list[bytes]]:
    groups: list[list[bytes]] = []
    shown, references = _Content(), list[bytes]()
    for item in items:
        fields = need_object(item, "a part of a tool result")
        kind = fields.get("type")
        if kind == "tool_reference":
            name = fields.get("tool_name") or fields.get("name")
            if name:
                if shown.has_any:
                    groups.append(shown.taken(separator=" "))
                references.append(render.reference_part(name))
        elif kind != "text" or fields.get("text"):
            if references:
                groups.append(references)
                references = []
            shown.add(fields)
    if references:
        groups.append(references)
    if shown.has_any or not groups:
        groups.append(shown.taken(separator=" "))
    return groups


def _assistant(blocks: list[dict[str, Any]]) -> RenderedPart:
    shown, calls = _answer(blocks)
    rendered = render.render_message("assistant", shown.taken(), calls=calls)
    return _entry([rendered], Turn.CALLS if calls else Turn.ANSWER)


def last_answer(raw: msgspec.Raw, entry: RenderedPart) -> RenderedPart:
    """An assistant's message that ends a prompt: SGLang shows a single text of it as a user's.

    ``entry`` is the message as it is shown elsewhere.
    """
    content = need_object(msgspec.json.decode(raw), "a message").get("content")
    if isinstance(content, str):
        parts = render.text_parts(content)
    else:
        shown, _ = _answer(need_list(content, "content"))
        if not shown.is_one_text:
            return entry
        parts = shown.taken()
    return _entry([render.render_message("user", parts)], Turn.USER)


def _answer(blocks: list[dict[str, Any]]) -> tuple[_Content, list[bytes]]:
    """An assistant's content, thoughts first, and its calls."""
    shown = _Content()
    thoughts: list[str] = []
    calls: list[bytes] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "thinking":
            thoughts.append(need_text(block.get("thinking") or "", "a thinking block"))
        elif kind == "tool_use":
            calls.append(render.call_part(block.get("id"), block.get("name"), _input(block)))
        else:
            shown.add(block)
    thinking = "\n".join([text for text in thoughts if text])
    if thinking:
        shown.put_first(f"<think>{thinking}\n</think>")
    return shown, calls


def _input(block: dict[str, Any]) -> dict[str, Any]:
    return need_object(block.get("input") or {}, "a tool call's input")


def _image(source: object) -> bytes | None:
    """The media part that SGLang makes of an image, None if it leaves the image out."""
    fields = need_object(source or {}, "an image's source")
    if fields.get("type") == "base64":
        if not fields.get("data"):
            return None
        return render.media_part(
            "image_url", f"data:{fields.get('media_type', 'image/png')};base64,{fields['data']}"
        )
    url = fields.get("url")
    return render.media_part("image_url", url) if url else None
