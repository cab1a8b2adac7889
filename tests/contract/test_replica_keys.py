"""Which key opens what: a replica with an api key and an admin key, and one without any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.doubles.engines import ADMIN_KEY, API_KEY
from tests.doubles.replica_calls import chat_body, is_idle, load_when, session, status_of

if TYPE_CHECKING:
    from tests.doubles.engines import Member

UNAUTHORIZED = b'{"error":"Unauthorized"}'
OPEN = ("/ready", "/health", "/health_generate", "/metrics")
NORMAL = (
    "/v1/loads",
    "/v1/models",
    "/v1/models/tiny",
    "/server_info",
    "/get_server_info",
    "/model_info",
    "/get_model_info",
)
POSTED = (
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/tokenize",
    "/tokenize",
    "/v1/detokenize",
    "/detokenize",
)
CONTROL = (("GET", "/flush_cache"), ("POST", "/flush_cache"), ("POST", "/abort_request"))
API = f"Bearer {API_KEY}"
ADMIN = f"Bearer {ADMIN_KEY}"
WRONG = (
    None,
    "Bearer wrong",
    API_KEY,
    f"Basic {API_KEY}",
    f"Bearer  {API_KEY}",
    f"{API}x",
    "Bearer",
)


async def answer_of(
    member: Member, path: str, key: str | None, *, method: str = "GET"
) -> tuple[int, bytes]:
    headers = {} if key is None else {"Authorization": key}
    body = chat_body("hello", tokens=[5]) if method == "POST" else None
    async with (
        aiohttp.ClientSession(member.url) as http,
        http.request(method, path, headers=headers, json=body) as response,
    ):
        if response.status == 401:
            assert response.headers["Content-Type"] == "application/json"
            assert "WWW-Authenticate" not in response.headers
        return response.status, await response.read()


@pytest.mark.parametrize("path", OPEN)
async def test_health_and_metrics_are_open_to_all(tight: Member, path: str) -> None:
    status, _ = await answer_of(tight, path, "Bearer wrong")
    assert status == 200


@pytest.mark.parametrize("path", NORMAL)
async def test_the_rest_demands_the_api_key(tight: Member, path: str) -> None:
    for key in (None, "Bearer wrong", ADMIN):
        assert await answer_of(tight, path, key) == (401, UNAUTHORIZED)
    status, _ = await answer_of(tight, path, API)
    assert status == 200


@pytest.mark.parametrize("path", POSTED)
async def test_requests_demand_the_api_key(tight: Member, path: str) -> None:
    for key in (None, "Bearer wrong", ADMIN):
        assert await answer_of(tight, path, key, method="POST") == (401, UNAUTHORIZED)
    status, _ = await answer_of(tight, path, API, method="POST")
    assert status == 200


@pytest.mark.parametrize(("method", "path"), CONTROL)
async def test_control_demands_the_admin_key(tight: Member, method: str, path: str) -> None:
    async with session(tight) as http:
        await load_when(http, is_idle)
    for key in (None, "Bearer wrong", API):
        assert await answer_of(tight, path, key, method=method) == (401, UNAUTHORIZED)
    status, _ = await answer_of(tight, path, ADMIN, method=method)
    assert status == 200


@pytest.mark.parametrize("key", WRONG)
async def test_a_key_must_be_given_to_the_letter(tight: Member, key: str | None) -> None:
    assert await answer_of(tight, "/v1/models", key) == (401, UNAUTHORIZED)


async def test_the_scheme_may_be_in_any_case(tight: Member) -> None:
    for scheme in ("bearer", "BEARER"):
        status, _ = await answer_of(tight, "/v1/models", f"{scheme} {API_KEY}")
        assert status == 200


async def test_an_anthropic_key_is_not_read(tight: Member) -> None:
    headers = {"x-api-key": API_KEY}
    async with (
        aiohttp.ClientSession(tight.url, headers=headers) as http,
        http.post("/v1/messages", json=chat_body("hello")) as response,
    ):
        assert (response.status, await response.read()) == (401, UNAUTHORIZED)


async def test_the_key_comes_before_the_path_and_the_method(tight: Member) -> None:
    for method, path, known in (("GET", "/nowhere", 404), ("POST", "/v1/models", 405)):
        assert await answer_of(tight, path, None, method=method) == (401, UNAUTHORIZED)
        status, _ = await answer_of(tight, path, API, method=method)
        assert status == known


async def test_a_control_path_by_a_wrong_method_is_no_control(tight: Member) -> None:
    assert await answer_of(tight, "/abort_request", ADMIN) == (401, UNAUTHORIZED)
    status, _ = await answer_of(tight, "/abort_request", API)
    assert status == 405


async def test_open_paths_are_so_by_their_beginning(tight: Member) -> None:
    status, body = await answer_of(tight, "/healthy", None)
    assert (status, body) == (404, b'{"detail":"Not Found"}')


async def test_without_keys_any_key_will_do(plain: Member) -> None:
    for key in (None, "Bearer anything", "nonsense"):
        status, _ = await answer_of(plain, "/v1/models", key)
        assert status == 200


async def test_a_client_may_ask_for_options_without_a_key(tight: Member) -> None:
    async with aiohttp.ClientSession(tight.url) as http:
        assert await status_of(http, "/v1/models", method="OPTIONS") == 405
