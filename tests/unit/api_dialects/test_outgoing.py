"""What is forwarded: the body as it came, but for the billing line and the wish for usage."""

from __future__ import annotations

import json

import pytest

from router.dialect import DialectOptions, dialects

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
HELLO = b'"messages" : [ {"role":"user","content":"Hi \\u0041 \\"stream_options\\":{}"} ]'
BILLING = '{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=0a1b2;"}'


def outgoing(path: str, body: bytes, **options: bool) -> tuple[bytes, bool]:
    dialect = dialects(DialectOptions(**options))[path]
    return dialect.outgoing(body, dialect.read(body, []))


@pytest.mark.parametrize(
    ("sent", "forwarded"),
    [
        (
            b'{%s, "stream": true}' % HELLO,
            b'{%s, "stream": true,"stream_options":{"include_usage":true}}' % HELLO,
        ),
        (
            b' {%s, "stream": true }\n ' % HELLO,
            b' {%s, "stream": true ,"stream_options":{"include_usage":true}}\n ' % HELLO,
        ),
        (
            b'{"stream_options": {"include_usage": false, "a": 1.50}, "stream":true, %s}' % HELLO,
            b'{"stream_options": {"include_usage":true,"a":1.50}, "stream":true, %s}' % HELLO,
        ),
        (
            b'{"stream_options": {"continuous_usage_stats": true }, "stream":true, %s}' % HELLO,
            b'{"stream_options": {"continuous_usage_stats":true,"include_usage":true},'
            b' "stream":true, %s}' % HELLO,
        ),
    ],
)
def test_usage_is_asked_at_the_right_place(sent: bytes, forwarded: bytes) -> None:
    assert outgoing(CHAT, sent) == (forwarded, True)


@pytest.mark.parametrize("options", [b"null", b"{}", b"{ }"])
def test_where_the_place_is_not_certain_the_top_level_is_built_anew(options: bytes) -> None:
    sent = b'{"x": {}, "y": { }, "stream_options":%s, "stream" :true, "n":1.50, %s}' % (
        options,
        HELLO,
    )
    forwarded, is_stripped = outgoing(CHAT, sent)

    assert is_stripped
    assert json.loads(forwarded) == {**json.loads(sent), "stream_options": {"include_usage": True}}
    assert b'"n":1.50' in forwarded
    assert HELLO.partition(b" : ")[2] in forwarded


@pytest.mark.parametrize(
    "sent",
    [
        b"{%s}" % HELLO,
        b'{"stream":false, %s}' % HELLO,
        b'{"stream":true, "stream_options":{"include_usage":true}, %s}' % HELLO,
    ],
)
def test_nothing_changes_where_usage_comes_anyway(sent: bytes) -> None:
    forwarded, is_stripped = outgoing(CHAT, sent)
    assert forwarded is sent
    assert not is_stripped


def test_usage_is_not_asked_if_the_setting_is_off() -> None:
    sent = b'{"stream":true, %s}' % HELLO
    assert outgoing(CHAT, sent, is_usage_asked=False) == (sent, False)


def test_options_of_an_unknown_shape_are_left_to_the_engine() -> None:
    sent = b'{"stream":true, "stream_options":[], %s}' % HELLO
    assert outgoing(CHAT, sent) == (sent, False)


def system_body(system: str) -> bytes:
    return f'{{"system": {system}, "messages":[{{"role":"user","content":"Hi"}}]}}'.encode()


KEPT = '{"type":"text",  "text":"Be \\u0062rief."}'


@pytest.mark.parametrize(
    ("system", "left"),
    [
        (f"[{BILLING}, {KEPT}]", f"[ {KEPT}]"),
        (f"[{KEPT} , {BILLING} ]", f"[{KEPT}  ]"),
        (f"[{BILLING}]", "[]"),
        (f"[ {BILLING} ,{KEPT}, {KEPT}]", f"[ {KEPT}, {KEPT}]"),
        (
            '[{"text" : "x-anthropic-billing-header: cch=1;\\nBe \\u0062rief.", "type":"text"}]',
            '[{"text" : "Be \\u0062rief.", "type":"text"}]',
        ),
    ],
)
def test_a_billing_block_goes_and_every_other_byte_stays(system: str, left: str) -> None:
    assert outgoing(MESSAGES, system_body(system)) == (system_body(left), False)


@pytest.mark.parametrize(
    ("system", "left"),
    [
        (f"[{BILLING},{BILLING}, {KEPT}]", f"[{KEPT}]"),
        ('"x-anthropic-billing-header: cch=1;\\nBe brief."', '"Be brief."'),
        ('"x-anthropic-billing-header: cch=1;"', '""'),
        (
            '[{"type":"text","text":"x-anthropic-billing-header: \\u0063;\\r\\nA"}]',
            '[{"type":"text","text":"A"}]',
        ),
    ],
)
def test_rare_forms_of_the_billing_line(system: str, left: str) -> None:
    forwarded, _ = outgoing(MESSAGES, system_body(system))
    assert json.loads(forwarded) == json.loads(system_body(left))


def test_a_billing_block_that_the_conversation_holds_too() -> None:
    quoted = (
        f'{{"system":[{BILLING}],"messages":[{{"role":"user","content":[{BILLING}]}}]}}'.encode()
    )
    forwarded, _ = outgoing(MESSAGES, quoted)

    assert json.loads(forwarded) == {**json.loads(quoted), "system": []}


@pytest.mark.parametrize(
    "system",
    [
        '"Be brief."',
        f"[{KEPT}]",
        '[{"type":"text","text":"Of x-anthropic-billing-header: and others"}]',
        '"Of x-anthropic-billing-header:"',
        "null",
    ],
)
def test_other_system_texts_stay(system: str) -> None:
    sent = system_body(system)
    assert outgoing(MESSAGES, sent)[0] is sent


def test_the_billing_line_stays_if_the_setting_is_off() -> None:
    sent = system_body(f"[{BILLING}]")
    assert outgoing(MESSAGES, sent, is_billing_line_removed=False)[0] is sent


@pytest.mark.parametrize("system", [f"[{BILLING}, {KEPT}]", '"x-anthropic-billing-header: 1\\nA"'])
def test_the_chain_is_that_of_what_is_forwarded(system: str) -> None:
    dialect = dialects(DialectOptions())[MESSAGES]
    sent = system_body(system)
    facts = dialect.read(sent, [])
    forwarded, _ = dialect.outgoing(sent, facts)

    again = dialects(DialectOptions(is_billing_line_removed=False))[MESSAGES].read(forwarded, [])
    assert again.chain == facts.chain


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        (CHAT, b'{"\xff":1,"stream":true,"stream_options":null,%s}' % HELLO),
        (MESSAGES, b'{"\xff":1,' + system_body(f"[{BILLING},{BILLING}]")[1:]),
    ],
)
def test_a_body_that_cannot_be_taken_apart_is_forwarded_as_it_is(path: str, sent: bytes) -> None:
    assert outgoing(path, sent) == (sent, False)
