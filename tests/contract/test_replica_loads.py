"""``/v1/loads``: what a replica says of its load, and how old that may be."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.doubles.replica_calls import (
    POLL_S,
    chat_body,
    complete,
    is_idle,
    load_of,
    load_when,
    new_text,
    session,
    streaming,
    usage_of,
)

if TYPE_CHECKING:
    import aiohttp

    from tests.doubles.engines import Member

REPORT_STEPS = 15
COUNTS = (
    "dp_rank",
    "num_running_reqs",
    "num_waiting_reqs",
    "num_waiting_uncached_tokens",
    "num_used_tokens",
    "num_total_tokens",
    "num_active_tokens",
    "num_prealloc_ready_tokens",
    "max_total_num_tokens",
    "max_running_requests",
    "total_prefill_uncached_tokens",
    "total_prefill_busy_us",
)
NUMBERS = ("timestamp", "token_usage", "gen_throughput", "cache_hit_rate", "utilization")
CORE = {**dict.fromkeys(COUNTS, int), **dict.fromkeys(NUMBERS, float), "decode_moments": list}
SECTIONS: dict[str, tuple[str, dict[str, type]]] = {
    "memory": (
        "memory",
        {"weight_gb": float, "kv_cache_gb": float, "graph_gb": float, "token_capacity": int},
    ),
    "disagg": (
        "disaggregation",
        {
            "mode": str,
            "prefill_bootstrap_queue_reqs": int,
            "prefill_inflight_queue_reqs": int,
            "decode_prealloc_queue_reqs": int,
            "decode_transfer_queue_reqs": int,
            "decode_retracted_queue_reqs": int,
            "kv_transfer_speed_gb_s": float,
            "kv_transfer_latency_ms": float,
        },
    ),
    "queues": (
        "queues",
        dict.fromkeys(("waiting", "grammar", "paused", "retracted", "prealloc_ready"), int),
    ),
}
MAYBE: dict[str, tuple[str, dict[str, type]]] = {
    # Only with a drafter, after its first step; only with LoRA.
    "spec": ("speculative", {"accept_length": float, "accept_rate": float}),
    "lora": ("lora", {"slots_used": int, "slots_total": int, "utilization": float}),
}


@pytest.fixture
def dice() -> random.Random:
    """Fresh prompts in every run: what one run has cached must not help the next."""
    return random.SystemRandom()


def types_of(found: dict[str, Any]) -> dict[str, type]:
    return {name: type(value) for name, value in found.items()}


async def text_of(http: aiohttp.ClientSession, dice: random.Random, *, tokens: int) -> str:
    """New text of about so many of the member's own tokens."""
    probe = new_text(dice, n_bytes=4_000)
    async with http.post("/v1/tokenize", json={"prompt": probe}) as response:
        count = (await response.json())["count"]
    return new_text(dice, n_bytes=math.ceil(tokens * len(probe) / count))


async def prompt_tokens_of(http: aiohttp.ClientSession, body: dict[str, Any]) -> int:
    asked = {"messages": body["messages"]}
    async with http.post("/v1/tokenize", json=asked) as response:
        count: int = (await response.json())["count"]
        return count


async def started_load(http: aiohttp.ClientSession, dice: random.Random) -> dict[str, Any]:
    """An idle member's report, after it has generated at least once."""
    await complete(http, chat_body(new_text(dice, n_bytes=400)))
    return await load_when(http, is_idle)


# --- the form ---------------------------------------------------------------------------------


@pytest.mark.parametrize("include", ["core", *SECTIONS, *MAYBE, "core,queues", " queues , memory"])
async def test_only_the_sections_asked_for_are_told(
    plain: Member, dice: random.Random, include: str
) -> None:
    async with session(plain) as http:
        await started_load(http, dice)
        load = await load_of(http, include)
    expected: dict[str, type] = dict(CORE)
    for name in (part.strip() for part in include.split(",")):
        if name in SECTIONS:
            key, types = SECTIONS[name]
            expected[key] = dict
            assert types_of(load[key]) == types
        if name in MAYBE and MAYBE[name][0] in load:
            key, types = MAYBE[name]
            expected[key] = dict
            assert types_of(load[key]) == types
    assert types_of(load) == expected
    assert len(load["decode_moments"]) == 6


@pytest.mark.parametrize("query", ["", "?include=", "?include=all", "?include=core,all"])
async def test_everything_is_told_by_default(plain: Member, query: str) -> None:
    async with session(plain) as http, http.get(f"/v1/loads{query}") as response:
        assert response.status == 200
        report = await response.json()
    assert list(report) == ["timestamp", "version", "accelerator", "num_accelerators", "loads"]
    assert isinstance(report["timestamp"], str)
    assert report["version"] == "0.5.23"
    assert report["accelerator"] is None or isinstance(report["accelerator"], str)
    assert report["num_accelerators"] >= 1
    [load] = report["loads"]
    assert {key for key, _ in SECTIONS.values()} < set(load)


async def test_a_rank_that_does_not_exist_is_an_empty_list(plain: Member) -> None:
    async with session(plain) as http:
        for rank, expected in (("0", 1), ("1", 0), ("-1", 0)):
            async with http.get("/v1/loads", params={"dp_rank": rank}) as response:
                assert response.status == 200
                assert len((await response.json())["loads"]) == expected


async def test_a_rank_that_is_no_number_is_refused(plain: Member) -> None:
    async with session(plain) as http, http.get("/v1/loads?dp_rank=first") as response:
        assert response.status == 400
        error = await response.json()
    assert "dp_rank" in error.pop("message")
    assert error == {"object": "error", "type": "Bad Request", "param": None, "code": 400}


@pytest.mark.parametrize("include", ["nonsense", "core,nonsense"])
async def test_an_unknown_section_is_a_server_error(plain: Member, include: str) -> None:
    async with session(plain) as http, http.get(f"/v1/loads?include={include}") as response:
        assert response.status == 500
        assert response.content_type == "text/plain"
        assert await response.text() == "Internal Server Error"


async def test_the_same_numbers_come_as_gauges(plain: Member) -> None:
    async with session(plain) as http, http.get("/v1/loads?format=prometheus") as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = list(text_string_to_metric_families(await response.text()))
        load = await load_of(http)
    gauges = {family.name: family.samples[0] for family in families}
    assert {sample.labels["dp_rank"] for sample in gauges.values()} == {"0"}
    assert {family.type for family in families} == {"gauge"}
    plain_names = {f"sglang_{name}" for name in CORE} - {"sglang_dp_rank", "sglang_decode_moments"}
    nested = {
        f"sglang_{prefix}_{name}"
        for prefix, (key, types) in SECTIONS.items()
        for name, kind in types.items()
        if kind is not str and key in load
    }
    assert plain_names | nested <= set(gauges)
    assert gauges["sglang_max_total_num_tokens"].value == load["max_total_num_tokens"]
    assert gauges["sglang_queues_waiting"].value == 0


# --- the numbers ------------------------------------------------------------------------------


async def test_an_idle_replica_holds_nothing_and_knows_its_size(
    plain: Member, tight: Member, dice: random.Random
) -> None:
    for member in (plain, tight):
        async with session(member) as http:
            load = await started_load(http, dice)
            assert load["max_total_num_tokens"] == member.role.pool_tokens
            assert load["max_running_requests"] == member.role.max_running
            assert load["memory"]["token_capacity"] == member.role.pool_tokens
            # Cached pages count as free: they can be evicted.
            assert load["num_used_tokens"] == load["num_active_tokens"] == 0
            assert load["token_usage"] == load["utilization"] == 0.0
            # The speed of the last steps may be told for half a minute after them.
            assert load["gen_throughput"] >= 0.0
            assert load["num_waiting_uncached_tokens"] == 0


async def test_an_idle_replica_reports_all_the_time(plain: Member) -> None:
    async with session(plain) as http:
        first = await load_when(http, is_idle)
        await load_when(http, lambda load: load["timestamp"] > first["timestamp"])


async def test_uncached_prompt_tokens_are_counted_exactly(
    plain: Member, dice: random.Random
) -> None:
    async with session(plain) as http:
        before = await started_load(http, dice)
        body = chat_body(new_text(dice, n_bytes=2_000))
        for _ in range(2):
            prompt, cached = await usage_of(http, body)
            after = await load_when(http, is_idle)
            new_tokens = (
                after["total_prefill_uncached_tokens"] - before["total_prefill_uncached_tokens"]
            )
            assert new_tokens == prompt - cached
            assert after["total_prefill_busy_us"] > before["total_prefill_busy_us"]
            assert after["cache_hit_rate"] == pytest.approx(cached / prompt, abs=1e-4)
            before = after
        assert cached == (prompt - 1) // plain.role.page_tokens * plain.role.page_tokens


async def test_generation_steps_are_summed_up(plain: Member, dice: random.Random) -> None:
    async with session(plain) as http:
        before = (await started_load(http, dice))["decode_moments"]
        await complete(http, chat_body(new_text(dice, n_bytes=400), output_tokens=41))
        load = await load_when(http, is_idle)
    steps, batches, us, squares, products, tokens = (
        after - old for after, old in zip(load["decode_moments"], before, strict=True)
    )
    accept = load.get("speculative", {"accept_length": 1.0})["accept_length"]
    # Steps that follow a pause are left out.
    assert 0.5 * 40 / accept <= steps <= 40 / accept + 1
    assert steps == batches == squares
    assert us == pytest.approx(products)
    assert us > 0
    assert steps <= tokens < 40 + accept


async def test_an_answer_that_is_whole_leaves_the_report_at_once(
    plain: Member, dice: random.Random
) -> None:
    loop = asyncio.get_running_loop()
    async with session(plain) as http:
        await complete(http, chat_body(new_text(dice, n_bytes=400), output_tokens=30))
        ended_s = loop.time()
        await load_when(http, is_idle)
        assert loop.time() - ended_s < 1.0


async def test_one_that_waits_counts_with_its_whole_prompt(
    tight: Member, dice: random.Random
) -> None:
    first = chat_body(new_text(dice, n_bytes=800), output_tokens=2_000)
    second = chat_body(new_text(dice, n_bytes=1_600))
    async with session(tight) as http:
        prompt = await prompt_tokens_of(http, second)
        warm = chat_body(new_text(dice, n_bytes=800))
        for _ in range(2):
            await complete(http, warm)
        async with streaming(http, first), asyncio.TaskGroup() as group:
            before = await load_when(http, lambda load: load["num_running_reqs"] == 1)
            assert before["num_waiting_reqs"] == 0
            assert before["num_total_tokens"] == before["num_used_tokens"] > 0
            waiting = group.create_task(complete(http, second))
            load = await load_when(http, lambda load: load["num_waiting_reqs"] == 1)
            waiting.cancel()
        assert load["num_running_reqs"] == load["queues"]["waiting"] == 1
        assert load["num_total_tokens"] == load["num_used_tokens"] + prompt
        assert load["num_active_tokens"] == load["num_total_tokens"]
        # First come, first served does not look prompts up: it guesses from what others found
        # cached within 15 seconds.
        assert 0 < load["num_waiting_uncached_tokens"] < prompt
        assert load["token_usage"] == pytest.approx(
            load["num_used_tokens"] / load["max_total_num_tokens"], abs=1e-4
        )
        await load_when(http, is_idle)


async def test_two_that_run_count_as_two_and_the_pages_they_share_once(
    plain: Member, dice: random.Random
) -> None:
    page = plain.role.page_tokens
    async with session(plain) as http:
        await load_when(http, is_idle)
        text = new_text(dice, n_bytes=8_000)
        bodies = [chat_body(f"{text} {name}", output_tokens=10_000) for name in ("one", "two")]
        prompt = min([await prompt_tokens_of(http, body) for body in bodies])
        assert prompt > 20 * page
        async with streaming(http, bodies[0]), streaming(http, bodies[1]):
            load = await load_when(http, lambda load: load["num_running_reqs"] == 2)
            assert prompt <= load["num_used_tokens"] < 1.5 * prompt
            first = load["decode_moments"]
            load = await load_when(http, lambda load: load["decode_moments"] != first)
            steps, batches, us, squares, products, _ = (
                after - old for after, old in zip(load["decode_moments"], first, strict=True)
            )
            assert (batches, squares) == (2 * steps, 4 * steps)
            assert products == pytest.approx(2 * us)
        await load_when(http, is_idle)


# --- how old they may be ----------------------------------------------------------------------


async def test_a_generation_is_reported_every_fifteen_steps(
    plain: Member, dice: random.Random
) -> None:
    output = 450
    body = chat_body(new_text(dice, n_bytes=1_600), output_tokens=output)
    page = plain.role.page_tokens
    seen: dict[float, dict[str, Any]] = {}
    async with session(plain) as http:
        await started_load(http, dice)
        prompt = await prompt_tokens_of(http, body)
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(complete(http, body))
            while not answer.done():
                load = await load_of(http)
                if load["num_used_tokens"]:
                    assert seen.setdefault(load["timestamp"], load) == load
                await asyncio.sleep(POLL_S)
        await load_when(http, is_idle)
    reports = list(seen.values())
    accept = reports[-1].get("speculative", {"accept_length": 1.0})["accept_length"]
    due = (output - 1) / accept / REPORT_STEPS
    # One more at the end of the prefill. A busy machine may miss some.
    assert 0.3 * due < len(reports) <= due + 2
    steps = [load["decode_moments"][0] for load in reports[1:]]
    apart = [later - earlier for earlier, later in itertools.pairwise(steps)]
    assert min(apart) == REPORT_STEPS
    assert all(count % REPORT_STEPS == 0 for count in apart)
    used = [load["num_used_tokens"] for load in reports]
    assert used == sorted(used)
    assert all(tokens % page == 0 for tokens in used)
    assert -(-prompt // page) * page <= used[0] <= prompt + page
    assert used[-1] <= -(-(prompt + output) // page) * page
    assert used[-1] > prompt + output - (2 * REPORT_STEPS + 1) * math.ceil(accept) - page
    assert {load["num_running_reqs"] for load in reports[1:]} == {1}
    assert {load["num_waiting_reqs"] for load in reports} == {0}
    assert reports[-1]["gen_throughput"] >= 0


async def test_a_prompt_in_the_making_neither_runs_nor_waits(
    plain: Member, dice: random.Random
) -> None:
    async with session(plain) as http:
        async with http.get("/server_info") as response:
            chunk = (await response.json())["chunked_prefill_size"]
        before = await started_load(http, dice)
        body = chat_body(await text_of(http, dice, tokens=int(2.2 * chunk)))
        prompt = await prompt_tokens_of(http, body)
        assert 2 * chunk < prompt < 3 * chunk
        async with asyncio.TaskGroup() as group:
            group.create_task(complete(http, body))
            load = await load_when(http, lambda load: load["num_waiting_uncached_tokens"] > 0)
            # The first report comes with the end of the first chunk.
            assert load["num_running_reqs"] == load["num_waiting_reqs"] == 0
            assert load["num_used_tokens"] in (chunk, 2 * chunk)
            left = load["num_waiting_uncached_tokens"]
            assert (prompt - left) % chunk == 0
            # The chunk that has just ended is not in the counters yet.
            counted = (
                load["total_prefill_uncached_tokens"] - before["total_prefill_uncached_tokens"]
            )
            assert counted % chunk == 0
            assert counted < load["num_used_tokens"]
        after = await load_when(http, is_idle)
    counted = after["total_prefill_uncached_tokens"] - before["total_prefill_uncached_tokens"]
    assert prompt - plain.role.page_tokens * 2 < counted <= prompt
