"""Sessions as Codex holds them, through the router to real replicas: each finds its past at home."""

from __future__ import annotations

import asyncio
import json
import random
import urllib.request
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from sim.workload.text import Prose
from tests.doubles.engines import FLEET, MODEL, PAGE_TOKENS, Member
from tests.doubles.processes import running
from tests.engine.growing_sessions import RESPONSES, Reported, Request, first_turns, play, seed_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

N_SESSIONS = 12
N_TURNS = 5
N_LANES = 4
PREDICTION_ERROR_MAX = 0.02


def said(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def codex_session(
    number: int, prose: Prose, shared: dict[str, Any], rng: random.Random
) -> list[Request]:
    """One conversation; its answers are written beforehand, and stand in its history as items."""
    items = [
        said("developer", "Sandbox: workspace-write."),
        said("user", f"<environment_context>cwd: /src/{number}</environment_context>"),
        said("user", prose.text(rng, rng.randint(300, 900))),
    ]
    name = f"{seed_of(rng)}-{number:02d}"
    headers = {"content-type": "application/json"}
    if number % 3:  # every third one is known by its prompt alone
        headers |= {"session-id": name, "thread-id": name}
    turns = []
    for turn in range(N_TURNS):
        body = json.dumps({**shared, "input": items}).encode()
        turns.append(Request(number, turn, RESPONSES, headers, body))
        call = {"name": "tool_0", "arguments": json.dumps({"path": prose.words(rng, 1)})}
        items = [
            *items,
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": prose.words(rng, 9)}],
            },
            said("assistant", prose.words(rng, 12)),
            {"type": "function_call", "call_id": f"call_{turn}", **call},
            {
                "type": "function_call_output",
                "call_id": f"call_{turn}",
                "output": prose.text(rng, rng.randint(100, 500)),
            },
        ]
    return turns


def codex_sessions(seed: int) -> list[list[Request]]:
    rng = random.Random(seed)
    prose = Prose(rng)
    made = [prose.tool(rng, f"tool_{n}", 60) for n in range(4)]
    shared = {
        "model": MODEL,
        "instructions": prose.text(rng, 500),
        "tools": [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "strict": False,
                "parameters": tool.schema(),
            }
            for tool in made
        ],
        "reasoning": {"effort": "medium", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 18,
        "store": False,
        "stream": True,
    }
    return [codex_session(n, prose, shared, rng) for n in range(N_SESSIONS)]


@pytest.fixture(scope="module")
def reports(engines: dict[str, Member]) -> Iterator[list[Reported]]:
    fleet: Sequence[Member] = [engines[role.name] for role in FLEET[:2]]
    for member in fleet:
        with urllib.request.urlopen(f"{member.url}/flush_cache?timeout=30") as answer:
            assert answer.status == 200
    named = [word for member in fleet for word in ("--replica", member.url)]
    with running("serve", "--port", "0", "--admin-port", "0", *named) as door:
        yield asyncio.run(play(door.url, codex_sessions(5), lanes=N_LANES))


def test_each_finds_all_of_its_past_at_home(reports: list[Reported]) -> None:
    assert len(reports) == N_SESSIONS * N_TURNS
    sessions = [[r for r in reports if r.request.session == n] for n in range(N_SESSIONS)]
    for turns in sessions:
        assert len({report.replica_id for report in turns}) == 1
        for before, report in pairwise(turns):
            # The reasoning of a running turn stays, so the last prompt is all of the next one's head.
            assert (
                report.cached_tokens
                >= before.prompt_tokens // PAGE_TOKENS * PAGE_TOKENS - PAGE_TOKENS
            )
    assert max(first_turns(reports)) <= N_SESSIONS // 2 + 2  # learned speeds of a shared CPU differ


def test_the_router_knew_what_was_cached(reports: list[Reported]) -> None:
    cached = sum(report.cached_tokens for report in reports)
    predicted = sum(report.predicted_tokens for report in reports)
    assert cached
    assert abs(predicted - cached) < PREDICTION_ERROR_MAX * cached
