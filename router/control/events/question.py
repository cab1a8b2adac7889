"""A request's body as a question for its prompt's tokens, where that can be asked exactly.

``/v1/tokenize`` renders and tokenises an OpenAI chat body by the code that serves it. An Anthropic body
is asked as the chat that SGLang makes of it. What is not certain to be the same is not asked; the answer
is held against the tokens that the engine counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

CHAT: Final = "openai-chat"
MESSAGES: Final = "anthropic-messages"
COMPLETIONS: Final = "openai-completions"
_APART: Final = ("extra_key", "lora_path", "input_ids", "input_embeds")
"""Members by which a prompt's pages have other numbers than its tokens tell."""


class Question(NamedTuple):
    """The body to send, and the salt under which the prompt's pages are kept."""

    body: bytes
    salt: str | None


class _UnclearError(Exception):
    """What this makes of a prompt is not certain."""


def question(dialect: str, body: bytes) -> Question | None:
    """What to ask for the tokens of a request's prompt; None if that cannot be asked."""
    if dialect not in (CHAT, MESSAGES, COMPLETIONS):
        return None
    try:
        fields = msgspec.json.decode(body)
        if not isinstance(fields, dict) or any(fields.get(name) for name in _APART):
            return None
        salt = fields.get("cache_salt")
        if salt is not None and not isinstance(salt, str):
            return None
        if dialect == CHAT:
            return Question(body, salt)
        asked = _of_messages(fields) if dialect == MESSAGES else _of_text(fields)
        return Question(msgspec.json.encode(asked), salt)
    except (msgspec.DecodeError, RecursionError, _UnclearError):
        return None


def _of_text(fields: dict[str, Any]) -> dict[str, Any]:
    prompt = fields.get("prompt")
    if not isinstance(prompt, str) or fields.get("suffix"):
        raise _UnclearError
    return {"model": fields.get("model", ""), "prompt": prompt}


def _of_messages(fields: dict[str, Any]) -> dict[str, Any]:
    """An Anthropic body as the chat completion that SGLang turns it into."""
    if fields.get("output_config") or fields.get("thinking") or fields.get("tool_choice"):
        raise _UnclearError
    messages: list[dict[str, Any]] = []
    system = fields.get("system")
    if system:
        text = system if isinstance(system, str) else "\n".join(_texts(system))
        if text.strip():
            messages.append({"role": "system", "content": text})
    for message in _list(fields.get("messages")):
        messages.extend(_turned(message))
    asked: dict[str, Any] = {"model": fields.get("model", ""), "messages": messages}
    tools = [_tool(tool) for tool in _list(fields.get("tools") or [])]
    if tools:
        asked["tools"] = tools
    return asked


def _turned(message: object) -> Iterator[dict[str, Any]]:
    """The chat messages that one Anthropic message becomes."""
    fields = _object(message)
    role, content = fields.get("role"), fields.get("content")
    if role not in ("user", "assistant"):
        raise _UnclearError
    if isinstance(content, str):
        yield {"role": role, "content": content}
        return
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    has_results = False
    for block in map(_object, _list(content)):
        match block.get("type"):
            case "text" if isinstance(block.get("text"), str):
                parts.append({"type": "text", "text": block["text"]})
            case "tool_use" if role == "assistant":
                calls.append(_call(block))
            case "tool_result" if role == "user":
                if parts:
                    yield {"role": role, "content": _content(parts)}
                    parts = []
                has_results = True
                yield _result(block)
            case _:
                raise _UnclearError
    if role == "assistant":
        answer: dict[str, Any] = {"role": role, "content": _content(parts) if parts else ""}
        yield answer | ({"tool_calls": calls} if calls else {})
    elif parts or not has_results:
        yield {"role": role, "content": _content(parts)}


def _content(parts: list[dict[str, Any]]) -> object:
    return parts[0]["text"] if len(parts) == 1 else parts


def _result(block: dict[str, Any]) -> dict[str, Any]:
    content = block.get("content")
    if content is None:
        content = ""
    elif not isinstance(content, str):
        content = _content([{"type": "text", "text": text} for text in _texts(content)] or [])
    return {"role": "tool", "tool_call_id": block.get("tool_use_id", ""), "content": content}


def _call(block: dict[str, Any]) -> dict[str, Any]:
    arguments = msgspec.json.encode(block.get("input") or {}).decode()
    function = {"name": block.get("name"), "arguments": arguments}
    return {"id": block.get("id"), "type": "function", "function": function}


def _tool(tool: object) -> dict[str, Any]:
    fields = _object(tool)
    if fields.get("type") not in (None, "custom") or "input_schema" not in fields:
        raise _UnclearError
    function = {
        "name": fields.get("name"),
        "description": fields.get("description") or "",
        "parameters": fields["input_schema"],
        "strict": False,
    }
    return {"type": "function", "function": function}


def _texts(blocks: object) -> Iterator[str]:
    for block in map(_object, _list(blocks)):
        if block.get("type") != "text" or not isinstance(block.get("text"), str):
            raise _UnclearError
        yield block["text"]


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise _UnclearError
    return value


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _UnclearError
    return value
