"""Bodies of one small conversation in both APIs, and ways to change them.

Each message is one segment, so that a place in the conversation is a number of segments.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"

Json = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """Two bodies for one path.

    ``common`` is the number of leading segments that are equal; None if all are.
    """

    name: str
    path: str
    left: bytes
    right: bytes
    common: int | None = None

    @property
    def label(self) -> str:
        """A short name that tells the pairs of both paths apart."""
        return f"{self.path.rsplit('/', 1)[1]}: {self.name}"


def dumps(body: Json) -> bytes:
    """A body as a client would send it."""
    return json.dumps(body).encode()


CHAT_TOOLS: list[Json] = [
    {
        "type": "function",
        "function": {
            "name": "read",
            "description": "Read a file.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
                "required": ["path"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "bash",
            "description": "Run a command.",
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
        },
    },
]

CHAT_BODY: Json = {
    "model": "kimi",
    "messages": [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": "Fix the parser. Then stop."},
        {
            "role": "assistant",
            "content": "I will read it.",
            "reasoning_content": "Look first.",
            "tool_calls": [
                {
                    "id": "read:0",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path": "a.py", "limit": 20}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "read:0", "content": "def parse(): ..."},
    ],
    "tools": CHAT_TOOLS,
    "stream": True,
}
# Segments: 0 tools, 1 system, 2 user, 3 assistant, 4 tool.

MESSAGES_BODY: Json = {
    "model": "kimi",
    "max_tokens": 1000,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.99.a1b; cch=00000;"},
        {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "cwd /src"},
    ],
    "tools": [
        {
            "name": "read",
            "description": "Read a file.",
            "input_schema": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
            },
        },
        {"name": "bash", "input_schema": {"type": "object"}},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Fix the parser."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Look first.", "signature": "c2ln"},
                {"type": "text", "text": "I will read it."},
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": "read",
                    "input": {"path": "a.py", "limit": 20},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "def parse(): ..."},
                {"type": "text", "text": "Go on."},
            ],
        },
    ],
    "stream": True,
}
# Segments: 0 tools, 1 system, 2 user, 3 assistant, 4 tool result, 5 user.

REMOVED = object()


def changed(body: Json, *path: str | int, to: object = REMOVED) -> Json:
    """A copy of the body with one place changed or removed."""
    copy = deepcopy(body)
    target: Any = copy
    for step in path[:-1]:
        target = target[step]
    if to is REMOVED:
        del target[path[-1]]
    else:
        target[path[-1]] = to
    return copy


def reordered(body: Json, *path: str | int) -> Json:
    """A copy with the keys of the object (or the elements of the list) at ``path`` reversed."""
    target: Any = body
    for step in path:
        target = target[step]
    if isinstance(target, list):
        return changed(body, *path, to=target[::-1])
    flipped = dict(reversed(target.items()))
    return changed(body, *path, to=flipped) if path else flipped


def pair(path: str, left: Json, name: str, right: Json | bytes, common: int | None = None) -> Pair:
    """A pair of a body and a changed one."""
    sent = right if isinstance(right, bytes) else dumps(right)
    return Pair(name, path, dumps(left), sent, common)


def text_part(text: str, **more: object) -> Json:
    """A content part (or block) of one text."""
    return {"type": "text", "text": text, **more}
