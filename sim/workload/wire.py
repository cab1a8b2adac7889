"""Conversations as real agents put them on the wire, encoded once and only appended to.

The history is kept as encoded messages, so a turn costs its new messages and one join of bytes,
not a new encoding of everything. Shapes: Claude Code on ``/v1/messages`` (a billing line that
changes with each request, a ``cache_control`` mark that moves to the newest block), OpenCode and
Kimi CLI on ``/v1/chat/completions``.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from sim.workload.turns import CHAT_PATH, MESSAGES_PATH, Answer, ToolCall

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from sim.workload.text import Tool

MODEL: Final = "kimi-k2.6"
OUTPUT_TOKENS_MAX: Final = 32_000
_EPHEMERAL: Final = {"type": "ephemeral"}
_MESSAGE_BYTES: Final = 40  # markers round a message in Kimi's template
_ANSWER_BYTES: Final = 64
_CALL_BYTES: Final = 63  # markers round a tool call
_CALLS_BYTES: Final = 56  # markers round all calls of an answer
_RESULT_BYTES: Final = 55
_encode = msgspec.json.encode


class Agent(StrEnum):
    """The clients whose wire shapes are known here."""

    CLAUDE_CODE = "claude-code"
    OPENCODE = "opencode"
    KIMI_CLI = "kimi-cli"


@dataclass(frozen=True, slots=True)
class Head:
    """What a conversation starts with: tools first, then the system text."""

    tools: tuple[Tool, ...]
    system: str


@dataclass(frozen=True, slots=True)
class Identity:
    """Who speaks: the session's id and, for a sub-agent, its own and its parent's."""

    session_id: str
    agent_id: str | None = None
    parent_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeadPart:
    """A part of a head: equal keys after equal keys render to equal text of ``size_bytes``."""

    key: bytes
    size_bytes: int


class Conversation(Protocol):
    """The encoded history of one agent and the requests made of it."""

    path: str
    headers: tuple[tuple[str, str], ...]

    head: tuple[HeadPart, ...]
    history_bytes: int
    """Rendered size of all messages after the head, template markers included: close, not exact."""

    def add_user(self, text: str) -> None:
        """Append a message of the user."""
        ...

    def add_answer(self, answer: Answer) -> None:
        """Append the assistant's answer as it was received."""
        ...

    def add_results(self, results: Sequence[tuple[ToolCall, str]]) -> None:
        """Append the results of the answer's tool calls, in their order."""
        ...

    def body(self, emulate: dict[str, object]) -> bytes:
        """The request's body; ``emulate`` tells an emulated engine what to answer."""
        ...


class ClaudeCode:
    """Claude Code's requests; see the Anthropic messages dialect."""

    path = MESSAGES_PATH

    def __init__(self, *, identity: Identity, head: Head, rng: random.Random) -> None:
        self._rng = rng
        session_id = identity.session_id
        self.headers = _claude_headers(identity)
        user = f"user_{rng.getrandbits(256):064x}_account_{random_uuid(rng)}_session_{session_id}"
        self._before = b'{"model":"%s","max_tokens":%d,"stream":true,"metadata":%s,"system":[' % (
            MODEL.encode(),
            OUTPUT_TOKENS_MAX,
            _encode({"user_id": user}),
        )
        system = [
            {"type": "text", "text": "You are a terminal assistant.", "cache_control": _EPHEMERAL},
            {"type": "text", "text": head.system, "cache_control": _EPHEMERAL},
        ]
        tools = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema()}
            for tool in head.tools
        ]
        encoded_tools = _encode(tools)
        self._head = b',%s],"tools":%s' % (_encode(system)[1:-1], encoded_tools)
        self.head = _head_parts(encoded_tools, head.system)
        self.history_bytes = 0
        self._history: list[bytes] = []
        self._last: list[dict[str, object]] = []  # blocks of the newest user message

    def add_user(self, text: str) -> None:
        """Append text to the newest user message."""
        self.history_bytes += len(text) + _MESSAGE_BYTES
        self._last.append({"type": "text", "text": text})

    def add_answer(self, answer: Answer) -> None:
        """Append the answer's text and tool calls as one assistant message."""
        if self._last:
            self._history.append(_user_message(self._last))
            self._last = []
        self.history_bytes += _answer_bytes(answer)
        blocks: list[dict[str, object]] = []
        if answer.text:
            blocks.append({"type": "text", "text": answer.text})
        blocks.extend(
            {
                "type": "tool_use",
                "id": call.call_id,
                "name": call.name,
                "input": _arguments(call),
            }
            for call in answer.tool_calls
        )
        if blocks:
            self._history.append(_encode({"role": "assistant", "content": blocks}))

    def add_results(self, results: Sequence[tuple[ToolCall, str]]) -> None:
        """Append the results to the newest user message."""
        self.history_bytes += _results_bytes(results)
        self._last.extend(
            {
                "type": "tool_result",
                "tool_use_id": call.call_id,
                "content": [{"type": "text", "text": text}],
            }
            for call, text in results
        )

    def body(self, emulate: dict[str, object]) -> bytes:
        """The body with a fresh billing line and the mark on the newest block."""
        billing = {
            "type": "text",
            "text": "x-anthropic-billing-header: cc_version=2.1.99.a1b; cc_entrypoint=cli; "
            f"cch={self._rng.getrandbits(20):05x};",
        }
        marked = [*self._last[:-1], {**self._last[-1], "cache_control": _EPHEMERAL}]
        messages = b",".join((*self._history, _user_message(marked)))
        return b'%s%s%s,"messages":[%s],"homeport_emulate":%s}' % (
            self._before,
            _encode(billing),
            self._head,
            messages,
            _encode(emulate),
        )


class ChatAgent:
    """OpenCode's and Kimi CLI's requests; see the OpenAI chat dialect."""

    path = CHAT_PATH

    def __init__(self, *, agent: Agent, identity: Identity, head: Head, wants_usage: bool) -> None:
        assert agent is not Agent.CLAUDE_CODE
        self.headers = _chat_headers(agent, identity)
        self._agent = agent
        system = _encode({"role": "system", "content": head.system})
        tools = _encode(
            [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.schema(),
                    },
                }
                for tool in head.tools
            ]
        )
        self.head = _head_parts(tools, head.system)
        options = b',"stream_options":{"include_usage":true}' if wants_usage else b""
        common = b'"model":"%s","max_tokens":%d' % (MODEL.encode(), OUTPUT_TOKENS_MAX)
        tail = b'"tools":%s,"tool_choice":"auto","stream":true%s' % (tools, options)
        if agent is Agent.KIMI_CLI:  # messages come before the model there
            self._before = b'{"messages":['
            cache_key = _encode(identity.session_id)
            self._after = b'],%s,"prompt_cache_key":%s,%s' % (common, cache_key, tail)
        else:
            self._before = b'{%s,"messages":[' % common
            self._after = b"],%s" % tail
        self._history: list[bytes] = [system]
        self.history_bytes = 0

    def add_user(self, text: str) -> None:
        """Append a user message."""
        self.history_bytes += len(text) + _MESSAGE_BYTES
        self._history.append(_encode({"role": "user", "content": text}))

    def add_answer(self, answer: Answer) -> None:
        """Append the answer as one assistant message."""
        message: dict[str, object] = {"role": "assistant", "content": answer.text}
        if answer.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in answer.tool_calls
            ]
        self.history_bytes += _answer_bytes(answer)
        if answer.text or answer.tool_calls:
            self._history.append(_encode(message))

    def add_results(self, results: Sequence[tuple[ToolCall, str]]) -> None:
        """Append one tool message a result; Kimi CLI sends an array of parts."""
        self.history_bytes += _results_bytes(results)
        for call, text in results:
            content: object = text
            if self._agent is Agent.KIMI_CLI:
                content = [{"type": "text", "text": text}]
            message = {"role": "tool", "tool_call_id": call.call_id, "content": content}
            self._history.append(_encode(message))

    def body(self, emulate: dict[str, object]) -> bytes:
        """The body of the next request."""
        return b'%s%s%s,"homeport_emulate":%s}' % (
            self._before,
            b",".join(self._history),
            self._after,
            _encode(emulate),
        )


def random_uuid(rng: random.Random) -> str:
    """A version 4 UUID drawn from ``rng``."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _head_parts(tools: bytes, system: str) -> tuple[HeadPart, ...]:
    return (
        HeadPart(tools, len(tools) + _MESSAGE_BYTES),
        HeadPart(system.encode(), len(system) + _MESSAGE_BYTES),
    )


def _answer_bytes(answer: Answer) -> int:
    size = len(answer.text) + _ANSWER_BYTES + (_CALLS_BYTES if answer.tool_calls else 0)
    return size + sum(
        len(call.call_id) + len(call.arguments) + _CALL_BYTES for call in answer.tool_calls
    )


def _results_bytes(results: Sequence[tuple[ToolCall, str]]) -> int:
    return sum(len(call.call_id) + len(text) + _RESULT_BYTES for call, text in results)


def _user_message(blocks: list[dict[str, object]]) -> bytes:
    return _encode({"role": "user", "content": blocks})


def _arguments(call: ToolCall) -> object:
    """The call's input as an object; a cut or odd one becomes an empty object, as agents send."""
    try:
        decoded = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _claude_headers(identity: Identity) -> tuple[tuple[str, str], ...]:
    headers = [
        ("authorization", "Bearer homeport-load"),
        ("content-type", "application/json"),
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "claude-code-20250219"),
        ("user-agent", "claude-cli/2.1.99 (external, cli)"),
        ("x-app", "cli"),
        ("x-claude-code-session-id", identity.session_id),
    ]
    if identity.agent_id is not None and identity.parent_id is not None:
        headers.append(("x-claude-code-agent-id", identity.agent_id))
        headers.append(("x-claude-code-parent-agent-id", identity.parent_id))
    return tuple(headers)


def _chat_headers(agent: Agent, identity: Identity) -> tuple[tuple[str, str], ...]:
    headers = [
        ("authorization", "Bearer homeport-load"),
        ("content-type", "application/json"),
    ]
    if agent is Agent.KIMI_CLI:
        return (*headers, ("user-agent", "KimiCLI/1.4"), ("x-stainless-lang", "python"))
    own_id = identity.agent_id or identity.session_id
    headers += [
        ("user-agent", "opencode/1.2 ai-sdk/openai-compatible/1.0"),
        ("x-session-affinity", own_id),
        ("x-session-id", own_id),
    ]
    if identity.parent_id is not None:
        headers.append(("x-parent-session-id", identity.session_id))
    return tuple(headers)
