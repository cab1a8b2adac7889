"""Overload, cancellation, drain, refusals and planned faults of the emulated replica."""

from __future__ import annotations

import asyncio
import io
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from replica.hardware.profiles import profile_named
from sim.live.emulator import EmulatedReplica, EmulatorOptions, sized, start
from sim.live.serving.faults import GARBAGE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
USER = [{"role": "user", "content": "x"}]
FACTS = sized(profile_named("b200-tp4-fp8"), max_running_requests=1)


def body(*, stream: bool = False, output_tokens: int = 5, **more: object) -> dict[str, Any]:
    asked = {"homeport_emulate": {"output_tokens": output_tokens}}
    return {"model": "m", "messages": USER, "stream": stream, **asked, **more}


LONG = body(stream=True, output_tokens=200_000)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.002)
    pytest.fail("the condition was not met in time")


@pytest.fixture
async def replica() -> AsyncIterator[EmulatedReplica]:
    options = EmulatorOptions(
        facts=FACTS, time_scale=20.0, max_queued_requests=1, health_check_s=0.0
    )
    async with start(options) as replicas:
        yield replicas[0]


@pytest.fixture
async def http(replica: EmulatedReplica) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(replica.url) as session:
        yield session


async def test_a_full_queue_is_told_in_each_form(
    replica: EmulatedReplica, http: aiohttp.ClientSession
) -> None:
    async with http.post(CHAT, json=LONG) as running, asyncio.TaskGroup() as group:
        assert running.status == 200
        waiting = group.create_task(http.post(CHAT, json=LONG))
        await until(lambda: replica.loads.waiting == 1)

        async with http.post(CHAT, json=body()) as response:
            assert response.status == 503
            text = "The request queue is full."
            assert await response.json() == {
                "object": "error",
                "message": text,
                "type": "503",
                "param": None,
                "code": 503,
            }
        async with http.post(CHAT, json=body(stream=True)) as response:
            assert response.status == 200
            event, done, _ = (await response.text()).split("\n\n")
            error = json.loads(event.removeprefix("data: "))["error"]
            assert error == {
                "object": "error",
                "message": text,
                "type": "SERVICE_UNAVAILABLE",
                "param": None,
                "code": 503,
            }
            assert done == "data: [DONE]"
        async with http.post(MESSAGES, json=body(max_tokens=9)) as response:
            assert response.status == 503
            error = (await response.json())["error"]
            assert error == {"type": "overloaded_error", "message": "Internal server error"}
        async with http.post(MESSAGES, json=body(stream=True, max_tokens=9)) as response:
            assert response.status == 200
            start, failed, stop = (await response.text()).strip().split("\n\n")
            assert start.startswith("event: message_start\n")
            error = json.loads(failed.removeprefix("event: error\ndata: "))["error"]
            assert error == {"type": "overloaded_error", "message": text}
            assert stop.startswith("event: message_stop\n")
        waiting.cancel()
    await until(lambda: replica.loads.waiting == 0)


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_client_that_leaves_ends_the_generation(
    replica: EmulatedReplica, http: aiohttp.ClientSession, *, is_stream: bool
) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(http.post(CHAT, json={**LONG, "stream": is_stream}))
        await until(lambda: replica.loads.running == 1)
        task.cancel()
    if is_stream and not task.cancelled():
        task.result().close()
    await until(lambda: replica.loads.running == 0)
    assert replica.loads.total_aborted == 1


async def test_abort_takes_along_the_ids_that_begin_so(http: aiohttp.ClientSession) -> None:
    async with http.post(CHAT, json={**LONG, "rid": "abcdef"}) as response:
        async with http.post(CHAT, json={**LONG, "rid": "abcdef"}) as twice:
            assert twice.status == 400
            assert "Duplicate request ID" in (await twice.json())["message"]
        for rid in ("zzz", "abc", "abcdef"):  # only the id of a live request has any effect
            assert b"[DONE]" not in await response.content.readany()
            async with http.post("/abort_request", json={"rid": rid}) as aborted:
                assert aborted.status == 200
        events = (await response.text()).split("\n\n")
    assert json.loads(events[-3].removeprefix("data: "))["choices"][0]["finish_reason"] == "abort"
    assert events[-2] == "data: [DONE]"


async def test_a_drain_ends_when_the_last_request_has(
    replica: EmulatedReplica, http: aiohttp.ClientSession
) -> None:
    async with http.get("/ready") as ready, http.get("/health") as health:
        assert (ready.status, health.status) == (200, 200)
        assert await health.read() == b""
    async with asyncio.TaskGroup() as group:
        async with http.post(CHAT, json=LONG) as running:
            drained = group.create_task(replica.drain())
            await asyncio.sleep(0)
            async with http.get("/ready") as ready, http.get("/health") as health:
                assert (ready.status, health.status) == (503, 503)
            assert not drained.done()
            late = group.create_task(http.post(CHAT, json=body()))
            await until(lambda: replica.loads.waiting == 1)
            running.close()
        async with await late as response:
            assert response.status == 200
            await response.read()


@pytest.mark.parametrize(
    ("path", "content", "headers"),
    [
        (CHAT, b"{", {}),
        (CHAT, b"{}", {}),
        (MESSAGES, b"{}", {}),
        (CHAT, json.dumps(body()).encode(), {"Content-Type": "text/plain"}),
        (CHAT, json.dumps(body(max_tokens=300_000)).encode(), {}),
        (CHAT, json.dumps(body(messages=[])).encode(), {}),
        (MESSAGES, json.dumps(body(stream=True, max_tokens=0)).encode(), {}),
        ("/v1/tokenize", b"{}", {}),
    ],
)
async def test_bad_requests_are_refused(
    http: aiohttp.ClientSession, path: str, content: bytes, headers: dict[str, str]
) -> None:
    headers = {"Content-Type": "application/json", **headers}
    async with http.post(path, data=content, headers=headers) as response:
        answer = await response.json()
        assert response.status == 400
    if path == MESSAGES:
        assert answer["error"]["type"] == "invalid_request_error"
    else:
        assert answer["object"] == "error"
        assert answer["code"] == 400


async def test_a_prompt_beyond_the_context_is_refused_before_any_200(
    http: aiohttp.ClientSession,
) -> None:
    long = [{"role": "user", "content": "x" * 1_100_000}]
    content = io.BytesIO(json.dumps(body(stream=True, messages=long)).encode())
    headers = {"Content-Type": "application/json"}
    async with http.post(CHAT, data=content, headers=headers) as response:
        assert response.status == 400
        assert "context length" in (await response.json())["message"]


async def test_unknown_paths_and_methods(http: aiohttp.ClientSession) -> None:
    async with http.get("/get_load") as response:
        assert (response.status, await response.json()) == (404, {"detail": "Not Found"})
    async with http.get(CHAT) as response:
        expected = {"detail": "Method Not Allowed"}
        assert (response.status, await response.json()) == (405, expected)


async def test_a_key_guards_all_but_health_and_metrics() -> None:
    options = EmulatorOptions(facts=FACTS, api_key="secret", health_check_s=0.0)
    async with start(options) as replicas, aiohttp.ClientSession(replicas[0].url) as http:
        for path in ("/v1/models", "/v1/loads", "/server_info"):
            async with http.get(path) as response:
                expected = {"error": "Unauthorized"}
                assert (response.status, await response.json()) == (401, expected)
            headers = {"Authorization": "Bearer secret"}
            async with http.get(path, headers=headers) as response:
                assert response.status == 200
        for path in ("/health", "/ready", "/metrics"):
            async with http.get(path) as response:
                assert response.status == 200


async def plan(http: aiohttp.ClientSession, **fault: object) -> None:
    async with http.post("/emulator/fault", json=fault) as response:
        assert response.status == 200


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_planned_errors_strike_as_often_as_planned(
    http: aiohttp.ClientSession, path: str
) -> None:
    await plan(http, kind="status", status=500, count=2)
    statuses = []
    for _ in range(3):
        async with http.post(path, json=body(max_tokens=90)) as response:
            statuses.append(response.status)
    assert statuses == [500, 500, 200]

    await plan(http, kind="error-event", status=503, after_events=2)
    long = body(stream=True, output_tokens=9000, max_tokens=9000)
    async with http.post(path, json=long) as response:
        assert response.status == 200
        events = (await response.text()).strip().split("\n\n")
    # A message closes the block that is open, tells the error, and stops.
    assert len(events) == (4 if path == CHAT else 5)
    assert "planned fault" in events[-2]


@pytest.mark.parametrize("after_events", [0, 2])
async def test_a_planned_reset_is_one(
    replica: EmulatedReplica, http: aiohttp.ClientSession, after_events: int
) -> None:
    await plan(http, kind="reset", after_events=after_events)
    with pytest.raises((aiohttp.ClientOSError, aiohttp.ClientPayloadError)):
        async with http.post(CHAT, json=body(stream=True, output_tokens=900)) as response:
            await response.read()
    await until(lambda: replica.loads.running == 0)


@pytest.mark.parametrize("after_events", [0, 2])
async def test_planned_garbage_is_no_http(
    replica: EmulatedReplica, http: aiohttp.ClientSession, after_events: int
) -> None:
    await plan(http, kind="garbage", after_events=after_events)
    content = json.dumps(body(stream=True, output_tokens=900)).encode()
    host, _, port = replica.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    async with asyncio.timeout(10):
        answer = await reader.read()  # to the end: the connection is closed after the garbage
    writer.close()
    assert answer.count(b"data: ") == after_events
    assert answer.endswith(GARBAGE)
    await until(lambda: replica.loads.running == 0)


async def test_a_planned_stall_goes_silent_until_the_client_leaves(
    replica: EmulatedReplica, http: aiohttp.ClientSession
) -> None:
    await plan(http, kind="stall", after_events=1)
    async with http.post(CHAT, json=body(stream=True, output_tokens=9)) as response:
        first = await response.content.readuntil(b"\n\n")
        assert b'"role":"assistant"' in first
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await response.content.readany()
        response.close()
    async with asyncio.timeout(5):
        await replica.drain()


async def test_unknown_faults_are_refused_and_planned_ones_withdrawn(
    http: aiohttp.ClientSession,
) -> None:
    async with http.post("/emulator/fault", json={"kind": "flood"}) as response:
        assert response.status == 400
    await plan(http, kind="reset", count=5)
    await plan(http, kind="reset", count=0)
    async with http.post(CHAT, json=body()) as response:
        assert response.status == 200
