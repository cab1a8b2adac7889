"""A full queue: one request runs, one waits, and what each dialect says to the next."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.replica_calls import CHAT, chat_body, complete, load_when, session
from tests.doubles.replica_streams import (
    ENDLESS,
    MESSAGE,
    MESSAGES,
    PATHS,
    events_of,
    occupied,
    waiting,
)

if TYPE_CHECKING:
    from tests.doubles.engines import Member

TEXT = "The request queue is full."
ERROR = {"object": "error", "message": TEXT, "param": None, "code": 503}


async def test_a_full_queue_in_each_form(tight: Member) -> None:
    queued = chat_body("x", output_tokens=ENDLESS)
    async with session(tight) as http, occupied(http), waiting(http, CHAT, queued):
        async with http.post(CHAT, json=chat_body("x")) as response:
            assert response.status == 503
            assert "Retry-After" not in response.headers
            assert await response.json() == {**ERROR, "type": "503"}
        async with http.post(CHAT, json=chat_body("x", stream=True)) as response:
            assert response.status == 200
            assert response.content_type == "text/event-stream"
            assert "Retry-After" not in response.headers
            (_, event), (_, end) = events_of(await response.text())
            assert event == {"error": {**ERROR, "type": "SERVICE_UNAVAILABLE"}}
            assert end == "[DONE]"
        async with http.post(MESSAGES, json=MESSAGE) as response:
            assert response.status == 503
            assert "Retry-After" not in response.headers
            error = {"type": "overloaded_error", "message": "Internal server error"}
            assert await response.json() == {"type": "error", "error": error}
        async with http.post(MESSAGES, json={**MESSAGE, "stream": True}) as response:
            assert response.status == 200
            assert response.content_type == "text/event-stream"
            assert "Retry-After" not in response.headers
            start, event, stop = [data for _, data in events_of(await response.text())]
            assert start["type"] == "message_start"
            assert start["message"]["usage"] == {"input_tokens": 0, "output_tokens": 0}
            error = {"type": "overloaded_error", "message": TEXT}
            assert event == {"type": "error", "error": error}
            assert stop == {"type": "message_stop"}


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_a_waiting_request_is_served_when_a_place_is_free(
    tight: Member, path: str, *, is_stream: bool
) -> None:
    body = chat_body("x", stream=is_stream) if path == CHAT else {**MESSAGE, "stream": is_stream}
    async with (
        session(tight) as http,
        occupied(http) as running,
        waiting(http, path, body) as served,
    ):
        running.close()
        async with asyncio.timeout(20), await served as response:
            assert response.status == 200
            text = await response.text()
    if is_stream:
        events = events_of(text)
        assert "error" not in {name for name, _ in events}
        assert events[-1] in [("", "[DONE]"), ("message_stop", {"type": "message_stop"})]


async def test_the_head_of_a_streamed_message_comes_while_it_waits(tight: Member) -> None:
    """That of a chat comes with its first event."""
    async with session(tight) as http, occupied(http):
        async with waiting(http, MESSAGES, {**MESSAGE, "stream": True}) as early:
            async with asyncio.timeout(10):
                response = await early
            assert response.status == 200
            response.close()
        await load_when(http, lambda load: not load["num_waiting_reqs"])
        async with waiting(http, CHAT, chat_body("x", stream=True)) as late:
            done, _ = await asyncio.wait([late], timeout=0.5)
            assert not done
        await load_when(http, lambda load: not load["num_waiting_reqs"])


def are_waiting(n_wanted: int, load: dict[str, Any]) -> bool:
    return bool(load["num_waiting_reqs"] == n_wanted)


async def test_those_who_wait_are_served_in_the_order_they_came(plain: Member) -> None:
    async with session(plain) as http, AsyncExitStack() as stack:
        holding = chat_body("hold", output_tokens=ENDLESS, stream=True)
        asked = [http.post(CHAT, json=holding) for _ in range(plain.role.max_running)]
        async with asyncio.timeout(20):
            holders = await asyncio.gather(*map(stack.enter_async_context, asked))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        waiters = []
        for n_before in range(3):
            body = chat_body("wait", output_tokens=20)
            waiters.append(group.create_task(complete(http, body)))
            await load_when(http, partial(are_waiting, n_before + 1))
        holders[0].close()
        for n_served in (1, 2, 3):
            async with asyncio.timeout(20):
                await asyncio.wait(waiters[n_served - 1 :], return_when=asyncio.FIRST_COMPLETED)
            assert [task.done() for task in waiters[:n_served]] == [True] * n_served
