"""A router process whose replicas are named by DNS, by Kubernetes and by a file, all at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.doubles.agents import chat_body
from tests.doubles.cluster import endpoint, running_cluster, slice_of
from tests.doubles.name_server import NameServer
from tests.doubles.processes import end, running, start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from tests.doubles.processes import Running

WAIT_S_MAX = 20.0


async def rows(http: aiohttp.ClientSession, admin_url: str) -> dict[str, Any]:
    async with http.get(f"{admin_url}/fleet") as answer:
        return {row["id"]: row for row in (await answer.json())["replicas"]}


async def until_states(http: aiohttp.ClientSession, admin_url: str, wanted: dict[str, str]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        found: dict[str, str] = {}
        while found != wanted:
            await asyncio.sleep(0.05)
            found = {k: v["state"] for k, v in (await rows(http, admin_url)).items()}


@contextlib.asynccontextmanager
async def emulated(n: int) -> AsyncIterator[list[int]]:
    """The ports of emulated replicas."""
    count = ("--count", f"{n}")
    replicas = start("emulate", "--port", "0", *count, "--time-scale", "20", count=n)
    try:
        await asyncio.to_thread(replicas.wait_ready)
        yield [int(row["url"].rpartition(":")[2]) for row in replicas.ready]
    finally:
        await asyncio.to_thread(end, replicas)


@contextlib.asynccontextmanager
async def routed() -> AsyncIterator[tuple[Running, aiohttp.ClientSession]]:
    """A router process with the settings of the environment, and a client."""
    process = running("serve", "--port", "0", "--admin-port", "0", "--probe-s", "0.2")
    router = await asyncio.to_thread(process.__enter__)
    try:
        async with aiohttp.ClientSession() as http:
            yield router, http
    finally:
        await asyncio.to_thread(process.__exit__, None, None, None)


async def ask(http: aiohttp.ClientSession, url: str) -> int:
    body, headers = chat_body("hello", stream=False), {"content-type": "application/json"}
    async with http.post(f"{url}/v1/chat/completions", data=body, headers=headers) as answer:
        return answer.status


async def test_all_sources_together_make_the_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("replica = []\n")
    async with emulated(3) as ports, running_cluster(tmp_path) as (cluster, kubeconfig):
        by_dns, by_pod, by_file = ports
        pod = endpoint("127.0.0.1", "p-1")
        await cluster.put(slice_of("s", pod, ports=(("http", by_pod),)))
        with NameServer() as names:
            names.a["fleet.test"] = ["127.0.0.1"]
            for key, value in {
                "DNS": f"dns://fleet.test:{by_dns}",
                "NAMESERVER": names.address,
                "KUBERNETES_SERVICES": "sglang",
                "KUBERNETES_PORT": "http",
                "KUBECONFIG": kubeconfig,
                "FILE": str(file),
            }.items():
                monkeypatch.setenv(f"HOMEPORT_DISCOVERY__{key}", value)
            async with routed() as (router, http):
                # All of them had their say before it listened.
                at_once = await rows(http, router.admin_url)
                assert {row["source"] for row in at_once.values()} == {"dns", "kubernetes"}
                assert await ask(http, router.url) == 200
                name = f"127.0.0.1:{by_dns}"
                file.write_text(f"[[replica]]\nurl = 'http://127.0.0.1:{by_file}'\nid = 'f'")
                router.signal(signal.SIGHUP)
                ready = {name: "ready", "p-1": "ready", "f": "ready"}
                await until_states(http, router.admin_url, ready)
                assert (await rows(http, router.admin_url))["f"]["sources"] == ["file"]
                await cluster.delete("s")
                await until_states(http, router.admin_url, {name: "ready", "f": "ready"})
                async with http.get(f"{router.admin_url}/metrics") as answer:
                    text = await answer.text()
    for source, n in {"dns": 1, "kubernetes": 0, "file": 1, "static": 0}.items():
        assert f'homeport_source_replicas{{source="{source}"}} {n}.0' in text
    said = "\n".join(router.lines)
    assert "Traceback" not in said
    assert "reload-asked files=1" in said
    assert "left replica=p-1" in said
