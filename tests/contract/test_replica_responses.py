"""``/v1/responses``: the order of events, their keys, what is kept, and every refusal."""

from __future__ import annotations

import asyncio
import random
import string
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.engines import MODEL
from tests.doubles.replica_calls import POLL_S, WAIT_S_MAX, chat_body, new_text, session
from tests.doubles.replica_streams import CHAT, ENDLESS, events_of, occupied, one_of_few, waiting

if TYPE_CHECKING:
    import aiohttp

    from tests.doubles.engines import Member

RESPONSES = "/v1/responses"
DICE = random.Random()  # a replica that outlives the run knows what it was told before
KEYS = {
    "id", "object", "created_at", "model", "output", "status", "usage", "parallel_tool_calls",
    "tool_choice", "tools", "error", "incomplete_details", "instructions", "max_output_tokens",
    "previous_response_id", "reasoning", "store", "temperature", "text", "top_p", "truncation",
    "user", "metadata",
}  # fmt: skip
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "enum": ["a.py"]}},
    "required": ["path"],
    "additionalProperties": False,
}
CALLS_READ: dict[str, Any] = {
    "tools": [
        {
            "type": "function",
            "name": "read",
            "description": "Read.",
            "parameters": SCHEMA,
            "strict": True,
        }
    ],
    "tool_choice": {"type": "function", "name": "read"},
    "max_output_tokens": 4000,
    "reasoning": {"effort": "none"},
    "homeport_emulate": {
        "output_tokens": 90,
        "tool_call": {"name": "read", "arguments": {"path": "a.py"}},
    },
}
# Most letters end what a random model says; an emulated one ends of itself.
ENDS_SOON: dict[str, Any] = {
    "stop": [*string.ascii_lowercase, " "],
    "max_output_tokens": None,
    "homeport_emulate": {"output_tokens": 30, "reasoning_tokens": 10},
}
UNKNOWN = "resp_" + "0" * 32


def body_of(text: str = "Say something.", **more: object) -> dict[str, Any]:
    return {"model": MODEL, "input": text, "max_output_tokens": 30, **more}


async def ask(
    http: aiohttp.ClientSession, method: str, path: str, body: object = None
) -> tuple[int, dict[str, Any]]:
    async with http.request(method, path, json=body) as response:
        answer: dict[str, Any] = await response.json()
        return response.status, answer


async def made(http: aiohttp.ClientSession, body: dict[str, Any]) -> dict[str, Any]:
    status, answer = await ask(http, "POST", RESPONSES, body)
    assert status == 200, answer
    return answer


async def streamed(http: aiohttp.ClientSession, body: dict[str, Any]) -> list[dict[str, Any]]:
    async with http.post(RESPONSES, json={**body, "stream": True}) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        named = events_of(await response.text())
    assert [name for name, _ in named] == [event["type"] for _, event in named]
    events = [event for _, event in named]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def check_document(document: dict[str, Any], status: str) -> None:
    assert set(document) == KEYS
    assert document["object"] == "response"
    assert document["id"].startswith("resp_")
    assert (document["status"], document["model"]) == (status, MODEL)
    is_cut = status == "incomplete"
    assert document["incomplete_details"] == ({"reason": "max_output_tokens"} if is_cut else None)


def check_usage(usage: dict[str, Any]) -> None:
    assert set(usage) == {
        "input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details",
        "total_tokens",
    }  # fmt: skip
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert set(usage["input_tokens_details"]) == {"cached_tokens", "cache_write_tokens"}
    assert set(usage["output_tokens_details"]) == {"reasoning_tokens"}


def check_items(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events between the first two and the last; answers the items as they ended."""
    items: list[dict[str, Any]] = []
    open_item: dict[str, Any] | None = None
    text = ""
    for event in events:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert open_item is None
            assert event["output_index"] == len(items)
            open_item, text = event["item"], ""
            continue
        assert open_item is not None
        assert event["output_index"] == len(items)
        if kind == "response.output_item.done":
            item = event["item"]
            assert (item["id"], item["type"]) == (open_item["id"], open_item["type"])
            shown = item["arguments"] if "arguments" in item else item["content"][0]["text"]
            assert shown == text
            items.append(item)
            open_item = None
            continue
        assert event["item_id"] == open_item["id"]
        if kind.endswith(".delta"):
            text += event["delta"]
    assert open_item is None
    return items


def has_called(document: dict[str, Any]) -> bool:
    """A random model that has to call a tool fails to now and then."""
    return bool(document["output"]) and document["output"][-1]["type"] == "function_call"


async def test_a_whole_response(plain: Member) -> None:
    async with session(plain) as http:
        answer = await made(http, body_of(new_text(DICE, n_bytes=400)))
    check_document(answer, "incomplete")
    check_usage(answer["usage"])
    assert answer["usage"]["output_tokens"] == 28  # two are kept back
    assert answer["usage"]["input_tokens_details"]["cached_tokens"] == 0
    assert {item["type"] for item in answer["output"]} <= {"reasoning", "message"}
    assert (answer["store"], answer["error"], answer["usage"] is None) == (True, None, False)


async def test_a_streamed_response(plain: Member) -> None:
    async with session(plain) as http:
        created, begun, *events, last = await streamed(http, body_of(store=False))
    for event, name in ((created, "created"), (begun, "in_progress")):
        assert event["type"] == f"response.{name}"
        check_document(event["response"], "in_progress")
        assert event["response"]["usage"] is None
    assert last["type"] == "response.incomplete"
    check_document(last["response"], "incomplete")
    check_usage(last["response"]["usage"])
    assert last["response"]["id"] == created["response"]["id"]
    assert last["response"]["output"] == check_items(events)


async def test_a_response_that_ends_of_itself(plain: Member) -> None:
    async with session(plain) as http:
        answer = await made(http, body_of(**ENDS_SOON))
        *_, last = await streamed(http, body_of(**ENDS_SOON))
    check_document(answer, "completed")
    assert last["type"] == "response.completed"
    check_document(last["response"], "completed")


async def test_a_call(plain: Member) -> None:
    async with session(plain) as http:
        answer = await one_of_few(lambda: made(http, body_of(**CALLS_READ)), has_called)
        _, _, *events, last = await one_of_few(
            lambda: streamed(http, body_of(**CALLS_READ)),
            lambda events: has_called(events[-1]["response"]),
        )
    item = answer["output"][-1]
    assert set(item) >= {"arguments", "call_id", "name", "type", "id", "status"}
    assert (item["type"], item["name"], item["status"]) == ("function_call", "read", "completed")
    assert item["call_id"].startswith("call_")
    called = check_items(events)[-1]
    assert (called["type"], called["name"]) == ("function_call", "read")
    assert last["type"] == "response.completed"
    assert last["response"]["output"][-1] == called
    assert [tool["name"] for tool in last["response"]["tools"]] == ["read"]


async def test_the_second_time_it_is_cached(plain: Member) -> None:
    text = new_text(DICE, n_bytes=4000)
    async with session(plain) as http:
        first = await made(http, body_of(text))
        again = await made(http, body_of(text))
        *_, last = await streamed(http, body_of(text))
    tokens = first["usage"]["input_tokens"]
    for usage in (again["usage"], last["response"]["usage"]):
        assert usage["input_tokens"] == tokens
        assert usage["input_tokens_details"]["cached_tokens"] >= tokens - 128


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_response_is_kept(plain: Member, *, is_stream: bool) -> None:
    async with session(plain) as http:
        if is_stream:
            answer = (await streamed(http, body_of()))[-1]["response"]
        else:
            answer = await made(http, body_of())
        path = f"{RESPONSES}/{answer['id']}"
        assert await ask(http, "GET", path) == (200, answer)
        assert await ask(http, "POST", f"{path}/cancel") == (200, answer)
        goes_on = await made(http, body_of("Go on.", previous_response_id=answer["id"]))
    assert goes_on["previous_response_id"] == answer["id"]
    assert goes_on["usage"]["input_tokens"] > answer["usage"]["input_tokens"]


async def test_a_response_is_not_kept(plain: Member) -> None:
    async with session(plain) as http:
        answer = await made(http, body_of(store=False))
        status, error = await ask(http, "GET", f"{RESPONSES}/{answer['id']}")
    assert status == 404
    assert error["error"]["message"] == f"Response with id '{answer['id']}' not found."


async def test_a_response_in_the_background(plain: Member) -> None:
    async with session(plain) as http:
        queued = await made(http, body_of(background=True))
        check_document(queued, "queued")
        assert (queued["usage"], queued["output"]) == (None, [])
        document = queued
        async with asyncio.timeout(WAIT_S_MAX):
            while document["status"] in ("queued", "in_progress"):
                await asyncio.sleep(POLL_S)
                status, document = await ask(http, "GET", f"{RESPONSES}/{queued['id']}")
                assert status == 200
    check_document(document, "incomplete")
    check_usage(document["usage"])


async def test_a_response_in_the_background_is_cancelled(plain: Member) -> None:
    async with session(plain) as http:
        queued = await made(http, body_of(background=True, max_output_tokens=ENDLESS))
        path = f"{RESPONSES}/{queued['id']}"
        status, document = await ask(http, "POST", f"{path}/cancel")
        assert (status, document["status"]) == (200, "cancelled")
        status, document = await ask(http, "GET", path)
        assert (status, document["status"]) == (200, "cancelled")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", f"{RESPONSES}/{UNKNOWN}", 404),
        ("POST", f"{RESPONSES}/{UNKNOWN}/cancel", 404),
        ("GET", f"{RESPONSES}/other", 400),
    ],
)
async def test_an_unknown_id(plain: Member, method: str, path: str, status: int) -> None:
    async with session(plain) as http:
        answered, error = await ask(http, method, path)
    assert answered == status
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert (error["error"]["param"], error["error"]["code"]) == ("response_id", status)


REFUSED: list[tuple[dict[str, Any], int, str | None]] = [
    ({"previous_response_id": UNKNOWN}, 404, "response_id"),
    ({"previous_response_id": "other"}, 400, "response_id"),
    ({"model": "another"}, 404, "model"),
    ({"background": True, "store": False}, 400, "store"),
    ({"tool_choice": {"type": "function", "name": "x"}}, 400, "tool_choice"),
    ({"tool_choice": "required", "tools": [{"type": "web_search"}]}, 400, None),
    ({"input": [{"type": "invented"}]}, 400, None),
    ({"input": 3}, 400, None),
    ({"temperature": -1.0}, 400, None),
    ({"input": "word " * 150_000}, 400, None),
]


@pytest.mark.parametrize(("more", "status", "param"), REFUSED)
async def test_a_refused_body(
    plain: Member, more: dict[str, Any], status: int, param: str | None
) -> None:
    async with session(plain) as http:
        answered, error = await ask(http, "POST", RESPONSES, body_of(**more))
    assert answered == status
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert (error["error"]["param"], error["error"]["code"]) == (param, status)


async def test_a_prompt_that_is_too_long_for_a_stream(plain: Member) -> None:
    async with session(plain) as http:
        events = await streamed(http, body_of("word " * 150_000))
    names = ["response.created", "response.in_progress", "response.failed"]
    assert [event["type"] for event in events] == names
    failed = events[-1]["response"]
    check_document(failed, "failed")
    assert failed["error"]["code"] == "server_error"
    assert "longer than the model's context length" in failed["error"]["message"]


async def test_a_full_queue(tight: Member) -> None:
    queued = chat_body("x", output_tokens=ENDLESS)
    async with session(tight) as http, occupied(http), waiting(http, CHAT, queued):
        status, error = await ask(http, "POST", RESPONSES, body_of())
        events = await streamed(http, body_of())
    assert status == 400
    assert error["error"]["message"] == "503: The request queue is full."
    names = ["response.created", "response.in_progress", "response.failed"]
    assert [event["type"] for event in events] == names
    failed = events[-1]["response"]
    check_document(failed, "failed")
    assert failed["error"] == {"code": "server_error", "message": "The request queue is full."}


async def test_the_head_of_a_stream_comes_while_it_waits(tight: Member) -> None:
    async with (
        session(tight) as http,
        occupied(http),
        waiting(http, RESPONSES, body_of(stream=True)) as early,
    ):
        async with asyncio.timeout(10):
            response = await early
        assert response.status == 200
        assert (await response.content.readline()) == b"event: response.created\n"
        response.close()
