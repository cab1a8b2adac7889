"""The load generator against a small SSE server on loopback."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from sim.live.load import Load, LoadOptions
from sim.workload.agents import AgentProfile, AgentWorkload
from sim.workload.turns import CHAT_PATH, AgentRequest, Answer, Turn

Handler = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]


@dataclass
class ScriptedSession:
    """Sends the given bodies one after another and keeps the answers."""

    key: str
    bodies: deque[bytes]
    gap_s: float = 0.0
    children: tuple[ScriptedSession, ...] = ()
    answers: list[Answer] = field(default_factory=list)

    def next_turn(self) -> Turn | None:
        if not self.bodies:
            return None
        headers = (("content-type", "application/json"), ("user-agent", "scripted/1"))
        request = AgentRequest(CHAT_PATH, headers, self.bodies.popleft(), 0.5)
        return Turn(self.gap_s, request, self.children)

    def answered(self, answer: Answer) -> None:
        self.answers.append(answer)


class ScriptedSource:
    """Gives each lane the next of the sessions."""

    def __init__(self, *sessions: ScriptedSession) -> None:
        self._sessions = deque(sessions)

    def next_session(self, lane: int) -> ScriptedSession | None:
        assert lane >= 0
        return self._sessions.popleft() if self._sessions else None


def _session(*bodies: bytes, key: str = "s") -> ScriptedSession:
    return ScriptedSession(key, deque(bodies))


@asynccontextmanager
async def _serving(handler: Handler) -> AsyncIterator[str]:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await handler(request, await request.read())

    app = web.Application(client_max_size=16 * 1024 * 1024)
    app.router.add_post("/v1/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    try:
        port = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def _stream(request: web.Request, *payloads: str) -> web.StreamResponse:
    headers = {
        "content-type": "text/event-stream",
        "x-homeport-replica": "r1",
        "x-homeport-reason": "home",
    }
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    for payload in payloads:
        await response.write(f"data: {payload}\n\n".encode())
    await response.write_eof()
    return response


def _text(content: str) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": {"content": content}}]})


_USAGE = json.dumps(
    {
        "choices": [],
        "usage": {
            "prompt_tokens": 1_000,
            "completion_tokens": 4,
            "prompt_tokens_details": {"cached_tokens": 320},
        },
    }
)


async def _good(request: web.Request, body: bytes) -> web.StreamResponse:
    return await _stream(request, _text(f"{len(body)} bytes"), _USAGE, "[DONE]")


async def _play(handler: Handler, *sessions: ScriptedSession, lanes: int = 1) -> Load:
    async with _serving(handler) as url:
        options = LoadOptions(url, lanes, time_scale=100.0, retry_pause_s=0.0)
        load = Load(ScriptedSource(*sessions), options)
        await load.run()
    return load


async def test_answers_are_read_and_counted() -> None:
    session = _session(b"{}", b"x" * 2_000_000)
    load = await _play(_good, session)
    assert [answer.text for answer in session.answers] == ["2 bytes", "2000000 bytes"]
    summary = load.tally.summary()
    assert (summary.requests, summary.errors, summary.retries, summary.sessions) == (2, 0, 0, 1)
    assert (summary.prompt_tokens, summary.cached_tokens, summary.output_tokens) == (2_000, 640, 8)
    assert (summary.hit_ratio, summary.hit_ratio_ceiling) == (0.32, 0.448)
    assert summary.per_replica == {"r1": 2}
    assert summary.reasons == {"home": 2}
    for record in load.tally.records:
        assert record.ttft_s is not None
        assert 0.0 < record.ttft_s <= record.duration_s
    assert load.n_inflight == 0


async def test_times_and_gaps_are_engine_seconds() -> None:
    session = ScriptedSession("s", deque([b"{}", b"{}"]), gap_s=2.0)
    load = await _play(_good, session)
    first, second = load.tally.records
    assert first.started_s >= 2.0
    assert second.started_s - (first.started_s + first.duration_s) >= 2.0


@pytest.mark.parametrize("status", [429, 502, 503, 504, 529])
async def test_refusals_are_repeated_and_counted_apart(status: int) -> None:
    n_calls = 0

    async def refuse_twice(request: web.Request, body: bytes) -> web.StreamResponse:
        nonlocal n_calls
        n_calls += 1
        if n_calls <= 2:
            return web.Response(status=status, text="not now", headers={"retry-after": "0"})
        return await _good(request, body)

    load = await _play(refuse_twice, _session(b"{}"))
    (record,) = load.tally.records
    assert (record.status, record.error, record.n_retries) == (200, None, 2)


async def test_a_request_that_fails_for_good_ends_its_session() -> None:
    async def refuse(request: web.Request, body: bytes) -> web.StreamResponse:
        assert request.headers["user-agent"] == "scripted/1"
        return web.Response(status=400 if body == b"bad" else 503, text="no such model")

    bad, refused = _session(b"bad", b"{}"), _session(b"{}", b"{}")
    load = await _play(refuse, bad, refused)
    assert [(r.status, r.n_retries) for r in load.tally.records] == [(400, 0), (503, 2)]
    assert load.tally.summary().error_kinds == {"400 no such model": 1, "503 no such model": 1}
    assert bad.answers == refused.answers == []


async def test_cut_streams_and_error_events_are_errors() -> None:
    async def answer(request: web.Request, body: bytes) -> web.StreamResponse:
        if body == b"cut":
            return await _stream(request, _text("so far"))
        return await _stream(request, json.dumps({"error": {"message": "queue full"}}))

    load = await _play(answer, _session(b"cut"), _session(b"event"))
    cut, event = load.tally.records
    assert cut.error == "the stream ended without its last event"
    assert event.error is not None
    assert "queue full" in event.error


async def test_an_unreachable_server_is_an_error_after_two_retries() -> None:
    async with _serving(_good) as url:
        gone = url
    load = Load(ScriptedSource(_session(b"{}")), LoadOptions(gone, 1, retry_pause_s=0.0))
    await load.run()
    (record,) = load.tally.records
    assert (record.status, record.n_retries, record.ttft_s) == (0, 2, None)
    assert record.error is not None


async def test_children_end_before_their_parents_request() -> None:
    seen: list[bytes] = []

    async def note(request: web.Request, body: bytes) -> web.StreamResponse:
        seen.append(body)
        return await _good(request, body)

    children = tuple(_session(b"child", key=f"c{i}") for i in range(3))
    await _play(note, ScriptedSession("p", deque([b"parent"]), children=children))
    assert seen == [b"child"] * 3 + [b"parent"]


async def test_lanes_stop_at_the_wanted_number_of_requests() -> None:
    long = [ScriptedSession(f"s{i}", deque([b"{}"] * 50)) for i in range(4)]
    idle = ScriptedSession("idle", deque([b"{}"]), gap_s=1e6)  # its pause must not hold the end
    async with _serving(_good) as url:
        options = LoadOptions(url, 5, time_scale=100.0, requests_max=37)
        load = Load(ScriptedSource(*long, idle), options)
        await load.run()
    assert load.tally.n_requests == 37


async def test_synthetic_agents_play_against_any_engine() -> None:
    profile = AgentProfile(turns=(3, 3), burst_share=0.5)
    async with _serving(_any_dialect) as url:
        options = LoadOptions(url, 4, time_scale=1_000.0, requests_max=40)
        load = Load(AgentWorkload(seed=1, profile=profile), options)
        await load.run()
    summary = load.tally.summary()
    assert (summary.requests, summary.errors) == (40, 0)
    assert {record.path for record in load.tally.records} == {CHAT_PATH, "/v1/messages"}


async def _any_dialect(request: web.Request, body: bytes) -> web.StreamResponse:
    if request.path == CHAT_PATH:
        return await _good(request, body)
    delta = {"type": "content_block_delta", "index": 0, "delta": {"text": "Well."}}
    return await _stream(request, json.dumps(delta), json.dumps({"type": "message_stop"}))
