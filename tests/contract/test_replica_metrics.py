"""``/metrics``: the families that a dashboard of ours may use, with their labels."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.contract.exceptions import skip_where_excepted
from tests.doubles.engines import CONTEXT_TOKENS, MODEL
from tests.doubles.replica_calls import (
    CHAT,
    chat_body,
    complete,
    is_idle,
    load_when,
    new_text,
    session,
)
from tests.doubles.replica_streams import ENDLESS, read_event

if TYPE_CHECKING:
    from prometheus_client import Metric

    from tests.doubles.engines import Member

ENGINE = {"engine_type", "model_name"}
SCHEDULER = {*ENGINE, "moe_ep_rank", "pp_rank", "tp_rank"}
REQUEST = {*ENGINE, "is_streaming"}
FAMILIES: dict[str, tuple[str, set[str]]] = {
    "num_running_reqs": ("gauge", SCHEDULER),
    "num_queue_reqs": ("gauge", SCHEDULER),
    "token_usage": ("gauge", SCHEDULER),
    "num_used_tokens": ("gauge", SCHEDULER),
    "kv_used_tokens": ("gauge", SCHEDULER),
    "kv_available_tokens": ("gauge", SCHEDULER),
    "kv_evictable_tokens": ("gauge", SCHEDULER),
    "max_total_num_tokens": ("gauge", SCHEDULER),
    "page_size": ("gauge", SCHEDULER),
    "num_pages": ("gauge", SCHEDULER),
    "context_len": ("gauge", SCHEDULER),
    "cache_hit_rate": ("gauge", SCHEDULER),
    "gen_throughput": ("gauge", SCHEDULER),
    "prefill_effective_tokens": ("counter", {*SCHEDULER, "mode"}),
    "prompt_tokens": ("counter", REQUEST),
    "generation_tokens": ("counter", REQUEST),
    "num_requests": ("counter", REQUEST),
    "cached_tokens": ("counter", {*ENGINE, "cache_source"}),
    "num_aborted_requests": ("counter", ENGINE),
    "time_to_first_token_seconds": ("histogram", REQUEST),
    "e2e_request_latency_seconds": ("histogram", REQUEST),
}
"""All that the emulator exports, and what real SGLang must export beside its others."""

TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
BOUNDS = {
    "time_to_first_token_seconds": TTFT,
    "e2e_request_latency_seconds": (*TTFT, 600, 1200, 1800, 2400),
}


async def scrape(member: Member) -> dict[str, Metric]:
    """The families by their names, asked for without a key."""
    async with aiohttp.ClientSession(member.url) as http, http.get("/metrics") as response:
        assert response.status == 200
        expected = "text/plain; version=0.0.4; charset=utf-8"
        assert response.headers["Content-Type"] == expected
        text = await response.text()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert all(name.startswith("sglang:") for name in families)
    return {name.removeprefix("sglang:"): family for name, family in families.items()}


async def work(member: Member) -> dict[str, int]:
    """One request, streamed and not, the second time from the cache; what it must add up to."""
    body = chat_body(new_text(random.SystemRandom(), n_bytes=1_000), output_tokens=7)
    async with session(member) as http:
        async with http.post(CHAT, json={**body, "stream": True}) as response:
            await response.read()
        usage = (await complete(http, body))["usage"]
        await load_when(http, is_idle)
    return {
        "prompt_tokens": usage["prompt_tokens"],
        "generation_tokens": usage["completion_tokens"],
        "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"],
    }


def labels_of(family: Metric) -> set[frozenset[str]]:
    return {
        frozenset(sample.labels.keys() - {"le"})
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def total(families: dict[str, Metric], name: str, suffix: str = "_total", **labels: str) -> float:
    """The sum of one family's samples with these labels; 0 if there is none."""
    family = families.get(name)
    return sum(
        sample.value
        for sample in (family.samples if family is not None else ())
        if sample.name.endswith(suffix) and labels.items() <= sample.labels.items()
    )


async def test_the_families_have_their_types_and_labels(plain: Member) -> None:
    await work(plain)
    families = await scrape(plain)
    for name, (type_name, labels) in FAMILIES.items():
        assert name in families
        assert families[name].type == type_name, name
        assert labels_of(families[name]) == {frozenset(labels)}, name


async def test_there_are_no_other_families(plain: Member, kind: str) -> None:
    skip_where_excepted(kind, "no other families")
    await work(plain)
    assert (await scrape(plain)).keys() == FAMILIES.keys()


async def test_the_label_values_are_those_of_one_rank(plain: Member) -> None:
    await work(plain)
    families = await scrape(plain)
    [gauge] = families["num_running_reqs"].samples
    assert gauge.labels == {
        "engine_type": "unified",
        "model_name": MODEL,
        "moe_ep_rank": "0",
        "pp_rank": "0",
        "tp_rank": "0",
    }
    streamed = {sample.labels["is_streaming"] for sample in families["num_requests"].samples}
    assert streamed == {"true", "false"}
    modes = {sample.labels["mode"] for sample in families["prefill_effective_tokens"].samples}
    assert modes == {"device_hit", "host_hit", "storage_hit", "input"}
    sources = {sample.labels["cache_source"] for sample in families["cached_tokens"].samples}
    assert sources == {"device"}


async def test_the_buckets_are_these(plain: Member) -> None:
    await work(plain)
    families = await scrape(plain)
    for name, bounds in BOUNDS.items():
        found = {
            float(sample.labels["le"])
            for sample in families[name].samples
            if sample.name.endswith("_bucket")
        }
        assert found == {*map(float, bounds), float("inf")}


async def test_requests_add_up(plain: Member) -> None:
    before = await scrape(plain)
    added = await work(plain)
    after = await scrape(plain)

    def grown(name: str, suffix: str = "_total", **labels: str) -> float:
        return total(after, name, suffix, **labels) - total(before, name, suffix, **labels)

    for streamed in ("true", "false"):
        assert grown("num_requests", is_streaming=streamed) == 1
        assert grown("prompt_tokens", is_streaming=streamed) == added["prompt_tokens"]
        assert grown("generation_tokens", is_streaming=streamed) == added["generation_tokens"]
        for name in BOUNDS:
            assert grown(name, "_count", is_streaming=streamed) == 1
            assert grown(name, "_sum", is_streaming=streamed) > 0
    assert grown("cached_tokens", cache_source="device") == added["cached_tokens"] > 0
    assert grown("prefill_effective_tokens", mode="device_hit") == added["cached_tokens"]
    new_tokens = 2 * added["prompt_tokens"] - added["cached_tokens"]
    assert grown("prefill_effective_tokens", mode="input") == new_tokens
    assert grown("num_aborted_requests") == 0


async def test_an_abort_is_counted(plain: Member) -> None:
    before = await scrape(plain)
    body = chat_body("x", output_tokens=ENDLESS, rid="counted", stream=True)
    async with session(plain) as http, http.post(CHAT, json=body) as stream:
        await read_event(stream)
        async with http.post("/abort_request", json={"rid": "counted"}) as response:
            assert response.status == 200
        await stream.read()
        await load_when(http, is_idle)
    after = await scrape(plain)
    name = "num_aborted_requests"
    assert total(after, name) - total(before, name) == 1


async def test_an_idle_replica_shows_its_size(plain: Member) -> None:
    added = await work(plain)
    families = await scrape(plain)
    values = {name: families[name].samples[0].value for name in FAMILIES if name in families}
    role = plain.role
    assert values["max_total_num_tokens"] == role.pool_tokens
    assert values["page_size"] == role.page_tokens
    assert values["num_pages"] == role.pool_tokens // role.page_tokens
    assert values["context_len"] == CONTEXT_TOKENS
    expected_rate = added["cached_tokens"] / added["prompt_tokens"]
    assert abs(values["cache_hit_rate"] - expected_rate) < 1e-3
    for name in ("num_used_tokens", "kv_used_tokens", "kv_available_tokens", "kv_evictable_tokens"):
        assert 0 <= values[name] <= role.pool_tokens
        assert values[name] % role.page_tokens == 0
    assert 0.0 <= values["token_usage"] <= 1.0
