"""Kimi's chat template: messages and tools -> the prompt's UTF-8 text.

Order: tool declaration, messages in the order sent, generation prompt; no text between the parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import xxhash

from sim.live.rendering.bodies import BadBodyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.live.rendering.bodies import ChatMessage, Part, Prompt, ToolCall

END: Final = "<|im_end|>"
THINK_END: Final = "</think>"
CALLS_BEGIN: Final = "<|tool_calls_section_begin|>"
CALLS_END: Final = "<|tool_calls_section_end|>"
_CALL_BEGIN: Final = "<|tool_call_begin|>"
_CALL_END: Final = "<|tool_call_end|>"
_ARGUMENTS: Final = "<|tool_call_argument_begin|>"
_OPENINGS: Final = {"user": "<|im_user|>", "assistant": "<|im_assistant|>"}
_GENERATION: Final = "<|im_assistant|>assistant<|im_middle|><think>"


def to_json(value: object) -> str:
    """JSON text with the order of keys as given, compact, non-ASCII characters as they are."""
    return msgspec.json.encode(value).decode()


def render(prompt: Prompt) -> bytes:
    """The prompt's text.

    Raises:
        BadBodyError: arguments of a call are not a JSON object, or a content part is of a kind
            that the emulator does not render.
    """
    out: list[str] = []
    if prompt.functions:
        tools = [
            {"type": "function", "function": function, "defer_loading": None}
            for function in prompt.functions
        ]
        out += ("<|im_system|>tool_declare<|im_middle|>", to_json(tools), END)
    settled = -1 if prompt.preserve_thinking else _last_plain_answer(prompt.messages)
    for index, message in enumerate(prompt.messages):
        _render_message(message, out, keeps_reasoning=index > settled)
    if prompt.add_generation_prompt:
        out.append(_GENERATION if prompt.is_thinking else _GENERATION + THINK_END)
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
        out.append(_text(message.content, separator=" "))
    else:
        out.append(_text(message.content, separator=""))
    if role == "assistant" and message.tool_calls:
        out.append(CALLS_BEGIN)
        for call in message.tool_calls:
            out += call_text(call.id or "", to_json(_arguments(call)))
        out.append(CALLS_END)
    out.append(END)


def _text(content: str | list[Part] | None, *, separator: str) -> str:
    if isinstance(content, str):
        return content
    return separator.join(_part_text(part) for part in content or ())


def _part_text(part: Part) -> str:
    if part.type == "text":
        return part.text or ""
    if part.type == "image_url":
        # The engine fills the pad tokens from a hash of the picture: two pictures never match.
        digest = xxhash.xxh3_64_hexdigest(msgspec.json.encode(part.image_url))
        return f"<|media_begin|>image<|media_content|><|media_pad|>{digest}<|media_end|>"
    raise BadBodyError(f"content part of type {part.type!r} is not supported: send text or images")


def _arguments(call: ToolCall) -> dict[str, Any]:
    arguments = call.function.arguments
    if arguments is None:
        return {}
    if isinstance(arguments, dict):
        return arguments
    try:
        return msgspec.json.decode(arguments, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadBodyError(f"arguments of tool call {call.id!r}: not a JSON object") from error
