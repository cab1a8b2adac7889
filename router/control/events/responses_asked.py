"""A body of ``/v1/responses`` as the chat completion that SGLang turns it into."""

from __future__ import annotations

import base64
import zlib
from typing import Any, Final

import msgspec

from router.control.events.asked import UnclearError, as_list, as_object, parts_of, texts_of

_LABEL: Final = "Developer instructions:\n"
_STATE: Final = "sglang-reasoning-v1."
_STATE_BYTES_MAX: Final = 4 << 20
_SAID: Final = ("input_text", "output_text", "text")
_PAYLOAD: Final = {
    "type": "object",
    "properties": {
        "input": {"type": "string", "description": "The freeform text payload for this tool."}
    },
    "required": ["input"],
    "additionalProperties": False,
}


def chat_of_responses(fields: dict[str, Any]) -> dict[str, Any]:
    """The chat's body.

    Raises:
        UnclearError: what becomes of a part of it is not certain.
    """
    if fields.get("previous_response_id") or fields.get("tool_choice") not in (None, "auto"):
        raise UnclearError
    messages: list[dict[str, Any]] = []
    if instructions := fields.get("instructions"):
        messages.append({"role": "system", "content": instructions})
    items = fields.get("input")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    for item in map(as_object, as_list(items)):
        message = _message(item)
        if message is not None:
            _append(messages, message)
    asked: dict[str, Any] = {"model": fields.get("model", ""), "messages": messages}
    tools = [_tool(tool) for tool in map(as_object, as_list(fields.get("tools") or []))]
    if shown := [tool for tool in tools if tool is not None]:
        asked["tools"] = shown
    if kwargs := fields.get("chat_template_kwargs"):
        asked["chat_template_kwargs"] = kwargs
    reasoning = fields.get("reasoning")
    if reasoning is not None:
        asked["reasoning_effort"] = as_object(reasoning).get("effort", "medium")
    return asked


def _message(item: dict[str, Any]) -> dict[str, Any] | None:
    """One item as a chat message, None if it is left out."""
    match item.get("type"):
        case "function_call":
            return _called(item, item.get("arguments"))
        case "custom_tool_call":
            text = msgspec.json.encode({"input": item.get("input") or ""}).decode()
            return _called(item, text)
        case "function_call_output" | "custom_tool_call_output":
            output = item.get("output", "")
            if not isinstance(output, str):
                output = "".join(texts_of(output, _SAID))
            return {"role": "tool", "tool_call_id": item.get("call_id"), "content": output}
        case "reasoning":
            text = _thought(item)
            return {"role": "assistant", "reasoning_content": text} if text else None
        case None | "message":
            return _said(item)
        case _:
            raise UnclearError


def _said(item: dict[str, Any]) -> dict[str, Any]:
    role, content = item.get("role"), item.get("content")
    texts = [content] if isinstance(content, str) else list(texts_of(content, _SAID))
    if role == "developer":
        role = "system"
        texts[:1] = [_LABEL + text for text in texts[:1]]
    if role not in ("system", "user", "assistant") or not texts:
        raise UnclearError
    said: dict[str, Any] = {"role": role, "content": parts_of(texts)}
    return said | ({"phase": item["phase"]} if item.get("phase") is not None else {})


def _called(item: dict[str, Any], arguments: object) -> dict[str, Any]:
    function = {"name": item.get("name"), "arguments": arguments}
    call = {"id": item.get("call_id"), "type": "function", "function": function}
    return {"role": "assistant", "tool_calls": [call]}


def _thought(item: dict[str, Any]) -> str:
    for part in (item.get("summary"), item.get("content")):
        blocks = map(as_object, as_list(part or []))
        texts = [block["text"] for block in blocks if block.get("text")]
        if texts:
            return "\n".join(texts)
    state = item.get("encrypted_content")
    if not isinstance(state, str) or not state.startswith(_STATE):
        return ""
    try:
        packed = base64.urlsafe_b64decode(state[len(_STATE) :])
        return zlib.decompressobj().decompress(packed, _STATE_BYTES_MAX).decode()
    except (ValueError, zlib.error):
        return ""


def _append(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
    """Add a message; neighbours of the assistant are one, unless their phases differ."""
    last = messages[-1] if messages else {}
    is_next = message["role"] == "assistant" == last.get("role")
    is_thought = last.keys() == {"role", "reasoning_content"}
    if not is_next or not (is_thought or last.get("phase") == message.get("phase")):
        messages.append(message)
        return
    if "content" in last and "content" in message:
        if not isinstance(last["content"], str) or not isinstance(message["content"], str):
            raise UnclearError
        message = message | {"content": f"{last['content']}\n\n{message['content']}"}
    if "tool_calls" in last and "tool_calls" in message:
        message = message | {"tool_calls": [*last["tool_calls"], *message["tool_calls"]]}
    if "reasoning_content" in last and "reasoning_content" in message:
        thought = f"{last['reasoning_content']}\n{message['reasoning_content']}"
        message = message | {"reasoning_content": thought}
    messages[-1] = last | message


def _tool(tool: dict[str, Any]) -> dict[str, Any] | None:
    """A declared tool as the model is shown it, None if it is not."""
    kind, description = tool.get("type"), tool.get("description")
    parameters = tool.get("parameters")
    if kind == "custom" and tool.get("name"):
        form = as_object(tool.get("format") or {})
        parts = [description] if description else []
        if form.get("type") == "grammar":
            syntax, rules = form.get("syntax") or "lark", form.get("definition") or ""
            parts.append(f"The payload must conform to this {syntax} grammar:\n{rules}")
        description, parameters = "\n\n".join(parts) or None, _PAYLOAD
    elif kind != "function":
        return None
    function = {
        "name": tool.get("name"),
        "description": description,
        "parameters": parameters,
        "strict": bool(tool.get("strict")),
    }
    return {"type": "function", "function": function}
