"""Template messages -> canonical bytes, in the order in which a chat template prints them.

Both dialects end here: what the engine renders alike has the same canonical bytes, whichever API
it came by. The rules are SGLang's with a Kimi-like template: text parts join without a separator,
missing and empty content are the same, keys keep the order sent wherever an object is printed as
JSON, and white space and escapes inside JSON are free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from hashing.canonical import fingerprint, message, part

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MESSAGE: Final = "m"
_REASONING: Final = "r"
_TEXT: Final = "t"
_MEDIA: Final = "v"
_CALL: Final = "c"
_UNREADABLE_CALL: Final = "x"
_DECLARED: Final = "d"
_TOOL: Final = "f"
_REFERENCE: Final = "n"

_MEDIA_KINDS: Final = frozenset({"image_url", "video_url", "audio_url", "input_audio"})
_THOUGHT_KINDS: Final = frozenset({"thinking", "reasoning"})
"""Parts of an assistant's content that SGLang takes and hands to no template."""

_FUNCTION_KEYS: Final = ("description", "name", "parameters", "strict", "defer_loading")
"""In SGLang's order, which is that of the keys that were not sent."""

_LEFT_OUT_IF_NULL: Final = frozenset({"strict", "defer_loading"})

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


class ShapeError(Exception):
    """A shape that cannot be rendered here; the engine may know it or refuse it."""


def need_text(value: object, what: str) -> str:
    """``value`` if it is a string.

    Raises:
        ShapeError: it is not.
    """
    if not isinstance(value, str):
        raise ShapeError(f"{what} is not a string")
    return value


def need_object(value: object, what: str) -> dict[str, Any]:
    """``value`` if it is a JSON object.

    Raises:
        ShapeError: it is not.
    """
    if not isinstance(value, dict):
        raise ShapeError(f"{what} is not an object")
    return value


def need_list(value: object, what: str) -> list[Any]:
    """``value`` if it is a JSON array.

    Raises:
        ShapeError: it is not.
    """
    if not isinstance(value, list):
        raise ShapeError(f"{what} is not an array")
    return value


def json_bytes(value: object, *, is_order_kept: bool = True) -> bytes:
    """A decoded JSON value as compact JSON; equal values in equal order give equal bytes."""
    return _encode(value) if is_order_kept else _encode_sorted(value)


def text_parts(text: str) -> list[bytes]:
    """A text as one part; none if it is empty."""
    return [part(_TEXT, text.encode())] if text else []


def joined_parts(items: Sequence[str | bytes], *, separator: str = "") -> list[bytes]:
    """Texts and media parts in order, neighbouring texts as one part.

    ``separator`` joins the texts where there is nothing else.
    """
    texts = [item for item in items if isinstance(item, str)]
    if len(texts) == len(items):
        return text_parts(separator.join(texts))
    parts: list[bytes] = []
    texts = []
    for item in items:
        if isinstance(item, str):
            texts.append(item)
        else:
            parts += text_parts("".join(texts))
            parts.append(item)
            texts = []
    return parts + text_parts("".join(texts))


def media_part(kind: str, source: object) -> bytes:
    """An image, video or sound: by its fingerprint, since its bytes are no measure of its tokens.

    Raises:
        ShapeError: ``source`` names nothing.
    """
    detail = json_bytes(None)
    if isinstance(source, dict) and isinstance(source.get("url"), str):
        detail = json_bytes(source.get("detail"))
        source = source["url"]
    if not isinstance(source, (str, dict)) or not source:
        raise ShapeError(f"{kind} without a source")
    return part(_MEDIA, kind.encode(), fingerprint(json_bytes(source)).encode(), detail)


def reference_part(name: object) -> bytes:
    """A tool that is named for the model to look up.

    Raises:
        ShapeError: the name is not a string.
    """
    return part(_REFERENCE, need_text(name, "a tool reference's name").encode())


def content_parts(content: object, *, separator: str = "") -> list[bytes]:
    """An OpenAI message's ``content``: a string, a list of parts, or nothing.

    ``separator`` joins the texts of a list that holds nothing else.

    Raises:
        ShapeError: a kind of content that is not known here.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return text_parts(content)
    items: list[str | bytes] = []
    for item in need_list(content, "content"):
        kind = need_object(item, "a content part").get("type")
        if kind == "text":
            items.append(need_text(item.get("text"), "a text part"))
        elif kind == "tool_reference":
            items.append(reference_part(item.get("name")))
        elif isinstance(kind, str) and kind in _MEDIA_KINDS:
            items.append(media_part(kind, item.get(kind)))
        elif not (isinstance(kind, str) and kind in _THOUGHT_KINDS):
            raise ShapeError(f"content of kind {kind!r}")
    return joined_parts(items, separator=separator)


def call_part(call_id: object, name: object, arguments: object) -> bytes:
    """A tool call; ``arguments`` is an object, or a string that holds one.

    Raises:
        ShapeError: the id or the name is not a string.
    """
    kind, printed = _CALL, b""
    if isinstance(arguments, str):
        try:
            printed = json_bytes(need_object(_decode(arguments), "arguments"))
        except (ShapeError, msgspec.DecodeError, RecursionError):
            kind, printed = _UNREADABLE_CALL, arguments.encode()
    else:
        printed = json_bytes(arguments)
    return part(
        kind,
        need_text("" if call_id is None else call_id, "a call's id").encode(),
        need_text("" if name is None else name, "a call's name").encode(),
        printed,
    )


def render_message(
    role: str,
    content: Sequence[bytes],
    *,
    name: str = "",
    call_id: str = "",
    reasoning: str = "",
    calls: Sequence[bytes] = (),
    more: bytes = b"",
) -> bytes:
    """One template message; ``content`` and ``calls`` are parts made by the functions above."""
    head = part(_MESSAGE, role.encode(), name.encode(), call_id.encode(), more)
    thoughts = [part(_REASONING, reasoning.encode())] if reasoning else []
    return message(head, *thoughts, *content, *calls)


def render_system(text: str) -> bytes:
    """A system message of one text."""
    return render_message("system", text_parts(text))


def render_tools(tools: Sequence[bytes]) -> list[bytes]:
    """The declaration of all tools as one message; nothing without tools."""
    return [message(part(_DECLARED), *tools)] if tools else []


def tool_part(
    function: dict[str, Any], *, kind: str = "function", is_deferred: object = None
) -> bytes:
    """One tool as SGLang prints it.

    The known keys of ``function`` keep the order they were sent in; those that are missing are
    null and come last. ``is_deferred`` holds inside ``function`` too, if nothing is said there.

    Raises:
        ShapeError: the name is not a string.
    """
    need_text(function.get("name"), "a tool's name")
    shown = {key: value for key, value in function.items() if key in _FUNCTION_KEYS}
    for key in _FUNCTION_KEYS:
        shown.setdefault(key, None)
    if shown["defer_loading"] is None:
        shown["defer_loading"] = is_deferred
    fields = [
        field
        for key, value in shown.items()
        if value is not None or key not in _LEFT_OUT_IF_NULL
        for field in (key.encode(), json_bytes(value))
    ]
    return part(_TOOL, kind.encode(), json_bytes(is_deferred), *fields)


def settings_bytes(settings: Iterable[tuple[str, object]]) -> bytes:
    """What changes the whole rendering, by name; a setting that is None is left out."""
    return b"".join(
        [
            part("s", name.encode(), json_bytes(value, is_order_kept=False))
            for name, value in settings
            if value is not None
        ]
    )
