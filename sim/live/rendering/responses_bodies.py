"""Request bodies of ``/v1/responses``, turned into a chat prompt the way SGLang 0.5.23 does."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sim.live.rendering.bodies import (
    BadBodyError,
    ChatMessage,
    EmulateAsk,
    Prompt,
    TemplateDefaults,
    Tool,
    choose,
    ended,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

Item = dict[str, Any]

_LABEL: Final = "Developer instructions:"
_STATE: Final = "sglang-reasoning-v1."
_STATE_BYTES_MAX: Final = 4 * 2**20
_MESSAGE_KEYS: Final = frozenset(ChatMessage.__struct_fields__) | {"phase"}


class Reasoning(msgspec.Struct):
    """``reasoning``: asked for without an effort, it is medium."""

    effort: str | None = "medium"
    summary: str | None = None


class ResponsesTool(msgspec.Struct):
    """One declared tool; only functions and those of free text are shown to the model."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool = False
    format: dict[str, Any] | None = None


class ResponsesBody(msgspec.Struct):
    """Body of ``/v1/responses``."""

    input: str | list[Item]
    model: str | None = None
    instructions: str | None = None
    stream: bool | None = None
    store: bool | None = True
    background: bool | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[ResponsesTool] = []
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: bool | None = True
    reasoning: Reasoning | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    include: list[str] | None = None
    truncation: str | None = "disabled"
    metadata: dict[str, Any] | None = None
    user: str | None = None
    request_id: str | None = None
    cache_salt: str | None = None
    extra_key: str | None = None
    homeport_emulate: EmulateAsk | None = None

    @property
    def items(self) -> list[Item]:
        """The input as items."""
        if isinstance(self.input, str):
            return [{"role": "user", "content": self.input}]
        return self.input

    @property
    def has_calls(self) -> bool:
        """Whether the answer may hold calls."""
        return self.effective_choice != "none" and any(
            tool.type in ("function", "custom") for tool in self.tools
        )

    @property
    def effective_choice(self) -> str | dict[str, Any]:
        """What can be forced: of the object forms, a named tool only."""
        choice = self.tool_choice
        if isinstance(choice, str):
            return choice
        function = choice.get("function")
        named = function.get("name") if isinstance(function, dict) else None
        name = choice.get("name") or named
        if choice.get("type") in ("function", "custom") and name:
            return {"type": choice["type"], "name": name}
        return "auto"


def responses_prompt(
    body: ResponsesBody, defaults: TemplateDefaults, history: Iterable[Item] = ()
) -> Prompt:
    """What the template is given for a body that goes on from ``history``.

    Raises:
        BadBodyError: an item that is not known, or a tool choice that names no declared tool.
    """
    try:
        return _prompt(body, defaults, history)
    except (TypeError, AttributeError) as error:  # SGLang takes these for the client's too
        raise BadBodyError(f"{error} None") from error


def _prompt(body: ResponsesBody, defaults: TemplateDefaults, history: Iterable[Item]) -> Prompt:
    messages = [] if not body.instructions else [_system(body.instructions)]
    messages += [shown for item in (*history, *body.items) if (shown := _message(item)) is not None]
    messages = _merged(messages)
    if defaults.hoist_inline_system:
        messages = _hoisted(messages)
    if not messages:
        raise BadBodyError("messages must not be empty")
    kept = [{key: value for key, value in m.items() if key in _MESSAGE_KEYS} for m in messages]
    try:
        chat = msgspec.convert(kept, list[ChatMessage])
    except msgspec.ValidationError as error:
        raise BadBodyError(f"input: {error}") from error
    kwargs = body.chat_template_kwargs or {}
    effort = None if body.reasoning is None else body.reasoning.effort
    chat, _ = ended(chat, is_continued=False)
    return Prompt(
        messages=chat,
        tools=_tools(body),
        is_thinking=kwargs.get("thinking", effort != "none") is not False,
        preserve_thinking=bool(kwargs.get("preserve_thinking", defaults.preserve_thinking)),
    )


def packed_reasoning(text: str) -> str:
    """A reasoning as ``encrypted_content`` carries it."""
    return _STATE + base64.urlsafe_b64encode(zlib.compress(text.encode())).decode()


def _tools(body: ResponsesBody) -> list[dict[str, Any]]:
    choice = body.effective_choice
    tools = [tool for tool in body.tools if tool.type == "function" or _is_custom(tool)]
    if not tools or choice == "none":
        return []
    shown = [
        Tool(
            {
                "name": tool.name,
                "description": _described(tool) if _is_custom(tool) else tool.description,
                "parameters": _payload() if _is_custom(tool) else tool.parameters,
                "strict": tool.strict,
            }
        )
        for tool in tools
    ]
    return choose(shown, choice["name"] if isinstance(choice, dict) else None)


def _is_custom(tool: ResponsesTool) -> bool:
    return tool.type == "custom" and bool(tool.name)


def _described(tool: ResponsesTool) -> str | None:
    parts = [tool.description] if tool.description else []
    form = tool.format or {}
    if form.get("type") == "grammar":
        syntax = form.get("syntax") or "lark"
        parts.append(
            f"The payload must conform to this {syntax} grammar:\n{form.get('definition') or ''}"
        )
    return "\n\n".join(parts) or None


def _payload() -> dict[str, Any]:
    text = {"type": "string", "description": "The freeform text payload for this tool."}
    return {
        "type": "object",
        "properties": {"input": text},
        "required": ["input"],
        "additionalProperties": False,
    }


def _system(text: str) -> Item:
    return {"role": "system", "content": text}


def _message(item: Item) -> Item | None:
    """One item as a chat message, None if it is left out."""
    kind = item.get("type")
    if item.get("role") == "developer":
        item = {**item, "role": "system", "content": _labelled(item.get("content"))}
    if kind == "function_call":
        return _called(item, _object(item.get("arguments")))
    if kind == "custom_tool_call":
        return _called(item, {"input": item.get("input") or ""})
    if kind in ("function_call_output", "custom_tool_call_output"):
        content = _result(item.get("output", ""))
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
    if kind == "reasoning":
        thoughts = _texts(item.get("summary")) or _texts(item.get("content"))
        text = "\n".join(thoughts) or _unpacked(item.get("encrypted_content"))
        return {"role": "assistant", "reasoning_content": text} if text else None
    if kind not in (None, "message"):
        raise BadBodyError(f"Unsupported Responses API input item type: {kind!r} None")
    shown = {
        key: value
        for key, value in item.items()
        if value is not None and key not in ("id", "status", "type")
    }
    if isinstance(item.get("content"), list):
        shown["content"] = [_part(part) for part in item["content"]]
    return shown


def _labelled(content: object) -> object:
    if isinstance(content, str):
        return f"{_LABEL}\n{content}"
    if not isinstance(content, list):
        return content
    labelled, is_found = [], False
    for part in content:
        if not is_found and isinstance(part, dict) and isinstance(part.get("text"), str):
            is_found = True
            labelled.append({**part, "text": f"{_LABEL}\n{part['text']}"})
        else:
            labelled.append(part)
    return labelled if is_found else [{"type": "input_text", "text": _LABEL}, *content]


def _part(part: object) -> object:
    if not isinstance(part, dict):
        raise BadBodyError("a part of an item's content is no object")
    kind = part.get("type")
    if kind in ("input_text", "output_text"):
        return {"type": "text", "text": part.get("text", "")}
    if kind not in ("input_image", "image_url"):
        return part
    source = part.get("image_url")
    source = dict(source) if isinstance(source, dict) else {"url": source}
    source["detail"] = source.get("detail") or part.get("detail") or "auto"
    return {"type": "image_url", "image_url": source}


def _object(arguments: object) -> Item:
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.MsgspecError, RecursionError):
            arguments = None
    return arguments if isinstance(arguments, dict) else {}


def _called(item: Item, arguments: Item) -> Item:
    function = {"name": item.get("name"), "arguments": arguments}
    call = {"id": item.get("call_id") or item.get("id"), "function": function}
    return {"role": "assistant", "tool_calls": [call]}


def _result(output: object) -> object:
    if isinstance(output, list):
        return "".join([part.get("text", "") for part in output if isinstance(part, dict)])
    return output


def _texts(parts: object) -> list[str]:
    if not isinstance(parts, list):
        return []
    return [part["text"] for part in parts if isinstance(part, dict) and part.get("text")]


def _unpacked(state: object) -> str:
    if not isinstance(state, str) or not state.startswith(_STATE):
        return ""
    try:
        packed = base64.urlsafe_b64decode(state[len(_STATE) :])
        return zlib.decompressobj().decompress(packed, _STATE_BYTES_MAX).decode()
    except (ValueError, zlib.error):
        return ""


def _merged(messages: list[Item]) -> list[Item]:
    """Neighbouring messages of the assistant as one, unless their phases differ."""
    merged: list[Item] = []
    for message in messages:
        last = merged[-1] if merged else {}
        is_next = message.get("role") == "assistant" == last.get("role")
        is_thought = last.keys() == {"role", "reasoning_content"}
        if is_next and (is_thought or last.get("phase") == message.get("phase")):
            merged[-1] = _joined(last, message)
        else:
            merged.append(message)
    return merged


def _joined(last: Item, message: Item) -> Item:
    joined = dict(last)
    if message.get("phase") is not None:
        joined["phase"] = message["phase"]
    before, content = last.get("content"), message.get("content")
    if content not in (None, ""):
        if before in (None, ""):
            joined["content"] = content
        elif isinstance(before, str) and isinstance(content, str):
            joined["content"] = f"{before}\n\n{content}"
        else:
            joined["content"] = [*_as_parts(before), *_as_parts(content)]
    if message.get("tool_calls"):
        joined["tool_calls"] = [*(last.get("tool_calls") or ()), *message["tool_calls"]]
    thought = message.get("reasoning_content")
    if thought:
        known = last.get("reasoning_content")
        joined["reasoning_content"] = f"{known}\n{thought}" if known else thought
    return joined


def _as_parts(content: object) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _hoisted(messages: list[Item]) -> list[Item]:
    """All system texts as one message at the head."""
    texts: list[str] = []
    others = []
    for message in messages:
        content = message.get("content")
        if message.get("role") != "system":
            others.append(message)
        elif isinstance(content, str):
            texts.append(content)
        elif isinstance(content, list):
            texts += [part["text"] for part in content if isinstance(part.get("text"), str)]
    return [_system("\n\n".join(texts)), *others] if texts else others
