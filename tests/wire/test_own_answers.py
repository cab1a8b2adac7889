"""What the router answers itself: errors with their codes and shapes, health, models, drain."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from router.clock import ManualClock
from router.edge.bounds.limits import EdgeLimits
from router.state.fleet.replica import Description
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import chat, client_of, post
from tests.doubles.scripted_replica import Call, ScriptedReplica, events, stream, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
LIMITS = EdgeLimits(sweep_s=0.01, body_bytes_max=1000, close_s=0.2)


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode()


def declared(n_bytes: int) -> bytes:
    """A head that announces a body which does not follow."""
    return f"POST {CHAT} HTTP/1.1\r\nHost: h\r\nContent-Length: {n_bytes}\r\n\r\n".encode()


async def good(call: Call) -> None:
    await call.send(whole(b"{}"))


CASES = {
    "unknown": (get("/nowhere"), 404, "unknown-path", True),
    "unknown-post": (post(b"{}", path="/v1/nope"), 404, "unknown-path", False),
    "method": (get(CHAT), 405, "method-not-allowed", True),
    "health-post": (post(b"{}", path="/health"), 405, "method-not-allowed", False),
    "not-json": (post(b"{"), 400, "bad-request", True),
    "type": (
        post(b"a=b").replace(b"application/json", b"application/x-www-form-urlencoded"),
        415,
        "bad-content-type",
        False,
    ),
    "encoding": (post(b"{}", extra="Content-Encoding: br\r\n"), 415, "bad-content-type", False),
    "declared-large": (declared(1001), 413, "too-large", False),
    "expected-large": (
        declared(1001).replace(b"Content-L", b"Expect: 100-continue\r\nContent-L"),
        413,
        "too-large",
        False,
    ),
    "chunked-large": (
        b"POST %b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" % CHAT.encode()
        + b"x" * 1001,
        413,
        "too-large",
        False,
    ),
    "header-large": (
        get("/health").replace(b"Host", b"X: " + b"y" * 70_000 + b"\r\nHost"),
        431,
        "headers-too-large",
        False,
    ),
    "upgrade": (
        get("/health").replace(b"Host", b"Connection: Upgrade\r\nUpgrade: h2c\r\nHost"),
        400,
        "upgrade-refused",
        False,
    ),
    "tls": (b"\x16\x03\x01\x00\xa5\x01\x00\x00", 400, "bad-request", False),
    "no-replica": (post(chat()), 503, "no-replica-ready", True),
}


@pytest.mark.parametrize(("request_bytes", "status", "code", "lives"), CASES.values(), ids=CASES)
async def test_errors(
    table: Mapping[str, Dialect], request_bytes: bytes, status: int, code: str, *, lives: bool
) -> None:
    async with (
        front_door(dialects=table, limits=LIMITS) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(request_bytes)
        answer = await client.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (status, code)
        assert answer.headers["content-type"] == "application/json"
        assert len(answer.headers["x-request-id"]) == 32
        error = json.loads(answer.body)["error"]
        assert error["code"] == code
        assert error["message"]
        assert rig.notes.turned[0][0] == code
        assert rig.notes.records == []
        if lives:
            await client.send(get("/health"))
            assert (await client.read()).status == 503
        else:
            assert answer.headers["connection"] == "close"
            assert await client.is_closed()


async def test_retry_after_is_in_whole_seconds(table: Mapping[str, Dialect]) -> None:
    async with front_door(dialects=table) as rig, client_of(rig.port) as client:
        await client.send(post(chat()))
        answer = await client.read()
        assert int(answer.headers["retry-after"]) >= 1


async def test_errors_have_the_shape_of_their_api(table: Mapping[str, Dialect]) -> None:
    async with front_door(dialects=table) as rig, client_of(rig.port) as client:
        for request in (get(MESSAGES), post(b"{", path=MESSAGES), get(MESSAGES + "/batches")):
            await client.send(request)
            answer = json.loads((await client.read()).body)
            assert (answer["type"], answer["error"]["type"] != "") == ("error", True)
        assert [turn[1:] for turn in rig.notes.turned] == [
            ("anthropic-messages", MESSAGES),
            ("anthropic-messages", MESSAGES),
            ("", MESSAGES + "/batches"),
        ]


async def test_health_and_models(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        rig.core.members.described("r0", Description(models=("m/x", "a")))
        await client.send(get("/health") + get("/v1/models?limit=1") + get("/v1/models/m/x"))
        health, models, model = [await client.read() for _ in range(3)]
        assert (health.status, json.loads(health.body)) == (200, {"status": "ok"})
        listed = json.loads(models.body)
        assert listed["object"] == "list"
        assert [one["id"] for one in listed["data"]] == ["a", "m/x"]
        assert json.loads(model.body) == listed["data"][1]
        await client.send(get("/v1/models/m%2Fx"))  # as the OpenAI client writes it
        assert json.loads((await client.read()).body) == listed["data"][1]
        await client.send(get("/v1/models/none"))
        assert (await client.read()).status == 404
        await client.send(get("/health", "HEAD"))
        head = await client.read_until(b"\r\n\r\n")
        assert b"content-length: 15\r\n" in head
        await client.send(get("http://h/health"))
        assert (await client.read()).status == 200


async def test_a_missing_content_type_is_accepted(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        request = post(chat(stream=False)).replace(b"Content-Type: application/json\r\n", b"")
        await client.send(request)
        assert (await client.read()).status == 200


async def test_chunked_requests_are_forwarded_with_their_length(
    table: Mapping[str, Dialect],
) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as client,
    ):
        body = chat(stream=False)
        await client.send(
            b"POST /v1/chat/completions?a=b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"".join(b"1\r\n%c\r\n" % byte for byte in body)
            + b"0\r\nX-Trailer: t\r\n\r\n"
        )
        assert (await client.read()).status == 200
        call = replica.calls[0]
        assert call.head.startswith(b"POST /v1/chat/completions?a=b HTTP/1.1\r\n")
        assert (call.body, call.header("transfer-encoding")) == (body, None)
        assert call.header("x-trailer") is None


@pytest.mark.parametrize("part", [b"POST / HTT", declared(900) + b"{"], ids=["head", "body"])
async def test_a_request_that_does_not_arrive(table: Mapping[str, Dialect], part: bytes) -> None:
    clock = ManualClock()
    async with (
        front_door(dialects=table, limits=LIMITS, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(get("/health") + part)
        assert (await client.read()).status == 503
        await client.send(b"P")
        while not rig.notes.turned:
            clock.advance(61.0)
            await asyncio.sleep(0.02)
        answer = await client.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (408, "request-timeout")
        assert await client.is_closed()


async def test_idle_connections_are_closed(table: Mapping[str, Dialect]) -> None:
    clock = ManualClock()
    async with (
        front_door(dialects=table, limits=LIMITS, clock=clock) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(get("/health"))
        await client.read()
        clock.advance(76.0)
        assert await client.is_closed()
        assert rig.notes.turned == []


async def test_connections_are_bounded(table: Mapping[str, Dialect]) -> None:
    limits = EdgeLimits(sweep_s=0.01, connections_max=1, close_s=0.2)
    async with (
        front_door(dialects=table, limits=limits) as rig,
        client_of(rig.port) as first,
        client_of(rig.port) as second,
    ):
        answer = await second.read()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert await second.is_closed()
        await first.send(get("/health"))
        assert (await first.read()).status == 503


async def test_a_wrong_method_is_told_the_right_one(table: Mapping[str, Dialect]) -> None:
    async with front_door(1, dialects=table) as rig, client_of(rig.port) as client:
        await client.send(get(CHAT))
        assert (await client.read()).headers["allow"] == "POST"
        await client.send(get("/v1/models", "PUT"))
        assert (await client.read()).headers["allow"] == "GET, HEAD"


async def test_a_drain_lets_answers_end(table: Mapping[str, Dialect]) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def script(call: Call) -> None:
        reached.set()
        await go_on.wait()
        await call.send(stream(events("end")))

    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table) as rig,
        client_of(rig.port) as busy,
        client_of(rig.port) as idle,
        client_of(rig.port) as late,
    ):
        await busy.send(post(chat()))
        await reached.wait()
        head, _, body = post(chat(), extra="Expect: 100-continue\r\n").partition(b"\r\n\r\n")
        await late.send(head + b"\r\n\r\n")
        await late.read_until(b"\r\n\r\n")
        await idle.send(get("/health"))
        await idle.read()
        stopping = asyncio.get_running_loop().create_task(rig.door.stop())
        assert await idle.is_closed()
        await late.send(body)
        refused = await late.read()
        assert (refused.status, refused.headers["x-homeport-error"]) == (503, "shutting-down")
        go_on.set()
        answer = await busy.read()
        assert (answer.body, answer.headers["connection"]) == (events("end"), "close")
        await stopping
        assert rig.door.is_draining


async def test_a_drain_is_bounded(table: Mapping[str, Dialect]) -> None:
    reached, gone = asyncio.Event(), asyncio.Event()

    async def script(call: Call) -> None:
        reached.set()
        await call.gone()
        gone.set()

    limits = EdgeLimits(sweep_s=0.01, drain_s=0.1)
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, limits=limits) as rig,
        client_of(rig.port) as client,
    ):
        await client.send(post(chat()))
        await reached.wait()
        await rig.door.stop()
        await gone.wait()
        record = await rig.notes.wait_for(1)
        assert (record.outcome, record.error_code) == ("failed", "shutting-down")
        assert (await client.read()).headers["x-homeport-error"] == "shutting-down"


async def test_a_fault_of_the_router_is_answered(
    table: Mapping[str, Dialect], caplog: pytest.LogCaptureFixture
) -> None:
    """A planted fault: the policy breaks its contract. The request is answered 500 and logged."""
    async with front_door(1, dialects=table) as rig, client_of(rig.port) as client:
        rig.policy.is_broken = True
        await client.send(post(chat()))
        answer = await client.read()
        assert (answer.status, answer.headers["x-homeport-error"]) == (500, "internal")
        assert "request-failed" in caplog.text
        await client.send(get("/health"))
        assert (await client.read()).status == 200
