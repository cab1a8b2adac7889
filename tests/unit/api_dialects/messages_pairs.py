"""Pairs of the messages API."""

from __future__ import annotations

from tests.unit.api_dialects.pair_bodies import (
    MESSAGES,
    MESSAGES_BODY,
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


def _messages(
    name: str,
    right: Json | bytes,
    common: int | None = None,
    left: Json = MESSAGES_BODY,
    *,
    apart: Apart | None = None,
) -> Pair:
    return pair(MESSAGES, left, name, right, common, apart=apart)


_SYSTEM_TEXT = "You are an agent.\ncwd /src"
_RESULT = ("messages", 2, "content", 0)
_USE = ("messages", 1, "content", 2)
_OTHER_CCH = dumps(MESSAGES_BODY).replace(b"cch=00000", b"cch=fffff")


def _ending(role: str, content: object) -> Json:
    """The user's words, and one message more."""
    message = {"role": role, "content": content}
    return changed(MESSAGES_BODY, "messages", to=[MESSAGES_BODY["messages"][0], message])


_REFERENCE = {"type": "tool_reference", "tool_name": "bash"}
_THOUGHT = ("messages", 1, "content", 0)
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
        "thinking off",
        changed(MESSAGES_BODY, "thinking", to={"type": "disabled"}),
        left=changed(MESSAGES_BODY, "thinking", to={"type": "adaptive"}),
    ),
    _messages("effort", changed(MESSAGES_BODY, "output_config", to={"effort": "low"})),
    _messages("strict false or missing", changed(MESSAGES_BODY, "tools", 0, "strict", to=False)),
    _messages(
        "type of a tool of one's own", changed(MESSAGES_BODY, "tools", 0, "type", to="custom")
    ),
    _messages(
        "type of a schema last or missing",
        changed(MESSAGES_BODY, "tools", 1, "input_schema", to={"title": "Bash"}),
        left=changed(
            MESSAGES_BODY, "tools", 1, "input_schema", to={"title": "Bash", "type": "object"}
        ),
    ),
    _messages(
        "an answer of one text at the end, or a user's",
        _ending("user", "Yes."),
        left=_ending("assistant", [_text("Yes.")]),
    ),
    _messages(
        "an answer before a message without content",
        _ending("user", "Yes."),
        left=changed(
            MESSAGES_BODY,
            "messages",
            to=[*_ending("assistant", "Yes.")["messages"], {"role": "user", "content": []}],
        ),
    ),
    _messages(
        "an empty text in a result",
        changed(MESSAGES_BODY, *_RESULT, "content", to=[_text("")]),
        left=changed(MESSAGES_BODY, *_RESULT, "content"),
    ),
    _messages(
        "a reference to no tool",
        changed(
            MESSAGES_BODY,
            *_RESULT,
            "content",
            to=[_text("def parse(): ..."), {"type": "tool_reference"}],
        ),
    ),
    _messages(
        "an empty thinking block",
        changed(MESSAGES_BODY, "messages", 1, "content", 0, "thinking", to=""),
        left=changed(MESSAGES_BODY, "messages", 1, "content", 0),
    ),
    _messages(
        "two thoughts, or one of two lines",
        changed(MESSAGES_BODY, *_THOUGHT, "thinking", to="Look first.\nThen act."),
        left=changed(
            MESSAGES_BODY,
            "messages",
            1,
            "content",
            to=[
                *MESSAGES_BODY["messages"][1]["content"],
                {"type": "thinking", "thinking": "Then act.", "signature": ""},
            ],
        ),
    ),
    _messages(
        "a thought of a user's",
        changed(
            MESSAGES_BODY,
            "messages",
            0,
            "content",
            to=[{"type": "thinking", "thinking": "Hm."}, _text("Fix the parser.")],
        ),
    ),
    _messages(
        "no input, or an empty one",
        changed(MESSAGES_BODY, *_USE, "input"),
        left=changed(MESSAGES_BODY, *_USE, "input", to={}),
    ),
    _messages(
        "the billing line in a string, and nothing else",
        changed(MESSAGES_BODY, "system", to="x-anthropic-billing-header: cch=1;"),
        left=changed(MESSAGES_BODY, "system"),
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
    _messages("adapter", changed(MESSAGES_BODY, "model", to="kimi:sql"), 0, apart=Apart.ADAPTER),
    _messages("strict", changed(MESSAGES_BODY, "tools", 0, "strict", to=True), 0),
    _messages("defer_loading", changed(MESSAGES_BODY, "tools", 0, "defer_loading", to=True), 0),
    _messages(
        "a blank system block, or none",
        changed(MESSAGES_BODY, "system", to=[_text(" ")]),
        1,
        changed(MESSAGES_BODY, "system"),
    ),
    _messages(
        "an answer of two parts at the end stays an answer",
        _ending("assistant", [{"type": "thinking", "thinking": "Hm."}, _text("Yes.")]),
        3,
        _ending("user", "<think>Hm.\n</think>Yes."),
    ),
    _messages(
        "a reference to a tool",
        changed(MESSAGES_BODY, *_RESULT, "content", to=[_text("def parse(): ..."), _REFERENCE]),
        5,
    ),
    _messages(
        "another tool referred to",
        changed(MESSAGES_BODY, *_RESULT, "content", to=[_REFERENCE]),
        4,
        changed(MESSAGES_BODY, *_RESULT, "content", to=[{**_REFERENCE, "tool_name": "read"}]),
        apart=Apart.TEMPLATE,
    ),
    _messages(
        "a text between two references",
        changed(MESSAGES_BODY, *_RESULT, "content", to=[_REFERENCE, _text("pass"), _REFERENCE]),
        4,
        changed(MESSAGES_BODY, *_RESULT, "content", to=[_text("pass"), _REFERENCE, _REFERENCE]),
    ),
    _messages(
        "an empty text is a message",
        changed(
            MESSAGES_BODY,
            "messages",
            to=[{"role": "user", "content": [_text("")]}, *MESSAGES_BODY["messages"]],
        ),
        2,
    ),
    _messages("tool_choice none", changed(MESSAGES_BODY, "tool_choice", to={"type": "none"}), 0),
    _messages("system text", changed(MESSAGES_BODY, "system", 2, "text", to="cwd /tmp"), 1),
    _messages(
        "blanks behind the system's text",
        changed(MESSAGES_BODY, "system", to=f"{_SYSTEM_TEXT}\n"),
        1,
    ),
    _messages(
        "blanks behind an inline system message",
        _ending("system", "A reminder. "),
        3,
        _ending("system", "A reminder."),
    ),
    _messages(
        "system blocks apart", changed(MESSAGES_BODY, "system", to="You are an agent.cwd /src"), 1
    ),
    _messages(
        "user text",
        changed(MESSAGES_BODY, "messages", 0, "content", to="Gr\u00fc\u00dfe"),
        2,
        changed(MESSAGES_BODY, "messages", 0, "content", to="Gr\u00f6\u00dfe"),
    ),
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
