"""Requests as agents send them, small: shared system prompt and tools, a text of their own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEM = "".join(f"Rule {n}: keep the change small and say what was run. " for n in range(590))
"""30 KB that all sessions share."""


def _schema(n: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {f"argument_{n}": {"type": "string", "description": "What to work on."}},
        "required": [f"argument_{n}"],
    }


def chat_body(text: str, **more: object) -> bytes:
    """A first turn on chat completions, with 20 tools."""
    tools = [
        {
            "type": "function",
            "function": {
                "name": f"tool_{n}",
                "description": f"Does the thing number {n}. " * 8,
                "parameters": _schema(n),
            },
        }
        for n in range(20)
    ]
    body = {
        "model": "kimi-k2.6",
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": text},
        ],
        "tools": tools,
        "stream": True,
        "max_tokens": 40,
    }
    return json.dumps(body | more).encode()


def messages_body(text: str, **more: object) -> bytes:
    """The same on Anthropic messages."""
    tools = [
        {
            "name": f"tool_{n}",
            "description": f"Does the thing number {n}. " * 8,
            "input_schema": _schema(n),
        }
        for n in range(20)
    ]
    body = {
        "model": "kimi-k2.6",
        "system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}],
        "tools": tools,
        "stream": True,
        "max_tokens": 40,
    }
    return json.dumps(body | more).encode()


BODIES: Mapping[str, Any] = {
    "/v1/chat/completions": chat_body,
    "/v1/messages": messages_body,
}
"""Path -> the function that makes a first turn for it."""

SESSION_HEADER: Mapping[str, str] = {
    "/v1/chat/completions": "x-session-affinity",
    "/v1/messages": "x-claude-code-session-id",
}
"""Path -> the header an agent of that API names its session in."""
