"""An Anthropic body as the chat completion that SGLang turns it into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from router.control.events.asked import UnclearError, as_list, as_object, parts_of, texts_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def chat_of_messages(fields: dict[str, Any]) -> dict[str, Any]:
    """The chat's body.

    Raises:
        UnclearError: what becomes of a part of it is not certain.
    """
    if fields.get("tool_choice"):
        raise UnclearError
    messages: list[dict[str, Any]] = []
    system = fields.get("system")
    if system:
        text = system if isinstance(system, str) else "\n".join(texts_of(system))
        if text.strip():
            messages.append({"role": "system", "content": text})
    for message in map(as_object, as_list(fields.get("messages"))):
        messages.extend(_turned(message))
    asked: dict[str, Any] = {"model": fields.get("model", ""), "messages": messages}
    tools = [_tool(tool) for tool in map(as_object, as_list(fields.get("tools") or []))]
    if tools:
        asked["tools"] = tools
    thinking = fields.get("thinking")
    if thinking is not None:
        is_on = as_object(thinking).get("type") != "disabled"
        asked["chat_template_kwargs"] = {"thinking": is_on}
    effort = as_object(fields.get("output_config") or {}).get("effort")
    if effort is not None:
        asked["reasoning_effort"] = "max" if effort == "xhigh" else effort
    return asked


def _turned(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The chat messages that one message becomes."""
    role, content = message.get("role"), message.get("content")
    if isinstance(content, str) and role in ("user", "assistant"):
        yield {"role": role, "content": content}
    elif role == "assistant":
        yield _answer(content)
    elif role == "user":
        yield from _said(content)
    else:
        raise UnclearError


def _answer(content: object) -> dict[str, Any]:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in map(as_object, as_list(content)):
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "thinking", "thinking": str(thought)}:
                thoughts.append(thought)
            case {"type": "tool_use"}:
                arguments = msgspec.json.encode(block.get("input") or {}).decode()
                function = {"name": block.get("name"), "arguments": arguments}
                calls.append({"id": block.get("id"), "type": "function", "function": function})
            case _:
                raise UnclearError
    if thoughts:
        # Kimi's templates have no field for it in this path: it stands in front of the content.
        texts.insert(0, "<think>" + "\n".join(thoughts) + "\n</think>")
    answer: dict[str, Any] = {"role": "assistant", "content": parts_of(texts) if texts else ""}
    return answer | ({"tool_calls": calls} if calls else {})


def _said(content: object) -> Iterator[dict[str, Any]]:
    """Tool results are messages of their own, and what stands before and behind them, too."""
    texts: list[str] = []
    has_results = False
    for block in map(as_object, as_list(content)):
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "tool_result"}:
                if texts:
                    yield {"role": "user", "content": parts_of(texts)}
                    texts = []
                has_results = True
                yield _result(block)
            case _:
                raise UnclearError
    if texts or not has_results:
        yield {"role": "user", "content": parts_of(texts)}


def _result(block: dict[str, Any]) -> dict[str, Any]:
    content = block.get("content")
    if content is None:
        content = ""
    elif not isinstance(content, str):
        content = parts_of(list(texts_of(content)))
    return {"role": "tool", "tool_call_id": block.get("tool_use_id", ""), "content": content}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    if tool.get("type") not in (None, "custom") or "input_schema" not in tool:
        raise UnclearError
    function = {
        "name": tool.get("name"),
        "description": tool.get("description") or "",
        "parameters": tool["input_schema"],
        "strict": False,
    }
    return {"type": "function", "function": function}
