"""Chains are equal exactly as far as what they stand for is."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from hashing.chain import link
from hashing.rendezvous import rank
from hashing.segments import SEGMENT_BYTES_MAX, segments_of
from router.dialect import DialectOptions, dialects
from router.errors import ClientError

ROLES = ("system", "user", "assistant", "tool")
message = st.fixed_dictionaries(
    {"role": st.sampled_from(ROLES), "content": st.sampled_from(["", "a", "b", "a" * 5000])}
)
conversation = st.lists(message, min_size=1, max_size=6)
key = st.sampled_from(
    ["messages", "role", "content", "type", "text", "tools", "function", "name", "system", "model"]
)
json_value = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | key
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(key, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(
    st.lists(st.binary(min_size=1, max_size=3), max_size=8),
    st.lists(st.binary(min_size=1, max_size=3), max_size=8),
)
def test_a_chain_is_equal_as_far_as_the_messages_are(left: list[bytes], right: list[bytes]) -> None:
    chains = [list(link(segments_of(side).digests, seed=0)) for side in (left, right)]
    for index, (one, other) in enumerate(zip(*chains, strict=False)):
        assert (one == other) == (left[: index + 1] == right[: index + 1])


def shown(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """As the engine shows them: an assistant's message that ends a prompt is a user's."""
    *before, last = messages
    return [*before, {**last, "role": "user"} if last["role"] == "assistant" else last]


@settings(deadline=None)
@given(conversation, conversation, st.data())
def test_prompts_share_exactly_what_their_messages_share(
    left: list[dict[str, str]], right: list[dict[str, str]], data: st.DataObject
) -> None:
    right = left[: data.draw(st.integers(0, len(left)))] + right
    dialect = dialects(DialectOptions())["/v1/chat/completions"]
    chains = [
        list(dialect.read(json.dumps({"messages": side}).encode(), []).chain)
        for side in (left, right)
    ]
    n_equal = 0
    for one, other in zip(shown(left), shown(right), strict=False):
        if one != other:
            break
        n_equal += 1 + (len(one["content"]) > SEGMENT_BYTES_MAX)

    assert chains[0][:n_equal] == chains[1][:n_equal]
    is_more = chains[0][n_equal : n_equal + 1] == chains[1][n_equal : n_equal + 1]
    assert is_more == (shown(left) == shown(right))


@settings(deadline=None, max_examples=300)
@given(json_value, st.sampled_from(["/v1/chat/completions", "/v1/messages", "/v1/responses"]))
def test_no_shape_is_too_strange_to_read(value: object, path: str) -> None:
    dialect = dialects(DialectOptions())[path]
    for body in (
        value,
        {"messages": [value], "model": "m"},
        {"messages": value, "stream": True},
        {"messages": [{"role": "user", "content": value}], "metadata": value},
        {"messages": [{"role": "assistant", "tool_calls": value, "content": [value]}]},
        {"input": value, "instructions": value, "previous_response_id": value},
        {"input": [value, {"type": "reasoning", "summary": value, "content": value}]},
        {"input": [{"type": "function_call", "name": value, "arguments": value, "phase": value}]},
        {"input": [{"role": "developer", "content": [value]}, {"role": value, "content": value}]},
        {"input": "a", "tools": [value], "tool_choice": value, "reasoning": value},
        {
            "input": "a",
            "tools": [{"type": "custom", "name": "a", "format": value, "strict": value}],
        },
        {
            "messages": [{"role": "user", "content": "a"}],
            "tools": value,
            "system": value,
            "tool_choice": value,
            "stream": True,
            "stream_options": value,
            "thinking": value,
            "chat_template_kwargs": value,
        },
    ):
        sent = json.dumps(body).encode()
        try:
            facts = dialect.read(sent, [(b"x-session-id", sent[:300])])
        except ClientError:
            assert not isinstance(body, dict) or "Infinity" in sent.decode()
            continue
        assert facts.session_key
        assert bool(facts.chain) == facts.is_readable
        assert len(facts.chain) == len(facts.ends_bytes)
        assert json.loads(dialect.outgoing(sent, facts)[0]) is not None


@settings(deadline=None)
@given(st.text(), st.lists(st.text(max_size=8), unique=True, min_size=1, max_size=12), st.data())
def test_removing_an_id_keeps_the_order_of_the_others(
    key: str, ids: list[str], data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(ids))
    left = [name for name in rank(key, ids) if name != gone]
    assert rank(key, [name for name in ids if name != gone]) == left
