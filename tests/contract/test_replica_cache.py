"""Cached tokens: exactly the pages of a prompt that are known, less what has to be computed."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.doubles.engines import MODEL, PAGE_TOKENS
from tests.doubles.replica_calls import chat_body, complete, load_when, new_text, session, usage_of
from tests.doubles.replica_streams import (
    ENDLESS,
    MESSAGES,
    PAD,
    chunks_of,
    common_tokens,
    only,
    plain_words,
    read_event,
    text_of_tokens,
    tokens_of,
)

if TYPE_CHECKING:
    from tests.doubles.engines import Member

DICE = random.Random()  # a replica that outlives the run knows what it was told before
CHAT = "/v1/chat/completions"


def new_start() -> str:
    """The beginning of a text that no replica has seen."""
    return new_text(DICE, n_bytes=16)


def whole_pages(n_tokens: int) -> int:
    return n_tokens // PAGE_TOKENS * PAGE_TOKENS


def cacheable(n_tokens: int) -> int:
    """Of a prompt: its last token is always computed."""
    return whole_pages(n_tokens - 1)


async def cached_of(http: aiohttp.ClientSession, text: str, **more: object) -> int:
    return (await usage_of(http, chat_body(text, output_tokens=1, **more)))[1]


@pytest.mark.parametrize("beyond", [-1, 0, 1])
async def test_a_repeated_prompt_is_cached_but_for_its_last_token(
    plain: Member, beyond: int
) -> None:
    """A prompt of whole pages has its last page computed again."""
    n_tokens = 5 * PAGE_TOKENS + beyond
    async with session(plain) as http:
        text = await text_of_tokens(http, new_start(), n_tokens)
        for expected in (0, cacheable(n_tokens), cacheable(n_tokens)):
            usage = await usage_of(http, chat_body(text, output_tokens=1))
            assert usage == (n_tokens, expected)


async def test_a_stream_names_what_was_cached_wherever_it_counts(plain: Member) -> None:
    async with session(plain) as http:
        text = await text_of_tokens(http, new_start(), 400)
        assert await cached_of(http, text) == 0
        body = chat_body(text, output_tokens=20, **await plain_words(http))
        for options in (
            {"include_usage": True},
            {"include_usage": True, "continuous_usage_stats": True},
        ):
            chunks = await chunks_of(http, {**body, "stream_options": options})
            usages = [chunk["usage"] for chunk in chunks if "usage" in chunk]
            assert len(usages) > (1 if "continuous_usage_stats" in options else 0)
            assert {usage["prompt_tokens"] for usage in usages} == {400}
            cached = {usage["prompt_tokens_details"]["cached_tokens"] for usage in usages}
            assert cached == {cacheable(400)}


async def test_prompts_share_what_they_begin_with(plain: Member) -> None:
    async with session(plain) as http:
        head = await text_of_tokens(http, new_start(), 300)
        first, second = (chat_body(head + tail) for tail in ("one" * 250, "two" * 250))
        shared = common_tokens(await tokens_of(http, first), await tokens_of(http, second))
        assert shared >= 256
        for body, expected in ((first, 0), (second, whole_pages(shared))):
            assert (await usage_of(http, body))[1] == expected
        # Where they part, neither has lost anything.
        for body in (first, second):
            n_tokens = len(await tokens_of(http, body))
            assert (await usage_of(http, body))[1] == cacheable(n_tokens)


async def told_whole(
    http: aiohttp.ClientSession, body: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The message and the usage of a chat's answer."""
    answer = await complete(http, body)
    return answer["choices"][0]["message"], answer["usage"]


async def told_in_pieces(
    http: aiohttp.ClientSession, body: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same of a stream."""
    *chunks, last = await chunks_of(http, {**body, "stream_options": {"include_usage": True}})
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    message: dict[str, Any] = {"role": "assistant"}
    for key in ("reasoning_content", "content"):
        message[key] = "".join(delta.get(key) or "" for delta in deltas)
    return message, last["usage"]


@pytest.mark.parametrize("thinking", ["off", "kept", "dropped"])
async def test_a_growing_chat_is_cached_with_the_answers_it_sends_back(
    plain: Member, thinking: str
) -> None:
    """The last token of an answer was never computed on; reasoning counts while it is kept."""
    n_output = 150
    n_first = 8 * PAGE_TOKENS - n_output  # the first answer ends with a page
    kwargs = {"thinking": thinking != "off", "preserve_thinking": thinking == "kept"}
    async with session(plain) as http:
        more = {"chat_template_kwargs": kwargs, **await only(http, PAD)}
        text = await text_of_tokens(http, new_start(), n_first)
        body = chat_body(text, output_tokens=n_output, **more)
        expected = 0
        for turn in range(3):
            prompt = await tokens_of(http, body)
            message, usage = await (told_whole if turn != 1 else told_in_pieces)(http, body)
            assert usage["prompt_tokens"] == len(prompt)
            assert usage["prompt_tokens_details"]["cached_tokens"] == expected
            assert usage["completion_tokens"] == n_output

            assert bool(message["reasoning_content"]) is kwargs["thinking"]
            messages = [*body["messages"], message, {"role": "user", "content": f"Next, {turn}."}]
            body = {**body, "messages": messages}
            common = common_tokens(prompt, await tokens_of(http, body))
            known = common if thinking == "dropped" else len(prompt) + n_output - 1
            expected = whole_pages(known)
            assert expected > 300


async def test_another_salt_shares_nothing(plain: Member) -> None:
    async with session(plain) as http:
        text = await text_of_tokens(http, new_start(), 400)
        for salt in ({}, {"cache_salt": "one"}, {"cache_salt": "two"}, {"extra_key": "three"}):
            assert await cached_of(http, text, **salt) == 0
            assert await cached_of(http, text, **salt) == cacheable(400)


async def test_the_dialects_share_what_is_equal(plain: Member) -> None:
    async with session(plain) as http:
        text = await text_of_tokens(http, new_start(), 400)
        assert await cached_of(http, text) == 0
        messages = [{"role": "user", "content": text}]
        body = {"model": MODEL, "messages": messages, "max_tokens": 1}
        async with http.post(MESSAGES, json=body) as response:
            usage = (await response.json())["usage"]
    assert usage["input_tokens"] == 400 - cacheable(400)
    assert usage["cache_read_input_tokens"] == cacheable(400)


async def test_requests_at_one_time_share_what_was_there_before(plain: Member) -> None:
    async with session(plain) as http:
        head = await text_of_tokens(http, new_start(), 640)
        assert await cached_of(http, head) == 0
        bodies = [chat_body(f"{head} {name}", output_tokens=20) for name in range(6)]
        ids = [await tokens_of(http, body) for body in bodies]
        usages = await asyncio.gather(*(usage_of(http, body) for body in bodies))
        for prompt, usage in zip(ids, usages, strict=True):
            assert usage[0] == len(prompt)
            assert whole_pages(640 - 8) <= usage[1] <= cacheable(len(prompt))
        # What nobody had known before is known to each of them afterwards.
        for body, prompt in zip(bodies, ids, strict=True):
            assert (await usage_of(http, body))[1] == cacheable(len(prompt))


async def test_an_abandoned_answer_leaves_its_prompt_cached(plain: Member) -> None:
    async with session(plain) as http:
        text = await text_of_tokens(http, new_start(), 500)
        body = chat_body(text, output_tokens=20_000, stream=True)
        async with http.post(CHAT, json=body) as response:
            await read_event(response)
        await load_when(http, lambda load: not load["num_running_reqs"])
        assert await cached_of(http, text) == cacheable(500)


async def test_an_aborted_answer_is_cached_as_far_as_it_came(plain: Member) -> None:
    async with session(plain) as http, asyncio.TaskGroup() as group:
        more = {"chat_template_kwargs": {"thinking": False}, **await only(http, PAD)}
        text = await text_of_tokens(http, new_start(), 300)
        body = chat_body(text, output_tokens=ENDLESS, rid=new_start(), **more)
        asked = group.create_task(told_whole(http, body))
        await load_when(http, lambda load: load["num_used_tokens"] > 300 + 3 * PAGE_TOKENS)
        async with http.post("/abort_request", json={"rid": body["rid"]}) as response:
            assert response.status == 200
        message, usage = await asked
        messages = [*body["messages"], message, {"role": "user", "content": "Go on."}]
        known = usage["prompt_tokens"] + usage["completion_tokens"] - 1
        _, cached = await usage_of(http, {**body, "messages": messages, "max_tokens": 1})
    assert known >= 300 + 2 * PAGE_TOKENS
    assert cached == whole_pages(known)


async def flush(member: Member) -> None:
    async with (
        aiohttp.ClientSession(member.url, headers=member.admin_headers) as http,
        http.post("/flush_cache", params={"timeout": "20"}) as response,
    ):
        assert response.status == 200, await response.text()


PROMPT_PAGES = 60
PROMPT_TOKENS = PROMPT_PAGES * PAGE_TOKENS + 32


async def test_the_prompt_unused_for_longest_is_evicted_first(tight: Member) -> None:
    """Five prompts of 60 pages fit a pool of 312, a sixth does not."""
    held = PROMPT_PAGES * PAGE_TOKENS
    await flush(tight)
    async with session(tight) as http:
        texts = {name: await text_of_tokens(http, new_start(), PROMPT_TOKENS) for name in "abcdef"}
        seen: dict[str, list[int]] = {name: [] for name in texts}
        for name in "abcdeafabcd":
            seen[name].append(await cached_of(http, texts[name]))
    assert seen == {
        "a": [0, held, held],
        "b": [0, 0],  # f took its place
        "c": [0, 0],  # b did
        "d": [0, 0],  # c did
        "e": [0],
        "f": [0],
    }


async def test_nothing_is_matched_past_what_was_evicted(tight: Member) -> None:
    """Two prompts share their first half. Of the colder one the half that is its own is evicted."""
    await flush(tight)
    async with session(tight) as http:
        head = await text_of_tokens(http, new_start(), PROMPT_TOKENS // 2)
        colder, warmer = [
            await text_of_tokens(http, f"{head} {name} ", PROMPT_TOKENS) for name in ("a", "b")
        ]
        ids = [await tokens_of(http, chat_body(text)) for text in (colder, warmer)]
        shared = whole_pages(common_tokens(*ids))
        assert PROMPT_TOKENS // 3 < shared < PROMPT_TOKENS * 2 // 3
        assert await cached_of(http, colder) == 0
        assert await cached_of(http, warmer) == shared
        for _ in range(4):
            other = await text_of_tokens(http, new_start(), PROMPT_TOKENS)
            assert await cached_of(http, other) == 0
        assert await cached_of(http, warmer) == cacheable(PROMPT_TOKENS)
        assert await cached_of(http, colder) == shared


async def test_what_was_added_last_is_evicted_from_the_end(tight: Member) -> None:
    """A prompt that goes on where another ends loses what it added, and nothing before it."""
    await flush(tight)
    async with session(tight) as http:
        start = await text_of_tokens(http, new_start(), PROMPT_TOKENS)
        longer = await text_of_tokens(http, f"{start} and ", 2 * PROMPT_TOKENS)
        ids = [await tokens_of(http, chat_body(text)) for text in (start, longer)]
        shared = whole_pages(common_tokens(*ids))
        assert await cached_of(http, start) == 0
        assert await cached_of(http, longer) == shared > PROMPT_TOKENS - 2 * PAGE_TOKENS
        assert await cached_of(http, longer) == cacheable(2 * PROMPT_TOKENS)
        for _ in range(4):
            other = await text_of_tokens(http, new_start(), PROMPT_TOKENS)
            assert await cached_of(http, other) == 0
        assert await cached_of(http, longer) == shared
