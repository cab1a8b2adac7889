"""Bodies of one small conversation in both APIs, and ways to change them.

Each message is one segment, so that a place in the conversation is a number of segments.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"

Json = dict[str, Any]


class Apart(StrEnum):
    """Why the tokens of one replica do not show what the chain tells apart."""

    CACHE = "the tokens are equal, but the engine keeps their caches apart"
    ADAPTER = "the replica has no adapters, and renders the prompt of its own model"
    MEDIA = "the model takes text only, and refuses the request"
    REWRITTEN = "SGLang rewrites it before it renders; the chain keeps what was sent"
    TEMPLATE = "this template does not print it; others do"


@dataclass(frozen=True)
class Pair:
    """Two bodies for one path.

    ``common`` is the number of leading segments that are equal; None if all are. ``apart`` is given
    where a real replica with a Kimi-like template cannot show the difference.
    """

    name: str
    path: str
    left: bytes
    right: bytes
    common: int | None = None
    apart: Apart | None = None

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

TWIN_CHAT: Json = {
    "model": "kimi",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {
            "role": "assistant",
            "content": "<think>Hm\n</think>Hello",
            "tool_calls": [{"id": "c1", "function": {"name": "ls", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a b"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "ls",
                "description": "",
                "parameters": {"type": "object"},
                "strict": False,
            },
        }
    ],
    "chat_template_kwargs": {"thinking": True},
}
TWIN_MESSAGES: Json = {
    "model": "kimi",
    "max_tokens": 1000,
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm", "signature": ""},
                {"type": "text", "text": "Hello"},
                {"type": "tool_use", "id": "c1", "name": "ls", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                }
            ],
        },
    ],
    "tools": [{"name": "ls", "input_schema": {"type": "object"}}],
    "thinking": {"type": "adaptive"},
}
# The same prompt in both APIs.

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


def pair(
    path: str,
    left: Json,
    name: str,
    right: Json | bytes,
    common: int | None = None,
    *,
    apart: Apart | None = None,
) -> Pair:
    """A pair of a body and a changed one."""
    sent = right if isinstance(right, bytes) else dumps(right)
    return Pair(name, path, dumps(left), sent, common, apart)


def text_part(text: str, **more: object) -> Json:
    """A content part (or block) of one text."""
    return {"type": "text", "text": text, **more}
