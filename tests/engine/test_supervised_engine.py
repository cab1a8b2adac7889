"""``homeport replica run`` over real SGLang: ready, in use, killed, hung, drained; nothing lost or left behind.

Beside it stands an emulated replica of the same model that can take what the real one cannot.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.doubles.asked import Asked, fleet, fleet_when
from tests.doubles.engines import MODEL, PYTHON, SCRIPTS, tiny_model
from tests.doubles.marked import NAME as MARK
from tests.doubles.marked import new_mark, none_left
from tests.doubles.processes import COMMAND, emulate, end, running
from tests.doubles.supervised import Supervisor, supervised

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.doubles.processes import Running

pytestmark = pytest.mark.engine

NAME = "real"
READY_S_MAX = 240.0
N_REQUESTS = 8
ADDRESS_KIB = 5_500_000


@pytest.fixture(scope="module")
def router() -> Iterator[Running]:
    peer = emulate("--model", MODEL, "--context-tokens", "131072", time_scale=20.0)
    try:
        peer.wait_ready()
        ports = ("--port", "0", "--admin-port", "0", "--policy", "round_robin")
        with running("serve", *ports, "--replica", peer.url) as serve:
            yield serve
    finally:
        end(peer)


@pytest.fixture(scope="module")
def supervisor(router: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    program = wrapper(tmp_path_factory.mktemp("engine"))
    words = ("--recipe", "tiny-cpu", "--model-path", str(tiny_model()), "--program", str(program))
    flags = ("--hang-after", "3", "--health-timeout", "8", "--restarts", "9", "--name", NAME)
    router_flags = ("--router", router.admin_url, "--drain-timeout", "60", "--stop-timeout", "30")
    with supervised(*flags, *router_flags, words=words, within_s=READY_S_MAX) as supervisor:
        yield supervisor


def wrapper(folder: Path, before: str = ":") -> Path:
    """SGLang with the stand-ins for what a CPU has not, and a health check that gives up early."""
    path = folder / "sglang"
    engine = PYTHON.with_name("sglang")
    path.write_text(
        f"#!/bin/sh\n{before}\n"
        f"PYTHONPATH='{SCRIPTS / 'stubs'}' SGLANG_HEALTH_CHECK_TIMEOUT=4 exec '{engine}' \"$@\"\n"
    )
    path.chmod(0o755)
    return path


async def in_use(http: aiohttp.ClientSession, router: Running) -> None:
    """Wait until the router takes it for ready."""
    await fleet_when(
        http,
        router.admin_url,
        lambda rows: NAME in rows and rows[NAME]["state"] == "ready",
        within_s=READY_S_MAX,
    )


async def disturbed(
    http: aiohttp.ClientSession, router: Running, pid: int, number: signal.Signals
) -> None:
    """Send a signal to a process while requests run at both replicas: all of them are answered."""
    asked = Asked(router.url, tokens=300)
    async with asyncio.TaskGroup() as group:
        for n in range(N_REQUESTS):
            group.create_task(asked.one(http, n, MODEL))
        await fleet_when(
            http, router.admin_url, lambda rows: NAME in rows and rows[NAME]["inflight"] >= 2
        )
        os.kill(pid, number)
    assert asked.statuses == [200] * N_REQUESTS, asked.faults


async def test_it_becomes_ready_and_is_used(router: Running, supervisor: Supervisor) -> None:
    async with aiohttp.ClientSession() as http:
        await in_use(http, router)
        asked = Asked(router.url, tokens=16)
        for n in range(4):
            await asked.one(http, n, MODEL)
        assert asked.statuses == [200] * 4, asked.faults
        assert NAME in asked.replicas
        row = (await fleet(http, router.admin_url))[NAME]
        assert row["source"] == "registered"
        assert row["capacity_tokens"]
    assert supervisor.named("sglang::scheduler")


async def test_an_answer_goes_on_beside_the_chunks_of_a_long_prompt(
    router: Running, supervisor: Supervisor
) -> None:
    """As the recipe's ``prefill_decode_interval`` has it: twelve steps after each of five chunks."""
    url = f"{supervisor.running.ready[-1]['url']}/generate"
    timeout = aiohttp.ClientTimeout(total=READY_S_MAX)
    n_beside = 0
    async with aiohttp.ClientSession(timeout=timeout) as http:
        await in_use(http, router)
        parameters = {"max_new_tokens": 1_000, "ignore_eos": True}
        body = {"input_ids": list(range(5, 105)), "sampling_params": parameters, "stream": True}
        async with http.post(url, json=body) as stream, asyncio.TaskGroup() as group:
            for _ in range(20):
                await stream.content.readuntil(b"\n\n")
            prompt = [7 + number * 31 % 900 for number in range(10_000)]
            cold = {"input_ids": prompt, "sampling_params": {"max_new_tokens": 1}}
            long = group.create_task(answered(http, url, cold))
            while not long.done() and await stream.content.readuntil(b"\n\n"):
                n_beside += 1
    assert await long == 200
    assert 40 <= n_beside < 900


async def answered(http: aiohttp.ClientSession, url: str, body: object) -> int:
    async with http.post(url, json=body) as answer:
        await answer.read()
        return answer.status


@pytest.mark.parametrize("whom", ["engine", "scheduler"])
async def test_a_killed_process_costs_no_request(
    router: Running, supervisor: Supervisor, whom: str
) -> None:
    async with aiohttp.ClientSession() as http:
        await in_use(http, router)
        n_ready = len(supervisor.running.ready)
        (scheduler,) = supervisor.named("sglang::scheduler")
        engine = int(supervisor.running.ready[-1]["pid"])
        await disturbed(http, router, engine if whom == "engine" else scheduler, signal.SIGKILL)
        await asyncio.to_thread(supervisor.wait_ready, n_ready + 1, within_s=READY_S_MAX)
        await in_use(http, router)
        assert scheduler not in supervisor.family()
        assert engine not in supervisor.family()


async def test_a_scheduler_that_hangs_is_noticed_and_ended(
    router: Running, supervisor: Supervisor
) -> None:
    async with aiohttp.ClientSession() as http:
        await in_use(http, router)
        n_ready = len(supervisor.running.ready)
        (scheduler,) = supervisor.named("sglang::scheduler")
        await disturbed(http, router, scheduler, signal.SIGSTOP)
        await asyncio.to_thread(supervisor.wait_ready, n_ready + 1, within_s=READY_S_MAX)
        assert "code=hung" in supervisor.output
        assert scheduler not in supervisor.family()


async def test_sigterm_under_load_answers_everybody_and_leaves_nothing(
    router: Running, supervisor: Supervisor
) -> None:
    async with aiohttp.ClientSession() as http:
        await in_use(http, router)
        await disturbed(http, router, supervisor.running.process.pid, signal.SIGTERM)
        assert await asyncio.to_thread(supervisor.wait_ended, 60.0) == 0, supervisor.output
        assert supervisor.left() == {}
        assert NAME not in await fleet(http, router.admin_url)


def test_too_little_memory_at_the_start_is_one_message_and_not_tried_again(tmp_path: Path) -> None:
    """Enough to load everything, and not for the pool."""
    program = wrapper(tmp_path, f"ulimit -v {ADDRESS_KIB}")
    words = ("--recipe", "tiny-cpu", "--model-path", str(tiny_model()), "--program", str(program))
    # However much the machine has free, its pool is larger than that.
    words += ("--mem-fraction", "0.9")
    mark = new_mark()
    ended = subprocess.run(
        [*COMMAND, "replica", "run", *words, "--port", "0", "--no-metrics"],
        env={**os.environ, MARK: mark},
        capture_output=True,
        text=True,
        timeout=READY_S_MAX,
        check=False,
    )
    assert ended.returncode == 3, ended.stderr
    message = next(line for line in ended.stderr.splitlines() if line.startswith("homeport "))
    assert "can't allocate memory" in message
    assert message.endswith("[host-out-of-memory]")
    assert ended.stderr.count("state=starting") == 1
    assert none_left(mark) == {}
