"""A kept response is its tenant's alone, over the wire."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from router.edge.entry.credentials import EdgeSecurity
from router.tenants.gate import Gate
from router.tenants.keys import digest_of
from router.tenants.model import Tenant
from tests.doubles.door_rig import front_door
from tests.doubles.raw_client import client_of, post
from tests.doubles.scripted_replica import Call, ScriptedReplica, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.dialect.base import Dialect

RESPONSES = "/v1/responses"
KEPT_ID = "resp_0123456789abcdef"
KEYS = {name: f"hp-key-of-tenant-{name}-0123456789" for name in ("a", "b")}


async def test_it_is_shown_and_gone_on_from_by_its_tenant_and_by_nobody_else(
    table: Mapping[str, Dialect],
) -> None:
    async def script(call: Call) -> None:
        answer = {"id": KEPT_ID, "object": "response", "status": "completed", "store": True}
        await call.send(whole(json.dumps(answer).encode()))

    tenants = [Tenant(name, (digest_of(key.encode()),)) for name, key in KEYS.items()]
    security = EdgeSecurity(Gate(tuple(tenants), 0.0, is_isolated=False))
    async with (
        ScriptedReplica(script) as replica,
        front_door(replica.port, dialects=table, security=security) as rig,
        client_of(rig.port) as client,
    ):

        async def status(name: str, body: dict[str, object] | None = None) -> int:
            extra = f"Authorization: Bearer {KEYS[name]}\r\n"
            if body is None:
                head = f"GET {RESPONSES}/{KEPT_ID} HTTP/1.1\r\nHost: h\r\n{extra}\r\n"
                await client.send(head.encode())
            else:
                sent = json.dumps({"model": "m", "input": "hi", **body}).encode()
                await client.send(post(sent, path=RESPONSES, extra=extra))
            return (await client.read()).status

        goes_on: dict[str, object] = {"previous_response_id": KEPT_ID}
        assert await status("a", {"store": True}) == 200
        assert [await status("a"), await status("a", goes_on)] == [200, 200]
        assert [await status("b"), await status("b", goes_on)] == [404, 404]
        assert len(replica.calls) == 3
