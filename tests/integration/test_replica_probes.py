"""Probes against replicas that answer oddly: they go on asking, and believe nothing absurd."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from router.clock import now_s
from router.control.observe.probes import Probes
from router.core import RouterCore
from router.edge.entry.tls import ServerTls, TlsFiles, client_context
from router.policy import registry
from router.state.fleet.replica import ReplicaSpec
from router.state.health.table import State
from tests.doubles.certificates import Authority

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from router.state.fleet.replica import Replica


class OddReplica:
    """Answers what the test says; ``asked`` is set by each request for its load."""

    def __init__(self) -> None:
        self.ready_status = 200
        self.loads = b"{}"
        self.info = b"{}"
        self.models = b"{}"
        self.asked = asyncio.Event()
        self.keys: set[str | None] = set()

    async def ready(self, _: web.Request) -> web.Response:
        if self.ready_status == 302:
            raise web.HTTPFound("/elsewhere")
        return web.Response(status=self.ready_status)

    async def load(self, request: web.Request) -> web.Response:
        self.keys.add(request.headers.get("authorization"))
        self.asked.set()
        return web.Response(body=self.loads, content_type="application/json")

    async def server_info(self, _: web.Request) -> web.Response:
        return web.Response(body=self.info, content_type="application/json")

    async def served(self, _: web.Request) -> web.Response:
        return web.Response(body=self.models, content_type="application/json")

    async def elsewhere(self, _: web.Request) -> web.Response:
        return web.Response()


@contextlib.asynccontextmanager
async def probed(
    odd: OddReplica,
    *,
    key: str | None = None,
    own_key: str | None = None,
    serves: ssl.SSLContext | None = None,
    believes: ssl.SSLContext | None = None,
) -> AsyncIterator[Replica]:
    """The replica as a router that probes it all the time believes it to be.

    The router has ``key`` for the fleet and ``own_key`` for this replica, which ``serves`` TLS.
    """
    app = web.Application()
    app.router.add_get("/ready", odd.ready)
    app.router.add_get("/elsewhere", odd.elsewhere)
    app.router.add_get("/v1/loads", odd.load)
    app.router.add_get("/server_info", odd.server_info)
    app.router.add_get("/v1/models", odd.served)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serves).start()
    core = RouterCore(registry.make("home"), random.Random(1))
    port, is_tls = runner.addresses[0][1], serves is not None
    spec = ReplicaSpec("r", "127.0.0.1", port, is_tls=is_tls, api_key=own_key)
    replica = core.members.join(spec, now_s())
    probes = Probes(
        core,
        interval_s=0.02,
        now_s=now_s,
        dice=random.Random(1),
        describe_s=0.05,
        api_key=key,
        tls=believes,
    )
    try:
        await probes.start()
        async with asyncio.timeout(20):
            yield replica
    finally:
        await probes.stop()
        await runner.cleanup()


async def until(holds: Callable[[], bool]) -> None:
    """Another task makes it true."""
    while not holds():  # noqa: ASYNC110  (the probes have no event to wait on)
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    "loads",
    [
        b"[" * 5_000,
        b"not json",
        b'{"loads": 7}',
        b'{"loads": [1, null]}',
        b'{"loads": [{"num_running_reqs": 1e400}]}',
        b'{"loads": [{"num_running_reqs": "many", "num_waiting_reqs": true}]}',
        b"\xff\xfe",
        b'{"x": "' + b"y" * 2_000_000 + b'"}',
    ],
    ids=lambda body: repr(body[:24]),
)
async def test_an_odd_load_report_neither_ends_the_probing_nor_counts(loads: bytes) -> None:
    odd = OddReplica()
    odd.loads = loads
    async with probed(odd) as replica:
        odd.asked.clear()
        await odd.asked.wait()
        assert replica.state is State.READY
        assert replica.inflight == 0
        odd.ready_status = 503
        await until(lambda: replica.state is State.NOT_READY)
        odd.ready_status = 200
        await until(lambda: replica.state is State.READY)


async def test_an_absurd_count_is_bounded() -> None:
    odd = OddReplica()
    odd.loads = b'{"loads": [{"num_running_reqs": 1e300}]}'
    async with probed(odd) as replica:
        await until(lambda: replica.inflight > 0)
        assert replica.inflight == 10**12


@pytest.mark.parametrize(
    ("row", "used_ratio"),
    [
        (b'"token_usage": 0.25', 0.25),
        (b'"token_usage": 7.5', 1.0),
        (b'"token_usage": -1', 0.0),
        (b'"token_usage": true, "num_used_tokens": 5, "max_total_num_tokens": 20', 0.25),
        (b'"num_used_tokens": 30, "max_total_num_tokens": 20', 1.0),
        (b'"num_used_tokens": 30', 0.0),
    ],
)
async def test_the_share_of_tokens_in_use_is_read_of_every_rank(
    row: bytes, used_ratio: float
) -> None:
    odd = OddReplica()
    odd.loads = b'{"loads": [{"num_running_reqs": 1, %b}, {"num_running_reqs": 1}]}' % row
    async with probed(odd) as replica:
        await until(lambda: replica.observed is not None)
        assert replica.used_ratio == used_ratio / 2


async def test_a_redirect_is_no_readiness() -> None:
    odd = OddReplica()
    odd.ready_status = 302
    async with probed(odd) as replica:
        # The first round is over once the probes have started.
        assert replica.state is State.STARTING
        odd.ready_status = 200
        await until(lambda: replica.state is State.READY)


@pytest.mark.parametrize(
    ("info", "reports_cached"),
    [
        (b'{"enable_cache_report":true,"max_total_num_tokens":6400}', True),
        (b'{"enable_cache_report":false}', False),
        (b'{"enable_cache_report":"yes"}', False),
        (b'{"version":"0.5.23"}', False),
        (b"[]", False),
    ],
)
async def test_whether_it_reports_cached_tokens(info: bytes, *, reports_cached: bool) -> None:
    odd = OddReplica()
    odd.info = info
    async with probed(odd) as replica:
        await odd.asked.wait()
        assert replica.reports_cached is reports_cached


@pytest.mark.parametrize(
    ("info", "n_caches"),
    [
        (b'{"dp_size":8}', 8),
        (b'{"dp_size":1}', 1),
        (b'{"dp_size":0}', 1),
        (b'{"dp_size":"many"}', 1),
        (b'{"version":"0.5.23"}', 1),
    ],
)
async def test_how_many_caches_are_behind_it(info: bytes, n_caches: int) -> None:
    odd = OddReplica()
    odd.info = info
    async with probed(odd) as replica:
        await odd.asked.wait()
        assert replica.n_caches == n_caches


async def test_adapters_come_and_go_and_silence_changes_nothing() -> None:
    odd = OddReplica()
    odd.info = b'{"max_total_num_tokens": 1000}'
    base = {"id": "kimi", "object": "model", "parent": None}
    tuned = {"id": "tuned", "parent": "kimi"}
    odd.models = json.dumps({"data": [base, {"id": "stray", "parent": "nobody"}]}).encode()
    async with probed(odd) as replica:
        await until(lambda: replica.serves == ("kimi",))
        odd.models = json.dumps({"data": [base, tuned]}).encode()
        await until(lambda: replica.serves == ("kimi", "kimi:tuned"))
        assert replica.models == ("kimi",)
        odd.models = b"[]"
        odd.asked.clear()
        await odd.asked.wait()
        odd.asked.clear()
        await odd.asked.wait()
        assert replica.serves == ("kimi", "kimi:tuned")
        odd.models = json.dumps({"data": [base]}).encode()
        await until(lambda: replica.serves == ("kimi",))


async def test_probes_show_the_fleets_key_or_the_replicas_own() -> None:
    for keys, shown in (((None, None), None), (("f", None), "Bearer f"), (("f", "o"), "Bearer o")):
        odd = OddReplica()
        async with probed(odd, key=keys[0], own_key=keys[1]):
            await odd.asked.wait()
        assert odd.keys == {shown}


async def test_probes_speak_tls_and_believe_only_whom_they_are_told_to(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    serves = ServerTls(TlsFiles(pair.cert, pair.key)).context
    odd = OddReplica()
    async with probed(
        odd, serves=serves, believes=client_context(TlsFiles(ca=authority.cert))
    ) as replica:
        await odd.asked.wait()
        assert replica.state is State.READY
        assert replica.spec.url.startswith("https://")
    odd = OddReplica()
    async with probed(odd, serves=serves, believes=client_context()) as replica:
        assert replica.state is State.DOWN
    assert not odd.asked.is_set()
