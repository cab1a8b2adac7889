"""Generated chats as bodies of ``/v1/responses``: the same talk, as items."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.engine.pair_generator import Family
from tests.engine.readings import GENERATED
from tests.unit.api_dialects.pair_bodies import CHAT, Json, Pair, dumps
from tests.unit.api_dialects.responses_pairs import RESPONSES

_KEPT: Final = ("model", "chat_template_kwargs", "cache_salt", "extra_key", "user")


def _content(content: object, kind: str) -> object:
    if not isinstance(content, list):
        return content or ""
    return [
        {"type": kind, "text": part["text"]} if part.get("type") == "text" else part
        for part in content
    ]


def _items(message: Json) -> list[Json]:
    role = message["role"].lower()
    content = message.get("content")
    if role == "tool":
        output = _content(content, "input_text")
        call_id = message.get("tool_call_id") or ""
        return [{"type": "function_call_output", "call_id": call_id, "output": output}]
    if role != "assistant":
        return [{"type": "message", "role": role, "content": _content(content, "input_text")}]
    items: list[Json] = []
    thought = message.get("reasoning_content")
    if thought:
        items.append({"type": "reasoning", "summary": [{"type": "summary_text", "text": thought}]})
    if content or not (message.get("tool_calls") or thought):
        items.append({"role": "assistant", "content": _content(content, "output_text")})
    for call in message.get("tool_calls") or ():
        function = call["function"]
        named = {"name": function.get("name"), "arguments": function.get("arguments")}
        items.append({"type": "function_call", "call_id": call.get("id"), **named})
    return items


def _choice(choice: Any) -> object:  # noqa: ANN401  # a client's JSON
    if not isinstance(choice, dict):
        return choice or "auto"
    return {"type": "function", "name": choice["function"]["name"]}


def twin(body: bytes) -> bytes:
    """A chat's body as one of ``/v1/responses``."""
    chat: Json = json.loads(body)
    responses: Json = {key: chat[key] for key in _KEPT if key in chat}
    responses["input"] = [item for message in chat["messages"] for item in _items(message)]
    if chat.get("tools"):
        responses["tools"] = [
            {"type": "function", **{k: v for k, v in tool["function"].items() if v is not None}}
            for tool in chat["tools"]
        ]
        responses["tool_choice"] = _choice(chat.get("tool_choice"))
    if chat.get("reasoning_effort"):
        responses["reasoning"] = {"effort": chat["reasoning_effort"]}
    return dumps(responses)


def _family(family: Family) -> Family:
    left = twin(family.pairs[0].left)
    pairs = tuple(Pair(pair.name, RESPONSES, left, twin(pair.right)) for pair in family.pairs)
    return Family(family.name.replace("completions", "responses"), RESPONSES, pairs)


TWINS: Final = [_family(family) for family in GENERATED if family.path == CHAT]
