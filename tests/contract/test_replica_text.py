"""Generations without messages, and scores: ``/v1/completions``, ``/generate`` and the rest."""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.test_replica_tokenize import is_refusal, post
from tests.doubles.engines import MODEL
from tests.doubles.replica_calls import CHAT, chat_body, session
from tests.doubles.replica_streams import ENDLESS, events_of, occupied, waiting

if TYPE_CHECKING:
    from tests.doubles.engines import Member

COMPLETIONS = "/v1/completions"
GENERATE = "/generate"
TEXT = "def parse(line: str) -> list[str]:\n    return line.split()\n"
IDS = [17, 4, 230, 99, 12, 7]
BRIEF: dict[str, Any] = {"temperature": 0, "max_tokens": 4, "ignore_eos": True}
SAMPLING: dict[str, Any] = {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True}
CHOICE = ["index", "text", "logprobs", "finish_reason", "matched_stop"]
HEAD = ["id", "object", "created", "model", "choices", "usage"]
PROMPTS: dict[str, tuple[Any, int]] = {
    "text": (TEXT, 0),
    "texts": ([TEXT, "x"], 2),
    "ids": (IDS, 0),
    "lists": ([IDS, [3]], 2),
}
"""Prompts, and how many a batch has; 0 for none."""
PROMPT_KINDS = pytest.mark.parametrize("kind_of_prompt", PROMPTS)


def native(prompt: object, **more: object) -> dict[str, Any]:
    first = prompt[0] if isinstance(prompt, list) else prompt
    name = "text" if isinstance(first, str) else "input_ids"
    return {name: prompt, "sampling_params": SAMPLING, **more}


async def stream(member: Member, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    async with session(member) as http, http.post(path, json={**body, "stream": True}) as response:
        assert response.status == 200, await response.text()
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        events = events_of(await response.text())
    assert events.pop() == ("", "[DONE]")
    assert {name for name, _ in events} == {""}
    return [data for _, data in events]


@PROMPT_KINDS
async def test_a_completion_has_a_choice_for_each_prompt(
    plain: Member, kind_of_prompt: str
) -> None:
    prompt, size = PROMPTS[kind_of_prompt]
    answer = await post(plain, COMPLETIONS, {"model": MODEL, "prompt": prompt, **BRIEF})
    n = size or 1
    assert list(answer) == [*HEAD, "metadata"]
    assert answer["object"] == "text_completion"
    assert [list(choice) for choice in answer["choices"]] == [CHOICE] * n
    assert [choice["index"] for choice in answer["choices"]] == list(range(n))
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}
    assert all(choice["text"] for choice in answer["choices"])
    assert answer["usage"]["completion_tokens"] == 4 * n
    assert answer["usage"]["prompt_tokens"] >= n


async def test_an_echo_begins_with_the_prompt(plain: Member) -> None:
    body = {"model": MODEL, "prompt": TEXT, "echo": True, **BRIEF}
    [choice] = (await post(plain, COMPLETIONS, body))["choices"]
    assert choice["text"].startswith(TEXT)
    chunks = await stream(plain, COMPLETIONS, body)
    assert chunks[0]["choices"][0]["text"].startswith(TEXT)


@PROMPT_KINDS
@pytest.mark.parametrize("asks", [True, False])
async def test_every_chunk_of_a_completion_names_its_usage(
    plain: Member, kind_of_prompt: str, *, asks: bool
) -> None:
    prompt, size = PROMPTS[kind_of_prompt]
    more = {"stream_options": {"include_usage": True}} if asks else {}
    body = {"model": MODEL, "prompt": prompt, **BRIEF, **more}
    chunks = await stream(plain, COMPLETIONS, body)
    if asks:
        last = chunks.pop()
        assert list(last) == HEAD
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] % 4 == 0
        assert "completion_tokens_details" not in last["usage"]
    for chunk in chunks:
        assert list(chunk) == HEAD
        assert chunk["usage"] is None
        assert [list(choice) for choice in chunk["choices"]] == [CHOICE]
    finishes = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    n = size or 1
    assert [finish for finish in finishes if finish] == ["length"] * n
    assert {chunk["choices"][0]["index"] for chunk in chunks} == set(range(n))


async def test_a_repeated_completion_is_cached(plain: Member) -> None:
    body = {"model": MODEL, "prompt": list(range(400, 900)), **BRIEF}
    await post(plain, COMPLETIONS, body)
    usage = (await post(plain, COMPLETIONS, body))["usage"]
    assert usage["prompt_tokens"] == 500
    assert usage["prompt_tokens_details"] == {"cached_tokens": 448}
    meta = (await post(plain, GENERATE, native(body["prompt"])))["meta_info"]
    assert (meta["prompt_tokens"], meta["cached_tokens"]) == (500, 448)
    salted = await post(plain, COMPLETIONS, {**body, "cache_salt": token_hex()})
    assert salted["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


@pytest.mark.parametrize(
    ("body", "error_type"),
    [
        ({"prompt": ""}, "BadRequestError"),
        ({"prompt": []}, "BadRequestError"),
        ({"prompt": "x", "max_tokens": 10**6}, "BadRequestError"),
        ({"prompt": "x", "max_tokens": 10**6, "stream": True}, "BadRequestError"),
        ({"prompt": "x", "temperature": -1}, "BadRequestError"),
        ({"prompt": "x", "model": f"{MODEL}:tuned"}, "BadRequestError"),
        ({}, "Bad Request"),
        ({"prompt": {}}, "Bad Request"),
        ({"prompt": "x", "max_tokens": 0}, "Bad Request"),
    ],
)
async def test_completions_that_are_refused(
    plain: Member, body: dict[str, Any], error_type: str
) -> None:
    answer = await post(plain, COMPLETIONS, {"model": MODEL, **body}, status=400)
    assert is_refusal(answer, kind=error_type)


@PROMPT_KINDS
async def test_a_native_answer_tells_its_counts(plain: Member, kind_of_prompt: str) -> None:
    prompt, size = PROMPTS[kind_of_prompt]
    answers: Any = await post(plain, GENERATE, native(prompt))
    assert isinstance(answers, list) is bool(size)
    for answer in answers if size else [answers]:
        assert list(answer) == ["text", "output_ids", "meta_info"]
        assert len(answer["output_ids"]) == 4
        meta = answer["meta_info"]
        assert meta["finish_reason"] == {"type": "length", "length": 4}
        assert (meta["completion_tokens"], meta["dp_rank"]) == (4, None)
        assert meta["prompt_tokens"] >= 1
        assert meta["cached_tokens"] >= 0


@PROMPT_KINDS
async def test_native_chunks_hold_everything_so_far(plain: Member, kind_of_prompt: str) -> None:
    prompt, size = PROMPTS[kind_of_prompt]
    chunks = await stream(plain, GENERATE, native(prompt))
    assert {"index" in chunk for chunk in chunks} == {bool(size)}
    for index in {chunk.get("index", 0) for chunk in chunks}:
        mine = [chunk for chunk in chunks if chunk.get("index", 0) == index]
        finishes = [chunk["meta_info"]["finish_reason"] for chunk in mine]
        assert finishes.pop() == {"type": "length", "length": 4}
        assert not any(finishes)
        assert mine[-1]["text"].startswith(mine[0]["text"])


@pytest.mark.parametrize(
    "body",
    [{}, {"input_ids": []}, native("x", lora_path="tuned")],
    ids=["none", "empty", "adapter"],
)
async def test_native_refusals(plain: Member, body: dict[str, Any]) -> None:
    answer = await post(plain, GENERATE, body, status=400)
    assert list(answer) == ["error"]
    assert list(answer["error"]) == ["message"]


async def test_a_native_stream_tells_its_refusal_in_an_event(plain: Member) -> None:
    body = {"text": "x", "sampling_params": {"max_new_tokens": 10**6}}
    assert list(await post(plain, GENERATE, body, status=400)) == ["error"]
    [event] = await stream(plain, GENERATE, body)
    assert list(event["error"]) == ["message", "type", "code", "retryable"]
    assert (event["error"]["code"], event["error"]["retryable"]) == (400, False)
    assert is_refusal(await post(plain, GENERATE, {"text": 3}, status=400))


async def test_put_generates_too(plain: Member) -> None:
    async with session(plain) as http, http.put(GENERATE, json=native(TEXT)) as response:
        assert (response.status, "text" in await response.json()) == (200, True)


@pytest.mark.parametrize(
    ("path", "body", "error_type"),
    [
        ("/v1/embeddings", {"model": MODEL, "input": "x"}, "BadRequestError"),
        ("/v1/embeddings", {"model": MODEL, "input": ""}, "BadRequestError"),
        ("/v1/embeddings", {"model": MODEL}, "Bad Request"),
        ("/v1/rerank", {"query": "q", "documents": ["a"]}, "BadRequestError"),
        ("/v1/rerank", {"query": "q", "documents": []}, "BadRequestError"),
        ("/v1/rerank", {"query": "q"}, "Bad Request"),
        ("/v1/score", {"query": "q"}, "BadRequestError"),
        ("/v1/score", {"query": {}}, "Bad Request"),
    ],
)
async def test_a_generating_replica_embeds_nothing(
    plain: Member, path: str, body: dict[str, Any], error_type: str
) -> None:
    assert is_refusal(await post(plain, path, body, status=400), kind=error_type)


async def test_labels_are_scored(plain: Member) -> None:
    body = {"model": MODEL, "query": TEXT, "items": ["a", "b", "c"], "label_token_ids": [5, 6]}
    answer = await post(plain, "/v1/score", {**body, "apply_softmax": True})
    assert [len(row) for row in answer["scores"]] == [2, 2, 2]
    assert all(sum(row) == pytest.approx(1.0) for row in answer["scores"])
    assert (answer["object"], answer["model"]) == ("scoring", MODEL)
    assert answer["usage"]["completion_tokens"] == 0


async def test_a_full_queue_in_each_form_without_messages(tight: Member) -> None:
    queued = chat_body("x", output_tokens=ENDLESS)
    text = "The request queue is full."
    async with session(tight) as http, occupied(http), waiting(http, CHAT, queued):
        body = {"model": MODEL, "prompt": "x", **BRIEF}
        error = {"object": "error", "message": text, "param": None, "code": 503}
        async with http.post(COMPLETIONS, json=body) as response:
            assert (response.status, await response.json()) == (503, {**error, "type": "503"})
        async with http.post(COMPLETIONS, json={**body, "stream": True}) as response:
            assert response.status == 200
            (_, event), (_, end) = events_of(await response.text())
            assert event == {"error": {**error, "type": "SERVICE_UNAVAILABLE"}}
            assert end == "[DONE]"
        async with http.post(GENERATE, json=native("x")) as response:
            told = await response.json()
            assert (response.status, told) == (503, {**error, "type": "503"})
        async with http.post(GENERATE, json=native("x", stream=True)) as response:
            assert response.status == 200
            (_, event), (_, end) = events_of(await response.text())
            assert (event["text"], end) == ("", "[DONE]")
            reason = event["meta_info"]["finish_reason"]
            assert (reason["type"], reason["message"]) == ("abort", text)
            assert reason["status_code"] == 503
