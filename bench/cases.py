"""The cases that are measured, and the bytes that travel in each of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from bench.conversations import API_KEY, MODEL, Template, chat_body, conversation, small_body

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

N_TEMPLATES: Final = 8
N_TURNS: Final = 10
N_BASE: Final = 45
EVENTS_A_STREAM: Final = 500
EVENT_GAP_S: Final = 0.010
_REPLY_BYTES: Final = 5_600


class Answer(StrEnum):
    """How the bench's own upstream answers a generation."""

    WHOLE = "whole"
    BURST = "burst"
    PACED = "paced"
    HELD = "held"  # a stream's first event, and then nothing until the client has left


@dataclass(slots=True, frozen=True)
class Case:
    """One kind of traffic; ``unit`` is what the router's CPU time is divided by."""

    name: str
    title: str
    answer: Answer
    connections: int
    unit: str


CASES: Final = {
    case.name: case
    for case in (
        Case("small", "1 KB request, not streamed, answer of 600 B", Answer.WHOLE, 16, "request"),
        Case("burst", "400 KB request, 500 events as fast as they go", Answer.BURST, 4, "request"),
        Case("paced", "400 KB request, 500 events 10 ms apart", Answer.PACED, 64, "event"),
    )
}


def templates(case: Case) -> list[list[Template]]:
    """For each distinct session the bodies of its turns, in order."""
    if case.answer is Answer.WHOLE:
        return [[Template.of(small_body())]]
    found = []
    for seed in range(N_TEMPLATES):
        talk = conversation(seed, n_base=N_BASE, n_turns=N_TURNS, reply_bytes=_REPLY_BYTES)
        found.append([Template.of(chat_body(talk, N_BASE + turn + 1)) for turn in range(N_TURNS)])
    return found


def requests(
    sessions: Sequence[tuple[str, Sequence[Template]]], *, first_pass: int
) -> Iterator[bytes]:
    """Endless requests of one connection: its sessions in turn, each growing turn by turn."""
    number = first_pass
    n_turns = len(sessions[0][1])
    while True:
        for turn in range(n_turns):
            for name, bodies in sessions:
                body = bodies[turn].filled(name.encode(), number)
                yield _head(name, len(body)) + body
        number += 1


def _head(session: str, size_bytes: int) -> bytes:
    fields = (
        "POST /v1/chat/completions HTTP/1.1",
        "host: 127.0.0.1",
        "user-agent: ai-sdk/openai-compatible/1.0.22 runtime/bun/1.3.0",
        "accept: */*",
        "accept-encoding: gzip, deflate",
        f"authorization: Bearer {API_KEY}",
        "content-type: application/json",
        f"x-session-id: {session}",
        f"content-length: {size_bytes}",
    )
    return ("\r\n".join(fields) + "\r\n\r\n").encode()


def whole_answer() -> bytes:
    """A chat completion of about 600 bytes with its usage."""
    message = {"role": "assistant", "content": "x" * 200, "reasoning_content": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return _json(_object("chat.completion", [choice]) | {"usage": _usage(250, 60)})


def stream_events() -> list[bytes]:
    """The events of one streamed answer: role, words, finish, usage and the end mark."""
    kind = "chat.completion.chunk"
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": f" word{number:04d}"} for number in range(EVENTS_A_STREAM - 4)]
    rows = [_object(kind, [_choice(delta, None)]) for delta in deltas]
    rows.append(_object(kind, [_choice({}, "stop")]))
    rows.append(_object(kind, []) | {"usage": _usage(100_000, 500)})
    return [b"data: " + _json(row) + b"\n\n" for row in rows] + [b"data: [DONE]\n\n"]


def answer_bytes(answer: Answer) -> int:
    """Body bytes of one answer, without framing: every target has to deliver exactly these."""
    return len(whole_answer()) if answer is Answer.WHOLE else sum(map(len, stream_events()))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _object(kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "0123456789abcdef0123456789abcdef",
        "object": kind,
        "created": 1_790_000_000,
        "model": MODEL,
        "choices": choices,
    }


def _choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {
        "index": 0,
        "delta": delta,
        "logprobs": None,
        "finish_reason": finish,
        "matched_stop": None,
    }


def _usage(prompt_tokens: int, output_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "completion_tokens": output_tokens,
        "prompt_tokens_details": {"cached_tokens": prompt_tokens * 24 // 25},
    }
