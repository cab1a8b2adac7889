"""Flushing the cache, aborting nothing."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from tests.doubles.replica_calls import (
    chat_body,
    complete,
    is_idle,
    load_when,
    new_text,
    session,
    streaming,
    usage_of,
)

if TYPE_CHECKING:
    from tests.doubles.engines import Member

ABORT = "/abort_request"
FLUSH = "/flush_cache"
DICE = random.SystemRandom()


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_flush_forgets_everything(plain: Member, method: str) -> None:
    body = chat_body(new_text(DICE, n_bytes=1_000))
    async with session(plain) as http:
        await usage_of(http, body)
        _, cached = await usage_of(http, body)
        assert cached > 0
        await load_when(http, is_idle)
        async with http.request(method, FLUSH) as response:
            assert response.status == 200
            assert (await response.text()).startswith("Cache flushed.\n")
        _, cached = await usage_of(http, body)
        assert cached == 0


async def test_a_flush_is_refused_while_a_request_runs(plain: Member) -> None:
    body = chat_body(new_text(DICE, n_bytes=1_000))
    async with session(plain) as http:
        await usage_of(http, body)
        long = chat_body(new_text(DICE, n_bytes=400), output_tokens=3_000)
        async with streaming(http, long):
            for query, text in (
                ("", "Flush cache failed.\n"),
                ("?timeout=0", "Flush cache failed.\n"),
                ("?timeout=0.2", "Timed out waiting for idle state."),
            ):
                async with http.post(FLUSH + query) as response:
                    assert (response.status, await response.text()) == (400, text)
        await load_when(http, is_idle)
        _, cached = await usage_of(http, body)
        assert cached > 0


async def test_a_flush_can_wait_for_the_last_request(plain: Member) -> None:
    body = chat_body(new_text(DICE, n_bytes=400), output_tokens=150)
    async with session(plain) as http, asyncio.TaskGroup() as group:
        answer = group.create_task(complete(http, body))
        await load_when(http, lambda load: load["num_running_reqs"] == 1)
        async with http.post(f"{FLUSH}?timeout=30") as response:
            assert response.status == 200
        assert (await answer)["usage"]["completion_tokens"] == 150


@pytest.mark.parametrize("seconds", ["-1", "soon"])
async def test_a_flush_needs_a_time_it_can_wait(plain: Member, seconds: str) -> None:
    async with session(plain) as http, http.post(f"{FLUSH}?timeout={seconds}") as response:
        assert response.status == 400
        error = await response.json()
    assert "timeout" in error.pop("message")
    assert error == {"object": "error", "type": "Bad Request", "param": None, "code": 400}


@pytest.mark.parametrize("body", [{"rid": "nobody"}, {"rid": "nobody", "abort_all": False}, {}])
async def test_aborting_nobody_is_fine(plain: Member, body: dict[str, object]) -> None:
    """In particular, no id at all does not end everybody."""
    long = chat_body(new_text(DICE, n_bytes=400), output_tokens=60)
    async with session(plain) as http, asyncio.TaskGroup() as group:
        answer = group.create_task(complete(http, long))
        await load_when(http, lambda load: load["num_running_reqs"] == 1)
        async with http.post(ABORT, json=body) as response:
            assert (response.status, await response.read()) == (200, b"")
        assert (await answer)["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("raw", "media"),
    [
        (b"{", "application/json"),
        (b"", "application/json"),
        (b'{"rid": 7}', "application/json"),
        (b'{"rid": "a"}', "text/plain"),
    ],
)
async def test_what_is_no_abort_is_refused(plain: Member, raw: bytes, media: str) -> None:
    headers = {"Content-Type": media}
    async with session(plain) as http, http.post(ABORT, data=raw, headers=headers) as response:
        assert response.status == 400
        error = await response.json()
    assert error.pop("message")
    assert error == {"object": "error", "type": "Bad Request", "param": None, "code": 400}
