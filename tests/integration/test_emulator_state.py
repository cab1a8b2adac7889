"""What the emulated replica reports of itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from replica.hardware.profiles import profile_named
from sim.live.emulator import EmulatedReplica, EmulatorOptions, sized, start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


FACTS = sized(profile_named("b200-tp4-fp8"), capacity_tokens=50_000, host_tokens=0)
PROMPT = [{"role": "user", "content": "word " * 2000}]


@pytest.fixture
async def replica() -> AsyncIterator[EmulatedReplica]:
    async with start(EmulatorOptions(facts=FACTS, time_scale=100.0)) as replicas:
        yield replicas[0]


@pytest.fixture
async def http(replica: EmulatedReplica) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(replica.url) as session:
        yield session


async def complete(http: aiohttp.ClientSession, **more: object) -> dict[str, Any]:
    asked = {"messages": PROMPT, "homeport_emulate": {"output_tokens": 64}, **more}
    async with http.post("/v1/chat/completions", json=asked) as response:
        assert response.status == 200
        answer: dict[str, Any] = await response.json()
        return answer


async def test_loads_follow_the_requests(http: aiohttp.ClientSession) -> None:
    async with http.get("/v1/loads") as response:
        idle = (await response.json())["loads"][0]
    assert idle["max_total_num_tokens"] == 49_984
    assert idle["token_usage"] == 0.0
    usage = (await complete(http))["usage"]
    async with http.get("/v1/loads?include=core,queues") as response:
        report = await response.json()

    assert report["version"] == "0.5.23"
    [load] = report["loads"]
    assert "memory" in idle
    assert "memory" not in load
    assert load["queues"]["waiting"] == 0
    assert load["num_running_reqs"] == load["num_waiting_reqs"] == 0
    assert load["total_prefill_uncached_tokens"] == usage["prompt_tokens"]
    assert load["total_prefill_busy_us"] > 0


async def test_server_info_names_the_profile(http: aiohttp.ClientSession) -> None:
    async with http.get("/server_info") as response:
        info = await response.json()
    assert info["status"] == "ready"
    assert info["page_size"] == 64
    assert info["max_total_num_tokens"] == 49_984
    assert info["max_running_requests"] == FACTS.max_running_requests
    expected = {"profile": "b200-tp4-fp8", "time_scale": 100.0, "host_tokens": 0}
    assert info["homeport"] == expected
    async with http.get("/model_info") as response:
        assert (await response.json())["served_model_name"] == info["served_model_name"]


async def test_metrics_add_up(http: aiohttp.ClientSession) -> None:
    first = (await complete(http))["usage"]
    second = (await complete(http))["usage"]
    async with http.get("/metrics") as response:
        families = {f.name: f for f in text_string_to_metric_families(await response.text())}

    def total(name: str, **labels: str) -> float:
        return sum(
            sample.value
            for sample in families[name].samples
            if labels.items() <= sample.labels.items() and not sample.name.endswith("_created")
        )

    cached = second["prompt_tokens_details"]["cached_tokens"]
    assert cached > 0
    assert total("sglang:prompt_tokens") == first["prompt_tokens"] + second["prompt_tokens"]
    assert total("sglang:generation_tokens") == 128
    assert total("sglang:cached_tokens", cache_source="device") == cached
    assert total("sglang:num_requests") == 2
    counts = [
        sample.value
        for sample in families["sglang:time_to_first_token_seconds"].samples
        if sample.name.endswith("_count")
    ]
    assert counts == [2]


async def test_a_flush_forgets_the_cache(http: aiohttp.ClientSession) -> None:
    await complete(http)
    async with http.post("/flush_cache") as response:
        assert response.status == 200
    usage = (await complete(http))["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0


async def test_a_flush_is_refused_while_requests_run(http: aiohttp.ClientSession) -> None:
    asked = {"messages": PROMPT, "stream": True, "homeport_emulate": {"output_tokens": 40_000}}
    async with (
        http.post("/v1/chat/completions", json=asked),
        http.post("/flush_cache") as response,
    ):
        assert response.status == 400


async def test_plain_text_is_tokenized(http: aiohttp.ClientSession) -> None:
    async with http.post("/tokenize", json={"prompt": "12345678"}) as response:
        assert (await response.json())["count"] == 2
    async with http.post("/v1/tokenize", json={"prompt": ["1234", "12345678"]}) as response:
        assert (await response.json())["count"] == [1, 2]


async def test_an_idle_connection_is_closed() -> None:
    options = EmulatorOptions(facts=FACTS, keep_alive_s=0.05)
    async with start(options) as replicas, asyncio.timeout(10):
        host, _, port = replicas[0].url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_health_check_takes_its_time(http: aiohttp.ClientSession) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    async with http.get("/health_generate") as response:
        assert (response.status, await response.read()) == (200, b"")
    assert loop.time() - began_s >= 1.0
