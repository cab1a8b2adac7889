"""The shipped commands and probes, run as processes on free ports of loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp

from tests.deploy.manifests import (
    emulated,
    image_check,
    image_command,
    image_environment,
    option,
    services,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

HOMEPORT = Path(sys.executable).parent / "homeport"
READY = re.compile(r"(\w+)=(http://\S+)")


@contextlib.asynccontextmanager
async def running(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, str]]]:
    """A ``homeport`` process and the URLs of its line that says it is ready."""
    process = await asyncio.create_subprocess_exec(
        HOMEPORT,
        *arguments,
        env={**os.environ, **(environment or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            line = (await process.stdout.readline()).decode()
        yield process, dict(READY.findall(line))
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def passes(check: list[str], environment: Mapping[str, str] | None = None) -> bool:
    """Whether a health check's command exits with 0."""
    assert check[0] == "python"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *check[1:],
        env={**os.environ, **(environment or {})},
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(20):
        return await process.wait() == 0


def emulate_command() -> tuple[list[str], str]:
    """The compose file's command of a replica, on a free port of loopback; and the port it names."""
    command: list[str] = next(iter(emulated().values()))["command"].copy()
    port = option(command, "--port")
    command[command.index("--host") + 1] = "127.0.0.1"
    command[command.index("--port") + 1] = "0"
    return command, port


async def test_a_router_as_shipped_answers_its_probes_and_drains_on_its_signal() -> None:
    command, _ = emulate_command()
    name, *arguments = image_command()
    assert name == HOMEPORT.name
    async with running(*command) as (_, replica):
        moved = {
            "HOMEPORT_HOST": "127.0.0.1",
            "HOMEPORT_PORT": "0",
            "HOMEPORT_ADMIN_HOST": "127.0.0.1",
            "HOMEPORT_ADMIN_PORT": "0",
            "HOMEPORT_REPLICA": replica["url"],
        }
        environment = image_environment() | services()["router"]["environment"] | moved
        async with running(*arguments, environment=environment) as (router, urls):
            where = {"HOMEPORT_ADMIN_PORT": str(urlsplit(urls["admin_url"]).port)}
            assert await passes(image_check(), where)
            async with aiohttp.ClientSession() as http, asyncio.timeout(20):
                for path in ("/healthz", "/readyz", "/metrics"):
                    async with http.get(urls["admin_url"] + path) as response:
                        assert response.status == 200, path
                async with http.get(urls["url"] + "/health") as response:
                    assert response.status == 200
            router.send_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                assert await router.wait() == 0
            assert not await passes(image_check(), where)


async def test_a_replica_as_shipped_passes_its_health_check_while_it_lives() -> None:
    command, port = emulate_command()
    check: list[str] = next(iter(emulated().values()))["healthcheck"]["test"]
    assert check[0] == "CMD"
    async with running(*command) as (process, urls):
        moved = [word.replace(f":{port}/", f":{urlsplit(urls['url']).port}/") for word in check[1:]]
        assert await passes(moved)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await process.wait() == 0
        assert not await passes(moved)
