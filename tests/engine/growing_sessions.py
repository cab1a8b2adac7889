"""Sessions as agents hold them, small: the same requests for any fleet, and what it reported of them.

Histories are written beforehand, answers included, so that every fleet is sent the same bytes; all
sessions share tools and a system prompt. Half of them speak the chat API, half Anthropic messages.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from sim.workload.text import Prose
from tests.doubles.engines import MODEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHAT: Final = "/v1/chat/completions"
MESSAGES: Final = "/v1/messages"
RESPONSES: Final = "/v1/responses"
N_SESSIONS: Final = 30
N_LANES: Final = 6
OUTPUT_TOKENS: Final = 16
_REQUEST_S_MAX: Final = 120.0
_TASK_TOKENS: Final = (300, 900)
_RESULT_TOKENS: Final = (100, 500)
_TURNS: Final = (5, 7)


@dataclass(frozen=True)
class Request:
    """One turn: where it goes and its bytes."""

    session: int
    turn: int
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Reported:
    """What an engine said of one request, and what a router had expected and chosen."""

    request: Request
    prompt_tokens: int
    cached_tokens: int
    predicted_tokens: int
    replica_id: str


def sessions(seed: int) -> list[list[Request]]:
    """Thirty sessions of five to seven turns, up to 6,000 tokens of the tiny model at their ends."""
    rng = random.Random(seed)
    prose = Prose(rng)
    tools = [prose.tool(rng, f"tool_{n}", 60) for n in range(4)]
    system = prose.text(rng, 500)
    return [_session(n, prose, tools, system, rng) for n in range(N_SESSIONS)]


def _session(
    number: int, prose: Prose, tools: Sequence[Any], system: str, rng: random.Random
) -> list[Request]:
    is_chat = number % 2 == 0
    talk = _Chat(tools, system) if is_chat else _Messages(tools, system, rng)
    talk.user(prose.text(rng, rng.randint(*_TASK_TOKENS)))
    # Every third session names itself nowhere: its prompt is all there is to know it by.
    named = number % 3 != 0
    header = "x-session-affinity" if is_chat else "x-claude-code-session-id"
    headers = {"content-type": "application/json"}
    headers |= {header: f"{seed_of(rng)}-{number:02d}"} if named else {}
    turns = []
    for turn in range(rng.randint(*_TURNS)):
        body = json.dumps(talk.body()).encode()
        turns.append(Request(number, turn, talk.path, headers, body))
        call = {"path": f"src/{prose.words(rng, 1)}.py", "line": str(turn)}
        talk.call(f"functions.tool_0:{turn}", call, prose.words(rng, 12))
        talk.result(f"functions.tool_0:{turn}", prose.text(rng, rng.randint(*_RESULT_TOKENS)))
    return turns


def seed_of(rng: random.Random) -> str:
    """An id as agents make them."""
    return f"{rng.getrandbits(64):016x}"


class _Chat:
    """A conversation on chat completions."""

    path = CHAT

    def __init__(self, tools: Sequence[Any], system: str) -> None:
        self._tools = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.schema(),
                },
            }
            for tool in tools
        ]
        self._messages: list[dict[str, Any]] = [{"role": "system", "content": system}]

    def user(self, text: str) -> None:
        """The person's words."""
        self._messages.append({"role": "user", "content": text})

    def call(self, call_id: str, arguments: dict[str, str], text: str) -> None:
        """The assistant's answer: text and one tool call."""
        function = {"name": "tool_0", "arguments": json.dumps(arguments)}
        calls = [{"id": call_id, "type": "function", "function": function}]
        self._messages.append({"role": "assistant", "content": text, "tool_calls": calls})

    def result(self, call_id: str, text: str) -> None:
        """What the tool said."""
        self._messages.append({"role": "tool", "tool_call_id": call_id, "content": text})

    def body(self) -> dict[str, Any]:
        """The request of this turn."""
        return {
            "model": MODEL,
            "messages": self._messages,
            "tools": self._tools,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": OUTPUT_TOKENS,
        }


class _Messages:
    """A conversation on Anthropic messages, as Claude Code holds it: the billing line changes."""

    path = MESSAGES

    def __init__(self, tools: Sequence[Any], system: str, rng: random.Random) -> None:
        self._rng = rng
        self._tools = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema()}
            for tool in tools
        ]
        self._system = system
        self._messages: list[dict[str, Any]] = []

    def user(self, text: str) -> None:
        """The person's words."""
        self._messages.append({"role": "user", "content": [{"type": "text", "text": text}]})

    def call(self, call_id: str, arguments: dict[str, str], text: str) -> None:
        """The assistant's answer: text and one tool call."""
        use = {"type": "tool_use", "id": call_id, "name": "tool_0", "input": arguments}
        content = [{"type": "text", "text": text}, use]
        self._messages.append({"role": "assistant", "content": content})

    def result(self, call_id: str, text: str) -> None:
        """What the tool said."""
        content = [{"type": "text", "text": text}]
        result = {"type": "tool_result", "tool_use_id": call_id, "content": content}
        self._messages.append({"role": "user", "content": [result]})

    def body(self) -> dict[str, Any]:
        """The request of this turn."""
        cch = f"{self._rng.getrandbits(20):05x}"
        line = f"x-anthropic-billing-header: cc_version=2.1.99.a1b; cc_entrypoint=cli; cch={cch};"
        marked = {"type": "text", "text": self._system, "cache_control": {"type": "ephemeral"}}
        return {
            "model": MODEL,
            "system": [{"type": "text", "text": line}, marked],
            "messages": self._messages,
            "tools": self._tools,
            "stream": True,
            "max_tokens": OUTPUT_TOKENS,
        }


async def play(url: str, played: Sequence[Sequence[Request]], *, lanes: int) -> list[Reported]:
    """Play sessions on ``lanes`` at a time, each turn after the one before; in order of their ends."""
    waiting = iter(played)
    reports: list[Reported] = []

    async def lane(http: aiohttp.ClientSession) -> None:
        for turns in waiting:
            for request in turns:
                report = await _ask(http, url, request)
                reports.append(report)

    timeout = aiohttp.ClientTimeout(total=_REQUEST_S_MAX)
    async with aiohttp.ClientSession(timeout=timeout) as http, asyncio.TaskGroup() as group:
        for _ in range(lanes):
            group.create_task(lane(http))
    return reports


async def _ask(http: aiohttp.ClientSession, url: str, request: Request) -> Reported:
    asked = http.post(url + request.path, data=request.body, headers=request.headers)
    async with asked as answer:
        text = await answer.text()
        assert answer.status == 200, text[:500]
        headers = answer.headers
    prompt_tokens, cached_tokens = _usage(request.path, text)
    return Reported(
        request,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        predicted_tokens=int(headers.get("x-homeport-cached-tokens", 0)),
        replica_id=headers.get("x-homeport-replica", ""),
    )


def _usage(path: str, text: str) -> tuple[int, int]:
    """Prompt and cached tokens that a stream reported."""
    events = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    usage: dict[str, Any] = {}
    for event in events:
        usage |= _usage_in(json.loads(event)) or {}
    assert usage, f"no usage in {text[-500:]}"
    if path == RESPONSES:
        return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
    if path == CHAT:
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
    cached = usage.get("cache_read_input_tokens") or 0
    return usage["input_tokens"] + cached, cached


def _usage_in(event: dict[str, Any]) -> dict[str, Any] | None:
    holder = event.get("message") or event.get("response") or event
    usage: dict[str, Any] | None = holder.get("usage")
    return usage


def first_turns(reports: Sequence[Reported]) -> list[int]:
    """How many sessions began on each replica, most first."""
    counts = Counter(report.replica_id for report in reports if report.request.turn == 0)
    return sorted(counts.values(), reverse=True)


def hit_ratio(reports: Sequence[Reported]) -> float:
    """Cached tokens by prompt tokens, in total."""
    prompt_tokens = sum(report.prompt_tokens for report in reports)
    return sum(report.cached_tokens for report in reports) / prompt_tokens
