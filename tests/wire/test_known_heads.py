"""A connection whose heads come again: each request is judged and told of as if it were the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.edge.bounds.limits import EdgeLimits
from router.edge.entry.credentials import EdgeSecurity
from router.tenants.gate import Gate
from router.tenants.keys import digest_of
from router.tenants.model import Tenant
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import RawClient, chat, client_of, post
from tests.doubles.scripted_replica import Call, ScriptedReplica, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect
    from tests.doubles.raw_client import Answer

KEY = "hp-key-of-tenant-a-0123456789"
BEARER = f"Authorization: Bearer {KEY}\r\n"


async def good(call: Call) -> None:
    await call.send(whole(b'{"object":"chat.completion","choices":[]}' + b" " * call.number))


async def asked(client: RawClient, text: str, extra: str = "") -> Answer:
    await client.send(post(chat(stream=False, text=text), extra=extra))
    return await client.read()


def told(call: Call) -> list[str]:
    """The lines that a replica got and that are no request's own."""
    own = ("content-length:", "x-request-id:")
    return [line for line in call.head.decode().split("\r\n") if not line.startswith(own)]


async def test_what_a_replica_is_told(table: Mapping[str, Dialect]) -> None:
    async with ScriptedReplica(good) as replica, front_door(replica.port, dialects=table) as rig:
        texts = ["short", "of another length", "", "x" * 300_000]
        for extra in ("", "X-Session-Id: s\r\nX-A: b\r\n", "X-Request-Id: mine\r\n"):
            async with client_of(rig.port) as client:
                answers = [await asked(client, text, extra) for text in texts]
            calls, replica.calls[:] = replica.calls[:], []
            assert [answer.status for answer in answers] == [200] * 4
            assert [call.body for call in calls] == [chat(stream=False, text=t) for t in texts]
            assert all(told(call) == told(calls[0]) for call in calls)
            ids = [call.header("x-request-id") for call in calls]
            assert ids == [answer.headers["x-request-id"] for answer in answers]
            assert len(set(ids)) == (1 if "mine" in extra else 4)


async def test_a_key_that_is_revoked(table: Mapping[str, Dialect]) -> None:
    tenant = Tenant("a", (digest_of(KEY.encode()),))
    gate = Gate([tenant], 0.0, is_isolated=False)
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, security=EdgeSecurity(gate)) as rig,
        client_of(rig.port) as client,
    ):
        assert [(await asked(client, "x", BEARER)).status for _ in range(3)] == [200] * 3
        assert gate.accounts["a"].inflight == 0
        gate.replace([Tenant("b", tenant.digests)], 0.0)
        assert (await asked(client, "x", BEARER)).status == 200
        gate.replace([], 0.0)
        assert (await asked(client, "x", BEARER)).status == 401
        assert len(replica.calls) == 4
    assert [record.tenant for record in rig.notes.records] == ["a"] * 3 + ["b"]


async def test_a_body_that_is_too_large(table: Mapping[str, Dialect]) -> None:
    limits = EdgeLimits(body_bytes_max=10_000)
    async with (
        ScriptedReplica(good) as replica,
        front_door(replica.port, dialects=table, limits=limits) as rig,
        client_of(rig.port) as client,
    ):
        assert [(await asked(client, "x")).status for _ in range(3)] == [200] * 3
        assert (await asked(client, "x" * 10_000)).status == 413
        assert len(replica.calls) == 3
