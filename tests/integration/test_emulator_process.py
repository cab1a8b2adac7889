"""``homeport emulate`` as a process: ports, readiness lines and signals."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import sys
from typing import TYPE_CHECKING

import aiohttp
import pytest

from sim.cli.emulate import emulate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


RUN = "import sys; from sim.cli.emulate import emulate; sys.exit(emulate(sys.argv[1:]))"
READY = re.compile(
    r"replica ready url=(http://127\.0\.0\.1:\d+) profile=b200-tp4-fp8 time_scale=(\S+)\n"
)


@contextlib.asynccontextmanager
async def emulating(
    *arguments: str, count: int = 1
) -> AsyncIterator[tuple[asyncio.subprocess.Process, list[str]]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", RUN, *arguments, "--count", str(count)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        urls = []
        async with asyncio.timeout(20):
            for _ in range(count):
                found = READY.fullmatch((await process.stdout.readline()).decode())
                assert found is not None
                urls.append(found[1])
        yield process, urls
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def test_a_terminated_process_drains_first() -> None:
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "stream": True,
        "homeport_emulate": {"output_tokens": 2000},
    }
    async with (
        emulating("--time-scale", "10", "--port", "0", count=2) as (process, urls),
        aiohttp.ClientSession() as http,
        asyncio.timeout(20),
    ):
        assert len(set(urls)) == 2
        async with http.post(f"{urls[0]}/v1/chat/completions", json=body) as response:
            process.send_signal(signal.SIGTERM)
            text = await response.text()
        assert text.endswith("data: [DONE]\n\n")
        assert await process.wait() == 0


async def test_an_interrupted_process_leaves_at_once() -> None:
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "stream": True,
        "homeport_emulate": {"output_tokens": 200_000},
    }
    async with (
        emulating() as (process, urls),
        aiohttp.ClientSession() as http,
        http.post(f"{urls[0]}/v1/chat/completions", json=body),
        asyncio.timeout(5),
    ):
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--profile", "abacus"],
        ["--count", "0"],
        ["--schedule-policy", "lof"],
        ["--prefill-decode-interval", "-1"],
        ["--nonsense"],
    ],
)
def test_bad_options_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert emulate(arguments) == 2
    assert arguments[0] in capsys.readouterr().err


def test_a_taken_port_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert emulate(["--port", port]) == 1
    assert port in capsys.readouterr().err
