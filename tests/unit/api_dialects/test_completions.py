"""Facts, forwarded bodies and taps of the APIs without messages: completions and generate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from router.dialect import DialectOptions, dialects
from router.dialect.base import Usage
from router.errors import ClientError, RouterError

if TYPE_CHECKING:
    from router.dialect.base import Headers, PromptFacts, Tap

COMPLETIONS = "/v1/completions"
GENERATE = "/generate"
TABLE = dialects(DialectOptions())
LONG = "def f(x):\n    return x\n" * 1_000
OTHER = "class A:\n    pass\n" * 1_000
IDS = [n * 7 % 50_000 for n in range(6_000)]


def read(path: str, headers: Headers = (), **body: object) -> PromptFacts:
    return TABLE[path].read(json.dumps(body).encode(), headers)


def prompt_of(path: str, prompt: object) -> dict[str, Any]:
    """A body with this prompt, in the API's own words."""
    if path == COMPLETIONS:
        return {"model": "m", "prompt": prompt}
    first = prompt[0] if isinstance(prompt, list) else prompt
    return {"input_ids" if isinstance(first, int | list) else "text": prompt}


def shared(one: PromptFacts, two: PromptFacts) -> int:
    """Bytes that two prompts share, as far as their segments tell."""
    n_bytes = 0
    for at, (a, b) in enumerate(zip(one.chain, two.chain, strict=False)):
        if a != b:
            break
        n_bytes = one.ends_bytes[at]
    return n_bytes


@pytest.mark.parametrize("path", [COMPLETIONS, GENERATE])
@pytest.mark.parametrize(
    ("short", "grown", "n_bytes"),
    [
        (LONG, LONG + OTHER, len(LONG)),
        (IDS, [*IDS, *IDS], 4 * len(IDS)),
        ([LONG, "x"], [LONG, "y"], len(LONG)),
        ([IDS, [1]], [IDS, [2]], 4 * len(IDS)),
        (LONG, [LONG, OTHER], len(LONG)),
    ],
)
def test_a_prompt_that_grows_keeps_its_whole_segments(
    path: str, short: object, grown: object, n_bytes: int
) -> None:
    one, two = read(path, **prompt_of(path, short)), read(path, **prompt_of(path, grown))
    assert one.is_readable
    assert n_bytes - 4096 <= shared(one, two) <= n_bytes + 8
    assert one.prompt_bytes >= n_bytes
    assert shared(one, read(path, **prompt_of(path, short))) == one.prompt_bytes


@pytest.mark.parametrize(
    ("one", "two", "is_same"),
    [
        ({"prompt": LONG}, {"prompt": LONG, "echo": True, "user": "u", "n": 2}, True),
        ({"prompt": LONG}, {"prompt": LONG, "model": "m", "temperature": 0.5}, True),
        ({"prompt": LONG}, {"prompt": LONG, "model": "m:tuned"}, False),
        ({"prompt": LONG}, {"prompt": LONG, "lora_path": "tuned"}, False),
        ({"prompt": LONG, "model": "m:tuned"}, {"prompt": LONG, "lora_path": "tuned"}, True),
        ({"prompt": LONG}, {"prompt": LONG, "cache_salt": "s"}, False),
        ({"prompt": LONG, "cache_salt": "s"}, {"prompt": LONG, "cache_salt": "t"}, False),
        ({"prompt": LONG, "cache_salt": "s"}, {"prompt": LONG, "extra_key": "s"}, False),
        ({"prompt": LONG}, {"prompt": LONG, "cache_salt": "", "extra_key": None}, True),
        ({"prompt": LONG}, {"prompt": LONG, "data_parallel_rank": 0}, False),
        ({"prompt": LONG, "routed_dp_rank": 1}, {"prompt": LONG, "data_parallel_rank": 1}, True),
        ({"prompt": LONG, "routed_dp_rank": 1}, {"prompt": LONG, "routed_dp_rank": 2}, False),
        ({"prompt": LONG}, {"prompt": IDS}, False),
        ({"prompt": LONG}, {"prompt": [LONG]}, True),
        ({"prompt": IDS}, {"prompt": [IDS]}, True),
    ],
)
def test_what_counts_as_the_same_prompt(
    one: dict[str, Any], two: dict[str, Any], *, is_same: bool
) -> None:
    first, second = read(COMPLETIONS, **one), read(COMPLETIONS, **two)
    assert (first.chain == second.chain) is is_same
    assert is_same or first.chain[0] != second.chain[0]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", COMPLETIONS, GENERATE])
def test_salts_keys_and_ranks_keep_chains_apart_on_every_api(path: str) -> None:
    body = {
        "messages": [{"role": "user", "content": LONG}],
        "max_tokens": 1,
        **prompt_of(path, LONG),
    }
    rank: Headers = [(b"host", b"x"), (b"x-data-parallel-rank", b"1")]
    variants = [
        read(path, **body),
        read(path, **body, cache_salt="a"),
        read(path, **body, extra_key="a"),
        read(path, **body, routed_dp_rank=0),
        read(path, rank, **body),
    ]
    assert len({facts.chain[0] for facts in variants}) == len(variants)
    assert len({facts.session_key for facts in variants}) == len(variants)
    # The header counts before the body, and one rank is one cache however it is named.
    assert read(path, rank, **body, routed_dp_rank=3).chain == variants[4].chain
    assert read(path, **body, data_parallel_rank=1).chain == variants[4].chain


def test_what_may_follow_the_prompt_comes_last() -> None:
    bare, filled = read(COMPLETIONS, prompt=LONG), read(COMPLETIONS, prompt=LONG, suffix="end")
    assert filled.chain[: len(bare.chain)] == bare.chain
    assert len(filled.chain) > len(bare.chain)


@pytest.mark.parametrize(
    ("path", "body", "limit"),
    [
        (COMPLETIONS, {"prompt": "x"}, 16),
        (COMPLETIONS, {"prompt": "x", "max_tokens": 900}, 900),
        (GENERATE, {"text": "x"}, 128),
        (GENERATE, {"text": "x", "sampling_params": {"max_new_tokens": 7}}, 7),
        (GENERATE, {"text": ["x"], "sampling_params": [{"max_new_tokens": 8}]}, 8),
        (GENERATE, {"text": "x", "sampling_params": 3}, 128),
    ],
)
def test_the_expected_answer_is_the_apis_own(path: str, body: dict[str, Any], limit: int) -> None:
    assert read(path, **body).output_tokens_max == limit


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {}),
        (COMPLETIONS, {"prompt": ""}),
        (COMPLETIONS, {"prompt": []}),
        (COMPLETIONS, {"prompt": None}),
        (COMPLETIONS, {"prompt": {"a": 1}}),
        (COMPLETIONS, {"prompt": [1, "x"]}),
        (COMPLETIONS, {"prompt": ["x", 1]}),
        (COMPLETIONS, {"prompt": [-1]}),
        (COMPLETIONS, {"prompt": [1 << 40]}),
        (COMPLETIONS, {"prompt": [[]]}),
        (COMPLETIONS, {"prompt": ["x"] * 20_001}),
        (COMPLETIONS, {"prompt": "x", "stream": True, "stream_options": 3}),
        (COMPLETIONS, {"prompt": "x", "suffix": 3}),
        (GENERATE, {"input_embeds": [[0.5]]}),
        (GENERATE, {"text": 3}),
        (GENERATE, {"messages": 3, "text": "x"}),
    ],
)
def test_what_cannot_be_read_is_forwarded_untouched(path: str, body: dict[str, Any]) -> None:
    raw = json.dumps({**body, "session_id": "s"}).encode()
    facts = TABLE[path].read(raw, [])
    assert not facts.is_readable
    assert facts.session_key == "s"
    assert TABLE[path].outgoing(raw, facts) == (raw, False)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": ["x", ""]}),
        (GENERATE, {"text": ""}),
        (GENERATE, {"text": ["x", ""]}),
    ],
)
def test_an_empty_text_that_would_end_the_engine_is_refused(
    path: str, body: dict[str, Any]
) -> None:
    with pytest.raises(ClientError, match="empty text"):
        read(path, **body)


@pytest.mark.parametrize("path", [COMPLETIONS, GENERATE, "/v1/embeddings", "/v1/tokenize"])
@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b"\xff", b'{"model":"\\ud800"}'])
def test_what_is_no_json_object_is_refused(path: str, raw: bytes) -> None:
    with pytest.raises(ClientError) as refused:
        TABLE[path].read(raw, [])
    assert refused.value.code == "bad-request"


def test_an_adapter_goes_with_the_facts() -> None:
    assert read(GENERATE, text="x", lora_path="tuned").lora_name == "tuned"
    assert read(COMPLETIONS, prompt=["x", "y"], lora_path=[None, "tuned"]).lora_name == "tuned"
    assert read("/v1/embeddings", input="x", lora_path="tuned").lora_name == "tuned"
    assert read(COMPLETIONS, prompt="x", lora_path=None).lora_name == ""


def test_a_completions_stream_is_asked_for_its_usage() -> None:
    raw = b'{"prompt": "stream_options", "stream": true}'
    dialect = TABLE[COMPLETIONS]
    assert dialect.outgoing(raw, dialect.read(raw, [])) == (
        b'{"prompt": "stream_options", "stream": true,"stream_options":{"include_usage":true}}',
        True,
    )


# Answers


def chunk(text: str, **more: object) -> bytes:
    """A chunk of a completion: every one names its usage."""
    choice = {
        "index": 0,
        "text": text,
        "logprobs": None,
        "finish_reason": None,
        "matched_stop": None,
    }
    head = {"id": "c", "object": "text_completion", "created": 1, "model": "m"}
    return event({**head, "choices": [choice], "usage": None, **more})


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def native(text: str, n_tokens: int, *, finish: object = None, **more: object) -> bytes:
    """A chunk of ``/generate``: all of the text so far, and all counts."""
    meta = {"id": "r", "finish_reason": finish, "prompt_tokens": 40, "weight_version": "default"}
    meta |= {"total_retractions": 0, "completion_tokens": n_tokens, "cached_tokens": 32}
    return event({"text": text, "output_ids": [1] * n_tokens, "meta_info": meta, **more})


DONE = b"data: [DONE]\n\n"
COUNTS = {"prompt_tokens": 40, "completion_tokens": 3, "total_tokens": 43,
          "prompt_tokens_details": {"cached_tokens": 32}}  # fmt: skip
STREAM = chunk("a") + chunk(' "usage":{}') + chunk("[DONE]")
TAIL = event({"id": "c", "object": "text_completion", "choices": [], "usage": COUNTS})
NATIVE = (
    native("a", 1) + native('a "finish_reason":{', 2) + native("ab", 3, finish={"type": "stop"})
)
ALL = Usage(40, 3, 32)


def passed(tap: Tap, data: bytes, cut: int) -> bytes:
    """What the client gets where the stream is cut once."""
    return tap.feed(data[:cut]) + tap.feed(data[cut:]) + tap.finish()


def test_a_completion_is_the_clients_own_wherever_it_is_cut() -> None:
    data = STREAM + TAIL + DONE
    for cut in range(len(data) + 1):
        tap = TABLE[COMPLETIONS].tap(is_stream=True, strip_usage=True)
        assert passed(tap, data, cut) == STREAM + DONE
        assert (tap.usage, tap.is_complete, tap.has_begun, tap.fault) == (ALL, True, True, None)


def test_usage_that_the_client_asked_for_stays() -> None:
    tap = TABLE[COMPLETIONS].tap(is_stream=True, strip_usage=False)
    assert passed(tap, STREAM + TAIL + DONE, 7) == STREAM + TAIL + DONE
    assert tap.usage == ALL
    continuous = chunk("a", usage=COUNTS) + chunk("b", usage=COUNTS)
    tap = TABLE[COMPLETIONS].tap(is_stream=True, strip_usage=True)
    assert passed(tap, continuous + TAIL + DONE, 5) == continuous + DONE


def test_a_native_stream_passes_wherever_it_is_cut() -> None:
    data = NATIVE + DONE
    for cut in range(len(data) + 1):
        tap = TABLE[GENERATE].tap(is_stream=True, strip_usage=False)
        assert passed(tap, data, cut) == data
        assert (tap.usage, tap.is_complete, tap.has_begun, tap.fault) == (ALL, True, True, None)


def test_a_native_refusal_begins_no_answer() -> None:
    finish = {"type": "abort", "status_code": 503, "message": "The request queue is full."}
    tap = TABLE[GENERATE].tap(is_stream=True, strip_usage=False)
    tap.feed(native("", 0, finish=finish) + DONE)
    assert not tap.has_begun
    assert tap.fault is not None
    assert (tap.fault.status, tap.fault.message) == (503, "The request queue is full.")
    asked_for = TABLE[GENERATE].tap(is_stream=True, strip_usage=False)
    asked_for.feed(native("a", 1, finish={"type": "abort", "message": "aborted"}) + DONE)
    assert asked_for.fault is None
    spoken = TABLE[GENERATE].tap(is_stream=True, strip_usage=False)
    spoken.feed(event({"error": {"message": "too long", "code": 400, "retryable": False}}) + DONE)
    assert spoken.fault is not None
    assert spoken.fault.status == 400


def test_a_batch_teaches_nothing_of_one_prompt() -> None:
    tap = TABLE[GENERATE].tap(is_stream=True, strip_usage=False)
    tap.feed(native("a", 3, finish={"type": "stop"}, index=0))
    tap.feed(native("b", 3, finish={"type": "stop"}, index=1) + DONE)
    assert (tap.usage, tap.is_complete) == (None, True)
    one = json.loads(NATIVE.split(b"\n\n")[2][6:])
    for answers, usage in ((one, ALL), ([one], ALL), ([one, one], None)):
        whole = TABLE[GENERATE].tap(is_stream=False, strip_usage=False)
        body = json.dumps(answers).encode()
        assert passed(whole, body, 9) == body
        assert (whole.usage, whole.is_complete) == (usage, True)


@pytest.mark.parametrize("path", [COMPLETIONS, GENERATE, "/v1/score"])
def test_errors_are_openai_shaped(path: str) -> None:
    error = RouterError("unknown-model", "No such.")
    body = json.loads(TABLE[path].error_body(error))
    assert body["error"] == {
        "message": "No such.",
        "type": "not_found_error",
        "param": "model",
        "code": "model_not_found",
    }
    assert TABLE[path].error_event(error).endswith(DONE)
