"""``homeport replica run`` over the emulated engine: its whole life, and every way in which it is disturbed."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.doubles.asked import Asked, fleet, fleet_when
from tests.doubles.processes import running
from tests.doubles.supervised import supervised

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.doubles.processes import Running

HANG = ("--hang-after", "0.5", "--health-timeout", "3")


@pytest.fixture(scope="module")
def router() -> Iterator[Running]:
    """A router whose fleet is empty again after each test: its replicas leave, or their leases end."""
    with running("serve", "--port", "0", "--admin-port", "0") as serve:
        yield serve


def are_ready(count: int) -> Callable[[dict[str, dict[str, Any]]], bool]:
    return lambda rows: [row["state"] for row in rows.values()] == ["ready"] * count


def in_flight(count: int) -> Callable[[dict[str, dict[str, Any]]], bool]:
    return lambda rows: sum(row["inflight"] for row in rows.values()) >= count


async def test_two_replicas_register_serve_and_leave_without_losing_a_request(
    router: Running,
) -> None:
    flags = ("--replicas", "2", "--router", router.admin_url)
    async with aiohttp.ClientSession() as http:
        with supervised(*flags, count=2) as supervisor:
            rows = await fleet_when(http, router.admin_url, are_ready(2))
            assert set(rows) == {line["id"] for line in supervisor.running.ready}
            assert {row["source"] for row in rows.values()} == {"registered"}
            assert {row["profile"] for row in rows.values()} == {"b200-tp4-fp8"}
            asked = Asked(router.url)
            async with asyncio.TaskGroup() as load:
                for number in range(12):
                    load.create_task(asked.one(http, number))
                await fleet_when(http, router.admin_url, in_flight(12))
                supervisor.signal(signal.SIGTERM)
                code = await asyncio.to_thread(supervisor.wait_ended)
            assert asked.statuses == [200] * 12, asked.faults
            assert set(asked.replicas) == set(rows)
            assert code == 0, supervisor.output
            assert supervisor.left() == {}
            assert await fleet_when(http, router.admin_url, lambda rows: not rows) == {}


async def test_a_drain_that_takes_too_long_is_cut_off_and_says_so(router: Running) -> None:
    flags = ("--drain-timeout", "1", "--stop-timeout", "0.5", "--router", router.admin_url)
    async with aiohttp.ClientSession() as http:
        with supervised(*flags, time_scale=1.0) as supervisor:
            await fleet_when(http, router.admin_url, are_ready(1))
            asked = Asked(router.url, tokens=5_000)
            async with asyncio.TaskGroup() as load:
                load.create_task(asked.one(http, 1))
                await fleet_when(http, router.admin_url, in_flight(1))
                supervisor.signal(signal.SIGTERM)
                assert await asyncio.to_thread(supervisor.wait_ended) == 5
            assert asked.statuses != [200]
            assert supervisor.left() == {}


@pytest.mark.parametrize("what", ["engine", "guardian"])
async def test_a_killed_engine_costs_no_request_and_comes_back(router: Running, what: str) -> None:
    flags = ("--replicas", "2", "--router", router.admin_url)
    async with aiohttp.ClientSession() as http:
        with supervised(*flags, count=2) as supervisor:
            before = await fleet_when(http, router.admin_url, are_ready(2))
            asked = Asked(router.url)
            async with asyncio.TaskGroup() as load:
                for number in range(12):
                    load.create_task(asked.one(http, number))
                await fleet_when(http, router.admin_url, in_flight(12))
                family = supervisor.engines() if what == "engine" else supervisor.guardians()
                os.kill(family[0], signal.SIGKILL)
            assert asked.statuses == [200] * 12, asked.faults
            await asyncio.to_thread(supervisor.wait_ready, 3)
            assert set(await fleet_when(http, router.admin_url, are_ready(2))) == set(before)
            assert len(supervisor.engines()) == len(supervisor.guardians()) == 2
            assert "code=killed" in supervisor.output


async def test_an_engine_that_hangs_behind_its_server_is_killed_and_comes_back(
    router: Running,
) -> None:
    flags = ("--replicas", "2", "--router", router.admin_url, *HANG)
    async with aiohttp.ClientSession() as http:
        with supervised(*flags, count=2) as supervisor:
            await fleet_when(http, router.admin_url, are_ready(2))
            asked = Asked(router.url)
            url = supervisor.running.ready[0]["url"]
            async with asyncio.TaskGroup() as load:
                for number in range(12):
                    load.create_task(asked.one(http, number))
                await fleet_when(http, router.admin_url, in_flight(12))
                async with http.post(f"{url}/emulator/fault", json={"kind": "hang"}) as answer:
                    assert answer.status == 200
            assert asked.statuses == [200] * 12, asked.faults
            await asyncio.to_thread(supervisor.wait_ready, 3)
            assert "code=hung" in supervisor.output
            await fleet_when(http, router.admin_url, are_ready(2))


async def test_a_stopped_engine_is_noticed_as_well() -> None:
    with supervised(*HANG) as supervisor:
        (engine,) = supervisor.engines()
        os.kill(engine, signal.SIGSTOP)
        await asyncio.to_thread(supervisor.wait_ready, 2)
        assert "code=hung" in supervisor.output
        assert engine not in supervisor.engines()


async def test_a_killed_supervisor_leaves_no_process_and_its_lease_ends(router: Running) -> None:
    async with aiohttp.ClientSession() as http:
        with supervised("--replicas", "2", "--router", router.admin_url, count=2) as supervisor:
            await fleet_when(http, router.admin_url, are_ready(2))
            supervisor.signal(signal.SIGKILL)
            assert supervisor.left() == {}
            assert await fleet_when(http, router.admin_url, lambda rows: not rows) == {}


async def test_a_second_signal_ends_everything_at_once(router: Running) -> None:
    flags = ("--replicas", "2", "--router", router.admin_url, "--drain-timeout", "60")
    async with aiohttp.ClientSession() as http:
        with supervised(*flags, count=2, time_scale=1.0) as supervisor:
            await fleet_when(http, router.admin_url, are_ready(2))
            asked = Asked(router.url, tokens=5_000)
            async with asyncio.TaskGroup() as load:
                load.create_task(asked.one(http, 1))
                await fleet_when(http, router.admin_url, in_flight(1))
                supervisor.signal(signal.SIGTERM)
                # Of two that are pending, the kernel hands over the lower number first.
                await asyncio.to_thread(supervisor.wait_said, "signal name=SIGTERM what=drain")
                supervisor.signal(signal.SIGINT)
                assert await asyncio.to_thread(supervisor.wait_ended) == 128 + signal.SIGINT
            assert supervisor.left() == {}


async def test_a_router_that_begins_anew_is_told_again_and_one_that_is_gone_does_not_matter() -> (
    None
):
    ports = ("--port", "0", "--admin-port")
    async with aiohttp.ClientSession() as http:
        with running("serve", *ports, "0") as first, running("serve", *ports, "0") as second:
            both = ("--router", first.admin_url, "--router", second.admin_url)
            with supervised(*both) as supervisor:
                for router in (first, second):
                    await fleet_when(http, router.admin_url, are_ready(1))
                first.kill()
                port = first.admin_url.rpartition(":")[2]
                with running("serve", *ports, port) as again:
                    await fleet_when(http, again.admin_url, are_ready(1))
                    again.kill()
                    supervisor.signal(signal.SIGTERM)
                    assert await asyncio.to_thread(supervisor.wait_ended) == 0
                    await fleet_when(http, second.admin_url, lambda rows: not rows)


async def test_a_router_with_a_key_wants_it_and_does_not_hold_the_engine_up(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("a-key-of-the-operator\n")
    flags = ("--port", "0", "--admin-port", "0", "--admin-key-file", str(key))
    with running("serve", *flags) as router:
        with supervised("--router", router.admin_url) as supervisor:
            await asyncio.to_thread(supervisor.wait_said, "it wants its admin key: set HOMEPORT_")
        given = ("--router-key-file", str(key))
        with supervised("--router", router.admin_url, *given) as supervisor:
            await asyncio.to_thread(supervisor.wait_said, "registered as")
            assert "a-key-of-the-operator" not in supervisor.output


async def test_its_metrics_tell_states_starts_and_heartbeats(router: Running) -> None:
    flags = ("--router", router.admin_url, "--name", "r7", "--metrics-port", "0")
    async with aiohttp.ClientSession() as http:
        with supervised(*flags, common=("--port", "0")) as supervisor:
            await fleet_when(http, router.admin_url, are_ready(1))
            os.kill(supervisor.engines()[0], signal.SIGKILL)
            await asyncio.to_thread(supervisor.wait_ready, 2)
            line = next(line for line in supervisor.running.lines if "metrics_url=" in line)
            url = line.partition("metrics_url=")[2]
            async with http.get(url) as answer:
                text = await answer.text()
            prefix = "homeport_replica_supervisor_"
            for sample in (
                'state{replica="r7",state="ready"} 1.0',
                'starts_total{replica="r7"} 2.0',
                'restarts_total{replica="r7"} 1.0',
                'faults_total{code="killed",replica="r7"} 1.0',
            ):
                assert f"{prefix}{sample}" in text
            async with http.get(url.replace("/metrics", "/readyz")) as answer:
                assert answer.status == 200
                assert await answer.json() == {"ready": True, "replicas": {"r7": "ready"}}


async def test_an_operators_drain_outlives_a_crash(router: Running) -> None:
    async with aiohttp.ClientSession() as http:
        with supervised("--router", router.admin_url, "--name", "r7") as supervisor:
            await fleet_when(http, router.admin_url, are_ready(1))
            async with http.post(f"{router.admin_url}/replicas/r7/drain") as answer:
                assert answer.status == 200
            await asyncio.to_thread(supervisor.wait_said, "drain it there")
            os.kill(supervisor.engines()[0], signal.SIGKILL)
            await asyncio.to_thread(supervisor.wait_ready, 2)
            rows = await fleet(http, router.admin_url)
            assert rows["r7"]["state"] == "draining"


async def test_it_gives_up_after_its_restarts(router: Running) -> None:
    flags = ("--restarts", "1", "--router", router.admin_url)
    async with aiohttp.ClientSession() as http:
        with supervised(*flags) as supervisor:
            await fleet_when(http, router.admin_url, are_ready(1))
            os.kill(supervisor.engines()[0], signal.SIGKILL)
            await asyncio.to_thread(supervisor.wait_ready, 2)
            os.kill(supervisor.engines()[0], signal.SIGKILL)
            assert await asyncio.to_thread(supervisor.wait_ended) == 4
            assert "failed after 1 restarts" in supervisor.output
            assert "[killed]" in supervisor.output
            assert await fleet_when(http, router.admin_url, lambda rows: not rows) == {}
