"""Invented agent conversations in both APIs, a function of the dice alone.

Small ones, with everything that real ones have: system as a string or blocks, tools, calls, results,
reasoning, inline system messages, parts, any script, and texts and declarations of more than 4 KB.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

Json = dict[str, Any]

_PROSE: Final = (
    "the parser reads each line once and keeps its place so a later call may go on from there "
    "größe naïve 日本語 🙂 «quoted» \"mark\" back\\slash tab\there if x < 3 && y > 4: return {'a': [1]} "
    "def parse(text): yield from text.splitlines() error: expected ')' at 12:7 src/main.rs 0x1F"
)
_WORDS: Final = _PROSE.split(" ")
_NAMES: Final = ("read", "write", "bash", "grep", "glob", "fetch", "plan", "ask")
_LONG_BYTES: Final = 6_000
_DECLARATION_BYTES: Final = 2_200


def text(dice: random.Random, n_words: int) -> str:
    """``n_words`` words and some line breaks."""
    words = [dice.choice(_WORDS) for _ in range(n_words)]
    return " ".join(word + "\n" * (dice.random() < 0.1) for word in words)


def some_text(dice: random.Random, *, long_chance: float = 0.1) -> str:
    """Mostly a sentence or two; with ``long_chance`` more than one segment of 4 KB."""
    if dice.random() < long_chance:
        return text(dice, _LONG_BYTES // 6 + dice.randrange(400))
    return text(dice, dice.randrange(2, 30))


def value(dice: random.Random, depth: int = 0) -> Any:  # noqa: ANN401  # any JSON value
    """A JSON value."""
    kinds: list[Callable[[], Any]] = [
        lambda: dice.randrange(-5, 10**6),
        lambda: dice.choice([0.5, 1.0, 1e5, -2.25, 1e22, 1e-7]),
        lambda: text(dice, dice.randrange(1, 6)),
        lambda: dice.choice([True, False, None]),
        lambda: {f"k{n}": value(dice, depth + 1) for n in range(dice.randrange(3))},
        lambda: [value(dice, depth + 1) for _ in range(dice.randrange(3))],
    ]
    return dice.choice(kinds[: 4 if depth > 1 else 6])()


def arguments(dice: random.Random) -> Json:
    """Arguments of a call: at least two."""
    return {f"a{n}": value(dice) for n in range(dice.randrange(2, 4))}


def schema(dice: random.Random) -> Json:
    """What a tool takes."""
    properties: Json = {
        f"p{n}": {"type": dice.choice(["string", "integer"]), "description": text(dice, 4)}
        for n in range(dice.randrange(2, 5))
    }
    return {"type": "object", "properties": properties, "required": ["p0"]}


def functions(dice: random.Random) -> list[Json]:
    """Declared functions: none, a few, or so many that they fill several segments."""
    n_tools = dice.choice([0, 1, 2, 3, 4])
    is_large = dice.random() < 0.3
    found = []
    for name in dice.sample(_NAMES, n_tools):
        words = _DECLARATION_BYTES // 6 if is_large else dice.randrange(1, 12)
        function: Json = {
            "name": name,
            "description": text(dice, words),
            "parameters": schema(dice),
        }
        if dice.random() < 0.2:
            function["strict"] = dice.choice([True, False])
        found.append(function)
    return found


# --- chat completions -----------------------------------------------------------------------------


def chat_body(dice: random.Random) -> Json:
    """A body of ``/v1/chat/completions``."""
    body: Json = {"model": "tiny", "messages": _chat_messages(dice), "stream": True}
    tools = [{"type": "function", "function": function} for function in functions(dice)]
    if tools:
        body["tools"] = tools
    if dice.random() < 0.2:
        body["chat_template_kwargs"] = {"preserve_thinking": True}
    return body


def _chat_messages(dice: random.Random) -> list[Json]:
    messages: list[Json] = []
    if dice.random() < 0.9:
        messages.append({"role": "system", "content": _chat_content(dice, some_text(dice))})
    messages.append({"role": "user", "content": _chat_content(dice, some_text(dice))})
    for turn in range(dice.randrange(1, 5)):
        messages += _chat_turn(dice, turn)
        if dice.random() < 0.15:
            messages.append({"role": "system", "content": text(dice, 8)})
    return messages


def _chat_turn(dice: random.Random, turn: int) -> list[Json]:
    answer: Json = {"role": "assistant", "content": dice.choice([None, "", some_text(dice)])}
    if dice.random() < 0.6:
        answer["reasoning_content"] = some_text(dice, long_chance=0.05)
    if dice.random() < 0.3:
        answer["content"] = text(dice, 5)
        return [answer, {"role": "user", "content": _chat_content(dice, some_text(dice))}]
    calls: list[Json] = [
        {"id": f"functions.{name}:{2 * turn + n}", "type": "function", "function": {"name": name}}
        for n, name in enumerate(dice.sample(_NAMES, dice.choice([1, 1, 2])))
    ]
    for call in calls:
        call["function"]["arguments"] = json.dumps(arguments(dice))
    answer["tool_calls"] = calls
    results = [
        {
            "role": "tool",
            "tool_call_id": call["id"],
            "content": _chat_content(dice, some_text(dice, long_chance=0.15)),
        }
        for call in calls
    ]
    return [answer, *results]


def _chat_content(dice: random.Random, content: str) -> Any:  # noqa: ANN401  # a string or parts
    if dice.random() < 0.7:
        return content
    cut = dice.randrange(len(content) + 1)
    pieces = dice.choice([[content], [content[:cut], content[cut:]]])
    return [{"type": "text", "text": piece} for piece in pieces]


# --- messages -------------------------------------------------------------------------------------


def messages_body(dice: random.Random) -> Json:
    """A body of ``/v1/messages``, as Claude Code writes them."""
    line = f"x-anthropic-billing-header: cc_version=2.1.99; cch={dice.randrange(16**5):05x};"
    system = [line, *(some_text(dice) for _ in range(dice.randrange(1, 3)))]
    body: Json = {
        "model": "tiny",
        "max_tokens": 1000,
        "system": [{"type": "text", "text": each} for each in system],
        "messages": _anthropic_messages(dice),
        "metadata": {"user_id": "user_1_account__session_11111111"},
    }
    tools = [_anthropic_tool(dice, function) for function in functions(dice)]
    if tools:
        body["tools"] = tools
    if dice.random() < 0.5:
        body["thinking"] = {"type": "enabled", "budget_tokens": 4000}
    return body


def _anthropic_tool(dice: random.Random, function: Json) -> Json:
    tool: Json = {
        key: function[key] for key in ("name", "description", "strict") if key in function
    }
    tool["input_schema"] = function["parameters"]
    if dice.random() < 0.2:
        tool["defer_loading"] = dice.choice([True, False])
    return tool


def _anthropic_messages(dice: random.Random) -> list[Json]:
    messages: list[Json] = [{"role": "user", "content": _blocks(dice, some_text(dice))}]
    for turn in range(dice.randrange(1, 4)):
        messages += _anthropic_turn(dice, turn)
        if dice.random() < 0.15:
            messages.append({"role": "system", "content": text(dice, 8)})
    return messages


def _anthropic_turn(dice: random.Random, turn: int) -> list[Json]:
    blocks: list[Json] = []
    if dice.random() < 0.5:
        blocks.append({"type": "thinking", "thinking": text(dice, 9), "signature": "c2ln"})
    if dice.random() < 0.3:
        blocks.append({"type": "text", "text": text(dice, 6)})
        return [
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": _blocks(dice, some_text(dice))},
        ]
    if dice.random() < 0.6:
        blocks.append({"type": "text", "text": some_text(dice)})
    answers: list[Json] = []
    for n, name in enumerate(dice.sample(_NAMES, dice.choice([1, 1, 2]))):
        use = {"type": "tool_use", "id": f"toolu_{turn}{n}", "name": name, "input": arguments(dice)}
        blocks.append(use)
        content = _blocks(dice, some_text(dice, long_chance=0.15))
        answers.append({"type": "tool_result", "tool_use_id": use["id"], "content": content})
    if dice.random() < 0.4:
        answers.append({"type": "text", "text": text(dice, 7)})
    return [{"role": "assistant", "content": blocks}, {"role": "user", "content": answers}]


def _blocks(dice: random.Random, content: str) -> Any:  # noqa: ANN401  # a string or blocks
    if dice.random() < 0.5:
        return content
    cut = dice.randrange(len(content) + 1)
    pieces = dice.choice([[content], [content[:cut], content[cut:]]])
    return [{"type": "text", "text": piece} for piece in pieces]
