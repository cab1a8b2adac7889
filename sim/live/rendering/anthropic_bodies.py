"""Request bodies of the Anthropic dialect, turned into a chat prompt the way SGLang 0.5.23 does."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sim.live.rendering.bodies import (
    BadBodyError,
    ChatMessage,
    EmulateAsk,
    FunctionCall,
    Part,
    Prompt,
    TemplateDefaults,
    Tool,
    ToolCall,
    choose,
    ended,
)

_SERVER_TOOLS: Final = ("web_search_", "computer_", "bash_", "text_editor_")
_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
_REFERENCE: Final = "tool_reference"


class Block(msgspec.Struct):
    """One content block of any kind; the fields of the other kinds stay unset."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    tool_name: str | None = None
    content: str | list[Block] | None = None
    source: Any = None


class Message(msgspec.Struct):
    """One message."""

    role: str
    content: str | list[Block]


class AnthropicTool(msgspec.Struct):
    """One declared tool; those of a server's own types are skipped."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    type: str | None = None
    strict: bool = False
    defer_loading: bool | None = None


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
    temperature: float | None = None
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
    messages: list[ChatMessage] = []
    texts = _system_texts(body.system)
    for message in body.messages:
        if message.role == "system" and defaults.hoist_inline_system:
            texts += _stripped(message.content)
        else:
            _convert(message, messages)
    if texts:
        messages.insert(0, ChatMessage("system", "\n".join(texts)))
    if not messages:
        raise BadBodyError("messages must not be empty")
    choice = body.tool_choice or Choice("auto")
    tools = _tools(body.tools or [])
    only = (choice.name or "") if choice.type == "tool" else None
    messages, _ = ended(messages, is_continued=False)
    return Prompt(
        messages=messages,
        tools=[] if choice.type == "none" else choose(tools, only),
        is_thinking=body.thinking is None or body.thinking.type != "disabled",
        preserve_thinking=defaults.preserve_thinking,
    )


def _tools(tools: list[AnthropicTool]) -> list[Tool]:
    converted = []
    for tool in tools:
        if (tool.type or "").startswith(_SERVER_TOOLS):
            continue
        if tool.input_schema is None:
            raise BadBodyError(f"tool {tool.name!r} has no input_schema")
        function = {
            "name": tool.name,
            "description": tool.description or "",
            "parameters": {**tool.input_schema, "type": tool.input_schema.get("type", "object")},
            "strict": tool.strict,
        }
        converted.append(Tool(function, defer_loading=tool.defer_loading))
    return converted


def _system_texts(system: str | list[Block] | None) -> list[str]:
    if isinstance(system, str):
        return [system] if system.strip() else []
    return [block.text for block in system or () if block.type == "text" and block.text]


def _stripped(content: str | list[Block]) -> list[str]:
    """The texts of an inline system message as they are moved to the head."""
    if isinstance(content, str):
        text = content.strip()
    else:
        stripped = [(block.text or "").strip() for block in content if block.type == "text"]
        text = "\n".join([text for text in stripped if text])
    return [text] if text else []


def _convert(message: Message, out: list[ChatMessage]) -> None:
    content = message.content
    if isinstance(content, str):
        out.append(ChatMessage(message.role, content))
    elif message.role == "assistant":
        out.append(_assistant(content))
    elif message.role == "user":
        _user(content, out)
    else:
        parts = [part for block in content if block.type not in _THOUGHTS for part in _parts(block)]
        out.append(ChatMessage(message.role, _content(parts) if parts else ""))


def _user(blocks: list[Block], out: list[ChatMessage]) -> None:
    """Tool results become tool messages in place; what stands between them, messages of its own."""
    parts: list[Part] = []
    for block in blocks:
        if block.type == "tool_result":
            if parts:
                out.append(ChatMessage("user", _content(parts)))
                parts = []
            call_id = block.tool_use_id or block.id or ""
            contents = _result_contents(block.content)
            out += [ChatMessage("tool", content, tool_call_id=call_id) for content in contents]
        elif block.type not in _THOUGHTS:
            parts += _parts(block)
    if parts:
        out.append(ChatMessage("user", _content(parts)))


def _result_contents(result: str | list[Block] | None) -> list[str | list[Part]]:
    """One content a tool message: references to tools have messages of their own."""
    if not isinstance(result, list):
        return [result or ""]
    groups: list[list[Part]] = []
    for block in result:
        if block.type == _REFERENCE:
            name = block.tool_name or block.name
            added = [Part(_REFERENCE, name=name)] if name else []
        else:
            added = [] if block.type == "text" and not block.text else _parts(block)
        for part in added:
            is_reference = part.type == _REFERENCE
            if not groups or (groups[-1][0].type == _REFERENCE) != is_reference:
                groups.append([])
            groups[-1].append(part)
    return [_content(group) for group in groups] or [""]


def _content(parts: list[Part]) -> str | list[Part]:
    """A single text is a plain string."""
    if len(parts) == 1 and parts[0].type == "text":
        return parts[0].text or ""
    return parts


def _parts(block: Block) -> list[Part]:
    """What is shown of a block; an image without a source is left out."""
    if block.type == "text":
        if block.text is None:
            raise BadBodyError("a text block has no text")
        return [Part("text", block.text)]
    if block.type == "image":
        url = _image_url(block.source)
        return [Part("image_url", image_url={"url": url})] if url else []
    raise BadBodyError(f"content block of type {block.type!r} is not supported here")


def _image_url(source: Any) -> str | None:  # noqa: ANN401  # a client's JSON
    if not isinstance(source, dict):
        return None
    if source.get("type") != "base64":
        return source.get("url") or None
    data = source.get("data")
    return f"data:{source.get('media_type', 'image/png')};base64,{data}" if data else None


def _assistant(blocks: list[Block]) -> ChatMessage:
    parts: list[Part] = []
    calls: list[ToolCall] = []
    for block in blocks:
        if block.type == "redacted_thinking":
            raise BadBodyError("redacted_thinking in the history is not supported")
        if block.type == "tool_use":
            calls.append(ToolCall(FunctionCall(block.name, block.input or {}), block.id))
        elif block.type != "thinking":
            parts += _parts(block)
    thoughts = [block.thinking for block in blocks if block.type == "thinking" and block.thinking]
    if thoughts:
        # No native reasoning field on this path for Kimi K2.x: the text goes into the content.
        parts.insert(0, Part("text", "<think>" + "\n".join(thoughts) + "\n</think>"))
    return ChatMessage("assistant", _content(parts) if parts else "", tool_calls=calls or None)
