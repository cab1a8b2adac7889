"""Pairs of bodies, and whether an engine with a Kimi-like template sees the same tokens.

Data only, so that other suites can hold the same table against a real engine. The conversation is
small on purpose: each of its messages is one segment.
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

_REMOVED = object()


def changed(body: Json, *path: str | int, to: object = _REMOVED) -> Json:
    """A copy of the body with one place changed or removed."""
    copy = deepcopy(body)
    target: Any = copy
    for step in path[:-1]:
        target = target[step]
    if to is _REMOVED:
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


def _chat(
    name: str, right: Json | bytes, common: int | None = None, left: Json = CHAT_BODY
) -> Pair:
    sent = right if isinstance(right, bytes) else dumps(right)
    return Pair(name, CHAT, dumps(left), sent, common)


def _messages(
    name: str, right: Json | bytes, common: int | None = None, left: Json = MESSAGES_BODY
) -> Pair:
    sent = right if isinstance(right, bytes) else dumps(right)
    return Pair(name, MESSAGES, dumps(left), sent, common)


def _text(text: str, **more: object) -> Json:
    return {"type": "text", "text": text, **more}


def _content(index: int, content: object, body: Json = CHAT_BODY) -> Json:
    return changed(body, "messages", index, "content", to=content)


_CALL = ("messages", 2, "tool_calls", 0)
_ARGUMENTS = (*_CALL, "function", "arguments")
_FUNCTION = ("tools", 0, "function")
_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
_OTHER_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,BBBB"}}
_FINISHED: Json = changed(
    CHAT_BODY,
    "messages",
    to=[
        *CHAT_BODY["messages"],
        {"role": "assistant", "content": "Done.", "reasoning_content": "All is well."},
        {"role": "user", "content": "Thanks. Next one."},
    ],
)
_NAMED = {"type": "function", "function": {"name": "bash"}}

EQUAL_CHAT = [
    _chat("order of envelope keys", reordered(CHAT_BODY)),
    _chat("order of a message's keys", reordered(CHAT_BODY, "messages", 2)),
    _chat("order of a tool call's keys", reordered(CHAT_BODY, *_CALL)),
    _chat("order of a call's function keys", reordered(CHAT_BODY, *_CALL, "function")),
    _chat("order of a tool's outer keys", reordered(CHAT_BODY, "tools", 0)),
    _chat("string or one text part", _content(1, [_text("Fix the parser. Then stop.")])),
    _chat("two text parts", _content(1, [_text("Fix the parser. "), _text("Then stop.")])),
    _chat(
        "cache_control", _content(1, [_text("Fix the parser. Then stop.", cache_control={"a": 1})])
    ),
    _chat("escapes", dumps(CHAT_BODY).replace(b"agent", b"\\u0061g\\u0065nt")),
    _chat("escapes in arguments", dumps(CHAT_BODY).replace(b"a.py", b"\\\\u0061.py")),
    _chat("white space in the body", json.dumps(CHAT_BODY, indent=3).encode()),
    _chat("no white space", json.dumps(CHAT_BODY, separators=(",", ":")).encode()),
    _chat(
        "white space in arguments", changed(CHAT_BODY, *_ARGUMENTS, to='{"path":"a.py","limit":20}')
    ),
    _chat("empty or null content", _content(2, None), left=_content(2, "")),
    _chat("missing content", changed(CHAT_BODY, "messages", 2, "content"), left=_content(2, "")),
    _chat("empty list as content", _content(2, []), left=_content(2, "")),
    _chat("tool result as text parts", _content(3, [_text("def parse():"), _text("...")])),
    _chat("metadata", changed(CHAT_BODY, "metadata", to={"a": "b"})),
    _chat("temperature", changed(CHAT_BODY, "temperature", to=0.3)),
    _chat("max_tokens", changed(CHAT_BODY, "max_tokens", to=77)),
    _chat("stream", changed(CHAT_BODY, "stream", to=False)),
    _chat("stream_options", changed(CHAT_BODY, "stream_options", to={"include_usage": True})),
    _chat("model without an adapter", changed(CHAT_BODY, "model", to="other")),
    _chat("user", changed(CHAT_BODY, "user", to="u-1")),
    _chat("unknown keys", changed(CHAT_BODY, "messages", 1, "annotations", to=[1])),
    _chat("name of a user", changed(CHAT_BODY, "messages", 1, "name", to="ann")),
    _chat("Moonshot's own thinking field", changed(CHAT_BODY, "thinking", to={"type": "enabled"})),
    _chat("tool_choice auto", changed(CHAT_BODY, "tool_choice", to="auto")),
    _chat("tool_choice required", changed(CHAT_BODY, "tool_choice", to="required")),
    _chat(
        "tool_choice none, or no tools",
        changed(CHAT_BODY, "tool_choice", to="none"),
        left=changed(CHAT_BODY, "tools"),
    ),
    _chat(
        "a named function, or that tool alone",
        changed(CHAT_BODY, "tool_choice", to=_NAMED),
        left=changed(CHAT_BODY, "tools", to=CHAT_TOOLS[1:]),
    ),
    _chat(
        "no tools, or an empty list",
        changed(CHAT_BODY, "tools", to=[]),
        left=changed(CHAT_BODY, "tools"),
    ),
    _chat("null cache_salt", changed(CHAT_BODY, "cache_salt", to=None)),
    _chat(
        "adapter by model or by lora_path",
        changed(CHAT_BODY, "model", to="kimi:sql"),
        left=changed(CHAT_BODY, "lora_path", to="sql"),
    ),
    _chat(
        "order of chat_template_kwargs",
        changed(CHAT_BODY, "chat_template_kwargs", to={"a": 1, "thinking": False}),
        left=changed(CHAT_BODY, "chat_template_kwargs", to={"thinking": False, "a": 1}),
    ),
    _chat(
        "reasoning of a finished loop",
        changed(_FINISHED, "messages", 2, "reasoning_content", to="Quite other thoughts."),
        left=_FINISHED,
    ),
    _chat(
        "empty or missing reasoning",
        changed(CHAT_BODY, "messages", 2, "reasoning_content"),
        left=changed(CHAT_BODY, "messages", 2, "reasoning_content", to=""),
    ),
]

DIFFERENT_CHAT = [
    _chat("order of the tools", reordered(CHAT_BODY, "tools"), 0),
    _chat("a tool's description", changed(CHAT_BODY, *_FUNCTION, "description", to="Read."), 0),
    _chat("order of a function's keys", reordered(CHAT_BODY, *_FUNCTION), 0),
    _chat("order of the parameters' keys", reordered(CHAT_BODY, *_FUNCTION, "parameters"), 0),
    _chat(
        "order of the properties", reordered(CHAT_BODY, *_FUNCTION, "parameters", "properties"), 0
    ),
    _chat("one tool fewer", changed(CHAT_BODY, "tools", to=CHAT_TOOLS[:1]), 0),
    _chat("strict", changed(CHAT_BODY, *_FUNCTION, "strict", to=False), 0),
    _chat("no tools", changed(CHAT_BODY, "tools"), 0),
    _chat("tool_choice none", changed(CHAT_BODY, "tool_choice", to="none"), 0),
    _chat("tool_choice of a function", changed(CHAT_BODY, "tool_choice", to=_NAMED), 0),
    _chat("cache_salt", changed(CHAT_BODY, "cache_salt", to="s"), 0),
    _chat("extra_key", changed(CHAT_BODY, "extra_key", to="s"), 0),
    _chat(
        "cache_salt or extra_key",
        changed(CHAT_BODY, "extra_key", to="s"),
        0,
        changed(CHAT_BODY, "cache_salt", to="s"),
    ),
    _chat("adapter", changed(CHAT_BODY, "model", to="kimi:sql"), 0),
    _chat("lora_path", changed(CHAT_BODY, "lora_path", to="sql"), 0),
    _chat(
        "thinking switched off",
        changed(CHAT_BODY, "chat_template_kwargs", to={"thinking": False}),
        0,
    ),
    _chat("reasoning_effort none", changed(CHAT_BODY, "reasoning_effort", to="none"), 0),
    _chat("system text", _content(0, "You are an Agent."), 1),
    _chat("developer or system", changed(CHAT_BODY, "messages", 0, "role", to="developer"), 1),
    _chat("user text", _content(1, "Fix the lexer. Then stop."), 2),
    _chat("role", changed(CHAT_BODY, "messages", 1, "role", to="system"), 2),
    _chat("an image", _content(1, [_text("Fix the parser. Then stop."), _IMAGE]), 2),
    _chat("another image", _content(1, [_OTHER_IMAGE]), 2, _content(1, [_IMAGE])),
    _chat(
        "an image's place", _content(1, [_IMAGE, _text("a")]), 2, _content(1, [_text("a"), _IMAGE])
    ),
    _chat("assistant text", _content(2, "I read it."), 3),
    _chat(
        "reasoning of the running loop",
        changed(CHAT_BODY, "messages", 2, "reasoning_content", to="Hm."),
        3,
    ),
    _chat(
        "reasoning or text",
        changed(
            changed(CHAT_BODY, "messages", 2, "reasoning_content"),
            "messages",
            2,
            "content",
            to="Look first.I will read it.",
        ),
        3,
    ),
    _chat("a call's id", changed(CHAT_BODY, *_CALL, "id", to="read:1"), 3),
    _chat("a call's name", changed(CHAT_BODY, *_CALL, "function", "name", to="bash"), 3),
    _chat(
        "an argument's value",
        changed(CHAT_BODY, *_ARGUMENTS, to='{"path": "b.py", "limit": 20}'),
        3,
    ),
    _chat(
        "an argument's type",
        changed(CHAT_BODY, *_ARGUMENTS, to='{"path": "a.py", "limit": 20.0}'),
        3,
    ),
    _chat(
        "order of the arguments",
        changed(CHAT_BODY, *_ARGUMENTS, to='{"limit": 20, "path": "a.py"}'),
        3,
    ),
    _chat("no calls", changed(CHAT_BODY, "messages", 2, "tool_calls"), 3),
    _chat("tool result", _content(3, "def parse(): pass"), 4),
    _chat("tool_call_id", changed(CHAT_BODY, "messages", 3, "tool_call_id", to="read:9"), 4),
    _chat("name of a tool", changed(CHAT_BODY, "messages", 3, "name", to="read"), 4),
    _chat(
        "reasoning kept by preserve_thinking",
        changed(_FINISHED, "chat_template_kwargs", to={"preserve_thinking": True}),
        3,
        _FINISHED,
    ),
    _chat(
        "a loop that ends empties its reasoning",
        _FINISHED,
        3,
    ),
]

_SYSTEM_TEXT = "You are an agent.\ncwd /src"
_RESULT = ("messages", 2, "content", 0)
_USE = ("messages", 1, "content", 2)
_OTHER_CCH = dumps(MESSAGES_BODY).replace(b"cch=00000", b"cch=fffff")
_INLINE = {"role": "system", "content": "A reminder."}

EQUAL_MESSAGES = [
    _messages("billing line changed", _OTHER_CCH),
    _messages("billing line absent", changed(MESSAGES_BODY, "system", 0)),
    _messages(
        "billing line first in a block",
        changed(
            changed(MESSAGES_BODY, "system", 0),
            "system",
            0,
            "text",
            to="x-anthropic-billing-header: cch=1;\nYou are an agent.",
        ),
    ),
    _messages("system as one string", changed(MESSAGES_BODY, "system", to=_SYSTEM_TEXT)),
    _messages(
        "billing line in a string",
        changed(MESSAGES_BODY, "system", to=f"x-anthropic-billing-header: cch=1;\n{_SYSTEM_TEXT}"),
    ),
    _messages("cache_control of the system", changed(MESSAGES_BODY, "system", 1, "cache_control")),
    _messages(
        "cache_control of a message",
        changed(
            MESSAGES_BODY, "messages", 2, "content", 1, "cache_control", to={"type": "ephemeral"}
        ),
    ),
    _messages(
        "cache_control of a tool",
        changed(MESSAGES_BODY, "tools", 1, "cache_control", to={"type": "ephemeral"}),
    ),
    _messages(
        "string or one block",
        changed(MESSAGES_BODY, "messages", 0, "content", to="Fix the parser."),
    ),
    _messages(
        "two blocks",
        changed(MESSAGES_BODY, "messages", 0, "content", to=[_text("Fix "), _text("the parser.")]),
    ),
    _messages("is_error", changed(MESSAGES_BODY, *_RESULT, "is_error", to=True)),
    _messages(
        "tool result as a list",
        changed(MESSAGES_BODY, *_RESULT, "content", to=[_text("def parse():"), _text("...")]),
    ),
    _messages(
        "signature", changed(MESSAGES_BODY, "messages", 1, "content", 0, "signature", to="x")
    ),
    _messages("order of envelope keys", reordered(MESSAGES_BODY)),
    _messages("order of a tool's keys", reordered(MESSAGES_BODY, "tools", 0)),
    _messages(
        "description empty or missing", changed(MESSAGES_BODY, "tools", 1, "description", to="")
    ),
    _messages("escapes", dumps(MESSAGES_BODY).replace(b"agent", b"\\u0061gent")),
    _messages("metadata", changed(MESSAGES_BODY, "metadata", to={"user_id": "u"})),
    _messages("max_tokens", changed(MESSAGES_BODY, "max_tokens", to=2)),
    _messages("tool_choice any", changed(MESSAGES_BODY, "tool_choice", to={"type": "any"})),
    _messages(
        "tool_choice none, or no tools",
        changed(MESSAGES_BODY, "tool_choice", to={"type": "none"}),
        left=changed(MESSAGES_BODY, "tools"),
    ),
    _messages(
        "one tool chosen, or that tool alone",
        changed(MESSAGES_BODY, "tool_choice", to={"type": "tool", "name": "bash"}),
        left=changed(MESSAGES_BODY, "tools", 0),
    ),
    _messages(
        "a server tool",
        changed(
            MESSAGES_BODY,
            "tools",
            to=[*MESSAGES_BODY["tools"], {"type": "web_search_20250305", "name": "web_search"}],
        ),
    ),
    _messages(
        "thinking enabled or adaptive",
        changed(MESSAGES_BODY, "thinking", to={"type": "adaptive"}),
        left=changed(MESSAGES_BODY, "thinking", to={"type": "enabled", "budget_tokens": 2000}),
    ),
    _messages(
        "blank system, or none",
        changed(MESSAGES_BODY, "system", to=" "),
        left=changed(MESSAGES_BODY, "system"),
    ),
]

DIFFERENT_MESSAGES = [
    _messages("order of the tools", reordered(MESSAGES_BODY, "tools"), 0),
    _messages("order inside input_schema", reordered(MESSAGES_BODY, "tools", 0, "input_schema"), 0),
    _messages(
        "thinking off",
        changed(MESSAGES_BODY, "thinking", to={"type": "disabled"}),
        0,
        changed(MESSAGES_BODY, "thinking", to={"type": "enabled"}),
    ),
    _messages("effort", changed(MESSAGES_BODY, "output_config", to={"effort": "low"}), 0),
    _messages("adapter", changed(MESSAGES_BODY, "model", to="kimi:sql"), 0),
    _messages("tool_choice none", changed(MESSAGES_BODY, "tool_choice", to={"type": "none"}), 0),
    _messages("system text", changed(MESSAGES_BODY, "system", 2, "text", to="cwd /tmp"), 1),
    _messages(
        "system blocks apart", changed(MESSAGES_BODY, "system", to="You are an agent.cwd /src"), 1
    ),
    _messages("user text", changed(MESSAGES_BODY, "messages", 0, "content", to="Fix it."), 2),
    _messages(
        "thinking", changed(MESSAGES_BODY, "messages", 1, "content", 0, "thinking", to="Hm."), 3
    ),
    _messages("no thinking", changed(MESSAGES_BODY, "messages", 1, "content", 0), 3),
    _messages("a call's id", changed(MESSAGES_BODY, *_USE, "id", to="toolu_2"), 3),
    _messages("order of the input", reordered(MESSAGES_BODY, *_USE, "input"), 3),
    _messages("tool result", changed(MESSAGES_BODY, *_RESULT, "content", to="pass"), 4),
    _messages("text before the result", reordered(MESSAGES_BODY, "messages", 2, "content"), 4),
    _messages(
        "text after the result",
        changed(MESSAGES_BODY, "messages", 2, "content", 1, "text", to="Stop."),
        5,
    ),
    _messages(
        "an inline system message",
        changed(
            MESSAGES_BODY,
            "messages",
            to=[MESSAGES_BODY["messages"][0], _INLINE, *MESSAGES_BODY["messages"][1:]],
        ),
        3,
    ),
]

PAIRS: list[Pair] = [*EQUAL_CHAT, *DIFFERENT_CHAT, *EQUAL_MESSAGES, *DIFFERENT_MESSAGES]
