"""Items of ``/v1/responses`` -> template messages, as SGLang makes them.

One answer of an assistant is several items (its reasoning, a message, its calls): neighbours are
joined into one message. What is not known here, an item's type or a part of its content, stands for
itself by its bytes: an engine that knows it sees the same tokens for the same item.
"""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
import xxhash

from hashing.canonical import message, part
from hashing.segments import segments_of
from router.dialect.body import render
from router.dialect.body.memo import ASSISTANT_TURNS, RenderedPart, Turn
from router.dialect.body.render import ShapeError, need_list, need_object, need_text
from router.dialect.chat.openai_chat import rendered_message

if TYPE_CHECKING:
    from collections.abc import Sequence

_ITEM_SEED: Final = 22
_UNKNOWN: Final = "i"
_ASSISTANT: Final = "assistant"
_DEVELOPER_LABEL: Final = "Developer instructions:"
_STATE_MARK: Final = "sglang-reasoning-v1."
_STATE_BYTES_MAX: Final = 4 << 20
"""A reasoning that unpacks to more is taken as it was sent: a small body must not fill the memory."""

_OTHER: Final = ""
_SPOKEN: Final = "+"
_THOUGHT: Final = "+?"
_DROPPED: Final = "-"
"""What is kept as an item's phase: nobody's, the assistant's with its phase behind the sign, a
reasoning (whatever the assistant says next joins it), and nothing at all."""

_TEXT_KINDS: Final = ("input_text", "output_text")
_NOT_SHOWN: Final = ("id", "status", "type")
_NOTHING: Final = RenderedPart((), (), phase=_DROPPED)

Message = dict[str, Any]


def rendered_item(raw: msgspec.Raw, *, is_system_hoisted: bool) -> RenderedPart:
    """One item as a message of its own; no segments where SGLang drops it.

    Raises:
        ShapeError: it is no object.
        msgspec.DecodeError: it is not valid JSON.
    """
    item = need_object(msgspec.json.decode(raw), "an item")
    try:
        shown = _as_message(item)
        if shown is None:
            return _NOTHING
        if is_system_hoisted and shown.get("role") == "system":
            return _hoisted(shown.get("content"))
        rendered = rendered_message(shown)
    except ShapeError:
        unknown = message(part(_UNKNOWN, render.json_bytes(item)))
        return RenderedPart(*segments_of([unknown]))
    if rendered.turn not in ASSISTANT_TURNS:
        return rendered
    phase = _THOUGHT if _is_thought(shown) else f"{_SPOKEN}{shown.get('phase') or ''}"
    return rendered._replace(phase=phase, key=xxhash.xxh3_128_digest(raw, _ITEM_SEED))


def groups(entries: Sequence[RenderedPart]) -> list[tuple[int, int]]:
    """Where the items of each message begin and end; the first and the last are not dropped ones."""
    found: list[tuple[int, int]] = []
    start, before = 0, _OTHER
    for index, entry in enumerate(entries):
        phase = entry.phase
        if phase == _OTHER:
            found.append((index, index + 1))
        elif phase == _DROPPED:
            continue
        elif before == _OTHER or (phase if phase != _THOUGHT else _SPOKEN) != before != _THOUGHT:
            start = index
            found.append((index, index + 1))
        else:
            found[-1] = (start, index + 1)
            phase = phase if before == _THOUGHT else before
        before = phase
    return found


def rendered_group(raws: Sequence[msgspec.Raw]) -> RenderedPart:
    """The one message that neighbouring items of an assistant become."""
    return rendered_message(_merged(raws))


def last_group(raws: Sequence[msgspec.Raw], entry: RenderedPart) -> RenderedPart:
    """An assistant's message that ends a prompt: SGLang shows its text as a user's.

    ``entry`` is the message as it is shown elsewhere; a list of parts stays that.
    """
    content = _merged(raws).get("content")
    if isinstance(content, list):
        return entry
    return rendered_message({"role": "user", "content": content})


def _as_message(item: Message) -> Message | None:
    """The chat message of one item, None if it is dropped.

    Raises:
        ShapeError: an item or a part of a kind that is not known here.
    """
    kind = item.get("type")
    if item.get("role") == "developer":
        item = {**item, "role": "system", "content": _labelled(item.get("content"))}
    if kind in (None, "message"):
        return _plain(item)
    if kind == "function_call":
        return _call(item, item.get("arguments"))
    if kind == "custom_tool_call":
        payload = need_text(item.get("input") or "", "a custom call's input")
        return _call(item, {"input": payload})
    if kind in ("function_call_output", "custom_tool_call_output"):
        return {
            "role": "tool",
            "tool_call_id": item.get("call_id"),
            "content": _output(item.get("output")),
        }
    if kind == "reasoning":
        return _reasoning(item)
    raise ShapeError(f"an item of type {kind!r}")


def _labelled(content: object) -> object:
    """A developer's text behind the label that keeps it apart from the system's."""
    if isinstance(content, str):
        return f"{_DEVELOPER_LABEL}\n{content}"
    if not isinstance(content, list):
        return content
    for index, item in enumerate(content):
        if isinstance(item, dict) and isinstance(item.get("text"), str):
            labelled = {**item, "text": f"{_DEVELOPER_LABEL}\n{item['text']}"}
            return [*content[:index], labelled, *content[index + 1 :]]
    return [{"type": "input_text", "text": _DEVELOPER_LABEL}, *content]


def _plain(item: Message) -> Message:
    shown = {key: value for key, value in item.items() if key not in _NOT_SHOWN}
    content = item.get("content")
    if isinstance(content, list):
        shown["content"] = [_content_part(each) for each in content]
    return shown


def _content_part(each: object) -> Message:
    fields = need_object(each, "a content part")
    kind = fields.get("type")
    if kind in _TEXT_KINDS:
        return {"type": "text", "text": fields.get("text", "")}
    if kind not in ("input_image", "image_url"):
        return fields
    source = fields.get("image_url")
    if not isinstance(source, dict):
        source = {"url": source}
    detail = source.get("detail") or fields.get("detail") or "auto"
    return {"type": "image_url", "image_url": {**source, "detail": detail}}


def _call(item: Message, arguments: object) -> Message:
    """A message of one call; arguments that are no JSON object are shown as an empty one."""
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError):
            arguments = None
    function = {
        "name": item.get("name"),
        "arguments": arguments if isinstance(arguments, dict) else {},
    }
    call = {"id": item.get("call_id") or item.get("id"), "function": function}
    return {"role": _ASSISTANT, "tool_calls": [call]}


def _output(output: object) -> str:
    """What a tool answered; of a list of parts the texts, one behind the other."""
    if isinstance(output, list):
        parts = [each for each in output if isinstance(each, dict)]
        return "".join([need_text(each.get("text", ""), "a part of an output") for each in parts])
    return need_text("" if output is None else output, "an output")


def _reasoning(item: Message) -> Message | None:
    """The summary, else the text, else what a server of SGLang's kind has packed."""
    text = _joined(item.get("summary")) or _joined(item.get("content"))
    text = text or _unpacked(item.get("encrypted_content"))
    return {"role": _ASSISTANT, "reasoning_content": text} if text else None


def _joined(parts: object) -> str:
    found = [each.get("text") for each in need_list(parts or [], "a reasoning's parts")
             if isinstance(each, dict)]  # fmt: skip
    return "\n".join([need_text(text, "a reasoning's text") for text in found if text])


def _unpacked(blob: object) -> str:
    """The reasoning in a blob of SGLang's own making, "" if it is of another's.

    Raises:
        ShapeError: it unpacks to too much.
    """
    if not isinstance(blob, str) or not blob.startswith(_STATE_MARK):
        return ""
    unpacking = zlib.decompressobj()
    try:
        packed = base64.urlsafe_b64decode(blob[len(_STATE_MARK) :])
        text = unpacking.decompress(packed, _STATE_BYTES_MAX).decode()
    except (ValueError, zlib.error):
        return ""
    if unpacking.unconsumed_tail:
        raise ShapeError("a reasoning that is too long")
    return text if unpacking.eof else ""


def _is_thought(shown: Message) -> bool:
    return shown.keys() == {"role", "reasoning_content"}


def _hoisted(content: object) -> RenderedPart:
    """A system message whose texts SGLang joins to those at the head, each by itself."""
    if isinstance(content, str):
        texts = [content]
    elif isinstance(content, list):
        texts = [each["text"] for each in content if isinstance(each.get("text"), str)]
    else:
        return _NOTHING
    return RenderedPart(*segments_of([render.render_system(text) for text in texts]), Turn.SYSTEM)


def _merged(raws: Sequence[msgspec.Raw]) -> Message:
    """Neighbouring messages of an assistant as one: contents, reasonings and calls joined."""
    items = [_as_message(msgspec.json.decode(raw)) for raw in raws]
    first, *rest = [shown for shown in items if shown is not None]
    merged = dict(first)
    for shown in rest:
        content = shown.get("content")
        if content not in (None, ""):
            merged["content"] = _joined_content(merged.get("content"), content)
        calls = shown.get("tool_calls")
        if calls:
            merged["tool_calls"] = [*(merged.get("tool_calls") or []), *need_list(calls, "calls")]
        thought = shown.get("reasoning_content")
        if thought:
            before = merged.get("reasoning_content")
            merged["reasoning_content"] = f"{before}\n{thought}" if before else thought
    return merged


def _joined_content(before: object, after: object) -> object:
    if before in (None, ""):
        return after
    if isinstance(before, str) and isinstance(after, str):
        return f"{before}\n\n{after}"
    return [*_parts(before), *_parts(after)]


def _parts(content: object) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []
