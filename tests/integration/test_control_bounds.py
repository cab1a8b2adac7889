"""What the control port bounds: connections, heads, bodies, answers that nobody takes, its own end."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2
import pytest
from aiohttp import web

from router.clock import now_s
from router.control.api.changes import Changes
from router.control.api.guard import Guard
from router.control.api.listening import Listener
from router.control.api.server import ControlApi
from router.core import RouterCore
from router.obs.metrics import Counts, RouterMetrics
from router.policy import registry
from router.state.members.roster import Roster
from tests.doubles.discovered import until
from tests.doubles.processes import Running, running

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S_MAX = 25.0
HALF_BODY = b"POST /replicas HTTP/1.1\r\nhost: h\r\ncontent-length: 90\r\n\r\n{"


@pytest.fixture
def router() -> Iterator[Running]:
    with running("serve", "--port", "0", "--admin-port", "0") as started:
        yield started


def opened(router: Running, said: bytes = b"") -> socket.socket:
    url = urlsplit(router.admin_url)
    made = socket.create_connection((url.hostname or "", url.port or 0), timeout=WAIT_S_MAX)
    made.sendall(said)
    return made


def rest(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def test_what_does_not_come_is_not_waited_for(router: Running) -> None:
    began_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        said = (b"", b"GET /healthz HT", HALF_BODY)
        silent, half_head, half_body = [
            stack.enter_context(opened(router, words)) for words in said
        ]
        assert rest(silent) == rest(half_head) == b""
        answer = rest(half_body)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"request-timeout"' in answer
    assert 5.0 < time.monotonic() - began_s < WAIT_S_MAX
    assert httpx2.get(f"{router.admin_url}/healthz").status_code == 200


def test_one_connection_too_many_is_closed_at_once(router: Running) -> None:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(opened(router)) for _ in range(256)]
        began_s = time.monotonic()
        with opened(router) as extra:
            assert rest(extra) == b""
        assert time.monotonic() - began_s < 5.0
        held[0].sendall(b"GET /healthz HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
        assert rest(held[0]).startswith(b"HTTP/1.1 200 ")
        held[1].close()
        with opened(
            router, b"GET /healthz HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
        ) as next_:
            assert rest(next_).startswith(b"HTTP/1.1 200 ")


async def test_an_answer_that_nobody_takes_is_given_up() -> None:
    async def large(_: web.Request) -> web.Response:
        return web.Response(body=bytes(32 << 20))

    listener = Listener(answer_s=0.2)
    app = web.Application(middlewares=(listener.middleware,))
    app.router.add_get("/", large)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    server = runner.server
    assert server is not None
    port = await listener.start(server, "127.0.0.1", 0, tls=None, handshake_s=1.0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
        await reader.readexactly(1)  # the answer has begun
        await until(lambda: not server.connections)
        assert len(await reader.read(-1)) < 32 << 20
        writer.close()
    finally:
        listener.stop()
        await runner.cleanup()


@pytest.mark.parametrize("said", [b"", b"GET /", HALF_BODY])
def test_half_a_request_does_not_hold_up_the_end(router: Running, said: bytes) -> None:
    with opened(router, said):
        assert httpx2.get(f"{router.admin_url}/healthz").status_code == 200
        began_s = time.monotonic()
        router.signal(signal.SIGTERM)
        assert router.process.wait(WAIT_S_MAX) == 0
        assert time.monotonic() - began_s < 9.0


@pytest.mark.parametrize(
    ("head", "body", "status", "code"),
    [
        ({"content-encoding": "gzip"}, b"no gzip at all", 400, "bad-request"),
        ({"expect": "foo"}, b"{}", 417, "expectation-failed"),
    ],
)
def test_refusals_of_the_server_have_the_shape_of_all(
    router: Running, head: dict[str, str], body: bytes, status: int, code: str
) -> None:
    answer = httpx2.post(f"{router.admin_url}/replicas", headers=head, content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"]["message"]


def test_a_client_that_asks_first_is_told_to_go_on(router: Running) -> None:
    head = (
        b"POST /replicas HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    )
    with opened(router, head) as connection:
        assert connection.recv(65_536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"{}")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 400 ")


async def test_a_fault_of_the_router_is_told_in_the_shape_of_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def is_ready() -> bool:
        raise KeyError("no such thing")

    core = RouterCore(registry.make("home"), random.Random(0))
    counts = Counts()
    roster = Roster(core.members, core.fleet, leave_drain_s=1.0)
    api = ControlApi(
        core,
        roster,
        policy="home",
        metrics=RouterMetrics(core, counts),
        now_s=now_s,
        is_ready=is_ready,
        on_membership=lambda: None,
        guard=Guard(None, is_metrics_open=True),
        changes=Changes(counts.operator_changes, now_s),
    )
    port = await api.start("127.0.0.1", 0)
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            answer = await client.get("/readyz")
            assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
            assert "KeyError" not in answer.text
            assert "KeyError: 'no such thing'" in caplog.text
            assert (await client.get("/healthz")).status_code == 200
    finally:
        await api.stop()
