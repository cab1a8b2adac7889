"""What is read of a body of ``/v1/responses`` beside what the table of pairs says."""

from __future__ import annotations

import json

import pytest

from router.dialect import DialectOptions, dialects
from router.dialect.base import PromptFacts, SessionSource
from router.errors import ClientError
from tests.unit.api_dialects.pair_bodies import CHAT, changed
from tests.unit.api_dialects.responses_differences import UNKNOWN_ITEMS
from tests.unit.api_dialects.responses_pairs import RESPONSES, RESPONSES_BODY, packed

HOISTED = DialectOptions(is_inline_system_hoisted=True)
USER = {"role": "user", "content": "Hi"}


def read(
    body: object, options: DialectOptions | None = None, headers: dict[str, str] | None = None
) -> PromptFacts:
    lines = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    dialect = dialects(options or DialectOptions())[RESPONSES]
    return dialect.read(json.dumps(body).encode(), lines)


def test_what_codex_says_of_itself() -> None:
    body = {**RESPONSES_BODY, "max_output_tokens": 900, "prompt_cache_key": "conversation"}
    found = read(body)
    named = read(body, headers={"session-id": "s", "thread-id": "t"})
    child = read(body, headers={"thread-id": "t", "x-codex-parent-thread-id": "p"})

    assert (found.dialect, found.model, found.is_stream) == ("openai-responses", "tiny", True)
    assert (found.output_tokens_max, found.n_messages) == (900, 6)
    assert (found.session_key, found.session_source) == ("conversation", SessionSource.BODY)
    assert (named.session_key, named.session_source) == ("t", SessionSource.HEADER)
    assert (child.session_key, child.parent_key) == ("t", "p")
    assert len(found.chain) == 6
    assert found.head_segments == 3  # tools, instructions, the developer's words
    assert found.chain == named.chain
    assert (found.previous_id, found.edit) == ("", None)


def test_it_is_forwarded_as_it_came() -> None:
    sent = json.dumps(RESPONSES_BODY).encode()
    dialect = dialects(DialectOptions())[RESPONSES]
    assert dialect.outgoing(sent, dialect.read(sent, [])) == (sent, False)


def test_a_text_is_read_as_one_message() -> None:
    found = read({"model": "m", "input": "Hi", "stream": True, "max_output_tokens": 7})
    assert (found.is_readable, found.is_stream, found.output_tokens_max) == (True, True, 7)
    assert len(found.chain) == 1
    assert found.chain == read({"model": "m", "input": [USER]}).chain


def test_a_session_that_only_grew_keeps_its_chain() -> None:
    items = RESPONSES_BODY["input"]
    whole = read(RESPONSES_BODY)
    for n_items in (1, 2, 6):
        part = read({**RESPONSES_BODY, "input": items[:n_items]})
        assert part.chain == whole.chain[: len(part.chain)]
        assert part.ends_bytes == whole.ends_bytes[: len(part.ends_bytes)]


@pytest.mark.parametrize("item", UNKNOWN_ITEMS, ids=lambda item: item["type"])
def test_an_item_that_is_not_known_stands_for_itself(item: dict[str, object]) -> None:
    items = RESPONSES_BODY["input"]
    known = read(RESPONSES_BODY)
    before = read({**RESPONSES_BODY, "input": [*items, item]})
    after = read({**RESPONSES_BODY, "input": [*items, item, USER]})
    other = read({**RESPONSES_BODY, "input": [*items, {**item, "x": 1}, USER]})

    assert before.is_readable
    assert before.chain[: len(known.chain)] == known.chain
    assert after.chain[: len(before.chain)] == before.chain
    assert len(after.chain) == len(before.chain) + 1
    assert after.chain[len(known.chain)] != other.chain[len(known.chain)]


@pytest.mark.parametrize(
    "body",
    [
        {"input": 3},
        {"input": ["text"]},
        {"input": []},
        {},
        {"input": "x", "instructions": ["a"]},
        {"input": "x", "tools": {"a": 1}},
        {"input": "x", "tools": ["a"]},
        {"input": "x", "reasoning": "high"},
        {"input": "x", "chat_template_kwargs": 3},
        {"input": "x", "model": None},
        {"input": [USER] * 20_001},
    ],
)
def test_a_shape_that_cannot_be_read_is_forwarded(body: dict[str, object]) -> None:
    found = read({**body, "stream": True, "previous_response_id": "resp_1"})
    assert (found.is_readable, len(found.chain), found.is_stream) == (False, 0, True)
    assert found.previous_id == "resp_1"


@pytest.mark.parametrize("sent", [b"[1]", b'"x"', b'{"input": ', b'{"input": [{"a": 1,}]}', b""])
def test_what_is_no_json_object_is_refused(sent: bytes) -> None:
    with pytest.raises(ClientError):
        dialects(DialectOptions())[RESPONSES].read(sent, [])


def test_the_response_it_goes_on_from_is_a_prompt_of_its_own() -> None:
    plain = read(RESPONSES_BODY)
    goes_on = read({**RESPONSES_BODY, "previous_response_id": "resp_1"})
    other = read({**RESPONSES_BODY, "previous_response_id": "resp_2"})

    assert goes_on.previous_id == "resp_1"
    assert goes_on.session_key == "resp_1"
    assert len({facts.chain[0] for facts in (plain, goes_on, other)}) == 3
    assert read({**RESPONSES_BODY, "previous_response_id": None}).chain == plain.chain


def test_system_texts_are_hoisted_where_the_template_does_so() -> None:
    developer = {"role": "developer", "content": "Be kind."}
    late = {"instructions": "Be brief.", "input": [USER, developer, USER]}
    early = {"instructions": "Be brief.", "input": [developer, USER, USER]}
    two = {"role": "system", "content": [{"type": "input_text", "text": text} for text in "ab"]}
    apart = [{"role": "system", "content": text} for text in "ab"]

    assert read(late, HOISTED).chain == read(early, HOISTED).chain
    assert read(late).chain != read(early).chain
    assert read({"input": [USER, two]}, HOISTED).chain == (
        read({"input": [*apart, USER]}, HOISTED).chain
    )
    assert read(late, HOISTED).head_segments == 2
    ended = {"input": [USER, {"role": "assistant", "content": "Yes."}, developer]}
    as_user = changed(ended, "input", 1, "role", to="user")
    assert read(ended, HOISTED).chain == read(as_user, HOISTED).chain


def test_thinking_is_in_the_head_where_the_template_shows_it_there() -> None:
    shown = DialectOptions(is_thinking_in_head=True)

    def chain(**more: object) -> list[int]:
        return list(read({**RESPONSES_BODY, **more}, shown).chain)

    plain = chain()
    assert chain(reasoning=None) == plain
    assert chain(reasoning={"effort": None}) == plain
    medium = chain(reasoning={"effort": "medium"})
    assert medium[0] != plain[0]
    assert chain(reasoning={"summary": "auto"}) == medium
    assert chain(reasoning={"effort": "high"}) not in (medium, plain)
    assert chain(chat_template_kwargs={"thinking": False})[0] != plain[0]


def test_reasoning_is_kept_where_the_template_keeps_it() -> None:
    def body(thought: str, **more: object) -> dict[str, object]:
        said = {"type": "reasoning", "summary": [], "encrypted_content": packed(thought)}
        return {"input": [USER, said, {"role": "assistant", "content": "Yes."}, USER], **more}

    kept = DialectOptions(is_old_reasoning_stripped=False)
    preserve = {"chat_template_kwargs": {"preserve_thinking": True}}
    assert read(body("a")).chain == read(body("b")).chain
    assert read(body("a"), kept).chain != read(body("b"), kept).chain
    assert read(body("a", **preserve)).chain != read(body("b", **preserve)).chain


@pytest.mark.parametrize("blob", ["not base64!", "AAAA", packed("x")[:-6], packed("a" * 5_000_000)])
def test_a_packed_reasoning_that_cannot_be_unpacked(blob: str) -> None:
    prefix = "" if blob.startswith("sglang") else "sglang-reasoning-v1."
    said = {"type": "reasoning", "summary": [], "encrypted_content": prefix + blob}
    found = read({"input": [USER, said, USER]})
    assert found.is_readable
    assert found.prompt_bytes < 20_000


def test_it_is_the_prompt_of_the_chat_that_it_becomes() -> None:
    tool = {"name": "ls", "description": "List.", "parameters": {"type": "object"}}
    call = {"name": "ls", "arguments": "{}"}
    chat = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            USER,
            {
                "role": "assistant",
                "content": "So.",
                "reasoning_content": "Hm.",
                "tool_calls": [{"id": "c1", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
        ],
        "tools": [{"type": "function", "function": {**tool, "strict": False}}],
    }
    responses = {
        "instructions": "Be brief.",
        "input": [
            USER,
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "So."}]},
            {"type": "function_call", "call_id": "c1", **call},
            {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
        ],
        "tools": [{"type": "function", **tool}],
    }
    sent = json.dumps(chat).encode()
    assert dialects(DialectOptions())[CHAT].read(sent, []).chain == read(responses).chain


def test_what_one_api_remembers_is_not_taken_for_the_others() -> None:
    chat = {"messages": [{"role": "developer", "content": "a"}, USER]}
    responses = {"input": chat["messages"]}
    known = dialects(DialectOptions())
    for _ in range(2):
        first = known[CHAT].read(json.dumps(chat).encode(), [])
        second = known[RESPONSES].read(json.dumps(responses).encode(), [])
        assert first.chain != second.chain
        assert second.chain == read(responses).chain
