"""Pairs of bodies for ``/v1/responses``."""

from __future__ import annotations

import base64
import json
import zlib

from tests.unit.api_dialects.pair_bodies import (
    Apart,
    Json,
    Pair,
    changed,
    pair,
    reordered,
)

RESPONSES = "/v1/responses"


def packed(text: str) -> str:
    """A reasoning as SGLang packs it for a client that sends it back."""
    blob = base64.urlsafe_b64encode(zlib.compress(text.encode()))
    return f"sglang-reasoning-v1.{blob.decode()}"


READ: Json = {
    "type": "function",
    "name": "read",
    "description": "Read a file.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["path"],
    },
}
PATCH: Json = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Change files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin"'},
}
_SEARCH: Json = {"type": "web_search"}


def words(text: str, kind: str = "input_text") -> Json:
    return {"type": kind, "text": text}


RESPONSES_BODY: Json = {
    "model": "tiny",
    "instructions": "You are a coding agent.",
    "input": [
        {"type": "message", "role": "developer", "content": [words("Sandbox: workspace-write.")]},
        {"type": "message", "role": "user", "content": [words("Fix the parser. Then stop.")]},
        {
            "type": "reasoning",
            "summary": [words("Look first.", "summary_text")],
            "encrypted_content": "b3BhcXVl",
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [words("I will read it.", "output_text")],
        },
        {
            "type": "function_call",
            "name": "read",
            "arguments": '{"path": "a.py", "limit": 20}',
            "call_id": "call_1",
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "def parse(): ..."},
    ],
    "tools": [READ, PATCH],
    "stream": True,
    "store": False,
}
# Segments: 0 tools, 1 instructions, 2 developer, 3 user, 4 assistant, 5 tool.

INPUT = RESPONSES_BODY["input"]
CALL = ("input", 4)


def of(
    name: str,
    right: Json | bytes,
    common: int | None = None,
    left: Json = RESPONSES_BODY,
    *,
    apart: Apart | None = None,
) -> Pair:
    return pair(RESPONSES, left, name, right, common, apart=apart)


def with_items(*items: Json, body: Json = RESPONSES_BODY) -> Json:
    """The body with this input."""
    return changed(body, "input", to=list(items))


def answered(text: str, **more: object) -> Json:
    return {"type": "message", "role": "assistant", "content": [words(text, "output_text")], **more}


USER = INPUT[1]
OUTPUT = INPUT[5]
_THOUGHT = {"type": "reasoning", "summary": [], "content": [words("Look.", "reasoning_text")]}
_PATCHED: Json = {
    "type": "custom_tool_call",
    "name": "apply_patch",
    "input": '*** Begin "x"',
    "call_id": "call_2",
}
_PATCHED_AS_CALL: Json = {
    "type": "function_call",
    "name": "apply_patch",
    "arguments": json.dumps({"input": '*** Begin "x"'}),
    "call_id": "call_2",
}
_ENDED: Json = with_items(*INPUT, answered("Done."), USER)
_RUNNING: Json = with_items(USER, _THOUGHT, INPUT[4], OUTPUT)
_ASKED: Json = changed(RESPONSES_BODY, "input", to="Fix the parser.")

EQUAL_RESPONSES = [
    of("order of envelope keys", reordered(RESPONSES_BODY)),
    of("order of an item's keys", reordered(RESPONSES_BODY, *CALL)),
    of("no type of a message", changed(RESPONSES_BODY, "input", 1, "type")),
    of(
        "string or one text part",
        changed(RESPONSES_BODY, "input", 1, "content", to=("Fix the parser. Then stop.")),
    ),
    of(
        "two text parts",
        changed(
            RESPONSES_BODY,
            "input",
            1,
            "content",
            to=[words("Fix the parser. "), words("Then stop.")],
        ),
    ),
    of(
        "text as a chat's part",
        changed(RESPONSES_BODY, "input", 1, "content", 0, "type", to="text"),
    ),
    of(
        "developer, or system with the label",
        changed(
            RESPONSES_BODY,
            "input",
            0,
            to={"role": "system", "content": "Developer instructions:\nSandbox: workspace-write."},
        ),
    ),
    of(
        "instructions, or a system item at the head",
        changed(
            changed(RESPONSES_BODY, "instructions"),
            "input",
            to=[{"role": "system", "content": "You are a coding agent."}, *INPUT],
        ),
    ),
    of(
        "string input, or one user item",
        with_items({"role": "user", "content": "Fix the parser."}),
        left=_ASKED,
    ),
    of(
        "empty instructions",
        changed(_ASKED, "instructions", to=""),
        left=changed(_ASKED, "instructions"),
    ),
    of(
        "ids and status of items",
        changed(RESPONSES_BODY, "input", 3, to={**INPUT[3], "id": "msg_1", "status": "completed"}),
    ),
    of("ids of calls beside call_id", changed(RESPONSES_BODY, *CALL, "id", to="fc_1")),
    of(
        "another's packed reasoning",
        changed(RESPONSES_BODY, "input", 2, "encrypted_content", to="b3RoZXI"),
    ),
    of(
        "a reasoning as summary, or packed",
        changed(
            _RUNNING,
            "input",
            1,
            to={"type": "reasoning", "summary": [], "encrypted_content": packed("Look.")},
        ),
        left=_RUNNING,
    ),
    of(
        "a reasoning as summary, or as text",
        changed(
            _RUNNING,
            "input",
            1,
            to={"type": "reasoning", "summary": [words("Look.", "summary_text")]},
        ),
        left=_RUNNING,
    ),
    of(
        "a reasoning without words, or none",
        with_items(USER, {"type": "reasoning", "summary": []}, *INPUT[4:]),
        left=with_items(USER, *INPUT[4:]),
    ),
    of(
        "another's packed reasoning, or none",
        with_items(
            USER,
            {"type": "reasoning", "summary": [], "encrypted_content": "b3BhcXVl"},
            *INPUT[4:],
        ),
        left=with_items(USER, *INPUT[4:]),
    ),
    of(
        "white space in arguments",
        changed(RESPONSES_BODY, *CALL, "arguments", to='{"path":"a.py","limit":20}'),
    ),
    of(
        "arguments as an object",
        changed(RESPONSES_BODY, *CALL, "arguments", to={"path": "a.py", "limit": 20}),
    ),
    of(
        "arguments that are no object",
        changed(RESPONSES_BODY, *CALL, "arguments", to='{"path": "a.p'),
        left=changed(RESPONSES_BODY, *CALL, "arguments", to="{}"),
    ),
    of(
        "an output as text parts",
        changed(RESPONSES_BODY, "input", 5, "output", to=[words("def parse():"), words(" ...")]),
    ),
    of(
        "a custom call, or its shim",
        with_items(USER, _PATCHED_AS_CALL, OUTPUT),
        left=with_items(USER, _PATCHED, OUTPUT),
    ),
    of(
        "the output of a custom call",
        changed(RESPONSES_BODY, "input", 5, "type", to="custom_tool_call_output"),
    ),
    of("tools that the server runs", changed(RESPONSES_BODY, "tools", to=[_SEARCH, READ, PATCH])),
    of("strict false or missing", changed(RESPONSES_BODY, "tools", 0, "strict")),
    of("unknown keys of a tool", changed(RESPONSES_BODY, "tools", 0, "x", to=1)),
    of("order of a tool's keys", reordered(RESPONSES_BODY, "tools", 0)),
    of("tool_choice auto", changed(RESPONSES_BODY, "tool_choice", to="auto")),
    of("tool_choice required", changed(RESPONSES_BODY, "tool_choice", to="required")),
    of("a server's tool chosen", changed(RESPONSES_BODY, "tool_choice", to={"type": "web_search"})),
    of(
        "tool_choice none, or no tools",
        changed(RESPONSES_BODY, "tool_choice", to="none"),
        left=changed(RESPONSES_BODY, "tools"),
    ),
    of(
        "only tools of the server, or none",
        changed(RESPONSES_BODY, "tools", to=[_SEARCH]),
        left=changed(RESPONSES_BODY, "tools"),
    ),
    of(
        "a named function, or that tool alone",
        changed(RESPONSES_BODY, "tool_choice", to={"type": "function", "name": "read"}),
        left=changed(RESPONSES_BODY, "tools", to=[READ]),
    ),
    of(
        "a named custom tool, or that tool alone",
        changed(RESPONSES_BODY, "tool_choice", to={"type": "custom", "name": "apply_patch"}),
        left=changed(RESPONSES_BODY, "tools", to=[PATCH]),
    ),
    of(
        "reasoning effort",
        changed(RESPONSES_BODY, "reasoning", to={"effort": "low", "summary": "auto"}),
    ),
    of("no reasoning asked for", changed(RESPONSES_BODY, "reasoning", to={"effort": "none"})),
    of(
        "text format",
        changed(RESPONSES_BODY, "text", to={"format": {"type": "text"}, "verbosity": "low"}),
    ),
    of(
        "limits and sampling",
        {**RESPONSES_BODY, "max_output_tokens": 99, "temperature": 0.3, "top_p": 0.5},
    ),
    of("stream and store", {**RESPONSES_BODY, "stream": False, "store": True}),
    of(
        "names of the session",
        {**RESPONSES_BODY, "user": "u", "client_metadata": {"a": "b"}, "metadata": {"a": "b"}},
    ),
    of("include", changed(RESPONSES_BODY, "include", to=["reasoning.encrypted_content"])),
    of(
        "reasoning of a finished turn",
        changed(_ENDED, "input", 2, "summary", 0, "text", to="Other."),
        left=_ENDED,
    ),
    of(
        "an answer's text at the end, or a user's",
        with_items({"role": "user", "content": "Done."}),
        left=with_items({"role": "assistant", "content": "Done."}),
    ),
    of(
        "two texts of an answer",
        with_items(USER, {"role": "assistant", "content": "One.\n\nTwo."}, USER),
        left=with_items(
            USER,
            {"role": "assistant", "content": "One."},
            {"role": "assistant", "content": "Two."},
            USER,
        ),
    ),
    of(
        "two lists of an answer's parts",
        with_items(USER, answered("One.Two."), USER),
        left=with_items(USER, answered("One."), answered("Two."), USER),
    ),
    of(
        "a thought joins an answer of a phase",
        with_items(USER, _THOUGHT, answered("One.", phase="commentary"), INPUT[5]),
        left=with_items(USER, _THOUGHT, answered("One."), INPUT[5]),
    ),
]
