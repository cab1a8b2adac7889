"""What a replica or an operator tells one router counts at the others: leases, drains, removals, moves."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.doubles.processes import emulate, end, until
from tests.doubles.redis_server import RedisServer, running_redis
from tests.doubles.shared_routers import Agents, Several, several

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.doubles.processes import Running

BEAT_S = 0.25


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Several, RedisServer]]:
    """Two routers that share a Redis, before two replicas that both were told of."""
    with running_redis() as server, several(2, 2, redis_url=server.url) as shared:
        until(lambda: shared.metrics_sum("homeport_store_peers") == 2)
        yield shared, server


@pytest.fixture(scope="module")
def third() -> Iterator[Running]:
    """A replica that no router was told of."""
    replica = emulate()
    try:
        replica.wait_ready()
        yield replica
    finally:
        end(replica)


def states(shared: Several, router: int) -> dict[str, str]:
    """The replicas a router knows, with their states."""
    rows = httpx2.get(f"{shared.routers[router].admin_url}/fleet").json()["replicas"]
    return {row["id"]: row["state"] for row in rows}


def post(shared: Several, path: str, body: dict[str, Any], router: int = 0) -> None:
    answer = httpx2.post(f"{shared.routers[router].admin_url}{path}", json=body)
    assert answer.status_code < 300, answer.text


@contextlib.contextmanager
def beating(shared: Several, url: str, lease_s: float) -> Iterator[str]:
    """A registered replica, whose heartbeats the first router hears from the first moment on; its name."""
    name, is_over, answers = urlsplit(url).netloc, threading.Event(), []
    beat = f"{shared.routers[0].admin_url}/replicas/{name}/heartbeat"

    def follow() -> None:
        while not is_over.wait(BEAT_S):
            answers.append(httpx2.put(beat).status_code)

    post(shared, "/replicas", {"url": url, "lease_s": lease_s})
    heart = threading.Thread(target=follow)
    heart.start()
    try:
        yield name
    finally:
        is_over.set()
        heart.join()
    assert set(answers) == {200}


def stays(shared: Several, router: int, name: str, for_s: float) -> None:
    """A router knows the replica whenever it is asked, for so long."""
    end_s = time.monotonic() + for_s
    while time.monotonic() < end_s:
        assert name in states(shared, router)
        time.sleep(BEAT_S)


def test_a_lease_holds_at_all_routers(pair: tuple[Several, RedisServer], third: Running) -> None:
    shared, _ = pair
    with beating(shared, third.url, 3.0) as name:
        until(lambda: states(shared, 1).get(name) == "ready")
        stays(shared, 1, name, 4.0)  # longer than the lease: it is renewed at the other router too
    until(lambda: name not in states(shared, 0) and name not in states(shared, 1))


def test_a_lease_outlives_a_store_that_is_away(third: Running) -> None:
    with (
        running_redis() as server,
        several(2, 1, redis_url=server.url) as shared,
        beating(shared, third.url, 3.0) as name,
    ):
        until(lambda: name in states(shared, 1))
        server.end()
        stays(shared, 1, name, 4.0)


def test_a_drain_and_its_end_count_at_all_routers(pair: tuple[Several, RedisServer]) -> None:
    shared, _ = pair
    name = urlsplit(shared.replicas[0]).netloc
    post(shared, f"/replicas/{name}/drain", {})
    until(lambda: states(shared, 1)[name] == "draining")
    post(shared, f"/replicas/{name}/undrain", {}, router=1)
    until(lambda: states(shared, 0)[name] == states(shared, 1)[name] == "ready")


def test_a_removal_counts_at_all_routers_and_ends_with_a_registration(
    pair: tuple[Several, RedisServer], third: Running
) -> None:
    shared, _ = pair
    name = urlsplit(third.url).netloc
    post(shared, "/replicas", {"url": third.url, "lease_s": 60})
    until(lambda: name in states(shared, 1))
    answer = httpx2.delete(f"{shared.routers[1].admin_url}/replicas/{name}")
    assert answer.status_code == 204
    until(lambda: name not in states(shared, 0))
    post(shared, "/replicas", {"url": third.url, "lease_s": 60})
    until(lambda: name in states(shared, 1))
    httpx2.delete(f"{shared.routers[0].admin_url}/replicas/{name}")
    until(lambda: name not in states(shared, 1))


def test_a_moved_session_is_at_home_there_for_all(pair: tuple[Several, RedisServer]) -> None:
    shared, _ = pair
    agents = Agents(shared.routers, 1, 3, seed=7, pause_s=0.3)
    asyncio.run(agents.play())
    [home] = agents.homes(0)
    other = next(
        name for name in states(shared, 0) if name != home and states(shared, 0)[name] == "ready"
    )
    key = "agent-7-0"
    post(shared, f"/sessions/{key}/move", {"replica": other})

    def home_at(router: int) -> str:
        url = f"{shared.routers[router].admin_url}/sessions/{key}"
        found: str = httpx2.get(url).json()["home"]
        return found

    until(lambda: home_at(0) == home_at(1) == other)
