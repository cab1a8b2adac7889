"""Pairs of bodies for ``/v1/responses`` that an engine tells apart, and items that it refuses."""

from __future__ import annotations

from tests.unit.api_dialects.pair_bodies import Apart, changed, reordered
from tests.unit.api_dialects.responses_pairs import (
    CALL,
    INPUT,
    OUTPUT,
    PATCH,
    READ,
    RESPONSES_BODY,
    USER,
    answered,
    of,
    with_items,
)

DIFFERENT_RESPONSES = [
    of("instructions", changed(RESPONSES_BODY, "instructions", to="You are a coding agent!"), 1),
    of(
        "text of the developer",
        changed(RESPONSES_BODY, "input", 0, "content", 0, "text", to="None."),
        2,
    ),
    of("developer or system", changed(RESPONSES_BODY, "input", 0, "role", to="system"), 2),
    of(
        "text of the user", changed(RESPONSES_BODY, "input", 1, "content", 0, "text", to="Stop."), 3
    ),
    of("role of a message", changed(RESPONSES_BODY, "input", 1, "role", to="system"), 3),
    of(
        "text of the assistant",
        changed(RESPONSES_BODY, "input", 3, "content", 0, "text", to="No."),
        4,
    ),
    of(
        "name of a call",
        changed(RESPONSES_BODY, *CALL, "name", to="write"),
        4,
        apart=Apart.TEMPLATE,
    ),
    of("id of a call", changed(RESPONSES_BODY, *CALL, "call_id", to="call_9"), 4),
    of(
        "order of keys in arguments",
        changed(RESPONSES_BODY, *CALL, "arguments", to='{"limit": 20, "path": "a.py"}'),
        4,
    ),
    of("output", changed(RESPONSES_BODY, "input", 5, "output", to="def parse(): pass"), 5),
    of("id of an output", changed(RESPONSES_BODY, "input", 5, "call_id", to="call_9"), 5),
    of(
        "reasoning of the running turn",
        changed(RESPONSES_BODY, "input", 2, "summary", 0, "text", to="Other."),
        4,
    ),
    of("an item less", changed(RESPONSES_BODY, "input", to=[*INPUT[:4], INPUT[5]]), 4),
    of(
        "one message, or two of two phases",
        with_items(USER, answered("One.", phase="commentary"), INPUT[4], OUTPUT),
        3,
        left=with_items(USER, answered("One."), INPUT[4], OUTPUT),
    ),
    of("description of a tool", changed(RESPONSES_BODY, "tools", 0, "description", to="Reads."), 0),
    of("no description", changed(RESPONSES_BODY, "tools", 0, "description"), 0),
    of("order of keys in parameters", reordered(RESPONSES_BODY, "tools", 0, "parameters"), 0),
    of("strict", changed(RESPONSES_BODY, "tools", 0, "strict", to=True), 0),
    of(
        "grammar of a custom tool",
        changed(RESPONSES_BODY, "tools", 1, "format", "definition", to="x"),
        0,
    ),
    of(
        "form of a custom tool",
        changed(RESPONSES_BODY, "tools", 1, "format", to={"type": "text"}),
        0,
    ),
    of("order of tools", changed(RESPONSES_BODY, "tools", to=[PATCH, READ]), 0),
    of("no tools", changed(RESPONSES_BODY, "tools"), 0),
    of("cache_salt", changed(RESPONSES_BODY, "cache_salt", to="s"), 0, apart=Apart.CACHE),
    of("extra_key", changed(RESPONSES_BODY, "extra_key", to="k"), 0, apart=Apart.CACHE),
    of("an adapter", changed(RESPONSES_BODY, "model", to="tiny:adapter"), 0, apart=Apart.ADAPTER),
    of(
        "an image",
        changed(
            RESPONSES_BODY,
            "input",
            1,
            "content",
            to=[{"type": "input_image", "image_url": "data:image/png;base64,BBBB"}],
        ),
        3,
        left=changed(
            RESPONSES_BODY,
            "input",
            1,
            "content",
            to=[{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}],
        ),
        apart=Apart.MEDIA,
    ),
]

UNKNOWN_ITEMS = [
    {
        "type": "local_shell_call",
        "call_id": "call_3",
        "action": {"type": "exec", "command": ["ls"]},
    },
    {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "x"}},
    {"type": "compaction", "encrypted_content": "b3BhcXVl"},
    {"type": "item_reference", "id": "msg_1"},
    {"type": "message", "role": "user", "content": [{"type": "input_file", "file_id": "f_1"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    {"type": "message", "content": "nobody's"},
    {"type": "function_call", "name": 3, "arguments": "{}", "call_id": "call_4"},
    {"type": "invented", "deep": [[[{"a": None}]]]},
]
"""Items that SGLang 0.5.23 refuses; nobody here does."""
