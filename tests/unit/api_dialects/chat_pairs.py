"""Pairs of chat completions."""

from __future__ import annotations

import json

from tests.unit.api_dialects.pair_bodies import (
    CHAT,
    CHAT_BODY,
    CHAT_TOOLS,
    Apart,
    Json,
    Pair,
    changed,
    dumps,
    pair,
    reordered,
)
from tests.unit.api_dialects.pair_bodies import (
    text_part as _text,
)


def _chat(
    name: str,
    right: Json | bytes,
    common: int | None = None,
    left: Json = CHAT_BODY,
    *,
    apart: Apart | None = None,
) -> Pair:
    return pair(CHAT, left, name, right, common, apart=apart)


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
_UNDESCRIBED: Json = changed(CHAT_BODY, *_FUNCTION, "description")


def _ending(message: Json) -> Json:
    """The conversation up to the user's words, and one message more."""
    return changed(CHAT_BODY, "messages", to=[*CHAT_BODY["messages"][:2], message])


_NAMED = {"type": "function", "function": {"name": "bash"}}
_LONG_TEXT = "".join(f"line {n}\n" for n in range(1_100))
_LONG: Json = _content(2, _LONG_TEXT)
# Its assistant's message is three segments, 3 to 5: the call is in the last.

_TWO_CALLS: Json = changed(
    CHAT_BODY,
    "messages",
    2,
    "tool_calls",
    to=[
        *CHAT_BODY["messages"][2]["tool_calls"],
        {"id": "bash:1", "function": {"name": "bash", "arguments": "{}"}},
    ],
)

EQUAL_CHAT = [
    _chat("case of a role", changed(CHAT_BODY, "messages", 0, "role", to="System")),
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
        apart=Apart.ADAPTER,
    ),
    _chat(
        "order of chat_template_kwargs",
        changed(CHAT_BODY, "chat_template_kwargs", to={"a": 1, "thinking": False}),
        left=changed(CHAT_BODY, "chat_template_kwargs", to={"thinking": False, "a": 1}),
    ),
    _chat(
        "thinking switched off",
        changed(CHAT_BODY, "chat_template_kwargs", to={"thinking": False}),
    ),
    _chat("reasoning_effort", changed(CHAT_BODY, "reasoning_effort", to="low")),
    _chat("reasoning_effort none", changed(CHAT_BODY, "reasoning_effort", to="none")),
    _chat(
        "preserve_thinking null or missing",
        changed(_FINISHED, "chat_template_kwargs", to={"preserve_thinking": None}),
        left=_FINISHED,
    ),
    _chat(
        "an assistant's words at the end, or a user's",
        _ending({"role": "user", "content": "Yes."}),
        left=_ending({"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}),
    ),
    _chat(
        "calls at the end are not shown",
        _ending({"role": "user", "content": ""}),
        left=_ending({**CHAT_BODY["messages"][2], "content": None}),
    ),
    _chat(
        "a thinking part",
        _content(2, [{"type": "thinking", "thinking": "Hm."}, _text("I will read it.")]),
    ),
    _chat("strict null or missing", changed(CHAT_BODY, *_FUNCTION, "strict", to=None)),
    _chat(
        "unknown keys of a function", changed(CHAT_BODY, *_FUNCTION, "examples", to=["read a.py"])
    ),
    _chat(
        "a description null, last or missing",
        changed(_UNDESCRIBED, *_FUNCTION, "description", to=None),
        left=_UNDESCRIBED,
    ),
    _chat(
        "defer_loading null or missing", changed(CHAT_BODY, "tools", 0, "defer_loading", to=None)
    ),
    _chat(
        "defer_loading of a tool, or also of its function",
        changed(
            changed(CHAT_BODY, *_FUNCTION, "defer_loading", to=True),
            "tools",
            0,
            "defer_loading",
            to=True,
        ),
        left=changed(CHAT_BODY, "tools", 0, "defer_loading", to=True),
    ),
    _chat(
        "arguments as an object",
        changed(CHAT_BODY, *_ARGUMENTS, to={"path": "a.py", "limit": 20}),
    ),
    _chat(
        "a key twice in arguments",
        changed(CHAT_BODY, *_ARGUMENTS, to='{"path": "b.py", "limit": 20, "path": "a.py"}'),
    ),
    _chat(
        "a number written otherwise",
        changed(CHAT_BODY, *_ARGUMENTS, to='{"path": "a.py", "limit": 1e3}'),
        left=changed(CHAT_BODY, *_ARGUMENTS, to='{"path": "a.py", "limit": 1000.0}'),
    ),
    _chat("empty or null cache_salt", changed(CHAT_BODY, "cache_salt", to="")),
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
    _chat("cache_salt", changed(CHAT_BODY, "cache_salt", to="s"), 0, apart=Apart.CACHE),
    _chat("extra_key", changed(CHAT_BODY, "extra_key", to="s"), 0, apart=Apart.CACHE),
    _chat(
        "cache_salt or extra_key",
        changed(CHAT_BODY, "extra_key", to="s"),
        0,
        changed(CHAT_BODY, "cache_salt", to="s"),
        apart=Apart.CACHE,
    ),
    _chat("adapter", changed(CHAT_BODY, "model", to="kimi:sql"), 0, apart=Apart.ADAPTER),
    _chat("lora_path", changed(CHAT_BODY, "lora_path", to="sql"), 0, apart=Apart.ADAPTER),
    _chat(
        "an unknown chat_template_kwarg",
        changed(CHAT_BODY, "chat_template_kwargs", to={"a": 1}),
        0,
        apart=Apart.TEMPLATE,
    ),
    _chat("defer_loading", changed(CHAT_BODY, "tools", 0, "defer_loading", to=False), 0),
    _chat(
        "defer_loading of the function alone",
        changed(CHAT_BODY, *_FUNCTION, "defer_loading", to=True),
        0,
        changed(CHAT_BODY, "tools", 0, "defer_loading", to=True),
    ),
    _chat(
        "a description null or missing",
        changed(CHAT_BODY, *_FUNCTION, "description"),
        0,
        changed(CHAT_BODY, *_FUNCTION, "description", to=None),
    ),
    _chat(
        "a message's own tools",
        changed(
            CHAT_BODY, "messages", 0, "tools", to=[{**CHAT_TOOLS[0], "function": {"name": "x"}}]
        ),
        1,
        apart=Apart.TEMPLATE,
    ),
    _chat(
        "an assistant's words at the end, and in between",
        _ending({"role": "assistant", "content": "Yes."}),
        3,
        changed(
            _ending({"role": "assistant", "content": "Yes."}),
            "messages",
            to=[
                *_ending({"role": "assistant", "content": "Yes."})["messages"],
                {"role": "user", "content": "Go on."},
            ],
        ),
    ),
    _chat(
        "continue_final_message",
        changed(
            _ending({"role": "assistant", "content": "Yes."}), "continue_final_message", to=True
        ),
        3,
        _ending({"role": "assistant", "content": "Yes."}),
    ),
    _chat("system text", _content(0, "You are an Agent."), 1),
    _chat("developer or system", changed(CHAT_BODY, "messages", 0, "role", to="developer"), 1),
    _chat("user text", _content(1, "Fix the lexer. Then stop."), 2),
    _chat("role", changed(CHAT_BODY, "messages", 1, "role", to="system"), 2),
    _chat(
        "an image", _content(1, [_text("Fix the parser. Then stop."), _IMAGE]), 2, apart=Apart.MEDIA
    ),
    _chat(
        "another image", _content(1, [_OTHER_IMAGE]), 2, _content(1, [_IMAGE]), apart=Apart.MEDIA
    ),
    _chat(
        "an image's place",
        _content(1, [_IMAGE, _text("a")]),
        2,
        _content(1, [_text("a"), _IMAGE]),
        apart=Apart.MEDIA,
    ),
    _chat("assistant text", _content(2, "I read it."), 3),
    _chat(
        "reasoning of the running loop",
        changed(CHAT_BODY, "messages", 2, "reasoning_content", to="Hm."),
        3,
    ),
    _chat(
        "reasoning or text",
        changed(_content(2, "Look first."), "messages", 2, "reasoning_content"),
        3,
        _content(2, None),
    ),
    _chat("a call's id", changed(CHAT_BODY, *_CALL, "id", to="read:1"), 3),
    _chat(
        "a call's name",
        changed(CHAT_BODY, *_CALL, "function", "name", to="bash"),
        3,
        apart=Apart.TEMPLATE,
    ),
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
        "whole numbers of more than 64 bits",
        changed(CHAT_BODY, *_ARGUMENTS, to='{"path": "a.py", "limit": 36893488147419103232}'),
        3,
        changed(CHAT_BODY, *_ARGUMENTS, to='{"path": "a.py", "limit": 36893488147419103233}'),
        apart=Apart.REWRITTEN,
    ),
    _chat(
        "order of the arguments",
        changed(CHAT_BODY, *_ARGUMENTS, to='{"limit": 20, "path": "a.py"}'),
        3,
    ),
    _chat("a second call", _TWO_CALLS, 3),
    _chat(
        "the second call's id",
        changed(_TWO_CALLS, "messages", 2, "tool_calls", 1, "id", to="bash:7"),
        3,
        _TWO_CALLS,
    ),
    _chat(
        "an assistant's words at the end, or a list of one text",
        _ending({"role": "assistant", "content": [_text("Yes.")]}),
        3,
        _ending({"role": "assistant", "content": "Yes."}),
    ),
    _chat(
        "a line break behind the reasoning",
        changed(CHAT_BODY, "messages", 2, "reasoning_content", to="Look first.\n"),
        3,
    ),
    _chat("no calls", changed(CHAT_BODY, "messages", 2, "tool_calls"), 3),
    _chat("tool result", _content(3, "def parse(): pass"), 4),
    _chat(
        "a reference to a tool",
        _content(3, [_text("def parse(): ..."), {"type": "tool_reference", "name": "bash"}]),
        4,
        apart=Apart.TEMPLATE,
    ),
    _chat("a call behind a long text", changed(_LONG, *_CALL, "id", to="read:1"), 5, _LONG),
    _chat("a long text before a call", _content(2, f"#{_LONG_TEXT}"), 3, _LONG),
    _chat("the end of a long text", _content(2, f"{_LONG_TEXT}#"), 5, _LONG),
    _chat("another line break", _content(1, "Fix\r\nit."), 2, _content(1, "Fix\nit.")),
    _chat("an accent on its own", _content(1, "Cafe\u0301"), 2, _content(1, "Caf\u00e9")),
    _chat("a blank at the end", _content(1, "Fix it. "), 2, _content(1, "Fix it.")),
    _chat(
        "words of the next message",
        _content(1, "agent. Fix it.", _content(0, "You are an ")),
        1,
        _content(1, " Fix it.", _content(0, "You are an agent.")),
    ),
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
