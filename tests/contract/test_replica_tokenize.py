"""Text to tokens and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.engines import CONTEXT_TOKENS, MODEL
from tests.doubles.replica_calls import chat_body, session, usage_of

if TYPE_CHECKING:
    from tests.doubles.engines import Member

TEXT = "def answer() -> int:\n    return 42, 'ünïcode'\n"  # 48 bytes: whole tokens of either kind
HELLO = [{"role": "user", "content": "hello there"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
TOKENIZE = ("/v1/tokenize", "/tokenize")
DETOKENIZE = ("/v1/detokenize", "/detokenize")
COUNT = "/v1/messages/count_tokens"
JSON = {"Content-Type": "application/json"}


async def post(member: Member, path: str, body: object, *, status: int = 200) -> dict[str, Any]:
    async with session(member) as http, http.post(path, json=body) as response:
        assert response.status == status, await response.text()
        assert response.headers["Content-Type"] == "application/json"
        answer: dict[str, Any] = await response.json()
        return answer


def is_refusal(error: dict[str, Any], *, kind: str = "Bad Request") -> bool:
    assert list(error) == ["object", "message", "type", "param", "code"]
    assert error.pop("message")
    assert error == {"object": "error", "type": kind, "param": None, "code": 400}
    return True


@pytest.mark.parametrize("path", TOKENIZE)
async def test_a_text_becomes_tokens(plain: Member, path: str) -> None:
    answer = await post(plain, path, {"model": MODEL, "prompt": TEXT})
    assert list(answer) == ["tokens", "count", "max_model_len"]
    assert all(isinstance(token, int) for token in answer["tokens"])
    assert answer["count"] == len(answer["tokens"]) > 1
    assert answer["max_model_len"] == CONTEXT_TOKENS


async def test_a_list_of_texts_becomes_a_list_of_tokens(plain: Member) -> None:
    one = await post(plain, "/v1/tokenize", {"prompt": TEXT})
    both = await post(plain, "/v1/tokenize", {"prompt": [TEXT, "", TEXT * 2]})
    assert both["tokens"][0] == one["tokens"]
    assert both["tokens"][1] == []
    assert both["count"] == [len(tokens) for tokens in both["tokens"]]
    assert both["count"][2] > both["count"][0]
    assert both["max_model_len"] == CONTEXT_TOKENS


@pytest.mark.parametrize("prompt", ["", []])
async def test_nothing_has_no_tokens(plain: Member, prompt: str | list[str]) -> None:
    answer = await post(plain, "/v1/tokenize", {"prompt": prompt})
    expected = 0 if prompt == "" else []
    assert answer == {"tokens": [], "count": expected, "max_model_len": CONTEXT_TOKENS}


@pytest.mark.parametrize("more", [{}, {"tools": [TOOL]}, {"tools": [TOOL], "tool_choice": "none"}])
async def test_messages_have_the_tokens_of_their_completion(
    plain: Member, more: dict[str, Any]
) -> None:
    answer = await post(plain, "/v1/tokenize", {"messages": HELLO, **more})
    body = {**chat_body("", output_tokens=1), "messages": HELLO, **more}
    async with session(plain) as http:
        prompt_tokens, _ = await usage_of(http, body)
    assert answer["count"] == len(answer["tokens"]) == prompt_tokens


@pytest.mark.parametrize("path", DETOKENIZE)
async def test_tokens_become_the_text_again(plain: Member, path: str) -> None:
    tokens = (await post(plain, "/v1/tokenize", {"prompt": TEXT}))["tokens"]
    assert await post(plain, path, {"model": MODEL, "tokens": tokens}) == {"text": TEXT}
    both = await post(plain, path, {"tokens": [tokens, tokens[:0], tokens]})
    assert both == {"text": [TEXT, "", TEXT]}
    assert await post(plain, path, {"tokens": []}) == {"text": ""}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"prompt": "a", "messages": HELLO},
        {"prompt": 7},
        {"prompt": ["a", 7]},
        {"messages": "hello"},
        {"messages": [{"content": "no role"}]},
        ["a"],
    ],
)
async def test_what_is_no_request_for_tokens_is_refused(plain: Member, body: object) -> None:
    assert is_refusal(await post(plain, "/v1/tokenize", body, status=400))


async def test_no_messages_are_refused_in_other_words(plain: Member) -> None:
    error = await post(plain, "/v1/tokenize", {"messages": []}, status=400)
    assert is_refusal(error, kind="BadRequestError")


@pytest.mark.parametrize("body", [{}, {"tokens": "a"}, {"tokens": [1, [2]]}, {"tokens": ["a"]}])
async def test_what_are_no_tokens_is_refused(plain: Member, body: object) -> None:
    assert is_refusal(await post(plain, "/v1/detokenize", body, status=400))


@pytest.mark.parametrize("path", [*TOKENIZE, *DETOKENIZE])
@pytest.mark.parametrize(
    ("raw", "headers"),
    [
        (b"{", JSON),
        (b"", JSON),
        (b'{"prompt": "a", "tokens": [1]}', {"Content-Type": "text/plain"}),
    ],
)
async def test_what_is_no_json_is_refused(
    plain: Member, path: str, raw: bytes, headers: dict[str, str]
) -> None:
    async with session(plain) as http, http.post(path, data=raw, headers=headers) as response:
        assert response.status == 400
        assert is_refusal(await response.json())


async def test_messages_of_anthropic_are_counted(plain: Member) -> None:
    """As many as their message has, read from the cache or not."""
    asked = {"model": MODEL, "messages": HELLO}
    tool = {"name": "read_file", "input_schema": {"type": "object"}}
    counts = []
    for more in ({}, {"system": "Be brief."}, {"system": "Be brief.", "tools": [tool]}):
        count = await post(plain, COUNT, {**asked, **more})
        assert list(count) == ["input_tokens"]
        usage = (await post(plain, "/v1/messages", {**asked, **more, "max_tokens": 1}))["usage"]
        told = usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)
        assert count["input_tokens"] == told
        counts.append(told)
    assert counts == sorted(set(counts))


@pytest.mark.parametrize(
    "body", [{"model": MODEL}, {"model": MODEL, "messages": []}, {"messages": 1}]
)
async def test_what_cannot_be_counted_is_refused(plain: Member, body: object) -> None:
    error = await post(plain, COUNT, body, status=400)
    assert error["type"] == "error"
    assert error["error"].pop("message")
    assert error["error"] == {"type": "invalid_request_error"}


@pytest.mark.parametrize(("raw", "media"), [(b"{", "application/json"), (b"{}", "text/plain")])
async def test_what_is_no_json_cannot_be_counted(plain: Member, raw: bytes, media: str) -> None:
    headers = {"Content-Type": media}
    async with session(plain) as http, http.post(COUNT, data=raw, headers=headers) as response:
        assert response.status == 400
        error = await response.json()
    assert set(error) == {"type", "error"}
    assert error["error"]["type"] == "invalid_request_error"
