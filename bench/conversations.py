"""Invented agent conversations as two dialects write them, and templates of their bodies.

A session grows by an answer and a tool's result (or a person's words) a turn. Its body is kept as a
template: marks stand where the session's and the pass's numbers go. A pass plays all turns in
order, so that every request repeats the messages of the one before and brings new ones, as with
real agents; the next pass begins again at the base with another number.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from typing import Any, Final

SESSION_MARK: Final = b"@@session-mark@@"
PASS_MARK: Final = b"@@@@pass-mark@@@"
MODEL: Final = "kimi-k2.6"
API_KEY: Final = "sk-bench"

_MARKS: Final = re.compile(b"(%b|%b)" % (SESSION_MARK, PASS_MARK))
_N_TOOLS: Final = 20
_TALK_EVERY: Final = 12
"""Every so many turns a person speaks instead of a tool."""

_VOCABULARY: Final = (
    "self return async await def class if else for in raise import from None True False value "
    "request replica session tokens cache prefix index parser buffer stream event state time "
    "result error path file test assert list dict str int bytes not and or with as yield lambda"
)
_WORDS: Final = _VOCABULARY.split()


@dataclass(slots=True, frozen=True)
class Template:
    """A body cut at its marks; both numbers have the marks' width, so its length is fixed."""

    pieces: tuple[bytes, ...]

    @classmethod
    def of(cls, body: bytes) -> Template:
        """Cut a body at its marks."""
        return cls(tuple(_MARKS.split(body)))

    @property
    def size_bytes(self) -> int:
        """Length of the body, filled or not."""
        return sum(map(len, self.pieces))

    def filled(self, session: bytes, number: int) -> bytes:
        """The body of one session in one pass; ``session`` has the mark's width."""
        stamp = b"%016d" % number
        pieces = list(self.pieces)
        for at in range(1, len(pieces), 2):
            pieces[at] = session if pieces[at] == SESSION_MARK else stamp
        return b"".join(pieces)


@dataclass(slots=True, frozen=True)
class Turn:
    """What the model said and did, and what came back; ``call`` is None where a person speaks."""

    thought: str
    answer: str
    call: tuple[str, str, dict[str, Any]] | None
    reply: str


@dataclass(slots=True, frozen=True)
class Conversation:
    """A whole session: ``turns`` from ``n_base`` on carry the pass's mark."""

    system: str
    tools: list[tuple[str, str, dict[str, Any]]]
    opening: str
    turns: list[Turn]


def conversation(seed: int, *, n_base: int, n_turns: int, reply_bytes: int) -> Conversation:
    """Invent a session; ``reply_bytes`` is the mean size of a tool's result."""
    dice = random.Random(seed)
    tools = [
        (f"tool_{number}", _text(dice, 900), _schema(dice, number)) for number in range(_N_TOOLS)
    ]
    turns = []
    for number in range(n_base + n_turns):
        mark = PASS_MARK.decode() if number >= n_base else f"turn {number}"
        is_talk = number % _TALK_EVERY == _TALK_EVERY - 1
        call = (f"call_{number:08d}", f"tool_{dice.randrange(_N_TOOLS)}", _arguments(dice))
        reply = 300 if is_talk else int(reply_bytes * dice.triangular(0.1, 2.2, 0.7))
        turns.append(
            Turn(
                thought=_text(dice, 250) if number % 3 == 0 else "",
                answer=f"{mark} {_text(dice, 200)}",
                call=None if is_talk else call,
                reply=f"{mark}\n{_text(dice, reply)}",
            )
        )
    opening = f"{SESSION_MARK.decode()} {_text(dice, 3_000)}"
    return Conversation(_text(dice, 12_000), tools, opening, turns)


def chat_body(talk: Conversation, n_turns: int) -> bytes:
    """The session after ``n_turns`` as an OpenAI chat request, streamed, usage asked for."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": talk.system},
        {"role": "user", "content": talk.opening},
    ]
    for turn in talk.turns[:n_turns]:
        answer: dict[str, Any] = {"role": "assistant", "content": turn.answer}
        if turn.thought:
            answer["reasoning_content"] = turn.thought
        if turn.call is None:
            messages += [answer, {"role": "user", "content": turn.reply}]
            continue
        call_id, name, arguments = turn.call
        function = {"name": name, "arguments": json.dumps(arguments)}
        answer["tool_calls"] = [{"id": call_id, "type": "function", "function": function}]
        messages += [answer, {"role": "tool", "tool_call_id": call_id, "content": turn.reply}]
    tools = [
        {
            "type": "function",
            "function": {"name": name, "description": text, "parameters": schema},
        }
        for name, text, schema in talk.tools
    ]
    body = {
        "model": MODEL,
        "max_tokens": 32_000,
        "messages": messages,
        "tools": tools,
        "tool_choice": "auto",
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return _json(body)


def messages_body(talk: Conversation, n_turns: int) -> bytes:
    """The session after ``n_turns`` as Claude Code sends it.

    The billing line changes with the pass, and the cache mark moves to the new last block.
    """
    cached = {"cache_control": {"type": "ephemeral"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": talk.opening}]}
    ]
    for turn in talk.turns[:n_turns]:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": turn.answer}]
        if turn.thought:
            blocks.insert(0, {"type": "thinking", "thinking": turn.thought, "signature": "s" * 200})
        reply: dict[str, Any] = {"type": "text", "text": turn.reply}
        if turn.call is not None:
            call_id, name, arguments = turn.call
            blocks.append({"type": "tool_use", "id": call_id, "name": name, "input": arguments})
            reply = {"type": "tool_result", "tool_use_id": call_id, "content": [reply]}
        messages += [
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": [reply]},
        ]
    messages[-1]["content"][-1] |= cached
    line = f"x-anthropic-billing-header: cc_version=2.1.99.a1b; cc_entrypoint=cli; cch={PASS_MARK.decode()};"
    body = {
        "model": MODEL,
        "max_tokens": 32_000,
        "stream": True,
        "system": [
            {"type": "text", "text": line},
            {"type": "text", "text": talk.system, **cached},
        ],
        "tools": [
            {"name": name, "description": text, "input_schema": schema}
            for name, text, schema in talk.tools
        ],
        "messages": messages,
    }
    return _json(body)


def responses_body(talk: Conversation, n_turns: int) -> bytes:
    """The session after ``n_turns`` as Codex sends it: everything is an item, nothing is kept."""
    items: list[dict[str, Any]] = [_said("user", talk.opening)]
    for turn in talk.turns[:n_turns]:
        if turn.thought:
            summary = [{"type": "summary_text", "text": turn.thought}]
            items.append({"type": "reasoning", "summary": summary, "encrypted_content": "s" * 400})
        items.append(_said("assistant", turn.answer))
        if turn.call is None:
            items.append(_said("user", turn.reply))
            continue
        call_id, name, arguments = turn.call
        called = {"call_id": call_id, "name": name, "arguments": json.dumps(arguments)}
        items.append({"type": "function_call", **called})
        items.append({"type": "function_call_output", "call_id": call_id, "output": turn.reply})
    tools = [
        {
            "type": "function",
            "name": name,
            "description": text,
            "strict": False,
            "parameters": schema,
        }
        for name, text, schema in talk.tools
    ]
    body = {
        "model": "kimi-k2.6",
        "instructions": talk.system,
        "input": items,
        "tools": tools,
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
    }
    return _json(body)


def small_body() -> bytes:
    """A chat request of about 1 KB, not streamed; each pass asks something new."""
    dice = random.Random(7)
    system, question = _text(dice, 430), f"{PASS_MARK.decode()} {_text(dice, 250)}"
    body = {
        "model": MODEL,
        "max_tokens": 200,
        "messages": [
            {"role": "system", "content": f"{SESSION_MARK.decode()} {system}"},
            {"role": "user", "content": question},
        ],
    }
    return _json(body)


def _said(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _text(dice: random.Random, size_bytes: int) -> str:
    """Lines like those of a program, with the quotes and line ends that JSON has to escape."""
    words: list[str] = []
    total = 0
    while total < size_bytes:
        word = dice.choice(_WORDS)
        if dice.random() < 0.12:
            word = f'{word}\n    "{dice.randrange(10**6)}"'
        words.append(word)
        total += len(word) + 1
    return " ".join(words)


def _arguments(dice: random.Random) -> dict[str, Any]:
    return {
        "path": f"/src/{dice.choice(_WORDS)}/{dice.randrange(1000)}.py",
        "pattern": _text(dice, 60),
        "limit": 200,
    }


def _schema(dice: random.Random, number: int) -> dict[str, Any]:
    names = [f"{dice.choice(_WORDS)}_{number}_{index}" for index in range(6)]
    return {
        "type": "object",
        "properties": {name: {"type": "string", "description": _text(dice, 80)} for name in names},
        "required": names[:2],
        "additionalProperties": False,
    }
