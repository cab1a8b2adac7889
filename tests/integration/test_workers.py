"""`homeport serve --workers N` as processes: connections, a killed worker, renewal, sums, the end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import aiohttp
import httpx2
import pytest
from yarl import URL

from tests.doubles.processes import COMMAND, emulate, end, running
from tests.doubles.redis_server import running_redis
from tests.doubles.shared_routers import Agents
from tests.doubles.workers import Workers, is_there, knocking, until, workers

if TYPE_CHECKING:
    from pathlib import Path

N_SESSIONS = 12
ENDLESS = 1_000
"""Turns of agents that a test ends."""

PACE = {"pause_s": 0.3, "output_tokens": 40}


def agents_of(router: Workers, n_turns: int, n_sessions: int = N_SESSIONS) -> Agents:
    return Agents([router.router], n_sessions, n_turns, **PACE)  # type: ignore[arg-type]


def connections(router: Workers) -> list[float]:
    text = httpx2.get(f"{router.router.admin_url}/metrics").text
    rows = [row.split() for row in text.splitlines()]
    return [float(row[1]) for row in rows if row and "homeport_worker_connections{" in row[0]]


async def test_64_connections_are_spread_evenly() -> None:
    with workers(2, replicas=1) as router:
        url = URL(router.router.url)
        opened = await asyncio.gather(
            *(asyncio.open_connection(url.host, url.port) for _ in range(64))
        )
        await until(lambda: sum(connections(router)) == 64)
        assert all(0.4 * 64 <= n <= 0.6 * 64 for n in connections(router)), connections(router)
        for _, writer in opened:
            writer.close()
        await until(lambda: sum(connections(router)) == 0)


async def test_a_killed_worker_is_replaced_and_no_session_leaves_its_home() -> None:
    with workers(2, time_scale=2.0) as router:
        agents = agents_of(router, ENDLESS)
        async with knocking(router.router.url) as wrong, asyncio.TaskGroup() as group:
            playing = group.create_task(agents.play())
            await agents.until(lambda: len(agents.turns) >= 3 * N_SESSIONS)
            served = router.metrics_sum("homeport_requests_total")
            killed = router.pids[0]
            os.kill(killed, signal.SIGKILL)
            await until(lambda: router.said("worker-ready") == 3)
            assert router.metrics_sum("homeport_requests_total") >= served
            await agents.more(2 * N_SESSIONS)
            agents.is_over = True
            await playing
        assert wrong == []
        assert agents.failed == []
        assert agents.moved == []
        assert killed not in router.pids
        assert len(router.pids) == 2
        assert router.metric("homeport_workers_died_total") == 1.0


async def test_a_renewal_under_load_breaks_no_connection() -> None:
    with workers(2, time_scale=2.0) as router:
        before = set(router.pids)
        agents = agents_of(router, ENDLESS)
        async with knocking(router.router.url) as wrong, asyncio.TaskGroup() as group:
            playing = group.create_task(agents.play())
            await agents.until(lambda: len(agents.turns) >= 3 * N_SESSIONS)
            os.kill(router.router.process.pid, signal.SIGHUP)
            await until(lambda: router.said("worker-ended") == 2)
            await agents.more(2 * N_SESSIONS)
            agents.is_over = True
            await playing
        assert wrong == []
        assert agents.failed == []
        assert [turn for turn in agents.turns if turn.tries > 1] == []
        assert agents.moved == []
        assert before.isdisjoint(router.pids)
        await until(lambda: router.metrics_sum("homeport_requests_total") == len(agents.turns))
        assert router.said("Traceback") == 0


def hit_ratio(n: int) -> float:
    with workers(n, time_scale=2.0) as router:
        agents = agents_of(router, 8)
        asyncio.run(agents.play())
        assert agents.failed == []
        assert agents.moved == []
        assert router.metrics_sum("homeport_requests_total") == N_SESSIONS * 8
        return agents.hit_ratio


def test_two_workers_hit_as_one_does() -> None:
    assert hit_ratio(2) >= hit_ratio(1) - 0.01


async def test_a_change_reaches_every_worker() -> None:
    with workers(2, replicas=2) as router:
        admin, replica = router.router.admin_url, URL(router.fleet.replicas[0])
        name = f"{replica.host}:{replica.port}"
        added = {"url": f"http://127.0.0.1:{replica.port}", "id": "again", "lease_s": 30.0}
        async with aiohttp.ClientSession() as http:
            for method, path, body in (
                ("POST", f"/replicas/{name}/drain", {"why": "test"}),
                ("PATCH", f"/replicas/{name}", {"weight": 2.0}),
                ("POST", "/replicas", added),
                ("PUT", "/replicas/again/heartbeat", None),
            ):
                async with http.request(method, admin + path, json=body) as answer:
                    assert answer.status < 300, await answer.text()
        assert router.metrics_sum("homeport_operator_changes_total") == 2.0
        # Both workers are renewed: what was said before is known to those that follow.
        os.kill(router.router.process.pid, signal.SIGHUP)
        await until(lambda: router.said("worker-ended") == 2)
        os.kill(router.pids[0], signal.SIGKILL)  # whichever is left answers
        fleet = httpx2.get(f"{admin}/fleet").json()
        rows = {row["id"]: row for row in fleet["replicas"]}
        assert rows[name]["state"] == "draining"
        assert rows[name]["weight"] == 2.0
        assert rows["again"]["lease_left_s"] > 0.0
        events = [row["event"] for row in httpx2.get(f"{admin}/changes").json()["changes"]]
        assert sorted(events) == ["change", "drain"]


async def test_a_session_is_shown_with_what_all_workers_decided() -> None:
    with workers(2, replicas=2) as router:
        agents = agents_of(router, 6, n_sessions=1)
        await agents.play()
        view = httpx2.get(f"{router.router.admin_url}/sessions/agent-1-0").json()
        assert len(view["decisions"]) == 6
        fleet = httpx2.get(f"{router.router.admin_url}/fleet").json()
        assert fleet["totals"]["requests"] == 6
        assert sum(row["requests_total"] for row in fleet["replicas"]) == 6
        assert httpx2.get(f"{router.router.admin_url}/sessions/nobody").status_code == 404


async def test_a_kept_response_is_found_by_any_worker() -> None:
    ports = ("--port", "0", "--admin-port", "0", "--no-access-log", "--workers", "2")
    replicas = [emulate("--enable-response-store") for _ in range(2)]
    try:
        for replica in replicas:
            replica.wait_ready()
        named = [flag for replica in replicas for flag in ("--replica", replica.url)]
        with running("serve", *ports, *named) as router:
            url = f"{router.url}/v1/responses"
            for _ in range(10):  # each over a connection of its own, so by either worker
                first = httpx2.post(url, json={"model": "kimi-k2.6", "input": "hi"}).json()
                shown = [httpx2.get(f"{url}/{first['id']}").status_code for _ in range(4)]
                assert shown == [200] * 4
            os.kill(router.process.pid, signal.SIGHUP)
            await until(lambda: sum("worker-ended" in line for line in router.lines) == 2)
            assert httpx2.get(f"{url}/{first['id']}").status_code == 200
    finally:
        for replica in replicas:
            end(replica)


def test_workers_share_through_redis_where_there_is_one() -> None:
    with running_redis() as server, workers(2, "--redis-url", server.url, time_scale=2.0) as router:
        agents = agents_of(router, 6)
        asyncio.run(agents.play())
        assert agents.failed == []
        assert agents.moved == []
        assert len(server.client.keys("*pin*")) == N_SESSIONS
        assert router.metrics_sum("homeport_requests_total") == N_SESSIONS * 6


async def test_a_worker_that_is_stuck_keeps_nobody_waiting() -> None:
    with workers(2, replicas=1) as router:
        stuck = router.pids[0]
        os.kill(stuck, signal.SIGSTOP)
        try:
            async with asyncio.timeout(10), aiohttp.ClientSession() as http:
                for _ in range(20):
                    headers = {"connection": "close"}
                    url = f"{router.router.url}/v1/models"
                    async with http.get(url, headers=headers) as answer:
                        assert answer.status == 200
        finally:
            os.kill(stuck, signal.SIGCONT)


async def test_a_worker_that_was_stuck_learns_what_it_missed() -> None:
    with workers(2, replicas=1) as router:
        admin, stuck = router.router.admin_url, router.pids[1]
        async with aiohttp.ClientSession() as http:

            async def call(method: str, path: str, body: object = None) -> float:
                begun_s, last = time.monotonic(), {"connection": "close"}
                async with http.request(method, admin + path, json=body, headers=last) as answer:
                    assert answer.status < 300, await answer.text()
                return time.monotonic() - begun_s

            row = {"url": "http://127.0.0.1:9", "id": "leased", "lease_s": 4.0}
            await call("POST", "/replicas", row)
            os.kill(stuck, signal.SIGSTOP)
            try:
                end_s, took_s = time.monotonic() + 8.0, [0.0]
                while time.monotonic() < end_s:  # longer than its lease
                    took_s.append(await call("PUT", "/replicas/leased/heartbeat"))
                    await asyncio.sleep(0.2)
                await call("POST", "/replicas/leased/drain", {})
            finally:
                os.kill(stuck, signal.SIGCONT)
            assert max(took_s) < 3.0
            assert min(took_s[-5:]) < 1.0
            for _ in range(8):
                await call("PUT", "/replicas/leased/heartbeat")
                await asyncio.sleep(0.25)
        os.kill(router.pids[0], signal.SIGKILL)  # the one that was stuck is left
        rows = {row["id"]: row for row in httpx2.get(f"{admin}/fleet").json()["replicas"]}
        assert rows["leased"]["state"] == "draining"


async def test_a_renewal_with_settings_that_cannot_be_keeps_what_runs(tmp_path: Path) -> None:
    config = tmp_path / "homeport.toml"
    config.write_text('default_model = "one"\n')
    with workers(2, "--config", str(config), replicas=1) as router:
        pids = router.pids
        config.write_text("no_such_setting = 1\n")
        os.kill(router.router.process.pid, signal.SIGHUP)
        await until(lambda: router.said("renewal-ended") == 1)
        assert router.said("no_such_setting: is not a setting") == 1
        assert router.pids == pids
        assert httpx2.get(f"{router.router.url}/v1/models").status_code == 200
        config.write_text('default_model = "two"\n')
        os.kill(router.router.process.pid, signal.SIGHUP)
        await until(lambda: router.said("worker-renewed") == 2)
        await until(lambda: router.said("worker-ended") == 2)
        assert set(router.pids).isdisjoint(pids)


async def test_the_end_waits_for_answers_and_leaves_no_process() -> None:
    with workers(2, time_scale=1.0) as router:
        pids = router.pids
        body = {
            "messages": [{"role": "user", "content": "hello"}],
            "homeport_emulate": {"output_tokens": 300},
        }
        async with aiohttp.ClientSession() as http:
            url = f"{router.router.url}/v1/chat/completions"
            asked = [asyncio.create_task(http.post(url, json=body)) for _ in range(6)]
            await until(lambda: router.metrics_sum("homeport_replica_inflight") >= 6)
            router.router.process.send_signal(signal.SIGTERM)
            answers = await asyncio.gather(*asked)
            assert [answer.status for answer in answers] == [200] * 6
            assert [(await answer.json())["usage"]["completion_tokens"] for answer in answers] == [
                300
            ] * 6
        assert await asyncio.to_thread(router.router.process.wait, 20) == 0
        assert [pid for pid in pids if is_there(pid)] == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_no_worker_outlives_its_parent(number: signal.Signals) -> None:
    with workers(2, replicas=1) as router:
        pids = router.pids
        router.router.process.send_signal(number)
        await until(lambda: not any(is_there(pid) for pid in pids))
        await until(lambda: router.router.process.poll() is not None)


async def test_a_second_signal_ends_it_at_once() -> None:
    with workers(2, time_scale=1.0) as router:
        pids = router.pids
        body = {
            "messages": [{"role": "user", "content": "hello"}],
            "homeport_emulate": {"output_tokens": 100_000},
        }
        async with aiohttp.ClientSession() as http:
            asked = asyncio.create_task(
                http.post(f"{router.router.url}/v1/chat/completions", json=body)
            )
            await until(lambda: router.metrics_sum("homeport_replica_inflight") >= 1)
            router.router.process.send_signal(signal.SIGTERM)
            await until(lambda: router.said("draining limit_s") == 2)
            router.router.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(router.router.process.wait, 10) == 1
            assert [pid for pid in pids if is_there(pid)] == []
            with pytest.raises(aiohttp.ClientError):
                (await asked).raise_for_status()


def refused(*flags: str) -> tuple[int, str]:
    ports = ("--port", "0", "--admin-port", "0")
    done = subprocess.run(
        [*COMMAND, "serve", *ports, *flags], capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, done.stderr


def test_what_workers_cannot_do_is_refused(tmp_path: Path) -> None:
    code, said = refused("--workers", "2", "--record", str(tmp_path / "r"))
    assert code == 2
    assert "workers = 2: a recording is of one process" in said
    code, said = refused("--workers", "2", "--routers-apart")
    assert code == 2
    assert "redis_url" in said
    code, said = refused("--workers", "0")
    assert code == 2
    code, said = refused("--workers", "2", "--tenants-file", str(tmp_path / "none"))
    assert code == 2
    assert len(said.splitlines()) == 1


def test_an_address_of_another_machine_is_said_once() -> None:
    code, said = refused("--workers", "2", "--host", "203.0.113.1", "--port", "1")
    assert code == 1
    assert "cannot listen on 203.0.113.1:1" in said
    assert len(said.splitlines()) == 1
