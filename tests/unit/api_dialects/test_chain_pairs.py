"""Equal chains up to a boundary exactly when the engine would see the same tokens up to there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from router.dialect import DialectOptions, dialects
from router.dialect.base import SessionSource
from tests.unit.api_dialects.chain_pairs import CHAT, CHAT_BODY, MESSAGES, PAIRS, Pair, dumps
from tests.unit.api_dialects.pair_bodies import TWIN_CHAT, TWIN_MESSAGES, changed

if TYPE_CHECKING:
    from router.dialect.base import PromptFacts


def read(path: str, body: bytes, options: DialectOptions | None = None) -> PromptFacts:
    return dialects(options or DialectOptions())[path].read(body, [])


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.label for pair in PAIRS])
def test_pair(pair: Pair) -> None:
    left, right = read(pair.path, pair.left), read(pair.path, pair.right)

    assert left.is_readable
    assert right.is_readable
    if pair.common is None:
        assert left.chain == right.chain
        assert left.ends_bytes == right.ends_bytes
        if right.session_source is SessionSource.CHAIN:
            assert left.session_key == right.session_key
    else:
        common = 0
        for one, other in zip(left.chain, right.chain, strict=False):
            if one != other:
                break
            common += 1
        assert common == pair.common


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.label for pair in PAIRS])
def test_what_is_remembered_does_not_change_the_chain(pair: Pair) -> None:
    dialect = dialects(DialectOptions())[pair.path]
    dialect.read(pair.left, [])
    warm = dialect.read(pair.right, [])

    assert warm.chain == read(pair.path, pair.right).chain
    assert warm == dialect.read(pair.right, [])


def test_a_prompt_that_only_grew_keeps_its_chain() -> None:
    whole = read(CHAT, dumps(CHAT_BODY))
    for n_messages in (1, 2):  # the third is the assistant's, which is shown otherwise at the end
        part = read(CHAT, dumps({**CHAT_BODY, "messages": CHAT_BODY["messages"][:n_messages]}))
        assert part.chain == whole.chain[: len(part.chain)]
        assert part.ends_bytes == whole.ends_bytes[: len(part.ends_bytes)]


def test_a_long_text_that_grew_keeps_its_first_segments() -> None:
    text = "".join(f"line {n}\n" for n in range(2000))
    short = read(CHAT, dumps({"messages": [{"role": "user", "content": text}]}))
    long = read(CHAT, dumps({"messages": [{"role": "user", "content": text + "more"}]}))

    assert len(short.chain) > 3
    assert short.chain[:-1] == long.chain[: len(short.chain) - 1]
    assert short.chain[-1] != long.chain[len(short.chain) - 1]


def test_both_dialects_agree_where_the_engine_renders_alike() -> None:
    messages = read(MESSAGES, dumps(TWIN_MESSAGES))
    assert read(CHAT, dumps(TWIN_CHAT)).chain == messages.chain

    function = dict(TWIN_CHAT["tools"][0]["function"])
    del function["strict"]
    without_strict = changed(TWIN_CHAT, "tools", 0, "function", to=function)
    assert read(CHAT, dumps(without_strict)).chain[0] != messages.chain[0]


def test_thinking_is_in_the_head_where_the_template_shows_it_there() -> None:
    shown = DialectOptions(is_thinking_in_head=True)
    effort = dumps({**CHAT_BODY, "reasoning_effort": "low"})
    switch = dumps({**CHAT_BODY, "chat_template_kwargs": {"thinking": False}})
    budget = dumps({**TWIN_MESSAGES, "output_config": {"effort": "low"}})
    off = dumps({**TWIN_MESSAGES, "thinking": {"type": "disabled"}})

    for path, plain, other in (
        (CHAT, CHAT_BODY, effort),
        (CHAT, CHAT_BODY, switch),
        (MESSAGES, TWIN_MESSAGES, budget),
        (MESSAGES, TWIN_MESSAGES, off),
    ):
        assert read(path, dumps(plain)).chain == read(path, other).chain
        assert read(path, dumps(plain), shown).chain[0] != read(path, other, shown).chain[0]


def test_inline_system_messages_are_hoisted_where_the_template_does_so() -> None:
    plain = {"role": "user", "content": "Hi"}
    reminder = {"role": "system", "content": [{"type": "text", "text": " Be kind. "}]}
    late = dumps({"system": "Be brief.", "messages": [plain, reminder, plain]})
    early = dumps({"system": "Be brief.", "messages": [reminder, plain, plain]})
    blank = dumps({"system": "Be brief.", "messages": [plain, {**reminder, "content": " "}, plain]})
    none = dumps({"system": "Be brief.", "messages": [plain, plain]})
    hoisted = DialectOptions(is_inline_system_hoisted=True)

    assert read(MESSAGES, late, hoisted).chain == read(MESSAGES, early, hoisted).chain
    assert read(MESSAGES, late, hoisted).head_segments == 2
    assert read(MESSAGES, late).chain[:2] == read(MESSAGES, none).chain[:2]
    assert read(MESSAGES, late).head_segments == 1
    assert read(MESSAGES, late, hoisted).chain[1] != read(MESSAGES, none, hoisted).chain[1]
    assert read(MESSAGES, blank, hoisted).chain == read(MESSAGES, none, hoisted).chain

    answer = {"role": "assistant", "content": "Hi"}
    ended = {"system": "Be brief.", "messages": [plain, answer, reminder]}
    as_user = {"system": "Be brief.", "messages": [plain, {**answer, "role": "user"}, reminder]}
    assert read(MESSAGES, dumps(ended), hoisted).chain == (
        read(MESSAGES, dumps(as_user), hoisted).chain
    )
    assert read(MESSAGES, dumps(ended)).chain != read(MESSAGES, dumps(as_user)).chain


def test_old_reasoning_is_kept_where_the_template_keeps_it() -> None:
    def body(thought: str, **more: object) -> bytes:
        answer = {"role": "assistant", "content": "Done.", "reasoning_content": thought}
        user = {"role": "user", "content": "Next."}
        return dumps({"messages": [user, answer, user], **more})

    kept = DialectOptions(is_old_reasoning_stripped=False)
    asked_to_strip = {"chat_template_kwargs": {"preserve_thinking": False}}

    assert read(CHAT, body("a")).chain == read(CHAT, body("b")).chain
    assert read(CHAT, body("a"), kept).chain != read(CHAT, body("b"), kept).chain
    stripped = [read(CHAT, body(text, **asked_to_strip), kept).chain for text in "ab"]
    assert stripped[0] == stripped[1]


def test_the_billing_line_stays_in_the_chain_if_it_is_forwarded() -> None:
    def body(cch: str) -> bytes:
        line = {"type": "text", "text": f"x-anthropic-billing-header: cch={cch};"}
        return dumps({"system": [line], "messages": [{"role": "user", "content": "Hi"}]})

    options = DialectOptions(is_billing_line_removed=False)
    assert read(MESSAGES, body("1"), options).chain != read(MESSAGES, body("2"), options).chain
    assert read(MESSAGES, body("1"), options).edit is None


def test_what_one_api_remembers_is_not_taken_for_the_others() -> None:
    thought = {"type": "thinking", "thinking": "Hm."}
    answer = {"role": "assistant", "content": [thought, {"type": "text", "text": "Done."}]}
    body = dumps({"messages": [answer, {"role": "user", "content": "Next."}]})
    chains = [read(path, body).chain for path in (CHAT, MESSAGES)]
    assert chains[0] != chains[1]

    for paths in ((CHAT, MESSAGES), (MESSAGES, CHAT)):
        known = dialects(DialectOptions())
        found = {path: known[path].read(body, []).chain for path in paths}
        assert [found[path] for path in (CHAT, MESSAGES)] == chains
