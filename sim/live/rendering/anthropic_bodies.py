"""Request bodies of the Anthropic dialect, turned into a chat prompt the way SGLang 0.5.23 does."""

from __future__ import annotations

from typing import Any

import msgspec

from sim.live.rendering.bodies import (
    BadBodyError,
    ChatMessage,
    EmulateAsk,
    FunctionCall,
    Part,
    Prompt,
    TemplateDefaults,
    ToolCall,
    choose,
)


class Block(msgspec.Struct):
    """One content block of any kind; the fields of the other kinds stay unset."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[Block] | None = None
    source: Any = None


class Message(msgspec.Struct):
    """One message."""

    role: str
    content: str | list[Block]


class AnthropicTool(msgspec.Struct):
    """One declared tool; a ``type`` other than custom is a server's tool and is skipped."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    type: str | None = None


class Choice(msgspec.Struct):
    """``tool_choice``: auto, any, tool (with its name) or none."""

    type: str
    name: str | None = None


class Thinking(msgspec.Struct):
    """``thinking``: enabled, adaptive or disabled."""

    type: str


class MessagesBody(msgspec.Struct):
    """Body of ``/v1/messages`` and ``/v1/messages/count_tokens``."""

    messages: list[Message]
    model: str = ""
    max_tokens: int | None = None
    system: str | list[Block] | None = None
    stream: bool | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: Choice | None = None
    thinking: Thinking | None = None
    homeport_emulate: EmulateAsk | None = None


def messages_prompt(body: MessagesBody, defaults: TemplateDefaults) -> Prompt:
    """What the template is given for an Anthropic body.

    Raises:
        BadBodyError: no messages, a block that cannot be rendered, or a tool choice that names no
            declared tool.
    """
    if not body.messages:
        raise BadBodyError("messages must not be empty")
    head = body.system if isinstance(body.system, str) else _joined_texts(body.system or [], "\n")
    messages: list[ChatMessage] = []
    for message in body.messages:
        if message.role == "system" and defaults.hoist_inline_system:
            text = message.content
            text = text if isinstance(text, str) else _joined_texts(text, "\n")
            head = f"{head}\n{text.strip()}" if head else text.strip()
        else:
            _convert(message, messages)
    if head.strip():
        messages.insert(0, ChatMessage("system", head))
    choice = body.tool_choice
    return Prompt(
        messages=messages,
        functions=[]
        if choice is not None and choice.type == "none"
        else choose(
            _functions(body.tools or []),
            (choice.name or "") if choice is not None and choice.type == "tool" else None,
        ),
        is_thinking=body.thinking is None or body.thinking.type != "disabled",
        preserve_thinking=defaults.preserve_thinking,
    )


def _functions(tools: list[AnthropicTool]) -> list[dict[str, Any]]:
    return [
        {
            "name": tool.name,
            "description": tool.description or "",
            "parameters": tool.input_schema,
            "strict": False,
        }
        for tool in tools
        if tool.type in (None, "custom")
    ]


def _joined_texts(blocks: list[Block], separator: str) -> str:
    return separator.join(block.text or "" for block in blocks if block.type == "text")


def _convert(message: Message, out: list[ChatMessage]) -> None:
    content = message.content
    if isinstance(content, str):
        out.append(ChatMessage(message.role, content))
    elif message.role == "assistant":
        out.append(_assistant(content))
    else:
        _user(message.role, content, out)


def _user(role: str, blocks: list[Block], out: list[ChatMessage]) -> None:
    """Tool results become tool messages in place; what stands between them, messages of its own."""
    parts: list[Part] = []
    for block in blocks:
        if block.type != "tool_result":
            parts.append(_part(block))
            continue
        if parts:
            out.append(ChatMessage(role, parts))
            parts = []
        result = block.content
        content = result if isinstance(result, str) else [_part(part) for part in result or ()]
        out.append(ChatMessage("tool", content, tool_call_id=block.tool_use_id))
    if parts:
        out.append(ChatMessage(role, parts))


def _part(block: Block) -> Part:
    if block.type == "text":
        return Part("text", block.text)
    if block.type == "image":
        return Part("image_url", image_url=block.source)
    raise BadBodyError(f"content block of type {block.type!r} is not supported here")


def _assistant(blocks: list[Block]) -> ChatMessage:
    thoughts: list[str] = []
    parts: list[Part] = []
    calls: list[ToolCall] = []
    for block in blocks:
        if block.type == "thinking":
            thoughts.append(block.thinking or "")
        elif block.type == "tool_use":
            calls.append(ToolCall(FunctionCall(block.name, block.input or {}), block.id))
        else:
            parts.append(_part(block))
    if thoughts:
        # No native reasoning field on this path for Kimi K2.x: the text goes into the content.
        parts.insert(0, Part("text", "<think>" + "\n".join(thoughts) + "\n</think>"))
    return ChatMessage("assistant", parts, tool_calls=calls or None)
