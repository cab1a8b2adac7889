"""Requests in the shapes that coding agents send, with invented content: one function an agent.

``talk(n)`` is the history of the n-th turn; each function turns it into its agent's own form.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
COUNT = "/v1/messages/count_tokens"

RULES = "".join(f"Rule {n}: keep the change small and say what was run. " for n in range(400))
"""About 22 KB: over what counts as an auxiliary prompt."""


@dataclass(frozen=True)
class Sent:
    """One request as a client sends it."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def raw(self) -> bytes:
        """Its bytes on the wire."""
        body = json.dumps(self.body).encode()
        lines = {
            "host": "door",
            "content-type": "application/json",
            "authorization": "Bearer sk-none",
            **self.headers,
            "content-length": str(len(body)),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST {self.path} HTTP/1.1\r\n{head}\r\n".encode() + body


@dataclass(frozen=True)
class Talk:
    """A conversation at one of its turns: the task, and what was done since, step by step."""

    task: str
    steps: list[str] = field(default_factory=list)
    system: str = "You are a coding agent. " + RULES


def talk(turn: int, task: str = "The parser test fails. Fix it.") -> Talk:
    """The history at a turn, counted from 0; each turn repeats the one before."""
    return Talk(task, [f"{task[:12]} step {n}" for n in range(turn)])


# Chat completions


def _chat(said: Talk, *, content: str = "content") -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": said.system},
        {"role": "user", "content": said.task},
    ]
    for n, step in enumerate(said.steps):
        call = {"name": "read", "arguments": json.dumps({"path": f"/src/{n}.py"})}
        messages += [
            {
                "role": "assistant",
                content: f"I will do {step}.",
                "tool_calls": [{"id": f"call_{n}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"call_{n}", "content": f"{n}  def parse(s): ..."},
        ]
    return messages


_TOOL = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}


def chat_agent(said: Talk, agent: str, **body: object) -> Sent:
    """An agent on the OpenAI SDK or on LiteLLM, which names no session."""
    headers = {"user-agent": agent}
    if agent.startswith(("OpenAI/", "AsyncOpenAI/")):
        headers |= {"x-stainless-lang": "python", "x-stainless-retry-count": "0"}
    sent = {"model": "kimi-k2.6", "messages": _chat(said), "tools": [_TOOL], "stream": True}
    return Sent(CHAT, headers, sent | body)


def plain_agent(said: Talk, agent: str, **body: object) -> Sent:
    """An agent without tool calls, whose commands stand in the text (Aider, mini-swe-agent)."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": said.system},
        {"role": "user", "content": said.task},
    ]
    for step in said.steps:
        messages += [
            {"role": "assistant", "content": f"```bash\necho {step}\n```"},
            {"role": "user", "content": f"<output>{step}</output>"},
        ]
    sent = {"model": "kimi-k2.6", "messages": messages, "stream": False}
    return Sent(CHAT, {"user-agent": agent}, sent | body)


def roo_code(said: Talk) -> Sent:
    """Roo Code: the last two user messages are lists of one part, and strings again later."""
    sent = plain_agent(said, "RooCode/3.30.0", stream=True)
    users = [m for m in sent.body["messages"] if m["role"] == "user"]
    for message in users[-2:]:
        message["content"] = [{"type": "text", "text": message["content"]}]
    headers = {"x-title": "Roo Code", "x-stainless-lang": "js"}
    return Sent(CHAT, sent.headers | headers, sent.body)


def opencode(said: Talk, session: str, *, parent: str | None = None, **body: object) -> Sent:
    """OpenCode; a child session names its parent."""
    agent = "opencode/1.0.85 ai-sdk/openai-compatible/1.0.22 runtime/bun/1.3.0"
    headers = {"user-agent": agent, "x-session-affinity": session, "x-session-id": session}
    if parent is not None:
        headers["x-parent-session-id"] = parent
    sent = {
        "model": "kimi-k2.6",
        "max_tokens": 32_000,
        "messages": _chat(said),
        "tools": [_TOOL],
        "tool_choice": "auto",
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return Sent(CHAT, headers, sent | body)


def kimi_cli(said: Talk, session: str) -> Sent:
    """Kimi CLI with provider type ``kimi``: the messages come first, the tools near the end."""
    headers = {"user-agent": "KimiCLI/1.40.0", "x-stainless-lang": "python"}
    sent = {
        "messages": _chat(said),
        "model": "kimi-k2.6",
        "max_tokens": 32_000,
        "prompt_cache_key": session,
        "stream": True,
        "stream_options": {"include_usage": True},
        "thinking": {"type": "enabled"},
        "tools": [_TOOL],
    }
    return Sent(CHAT, headers, sent)


def goose(said: Talk, session: str) -> Sent:
    """Goose."""
    return Sent(
        CHAT,
        {"user-agent": "goose/1.12.0", "x-goose-session-id": session},
        chat_agent(said, "goose").body,
    )


def load_generator(said: Talk, headers: dict[str, str]) -> Sent:
    """AIPerf and clients of Modal's servers: the header says it all."""
    return Sent(CHAT, {"user-agent": "aiperf/0.4.0", **headers}, chat_agent(said, "aiperf").body)


# Messages


def claude_code(
    said: Talk,
    session: str,
    *,
    cch: str = "0a1b2",
    headers: dict[str, str] | None = None,
    has_header: bool = True,
    is_json_id: bool = False,
    reminder: str = "",
    **body: object,
) -> Sent:
    """Claude Code: a billing line that changes, marks that move on, reminders that come and go."""
    user_id = f"user_0a1b2c_account_11111111-2222-4333-8444-555555555555_session_{session}"
    if is_json_id:
        user_id = json.dumps({"device_id": "d", "account_uuid": "a", "session_id": session})
    mark = {"cache_control": {"type": "ephemeral"}}
    billing = f"x-anthropic-billing-header: cc_version=2.1.99.a1b; cc_entrypoint=cli; cch={cch};"
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": said.task}]}
    ]
    for n, step in enumerate(said.steps):
        used = {"id": f"toolu_{n}", "name": "Read", "input": {"file_path": f"/src/{n}.py"}}
        result = {"tool_use_id": f"toolu_{n}", "content": f"{n}  def parse(s): ..."}
        text = {"type": "text", "text": f"I will do {step}."}
        messages += [
            {"role": "assistant", "content": [text, {"type": "tool_use", **used}]},
            {"role": "user", "content": [{"type": "tool_result", **result}]},
        ]
    messages[-1]["content"][-1] |= mark
    if reminder:
        messages.append({"role": "system", "content": reminder})
    lines = {
        "user-agent": "claude-cli/2.1.99 (external, cli)",
        "x-app": "cli",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "claude-code-20250219",
        "x-stainless-retry-count": "0",
    }
    if has_header:
        lines["x-claude-code-session-id"] = session
    sent = {
        "model": "kimi-k2.6",
        "max_tokens": 32_000,
        "stream": True,
        "metadata": {"user_id": user_id},
        "system": [
            {"type": "text", "text": billing},
            {"type": "text", "text": said.system, **mark},
        ],
        "tools": [
            {
                "name": "Read",
                "description": "Read a file.",
                "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}},
            }
        ],
        "messages": messages,
    }
    return Sent(f"{MESSAGES}?beta=true", lines | (headers or {}), sent | body)


def claude_code_title(session: str, text: str = "The parser test fails. Fix it.") -> Sent:
    """Its small calls beside the conversation: a title, a topic; the same session id."""
    said = Talk(f"Write a title of at most six words for: {text}", system="You write titles.")
    sent = claude_code(said, session, model="kimi-k2.6", max_tokens=64)
    body = {name: value for name, value in sent.body.items() if name != "tools"}
    return Sent(sent.path, sent.headers, body)


# Responses


def codex(
    said: Talk,
    session: str,
    *,
    thread: str | None = None,
    window: int = 0,
    headers: dict[str, str] | None = None,
    names: tuple[str, ...] = ("session-id", "thread-id", "x-client-request-id"),
) -> Sent:
    """Codex CLI."""
    thread = thread or session
    own = {"session-id": session, "session_id": session}
    items: list[dict[str, Any]] = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": said.task}]}
    ]
    for n, step in enumerate(said.steps):
        arguments = json.dumps({"command": ["echo", step]})
        items += [
            {
                "type": "function_call",
                "name": "shell",
                "arguments": arguments,
                "call_id": f"call_{n}",
            },
            {"type": "function_call_output", "call_id": f"call_{n}", "output": step},
        ]
    lines = {
        "user-agent": "codex_cli_rs/0.99.0 (Debian 12; x86_64) xterm",
        "originator": "codex_cli_rs",
        "accept": "text/event-stream",
        "x-codex-window-id": f"{thread}:{window}",
        **{name: own.get(name, thread) for name in names},
    }
    body = {
        "model": "kimi-k2.6",
        "instructions": said.system,
        "input": items,
        "tools": [
            {
                "type": "function",
                "name": "shell",
                "description": "Run a command.",
                "strict": False,
                "parameters": {
                    "type": "object",
                    "properties": {"command": {"type": "array", "items": {"type": "string"}}},
                },
            }
        ],
        "tool_choice": "auto",
        "store": False,
        "stream": True,
        "prompt_cache_key": thread,
        "client_metadata": {"session_id": session, "thread_id": thread},
    }
    return Sent(RESPONSES, lines | (headers or {}), body)
