"""Answers before the body, 100 Continue, headers, and connections that stay open."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.doubles.engines import API_KEY
from tests.doubles.raw_client import RawClient, client_of
from tests.doubles.replica_calls import CHAT, chat_body, session

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from tests.doubles.engines import Member

BODY = json.dumps(chat_body("hello", output_tokens=2)).encode()
TOKENIZE = "/v1/tokenize"
TEXT = b'{"prompt": "hello there"}'
SILENCE_S = 0.3
ANSWER_S_MAX = 10.0
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ALLOWED_HEADERS = {"date", "server", "content-length", "content-type", "vary", "allow"}
NOT_SENT = 1_000_000


def connected(member: Member) -> AbstractAsyncContextManager[RawClient]:
    port = urlsplit(member.url).port
    assert port is not None
    return client_of(port)


def head(method: str, path: str, *lines: str, length: int | None = None) -> bytes:
    sent = [f"{method} {path} HTTP/1.1", "Host: replica", "Content-Type: application/json", *lines]
    if length is not None:
        sent.append(f"Content-Length: {length}")
    return "\r\n".join([*sent, "", ""]).encode()


async def answer_to(client: RawClient, sent: bytes) -> tuple[int, bytes]:
    await client.send(sent)
    async with asyncio.timeout(ANSWER_S_MAX):
        answer = await client.read()
    assert answer.is_whole
    return answer.status, answer.body


async def is_silent(client: RawClient) -> bool:
    """Nothing comes for a while; what would have come is not lost if it does."""
    try:
        async with asyncio.timeout(SILENCE_S):
            await client.reader.readexactly(1)
    except TimeoutError:
        return True
    return False


# --- before the body --------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "wrong"])
@pytest.mark.parametrize("path", [CHAT, "/v1/messages", TOKENIZE, "/abort_request"])
async def test_a_wrong_key_is_told_before_the_body(
    tight: Member, path: str, key: str | None
) -> None:
    lines = [] if key is None else [f"Authorization: Bearer {key}"]
    async with connected(tight) as client:
        answer = await answer_to(client, head("POST", path, *lines, length=NOT_SENT))
    assert answer == (401, b'{"error":"Unauthorized"}')


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("POST", "/nowhere", 404, "Not Found"),
        ("POST", "/get_load", 404, "Not Found"),
        ("POST", "/v1/models", 405, "Method Not Allowed"),
        ("PUT", CHAT, 405, "Method Not Allowed"),
        ("DELETE", "/v1/messages", 405, "Method Not Allowed"),
    ],
)
async def test_a_wrong_path_or_method_is_told_before_the_body(
    plain: Member, method: str, path: str, status: int, text: str
) -> None:
    async with connected(plain) as client:
        answer = await answer_to(client, head(method, path, length=NOT_SENT))
    assert answer == (status, f'{{"detail":"{text}"}}'.encode())


async def test_after_an_early_answer_the_body_is_still_expected(plain: Member) -> None:
    async with connected(plain) as client:
        status, _ = await answer_to(client, head("POST", "/nowhere", length=len(BODY)))
        assert status == 404
        await client.send(BODY)
        status, _ = await answer_to(client, head("GET", "/ready"))
        assert status == 200


@pytest.mark.parametrize(
    ("path", "lines", "body"),
    [
        (CHAT, (), b'{"model": }'.ljust(100)),
        (CHAT, (), b'{"model": "tiny"}'.ljust(100)),
        ("/v1/messages", (), b"[".ljust(100)),
        (TOKENIZE, (), b"{".ljust(100)),
        (TOKENIZE, ("Content-Type: text/plain",), TEXT.ljust(100)),
    ],
)
async def test_a_bad_body_is_told_only_when_it_is_whole(
    plain: Member, path: str, lines: tuple[str, ...], body: bytes
) -> None:
    sent = head("POST", path, *lines, length=len(body))
    if lines:
        sent = sent.replace(b"Content-Type: application/json\r\n", b"")
    async with connected(plain) as client:
        await client.send(sent + body[:-1])
        assert await is_silent(client)
        status, answer = await answer_to(client, body[-1:])
    assert status == 400
    assert json.loads(answer)


async def test_a_good_body_is_answered_only_when_it_is_whole(plain: Member) -> None:
    async with connected(plain) as client:
        await client.send(head("POST", CHAT, length=len(BODY)) + BODY[:-1])
        assert await is_silent(client)
        status, answer = await answer_to(client, BODY[-1:])
    assert status == 200
    assert json.loads(answer)["usage"]["completion_tokens"] == 2


# --- how a body may come ----------------------------------------------------------------------


async def test_a_client_that_waits_to_be_asked_is_asked(plain: Member) -> None:
    async with connected(plain) as client:
        sent = head("POST", TOKENIZE, "Expect: 100-continue", length=len(TEXT))
        await client.send(sent)
        async with asyncio.timeout(ANSWER_S_MAX):
            assert await client.read_until(b"\r\n\r\n") == CONTINUE
        status, answer = await answer_to(client, TEXT)
    assert status == 200
    assert json.loads(answer)["count"] > 0


async def test_a_client_with_a_wrong_key_is_not_asked(tight: Member) -> None:
    lines = ("Expect: 100-continue", f"Authorization: Bearer {API_KEY}x")
    async with connected(tight) as client:
        await client.send(head("POST", CHAT, *lines, length=NOT_SENT))
        async with asyncio.timeout(ANSWER_S_MAX):
            first = await client.read_until(b"\r\n")
    assert first == b"HTTP/1.1 401 Unauthorized\r\n"


async def test_a_body_may_come_in_chunks(plain: Member) -> None:
    chunks = (BODY[:10], BODY[10:])
    sent = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    async with connected(plain) as client:
        await client.send(head("POST", CHAT, "Transfer-Encoding: chunked") + sent)
        assert await is_silent(client)
        status, answer = await answer_to(client, b"0\r\n\r\n")
    assert status == 200
    assert json.loads(answer)["usage"]["completion_tokens"] == 2


# --- what an answer looks like ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/ready"),
        ("GET", "/v1/loads"),
        ("GET", "/v1/models"),
        ("GET", "/server_info"),
        ("GET", "/nowhere"),
        ("PUT", "/v1/models"),
        ("POST", TOKENIZE),
        ("POST", CHAT),
        ("POST", "/v1/messages"),
        ("POST", "/abort_request"),
    ],
)
async def test_an_answer_has_no_other_headers(plain: Member, method: str, path: str) -> None:
    body = {**chat_body("hello", output_tokens=2)} if method == "POST" else None
    async with session(plain) as http, http.request(method, path, json=body) as response:
        content = await response.read()
        names = {name.lower() for name in response.headers}
        assert names <= ALLOWED_HEADERS
        assert {"date", "server", "content-length"} <= names
        assert int(response.headers["Content-Length"]) == len(content)
        if content:
            assert response.headers["Content-Type"] == "application/json"
        if response.status == 405:
            assert response.headers["Allow"] == "GET"


async def test_a_stream_is_chunked_and_not_to_be_cached(plain: Member) -> None:
    body = chat_body("hello", output_tokens=2, stream=True)
    async with session(plain) as http, http.post(CHAT, json=body) as response:
        await response.read()
        names = {name.lower() for name in response.headers}
    assert names - ALLOWED_HEADERS == {"transfer-encoding"}
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"


async def test_an_idle_connection_is_closed_after_five_seconds(plain: Member) -> None:
    loop = asyncio.get_running_loop()
    async with connected(plain) as client:
        status, _ = await answer_to(client, head("GET", "/ready"))
        assert status == 200
        answered_s = loop.time()
        async with asyncio.timeout(20.0):
            assert await client.is_closed()
        assert 4.0 < loop.time() - answered_s < 8.0
