"""A fleet that changes all the time, under load: no request is lost that somebody could serve."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.doubles.agents import chat_body
from tests.doubles.processes import end, running, start

if TYPE_CHECKING:
    from pathlib import Path

N_REPLICAS = 8
N_STEADY = 2
N_CLIENTS = 4
CHANGE_S = 0.05
"""Between two changes: ten replicas join and ten leave in each second."""


@dataclass
class Seen:
    """What clients and the one who changes the fleet have seen."""

    n_served: int = 0
    n_joins: int = 0
    n_leaves: int = 0
    lost: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


def rows(urls: list[str]) -> str:
    return "".join(f'[[replica]]\nurl = "{url}"\nid = "f{n}"\n' for n, url in enumerate(urls))


async def client(http: aiohttp.ClientSession, url: str, name: int, seen: Seen) -> None:
    """Sessions of a few turns, one request after the other."""
    dice = random.Random(name)
    turn = 0
    while not seen.is_over.is_set():
        turn += 1
        headers = {"content-type": "application/json", "x-session-id": f"{name}-{turn // 4}"}
        body = chat_body(f"{dice.random()}", stream=dice.random() < 0.7)
        async with http.post(f"{url}/v1/chat/completions", data=body, headers=headers) as answer:
            text = await answer.text()
            whole = "[DONE]" in text or '"usage"' in text
            if answer.status != 200 or not whole or '"error"' in text[-500:]:
                seen.lost.append(f"{answer.status} {text[:200]} ... {text[-200:]}")
            seen.n_served += 1
            seen.places.add(answer.headers.get("x-homeport-replica", ""))


async def change(
    http: aiohttp.ClientSession, admin_url: str, urls: list[str], path: Path, seen: Seen
) -> None:
    """Let replicas register and be removed in turns, and the file name others each time."""
    dice, loop = random.Random(0), asyncio.get_running_loop()
    inside: list[int] = []
    due_s = loop.time()
    new = path.with_name("new")
    while not seen.is_over.is_set():
        outside = [n for n in range(N_STEADY, N_REPLICAS) if n not in inside]
        if outside and (not inside or len(inside) < 4):
            n = dice.choice(outside)
            row = {"url": urls[n], "id": f"h{n}", "lease_s": 30}
            async with http.post(f"{admin_url}/replicas", json=row) as answer:
                assert answer.status in (200, 201), await answer.text()
            inside.append(n)
            seen.n_joins += 1
            due_s += CHANGE_S
            await asyncio.sleep(max(0.0, due_s - loop.time()))
        n = inside.pop(0)
        async with http.delete(f"{admin_url}/replicas/h{n}") as answer:
            assert answer.status == 204, await answer.text()
        seen.n_leaves += 1
        kept = [*urls[:N_STEADY], *dice.sample(urls[N_STEADY:], dice.randrange(4))]
        await asyncio.to_thread(new.write_text, rows(kept))
        await asyncio.to_thread(new.replace, path)
        due_s += CHANGE_S
        await asyncio.sleep(max(0.0, due_s - loop.time()))


@pytest.mark.parametrize(
    "length_s", [4.0, pytest.param(60.0, marks=[pytest.mark.slow, pytest.mark.timeout(180)])]
)
async def test_ten_joins_and_leaves_a_second_lose_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length_s: float
) -> None:
    path = tmp_path / "fleet.toml"
    count = ("--count", f"{N_REPLICAS}")
    replicas = start("emulate", "--port", "0", *count, "--time-scale", "20", count=N_REPLICAS)
    try:
        await asyncio.to_thread(replicas.wait_ready)
        urls = [row["url"] for row in replicas.ready]
        path.write_text(rows(urls[:N_STEADY]))
        monkeypatch.setenv("HOMEPORT_DISCOVERY__FILE", str(path))
        arguments = ("serve", "--port", "0", "--admin-port", "0", "--probe-s", "0.2")
        router_of = running(*arguments)
        router = await asyncio.to_thread(router_of.__enter__)
        try:
            seen = Seen()
            async with aiohttp.ClientSession() as http:
                async with asyncio.TaskGroup() as group:
                    group.create_task(ended(seen, length_s))
                    for n in range(N_CLIENTS):
                        group.create_task(client(http, router.url, n, seen))
                    group.create_task(change(http, router.admin_url, urls, path, seen))
                await settle(http, router.admin_url, urls, path)
        finally:
            await asyncio.to_thread(router_of.__exit__, None, None, None)
        said = "\n".join(router.lines)
    finally:
        await asyncio.to_thread(end, replicas)
    assert seen.lost == []
    if length_s > 10.0:  # the short run is as long as its changes take
        assert min(seen.n_joins, seen.n_leaves) >= 9.8 * length_s
    assert any(place.startswith("f") for place in seen.places)
    assert any(place.startswith("h") for place in seen.places)
    assert "Traceback" not in said
    assert "reloaded files=replicas" in said


async def ended(seen: Seen, length_s: float) -> None:
    """Let it be over after its time, and after as much has happened as the time is for."""
    await asyncio.sleep(length_s)
    async with asyncio.timeout(30):
        while seen.n_served <= 10 * length_s or min(seen.n_joins, seen.n_leaves) < 5 * length_s:  # noqa: ASYNC110
            await asyncio.sleep(CHANGE_S)
    seen.is_over.set()


async def settle(http: aiohttp.ClientSession, admin_url: str, urls: list[str], path: Path) -> None:
    """When nothing changes any more, the fleet is who is named, and each of them is ready."""
    async with http.get(f"{admin_url}/fleet") as answer:
        registered = [
            row["id"] for row in (await answer.json())["replicas"] if row["source"] == "registered"
        ]
    for name in registered:
        async with http.delete(f"{admin_url}/replicas/{name}") as answer:
            assert answer.status == 204
    await asyncio.to_thread(path.write_text, rows(urls))
    found: dict[str, tuple[str, list[str]]] = {}
    wanted = {f"f{n}": ("ready", ["file"]) for n in range(len(urls))}
    async with asyncio.timeout(15):
        while found != wanted:
            async with http.get(f"{admin_url}/fleet") as answer:
                fleet = (await answer.json())["replicas"]
            found = {row["id"]: (row["state"], row["sources"]) for row in fleet}
            await asyncio.sleep(0.05)
    async with http.get(f"{admin_url}/metrics") as answer:
        text = await answer.text()
    assert f'homeport_source_replicas{{source="file"}} {len(urls)}.0' in text
    assert 'homeport_source_failures_total{source="file"}' in text
