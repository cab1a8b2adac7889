"""Bodies that are not JSON are refused with the place; shapes that are unknown are forwarded."""

from __future__ import annotations

import json

import pytest

from router.dialect import DialectOptions, dialects
from router.dialect.base import SessionSource
from router.errors import ClientError

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
HELLO = b'{"role":"user","content":"Hi"}'


def body(message: bytes = HELLO, more: bytes = b"") -> bytes:
    return b'{"model":"kimi","messages":[' + message + b"]" + more + b"}"


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize(
    ("sent", "place"),
    [
        (b"", "byte 0"),
        (b'{"messages":[', "byte 13"),
        (b"\xef\xbb\xbf{}", "byte 0"),
        (body() + b"x", "trailing characters"),
        (body(b'{"role":"user","content":"\\ud800."}'), "lone surrogate (byte 54)"),
        (body(b'{"role":"user","content":"\xff"}'), "byte 54"),
        (body(b'{"role":"user","content":NaN}'), "byte 53"),
        (body(more=b',"temperature":NaN'), "byte 74"),
        (body(more=b',"n":01'), "invalid number"),
        (b"[" * 100_000, "an array"),
        (body(b"[" * 100_000 + b"]" * 100_000), "nested too deeply"),
        (b"[1]", "an array"),
        (b" null", "null"),
        (b'"text"', "a string"),
        (b"12", "a number"),
        (b"true", "a boolean"),
    ],
)
def test_what_is_not_a_json_object_is_refused(path: str, sent: bytes, place: str) -> None:
    with pytest.raises(ClientError) as caught:
        dialects(DialectOptions())[path].read(sent, [])

    assert caught.value.code == "bad-request"
    assert place in caught.value.message


def test_a_fault_inside_a_message_is_placed_in_the_whole_body() -> None:
    sent = body(HELLO + b',{"role":"user","content":"\\udc00"}')
    with pytest.raises(ClientError) as caught:
        dialects(DialectOptions())[CHAT].read(sent, [])

    place = int(caught.value.message.rpartition("byte ")[2].rstrip(")"))
    assert abs(place - sent.index(b"\\udc00")) <= 6


COMMON_SHAPES = [
    b'{"model":"kimi"}',
    b'{"model":null,"messages":[%s]}' % HELLO,
    b'{"model":7,"messages":[%s]}' % HELLO,
    b'{"messages":null}',
    b'{"messages":{}}',
    b'{"messages":[]}',
    body(b"null"),
    body(b"7"),
    body(b'{"content":"Hi"}'),
    body(b'{"role":7,"content":"Hi"}'),
    body(b'{"role":"user","content":7}'),
    body(b'{"role":"user","content":[7]}'),
    body(b'{"role":"user","content":[{"type":"hologram"}]}'),
    body(b'{"role":"user","content":[{"type":["text"]}]}'),
    body(b'{"role":"user","content":[{"type":"text","text":7}]}'),
    body(b'{"role":"user","content":1e400}'),
    body(more=b',"tools":{}'),
    body(more=b',"tools":[7]'),
    body(more=b',"tools":[{"type":"function"}]'),
]
CHAT_SHAPES = [
    body(b'{"role":"user","content":[{"type":"image_url"}]}'),
    body(b'{"role":"assistant","tool_calls":7}'),
    body(b'{"role":"assistant","tool_calls":[7]}'),
    body(b'{"role":"assistant","tool_calls":[{"id":7,"function":{"name":"a"}}]}'),
    body(more=b',"chat_template_kwargs":7'),
    body(more=b',"input_ids":[1,2]'),
]
MESSAGES_SHAPES = [
    body(b'{"role":"robot","content":"Hi"}'),
    body(b'{"role":"assistant","content":[{"type":"redacted_thinking","data":"x"}]}'),
    body(b'{"role":"user","content":[{"type":"document","source":{}}]}'),
    body(b'{"role":"user","content":[{"type":"tool_result","content":7}]}'),
    body(b'{"role":"user","content":[]}'),
    body(more=b',"system":7'),
    body(more=b',"system":[7]'),
]


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        *[(path, sent) for path in (CHAT, MESSAGES) for sent in COMMON_SHAPES],
        *[(CHAT, sent) for sent in CHAT_SHAPES],
        *[(MESSAGES, sent) for sent in MESSAGES_SHAPES],
    ],
)
def test_a_shape_that_cannot_be_read_is_forwarded_untouched(path: str, sent: bytes) -> None:
    dialect = dialects(DialectOptions())[path]
    with_stream = sent[:-1] + b',"stream":true,"max_tokens":5}'
    facts = dialect.read(with_stream, [])

    assert not facts.is_readable
    assert facts.is_stream
    assert facts.output_tokens_max == 5
    assert facts.session_source is SessionSource.CHAIN
    assert facts.session_key.startswith("body:")
    assert not facts.chain
    assert facts.prompt_bytes == 0
    assert dialect.outgoing(with_stream, facts) == (with_stream, False)
    assert dialect.read(with_stream, [(b"x-session-id", b"s1")]).session_key == "s1"
    assert dialect.read(with_stream + b" ", []).session_key != facts.session_key


def test_an_unreadable_body_still_tells_model_and_session() -> None:
    sent = b'{"model":"kimi","messages":null,"prompt_cache_key":"s9"}'
    facts = dialects(DialectOptions())[CHAT].read(sent, [])

    assert facts.model == "kimi"
    assert (facts.session_key, facts.session_source) == ("s9", SessionSource.BODY)


def test_duplicate_keys_count_as_the_last_one() -> None:
    dialect = dialects(DialectOptions())[CHAT]
    twice = b'{"messages":[],"messages":[%s],"stream":true,"stream":false}' % HELLO

    assert dialect.read(twice, []).chain == dialect.read(b'{"messages":[%s]}' % HELLO, []).chain
    assert not dialect.read(twice, []).is_stream


def test_large_numbers_keep_their_value() -> None:
    dialect = dialects(DialectOptions())[CHAT]

    def chain(number: str) -> list[int]:
        call = {"id": "a", "function": {"name": "f", "arguments": '{"n": %s}' % number}}  # noqa: UP031
        message = {"role": "assistant", "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "a", "content": "b"}
        return list(dialect.read(json.dumps({"messages": [message, result]}).encode(), []).chain)

    numbers = ["1", "1.0", "18446744073709551616", "18446744073709551617", "1e300", "-0.0", "1e400"]
    assert len({tuple(chain(number)) for number in numbers}) == len(numbers)
    assert chain("1.50") == chain("1.5")


@pytest.mark.parametrize(
    ("value", "is_stream"),
    [
        ("true", True),
        ("1", True),
        ('"true"', True),
        ("false", False),
        ("null", False),
        ("[1]", False),
    ],
)
def test_stream_is_read_as_the_engine_reads_it(value: str, is_stream: bool) -> None:  # noqa: FBT001
    facts = dialects(DialectOptions())[CHAT].read(body(more=b',"stream":' + value.encode()), [])
    assert facts.is_stream is is_stream


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (b"", None),
        (b',"max_tokens":9', 9),
        (b',"max_tokens":9,"max_completion_tokens":7', 7),
        (b',"max_tokens":-1', None),
        (b',"max_tokens":"9"', None),
        (b',"max_tokens":99999999999999999999999', None),
    ],
)
def test_output_budget(more: bytes, expected: int | None) -> None:
    facts = dialects(DialectOptions())[CHAT].read(body(more=more), [])
    assert facts.output_tokens_max == expected


def test_counts_of_a_readable_body() -> None:
    tools = b',"tools":[{"type":"function","function":{"name":"f"}}]'
    system = b'{"role":"system","content":"Be brief."}'
    facts = dialects(DialectOptions())[CHAT].read(body(system + b"," + HELLO, tools), [])

    assert facts.dialect == "openai-chat"
    assert facts.model == "kimi"
    assert facts.n_messages == 2
    assert facts.head_segments == 2
    assert len(facts.chain) == len(facts.ends_bytes) == 3
    assert facts.prompt_bytes == facts.ends_bytes[-1]
