"""Tenants at the front door, over the wire: who comes in, how much, and what a replica is told."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from router.clock import ManualClock
from router.edge.bounds.limits import EdgeLimits, HoldLimits
from router.edge.entry.credentials import EdgeSecurity, ReplicaKeys
from router.state.fleet.replica import Description, ReplicaSpec
from router.state.health.table import Event
from router.tenants.gate import Gate
from router.tenants.keys import digest_of
from router.tenants.model import Tenant
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import RawClient, chat, client_of, post
from tests.doubles.scripted_replica import Call, ScriptedReplica, events, stream, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from router.dialect.base import Dialect
    from tests.doubles.raw_client import Answer

KEYS = {name: f"hp-key-of-tenant-{name}-0123456789" for name in ("a", "b", "limited")}
CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"


def tenant(name: str, **facts: object) -> Tenant:
    return Tenant(name, (digest_of(KEYS[name].encode()),), **facts)  # type: ignore[arg-type]


def guarded(*tenants: Tenant, is_isolated: bool = False, **more: object) -> EdgeSecurity:
    gate = Gate(tenants or (tenant("a"), tenant("b")), 0.0, is_isolated=is_isolated)
    return EdgeSecurity(gate, **more)  # type: ignore[arg-type]


def bearer(name: str) -> str:
    return f"Authorization: Bearer {KEYS[name]}\r\n"


def get(path: str, extra: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: h\r\n{extra}\r\n".encode()


async def good(call: Call) -> None:
    await call.send(whole(b'{"object":"chat.completion","choices":[]}'))


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop run until something holds."""
    while not holds():  # noqa: ASYNC110  (nobody sets an event for what is only counted)
        await asyncio.sleep(0)


async def asked(client: RawClient, request: bytes) -> Answer:
    await client.send(request)
    return await client.read()


@pytest.mark.parametrize(
    "extra",
    [
        "",
        "Authorization: Bearer hp-somebody-elses-key-000000\r\n",
        "Authorization: Basic aHA6\r\n",
        "x-api-key: \r\n",
        "X-Api-Key: hp-somebody-elses-key-000000\r\n",
    ],
)
async def test_without_a_valid_key_all_answers_are_alike(
    table: Mapping[str, Dialect], extra: str
) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, security=guarded()) as rig,
    ):
        said = set()
        for request in (
            post(chat(), extra=extra),
            post(b"{", extra=extra),
            post(b"{}", path="/nowhere", extra=extra),
            get(CHAT, extra),
            get("/v1/models", extra),
            get("/nowhere", extra),
        ):
            async with client_of(rig.port) as client:
                answer = await asked(client, request)
            assert answer.headers["x-homeport-error"] == "bad-api-key"
            assert answer.headers["www-authenticate"] == 'Bearer realm="homeport"'
            said.add((answer.status, answer.body))
        assert len(said) == 1
        status, body = said.pop()
        assert status == 401
        assert json.loads(body)["error"]["code"] == "bad-api-key"
        async with client_of(rig.port) as client:
            answer = await asked(client, post(chat(), path=MESSAGES, extra=extra))
        assert answer.status == 401
        assert json.loads(answer.body)["error"]["type"] == "authentication_error"
        async with client_of(rig.port) as client:
            assert (await asked(client, get("/health"))).status == 200
        assert not replica.calls
        assert not rig.notes.records


async def test_a_refusal_comes_before_the_body(table: Mapping[str, Dialect]) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: h\r\nContent-Length: 400000\r\n"
    async with front_door(dialects=table, security=guarded()) as rig:
        for extra in ("", "Expect: 100-continue\r\n"):
            async with client_of(rig.port) as client:
                answer = await asked(client, f"{head}{extra}\r\n".encode())
                assert (answer.status, answer.is_whole) == (401, True)
                assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("extra", [bearer("a"), f"x-api-key: {KEYS['a']}\r\n"])
async def test_the_replica_never_sees_a_clients_key(
    table: Mapping[str, Dialect], extra: str
) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, security=guarded()) as rig,
        client_of(rig.port) as client,
    ):
        assert (await asked(client, post(chat(stream=False), extra=extra))).status == 200
        assert KEYS["a"] not in replica.calls[0].head.decode()
        record = rig.notes.records[0]
        assert (record.tenant, record.session_key[:2]) == ("a", "a/")


async def test_replicas_get_their_own_keys(table: Mapping[str, Dialect]) -> None:
    security = EdgeSecurity(keys=ReplicaKeys("fleet-key"))
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, security=security) as rig,
        client_of(rig.port) as client,
    ):
        request = post(chat(stream=False), extra="Authorization: Bearer mine\r\n")
        assert (await asked(client, request)).status == 200
        own = ReplicaSpec("r0", "127.0.0.1", replica.port, api_key="its-own-key")
        assert "its-own-key" not in repr(own)
        rig.core.members.join(own, 0.0)
        rig.core.members.heard("r0", Event.PROBE_OK, 0.0)
        assert (await asked(client, request)).status == 200
        keys = [call.header("authorization") for call in replica.calls]
        assert keys == ["Bearer fleet-key", "Bearer its-own-key"]
        assert all(call.head.lower().count(b"authorization") == 1 for call in replica.calls)


async def test_a_clients_key_is_passed_on_only_where_that_is_wanted(
    table: Mapping[str, Dialect],
) -> None:
    security = EdgeSecurity(keys=ReplicaKeys(is_client_forwarded=True))
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, security=security) as rig,
        client_of(rig.port) as client,
    ):
        request = post(chat(stream=False), extra="Authorization: Bearer mine\r\nX-Api-Key: m\r\n")
        assert (await asked(client, request)).status == 200
        call = replica.calls[0]
        assert (call.header("authorization"), call.header("x-api-key")) == ("Bearer mine", "m")


async def test_models_that_are_not_allowed(table: Mapping[str, Dialect]) -> None:
    security = guarded(tenant("a", models=("m*",)), tenant("b", models=("other",)))
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, security=security) as rig,
        client_of(rig.port) as client,
    ):
        rig.core.members.described("r0", Description(models=("m", "m:x", "other")))
        refused = await asked(client, post(chat(), extra=bearer("b")))
        assert (refused.status, refused.headers["x-homeport-error"]) == (403, "model-not-allowed")
        error = json.loads(refused.body)["error"]
        assert "'m'" in error["message"]
        assert "other" in error["message"]
        assert (await asked(client, post(chat(stream=False), extra=bearer("a")))).status == 200
        listed = json.loads((await asked(client, get("/v1/models", bearer("a")))).body)
        assert [row["id"] for row in listed["data"]] == ["m", "m:x"]
        hidden = await asked(client, get("/v1/models/other", bearer("a")))
        assert hidden.status == 404
        assert rig.notes.turned == [
            ("model-not-allowed", "openai-chat", CHAT),
            ("unknown-model", "", "/v1/models/other"),
        ]


async def test_a_model_is_allowed_by_its_alias_or_by_what_that_stands_for(
    table: Mapping[str, Dialect],
) -> None:
    security = guarded(tenant("a", models=("m",)), tenant("b", models=("nick",)))
    names = {"aliases": {"nick": "m", "nack": "other"}}
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, names=names, security=security) as rig,
        client_of(rig.port) as client,
    ):
        rig.core.members.described("r0", Description(models=("m", "other")))
        for name, model, status in (
            ("a", "m", 200),
            ("a", "nick", 200),
            ("a", "nack", 403),
            ("a", "nobody", 403),
            ("b", "nick", 200),
            ("b", "m", 403),
        ):
            body = chat(stream=False).replace(b'"m"', b'"%b"' % model.encode(), 1)
            answer = await asked(client, post(body, extra=bearer(name)))
            assert (name, model, answer.status) == (name, model, status)
        listed = json.loads((await asked(client, get("/v1/models", bearer("a")))).body)
        assert [row["id"] for row in listed["data"]] == ["m", "nick"]


async def test_the_engines_own_paths_are_for_tenants_that_may_use_them(
    table: Mapping[str, Dialect],
) -> None:
    security = guarded(tenant("a", other_paths=True), tenant("b"))
    paths = ("/v1/loads",)
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, engine_paths=paths, security=security) as rig,
        client_of(rig.port) as client,
    ):
        assert (await asked(client, get("/v1/loads", bearer("a")))).status == 200
        refused = await asked(client, get("/v1/loads", bearer("b")))
        assert (refused.status, refused.headers["x-homeport-error"]) == (403, "path-not-allowed")
        assert (await asked(client, get("/v1/loads"))).status == 401
        assert len(replica.calls) == 1


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_requests_a_minute(table: Mapping[str, Dialect], path: str) -> None:
    clock = ManualClock(1000.0)
    gate = Gate([tenant("limited", requests_per_min_max=2)], clock(), is_isolated=False)
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, clock=clock, security=EdgeSecurity(gate)) as rig,
    ):
        request = post(chat(stream=False), path=path, extra=bearer("limited"))
        async with client_of(rig.port) as client:
            assert [(await asked(client, request)).status for _ in range(2)] == [200, 200]
            answer = await asked(client, request)
        assert (answer.status, answer.headers["x-homeport-error"]) == (429, "tenant-limit")
        assert answer.headers["retry-after"] == "30"
        error = json.loads(answer.body)["error"]
        assert error["type"] == "rate_limit_error"
        assert "2 requests a minute" in error["message"]
        clock.advance(30.0)
        async with client_of(rig.port) as client:
            assert (await asked(client, request)).status == 200
        assert len(replica.calls) == 3


async def test_prompt_tokens_a_minute(table: Mapping[str, Dialect]) -> None:
    clock = ManualClock(1000.0)
    limited = tenant("limited", prompt_tokens_per_min_max=1000)
    gate = Gate([limited], clock(), is_isolated=False)
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, clock=clock, security=EdgeSecurity(gate)) as rig,
    ):
        large = post(chat(stream=False, text="word " * 4000), extra=bearer("limited"))
        async with client_of(rig.port) as client:
            assert (await asked(client, large)).status == 200
            answer = await asked(client, post(chat(), extra=bearer("limited")))
        assert answer.status == 429
        assert 60 <= int(answer.headers["retry-after"]) <= 600
        clock.advance(float(answer.headers["retry-after"]))
        async with client_of(rig.port) as client:
            request = post(chat(stream=False), extra=bearer("limited"))
            assert (await asked(client, request)).status == 200


async def test_requests_in_flight_are_counted_down_on_every_way_out(
    table: Mapping[str, Dialect],
) -> None:
    hold = asyncio.Event()

    async def script(call: Call) -> None:
        if call.number == 0:
            await call.send(stream(events("x")))
        elif call.number == 1:
            await call.gone()
        else:
            await hold.wait()
            await call.send(whole(b"{}"))

    security = guarded(tenant("limited", inflight_max=1))
    assert security.gate is not None
    account = security.gate.accounts["limited"]
    extra = bearer("limited")
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, security=security) as rig,
    ):
        async with client_of(rig.port) as client:
            assert (await asked(client, post(chat(), extra=extra))).is_whole
            assert account.inflight == 0
            assert (await asked(client, post(b"{", extra=extra))).status == 400
            assert account.inflight == 0
            await client.send(post(chat(), extra=extra))
            await rig.notes.wait_for(1)
            await until(lambda: len(replica.calls) == 2)
            assert account.inflight == 1
        await rig.notes.wait_for(2)
        assert account.inflight == 0
        async with client_of(rig.port) as client, client_of(rig.port) as half:
            await half.send(post(chat(), extra=extra)[:-5])
            await until(lambda: account.inflight == 1)
            answer = await asked(client, post(chat(), extra=extra))
            assert (answer.status, answer.headers["x-homeport-error"]) == (429, "tenant-limit")
            assert int(answer.headers["retry-after"]) >= 1
        await until(lambda: account.inflight == 0)
        hold.set()
        async with client_of(rig.port) as client:
            assert (await asked(client, post(chat(stream=False), extra=extra))).status == 200
        assert account.inflight == 0


async def test_equal_names_of_two_tenants_are_two_sessions(table: Mapping[str, Dialect]) -> None:
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, security=guarded()) as rig,
        client_of(rig.port) as client,
    ):
        for name in ("a", "b", "a"):
            extra = f"{bearer(name)}X-Session-Id: same\r\n"
            assert (await asked(client, post(chat(stream=False), extra=extra))).status == 200
        assert [record.session_key for record in rig.notes.records] == [
            "a/same",
            "b/same",
            "a/same",
        ]
        assert rig.core.pins.get("same") is None
        for name in ("a", "b"):  # nor do prompts that name no session
            await asked(client, post(chat(stream=False, text="unnamed"), extra=bearer(name)))
        keys = [record.session_key for record in rig.notes.records[-2:]]
        assert [key[:2] for key in keys] == ["a/", "b/"]
        assert replica.calls[-1].body == replica.calls[-2].body


async def test_isolated_tenants_have_salts_and_chains_of_their_own(
    table: Mapping[str, Dialect],
) -> None:
    security = guarded(is_isolated=True)
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, security=security) as rig,
        client_of(rig.port) as client,
    ):
        text = "shared words " * 2000
        for name in ("a", "a", "b"):
            request = post(chat(stream=False, text=text), extra=bearer(name))
            assert (await asked(client, request)).status == 200
        salts = [json.loads(call.body)["cache_salt"] for call in replica.calls]
        assert salts[0] == salts[1] != salts[2]
        predicted = [record.predicted_cached_tokens for record in rig.notes.records]
        assert predicted[0] == predicted[2] == 0 < predicted[1]
        refused = await asked(client, post(chat(), path=MESSAGES, extra=bearer("a")))
        assert (refused.status, refused.headers["x-homeport-error"]) == (403, "path-not-allowed")
        assert json.loads(refused.body)["type"] == "error"


async def test_a_revoked_key_stops_at_once_and_what_runs_goes_on(
    table: Mapping[str, Dialect],
) -> None:
    go_on = asyncio.Event()

    async def script(call: Call) -> None:
        await go_on.wait()
        await call.send(whole(b"{}"))

    security = guarded()
    assert security.gate is not None
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, security=security) as rig,
        client_of(rig.port) as running,
        client_of(rig.port) as client,
    ):
        await running.send(post(chat(stream=False), extra=bearer("a")))
        await until(lambda: bool(replica.calls))
        security.gate.replace([tenant("b")], 0.0)
        assert (await asked(client, get("/v1/models", bearer("a")))).status == 401
        assert (await asked(client, get("/v1/models", bearer("b")))).status == 200
        go_on.set()
        assert (await running.read()).status == 200
        assert (await asked(running, get("/v1/models", bearer("a")))).status == 401


async def test_codex_waits_for_its_tenants_limit_and_never_sees_429(
    table: Mapping[str, Dialect],
) -> None:
    clock = ManualClock(1000.0)
    gate = Gate([tenant("limited", requests_per_min_max=1)], clock(), is_isolated=False)
    request = post(chat(stream=False), extra=bearer("limited") + "User-Agent: codex_cli_rs/1\r\n")
    for wait_s in (120.0, 0.0):
        limits = EdgeLimits(sweep_s=0.01, drain_s=2.0, hold=HoldLimits(unretried_s=wait_s))
        async with (
            ScriptedReplica(good) as replica,
            front_door(
                replica.port,
                dialects=table,
                limits=limits,
                clock=clock,
                security=EdgeSecurity(gate),
            ) as rig,
            client_of(rig.port) as client,
        ):
            clock.advance(60.0)
            assert (await asked(client, request)).status == 200
            await client.send(request)
            if wait_s:
                await until(lambda: rig.notes.pressure["held"] == 1)
                clock.advance(61.0)
                assert (await client.read()).status == 200
                assert len(replica.calls) == 2
            else:
                answer = await client.read()
                assert (answer.status, answer.headers["x-homeport-error"]) == (503, "tenant-limit")
