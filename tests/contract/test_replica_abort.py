"""``/abort_request``: whom it ends, and what they are told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.doubles.replica_calls import CHAT, chat_body, load_of, load_when, session
from tests.doubles.replica_streams import (
    ENDLESS,
    MESSAGE,
    MESSAGES,
    events_of,
    occupied,
    read_event,
    waiting,
)

if TYPE_CHECKING:
    from tests.doubles.engines import Member


async def abort(member: Member, **body: object) -> None:
    """It answers the same whether it found anything or not."""
    async with (
        aiohttp.ClientSession(member.url, headers=member.admin_headers) as http,
        http.post("/abort_request", json=body) as response,
    ):
        assert (response.status, await response.read()) == (200, b"")


async def test_a_stream_is_ended_by_its_whole_id(plain: Member) -> None:
    async with session(plain) as http:
        options = {"include_usage": True}
        more = {"stream": True, "stream_options": options, "rid": "abcdef"}
        async with http.post(CHAT, json=chat_body("x", output_tokens=ENDLESS, **more)) as response:
            await read_event(response)
            for rid in ("zzz", "abc", "", "abcdefg"):
                await abort(plain, rid=rid)
            told_s = (await load_of(http))["timestamp"]
            load = await load_when(http, lambda load: load["timestamp"] > told_s)
            assert load["num_running_reqs"] == 1
            await abort(plain, rid="abcdef")
            async with asyncio.timeout(20):
                *_, (_, end), (_, usage), (_, mark) = events_of(await response.text())
    assert end["choices"][0]["delta"] == {"reasoning_content": None}
    assert end["choices"][0]["finish_reason"] == "abort"
    assert end["choices"][0]["matched_stop"] is None
    assert 0 < usage["usage"]["completion_tokens"] < ENDLESS
    assert mark == "[DONE]"


async def test_a_whole_answer_is_cut_short(plain: Member) -> None:
    async with session(plain) as http, asyncio.TaskGroup() as group:
        body = chat_body("x", output_tokens=ENDLESS, rid="whole")
        asked = group.create_task(http.post(CHAT, json=body))
        await load_when(http, lambda load: load["num_running_reqs"] == 1)
        await abort(plain, rid="whole")
        async with asyncio.timeout(20), await asked as response:
            assert response.status == 200
            answer = await response.json()
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "abort"
    assert answer["usage"]["prompt_tokens"] > 0
    assert 0 < answer["usage"]["completion_tokens"] < ENDLESS
    [version] = answer["metadata"]["weight_versions"]
    assert version["end"] == answer["usage"]["completion_tokens"]


async def test_ids_that_begin_with_a_live_one_are_ended_with_it(plain: Member) -> None:
    async with session(plain) as http, asyncio.TaskGroup() as group:
        tasks = {}
        for rid in ("family", "family-1", "other"):
            body = chat_body("x", output_tokens=ENDLESS, rid=rid)
            tasks[rid] = group.create_task(http.post(CHAT, json=body))
        await load_when(http, lambda load: load["num_running_reqs"] == 3)
        await abort(plain, rid="family")
        for rid in ("family", "family-1"):
            async with asyncio.timeout(20), await tasks[rid] as response:
                assert (await response.json())["choices"][0]["finish_reason"] == "abort"
        assert not tasks["other"].done()
        await abort(plain, abort_all=True)
        async with asyncio.timeout(20), await tasks["other"] as response:
            assert (await response.json())["choices"][0]["finish_reason"] == "abort"


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_waiting_chat_is_ended_without_a_word(tight: Member, *, is_stream: bool) -> None:
    async with session(tight) as http, occupied(http):
        body = chat_body("x", rid="queued", stream=is_stream)
        async with waiting(http, CHAT, body) as asked:
            await abort(tight, rid="queued")
            async with asyncio.timeout(20), await asked as response:
                assert response.status == 200
                answer: Any = await response.text() if is_stream else await response.json()
    if is_stream:
        (_, first), (_, end), (_, mark) = events_of(answer)
        assert first["choices"][0]["delta"]["role"] == "assistant"
        assert end["choices"][0]["finish_reason"] == "abort"
        assert mark == "[DONE]"
    else:
        usage = answer["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (0, 0)
        assert answer["choices"][0]["finish_reason"] == "abort"
        assert answer["choices"][0]["message"]["content"] == ""


@pytest.mark.parametrize("is_stream", [False, True])
async def test_all_are_ended_waiting_messages_too(tight: Member, *, is_stream: bool) -> None:
    """The dialect has no word for it, and calls it the end of the turn."""
    async with session(tight) as http, occupied(http) as running:
        async with waiting(http, MESSAGES, {**MESSAGE, "stream": is_stream}) as asked:
            await abort(tight, abort_all=True)
            async with asyncio.timeout(20), await asked as response:
                assert response.status == 200
                answer: Any = await response.text() if is_stream else await response.json()
        async with asyncio.timeout(20):
            *_, (_, end), (_, mark) = events_of(await running.text())
    assert (end["choices"][0]["finish_reason"], mark) == ("abort", "[DONE]")
    nothing = {"input_tokens": 0, "output_tokens": 0}
    if is_stream:
        start, delta, stop = [data for _, data in events_of(answer)]
        assert start["message"]["usage"] == nothing
        assert delta["delta"] == {"stop_reason": "end_turn"}
        assert stop == {"type": "message_stop"}
    else:
        assert answer["content"] == [{"type": "text", "text": ""}]
        assert (answer["stop_reason"], answer["usage"]) == ("end_turn", nothing)
