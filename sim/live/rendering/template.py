"""Kimi's chat template: messages and tools -> the prompt's UTF-8 text.

Order: tool declaration, messages in the order sent, generation prompt; no text between the parts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec
import xxhash

from sim.live.rendering.bodies import BadBodyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.live.rendering.bodies import ChatMessage, Part, Prompt

END: Final = "<|im_end|>"
THINK_END: Final = "</think>"
CALLS_BEGIN: Final = "<|tool_calls_section_begin|>"
CALLS_END: Final = "<|tool_calls_section_end|>"
_UNSHOWN_KINDS: Final = frozenset({"thinking", "reasoning", "tool_reference"})
_CALL_BEGIN: Final = "<|tool_call_begin|>"
_CALL_END: Final = "<|tool_call_end|>"
_ARGUMENTS: Final = "<|tool_call_argument_begin|>"
_OPENINGS: Final = {"user": "<|im_user|>", "assistant": "<|im_assistant|>"}
_INTEGER_MIN: Final = -(2**63)
_INTEGER_MAX: Final = 2**64 - 1
_GENERATION: Final = "<|im_assistant|>assistant<|im_middle|><think>"
_compact: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_spaced: Final = json.JSONEncoder(ensure_ascii=False).encode


def to_json(value: object, *, is_compact: bool = False) -> str:
    """JSON text as templates print it: keys in the order given, non-ASCII characters as they are."""
    return (_compact if is_compact else _spaced)(_as_read(value))


def _as_read(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """The value as orjson reads it: a whole number of more than 64 bits is a float."""
    if isinstance(value, dict):
        return {key: _as_read(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_as_read(inner) for inner in value]
    if isinstance(value, int) and not _INTEGER_MIN <= value <= _INTEGER_MAX:
        return float(value)
    return value


def render(prompt: Prompt) -> bytes:
    """The prompt's text.

    Raises:
        BadBodyError: arguments of a call are not a JSON object, or a content part is of a kind
            that the emulator does not render.
    """
    out: list[str] = []
    if prompt.tools:
        declared = to_json(prompt.tools, is_compact=True)
        out += ("<|im_system|>tool_declare<|im_middle|>", declared, END)
    settled = -1 if prompt.preserve_thinking else _last_plain_answer(prompt.messages)
    for index, message in enumerate(prompt.messages):
        _render_message(message, out, keeps_reasoning=index > settled)
    if prompt.add_generation_prompt:
        out.append(_GENERATION if prompt.is_thinking else _GENERATION + THINK_END)
        out.append(prompt.opening)
    return "".join(out).encode()


def call_text(call_id: str, arguments: str) -> tuple[str, str, str]:
    """One tool call as the model writes it: what comes before its arguments, they, and the end."""
    return f"{_CALL_BEGIN}{call_id}{_ARGUMENTS}", arguments, _CALL_END


def _last_plain_answer(messages: Sequence[ChatMessage]) -> int:
    """Index of the last assistant message without tool calls, -1 if there is none."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "assistant" and not messages[index].tool_calls:
            return index
    return -1


def _render_message(message: ChatMessage, out: list[str], *, keeps_reasoning: bool) -> None:
    role = message.role.lower()
    # SGLang hands over a user message without its name.
    shown = message.name if message.name and role != "user" else role
    out += (_OPENINGS.get(role, "<|im_system|>"), shown, "<|im_middle|>")
    if role == "assistant":
        reasoning = message.reasoning_content if keeps_reasoning else None
        out += ("<think>", reasoning or "", THINK_END)
    if role == "tool":
        out += ("## Return of ", message.tool_call_id or "", "\n")
    out.append(_text(message.content, is_result=role == "tool"))
    if role == "assistant" and message.tool_calls:
        out.append(CALLS_BEGIN)
        for call in message.tool_calls:
            out += call_text(call.id or "", to_json(call.function.parsed()))
        out.append(CALLS_END)
    out.append(END)


def _text(content: str | list[Part] | None, *, is_result: bool) -> str:
    """Parts are joined as they are; a result that is nothing but texts, by blanks."""
    if isinstance(content, str):
        return content
    parts = content or ()
    is_spaced = is_result and all(part.type == "text" for part in parts)
    return (" " if is_spaced else "").join(_part_text(part) for part in parts)


def _part_text(part: Part) -> str:
    if part.type == "text":
        return part.text or ""
    if part.type in _UNSHOWN_KINDS:
        return ""
    if part.type == "image_url":
        # The engine fills the pad tokens from a hash of the picture: two pictures never match.
        digest = xxhash.xxh3_64_hexdigest(msgspec.json.encode(part.image_url))
        return f"<|media_begin|>image<|media_content|><|media_pad|>{digest}<|media_end|>"
    raise BadBodyError(f"content part of type {part.type!r} is not supported: send text or images")
