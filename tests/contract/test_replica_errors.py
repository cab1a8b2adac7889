"""Refusals: the status, the shape of each dialect, and what a stream makes of them."""

from __future__ import annotations

import asyncio
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.exceptions import skip_where_excepted
from tests.doubles.engines import CONTEXT_TOKENS, MODEL
from tests.doubles.replica_calls import CHAT, chat_body, session
from tests.doubles.replica_streams import MESSAGES, PAD, PATHS, events_of, read_event

if TYPE_CHECKING:
    import aiohttp

    from tests.doubles.engines import Member

USER = [{"role": "user", "content": "x"}]
UNREADABLE = "Bad Request"
REFUSED = "BadRequestError"
JSON = {"Content-Type": "application/json"}
# PAD is a token of a real model, and a quarter of one of an emulated one.
LONG = [{"role": "user", "content": PAD * (CONTEXT_TOKENS * 4 + 400)}]


def body_of(**more: object) -> dict[str, Any]:
    return {"model": MODEL, "messages": USER, "max_tokens": 4, **more}


async def refusal(
    http: aiohttp.ClientSession, path: str, content: bytes, headers: dict[str, str]
) -> dict[str, Any]:
    """The error of an answer with status 400, of the shape of its dialect."""
    async with http.post(path, data=io.BytesIO(content), headers=headers) as response:
        assert response.status == 400, await response.text()
        assert response.content_type == "application/json"
        answer: dict[str, Any] = await response.json()
    if path == MESSAGES:
        assert set(answer) == {"type", "error"}
        assert answer["type"] == "error"
        error: dict[str, Any] = answer["error"]
        assert set(error) == {"type", "message"}
        assert error["message"]
        return error
    assert set(answer) == {"object", "message", "type", "param", "code"}
    assert (answer["object"], answer["param"], answer["code"]) == ("error", None, 400)
    assert answer["message"]
    return answer


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "content",
    [
        b'{"messages"',
        b"\xff\xfe",
        json.dumps({"model": MODEL, "max_tokens": 4}).encode(),
        json.dumps(body_of(messages="x")).encode(),
        json.dumps(body_of(temperature="warm")).encode(),
        json.dumps(body_of(max_tokens="many")).encode(),
    ],
)
async def test_a_body_that_cannot_be_read(plain: Member, path: str, content: bytes) -> None:
    async with session(plain) as http:
        error = await refusal(http, path, content, JSON)
    assert error["type"] == (UNREADABLE if path == CHAT else "invalid_request_error")


@pytest.mark.parametrize("field", ["model", "max_tokens"])
async def test_a_message_needs_a_model_and_a_limit(plain: Member, field: str) -> None:
    body = body_of()
    del body[field]
    async with session(plain) as http:
        error = await refusal(http, MESSAGES, json.dumps(body).encode(), JSON)
        assert (error["type"], field in error["message"]) == ("invalid_request_error", True)
        error = await refusal(http, MESSAGES, json.dumps(body_of(max_tokens=0)).encode(), JSON)
        assert error["type"] == "invalid_request_error"
        async with http.post(CHAT, json={"ignore_eos": True, **body, "max_tokens": 4}) as response:
            assert response.status == 200


@pytest.mark.parametrize("path", PATHS)
async def test_another_content_type(plain: Member, path: str) -> None:
    async with session(plain) as http:
        headers = {"Content-Type": "text/plain"}
        error = await refusal(http, path, json.dumps(body_of()).encode(), headers)
    assert error["type"] == (UNREADABLE if path == CHAT else "invalid_request_error")
    assert "application/json" in error["message"]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_no_messages(plain: Member, path: str, *, is_stream: bool) -> None:
    async with session(plain) as http:
        content = json.dumps(body_of(messages=[], stream=is_stream)).encode()
        error = await refusal(http, path, content, JSON)
    assert error["type"] == (REFUSED if path == CHAT else "invalid_request_error")


@pytest.mark.parametrize("path", PATHS)
async def test_a_picture_for_a_model_of_text_only(kind: str, plain: Member, path: str) -> None:
    skip_where_excepted(kind, "text only")
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    picture: dict[str, Any] = {"type": "image", "source": source}
    if path == CHAT:
        url = f"data:image/png;base64,{source['data']}"
        picture = {"type": "image_url", "image_url": {"url": url}}
    content = [{"type": "text", "text": "x"}, picture]
    body = body_of(messages=[{"role": "user", "content": content}])
    async with session(plain) as http:
        for is_stream in (False, True):
            encoded = json.dumps({**body, "stream": is_stream}).encode()
            error = await refusal(http, path, encoded, JSON)
            assert error["type"] == (REFUSED if path == CHAT else "invalid_request_error")


IMPOSSIBLE = [
    pytest.param({"messages": LONG}, id="prompt"),
    pytest.param({"max_tokens": CONTEXT_TOKENS}, id="prompt-and-limit"),
    pytest.param({"max_tokens": 10 * CONTEXT_TOKENS}, id="limit"),
    pytest.param({"temperature": -1}, id="temperature"),
    pytest.param({"model": "one:two"}, id="adapter"),
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("more", IMPOSSIBLE)
async def test_what_cannot_be_generated(plain: Member, path: str, more: dict[str, Any]) -> None:
    async with session(plain) as http:
        error = await refusal(http, path, json.dumps(body_of(**more)).encode(), JSON)
    assert error["type"] == REFUSED


async def test_a_chat_of_no_tokens_is_served_and_one_of_less_is_not(plain: Member) -> None:
    async with session(plain) as http:
        content = json.dumps(body_of(max_tokens=-1)).encode()
        assert (await refusal(http, CHAT, content, JSON))["type"] == REFUSED
        async with http.post(CHAT, json=body_of(max_tokens=0)) as response:
            assert response.status == 200


@pytest.mark.parametrize("more", IMPOSSIBLE)
async def test_a_chat_that_cannot_be_streamed_gets_no_stream(
    plain: Member, more: dict[str, Any]
) -> None:
    async with session(plain) as http:
        content = json.dumps(body_of(stream=True, **more)).encode()
        assert (await refusal(http, CHAT, content, JSON))["type"] == REFUSED


def check_failed_message(text: str, *, kind: str) -> str:
    """A stream that starts a message only to tell an error in it; answers the error's text."""
    events = events_of(text)
    assert [name for name, _ in events] == ["message_start", "error", "message_stop"]
    start, error, stop = (data for _, data in events)
    assert start["message"]["usage"] == {"input_tokens": 0, "output_tokens": 0}
    assert set(error) == {"type", "error"}
    assert set(error["error"]) == {"type", "message"}
    assert error["error"]["type"] == kind
    assert stop == {"type": "message_stop"}
    message: str = error["error"]["message"]
    return message


@pytest.mark.parametrize("more", IMPOSSIBLE)
async def test_a_message_that_cannot_be_streamed_says_so_in_a_stream(
    plain: Member, more: dict[str, Any]
) -> None:
    async with session(plain) as http:
        content = json.dumps(body_of(stream=True, **more)).encode()
        async with http.post(MESSAGES, data=io.BytesIO(content), headers=JSON) as response:
            assert response.status == 200
            text = await response.text()
    assert check_failed_message(text, kind="invalid_request_error")


@pytest.mark.parametrize("path", PATHS)
async def test_a_prompt_beyond_the_pool(tight: Member, path: str) -> None:
    """It fits the context; the scheduler refuses it, when a stream has its status already."""
    messages = [{"role": "user", "content": PAD * 4 * (tight.role.pool_tokens + 100)}]
    async with session(tight) as http:
        content = json.dumps(body_of(messages=messages)).encode()
        error = await refusal(http, path, content, JSON)
        assert error["type"] == REFUSED
        async with http.post(
            path, data=json.dumps(body_of(messages=messages, stream=True)).encode(), headers=JSON
        ) as response:
            assert response.status == 200
            text = await response.text()
    if path == MESSAGES:
        assert check_failed_message(text, kind="invalid_request_error") == error["message"]
    else:
        (_, event), (_, end) = events_of(text)
        assert event == {"error": {**error, "type": "BAD_REQUEST"}}
        assert end == "[DONE]"


async def test_the_id_of_a_live_request(plain: Member) -> None:
    async with session(plain) as http:
        body = chat_body("x", output_tokens=20_000, rid="taken", stream=True)
        async with http.post(CHAT, json=body) as live:
            await read_event(live)
            for is_stream in (False, True):
                content = json.dumps(chat_body("y", rid="taken", stream=is_stream)).encode()
                error = await refusal(http, CHAT, content, JSON)
                assert error["type"] == REFUSED
                assert error["message"] == "Duplicate request ID detected: taken"
        status = 0
        async with asyncio.timeout(10):  # the front forgets the id a little after the scheduler
            while status != 200:
                async with http.post(CHAT, json=chat_body("y", rid="taken")) as response:
                    status = response.status
