"""The router's claim about prompts, held against the tokens that real SGLang sees.

The emulated replica is held to the same tokens: it renders the very text of the real one.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import pytest

from router.dialect import DialectOptions, dialects
from tests.engine.asking import Engine
from tests.engine.readings import GENERATED, chat_twin, reading
from tests.engine.responses_twins import TWINS
from tests.engine.token_truth import Comparison, Prompt, common_length, faults
from tests.unit.api_dialects.chain_pairs import PAIRS
from tests.unit.api_dialects.pair_bodies import (
    CHAT,
    MESSAGES,
    MESSAGES_BODY,
    TWIN_CHAT,
    TWIN_MESSAGES,
    Apart,
    Pair,
    dumps,
)
from tests.unit.api_dialects.responses_pairs import RESPONSES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from router.dialect.base import Dialect
    from tests.doubles.engines import Member
    from tests.engine.pair_generator import Family

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

TOKENIZE_DROPS_NULLS = {"completions: a description null or missing"}
"""What a completion is given a null for: ``/v1/tokenize`` leaves it out before it renders."""

STRICTER = (Apart.TEMPLATE, Apart.REWRITTEN)
VISIBLE = [pair for pair in PAIRS if pair.apart in (None, *STRICTER)]
UNTOLD = [pair for pair in VISIBLE if pair.label in TOKENIZE_DROPS_NULLS]
SHOWN = [pair for pair in VISIBLE if pair not in UNTOLD]
HIDDEN = [pair for pair in PAIRS if pair.apart in (Apart.CACHE, Apart.ADAPTER)]
MEDIA = [pair for pair in PAIRS if pair.apart is Apart.MEDIA]

SHORT_BYTES_MAX = 10_000


def _short(families: Sequence[Family]) -> list[Family]:
    """Those of which no body is long."""
    return [
        family
        for family in families
        if all(len(pair.right) < SHORT_BYTES_MAX for pair in family.pairs)
    ]


SHORT = _short([family for family in GENERATED if family.path == MESSAGES])
SHORT_TWINS = _short(TWINS)
"""Where a prefill on this CPU takes no longer than a blink."""


@pytest.fixture
async def plain(engines: dict[str, Member]) -> AsyncIterator[Engine]:
    """A replica to ask for tokens."""
    async with aiohttp.ClientSession() as http:
        yield Engine(http, engines["second"])


@pytest.fixture
async def fine(engines: dict[str, Member]) -> AsyncIterator[Engine]:
    """A replica whose cached tokens are the exact length of a common prefix; empty."""
    async with aiohttp.ClientSession() as http:
        engine = Engine(http, engines["fine"])
        await engine.forget()
        yield engine


@dataclass(frozen=True)
class Reading:
    """One body: the router's and the emulator's idea of it, as it is forwarded, and its tokens."""

    prompt: Prompt
    outgoing: bytes
    ids: list[int]


async def read(engine: Engine, path: str, body: bytes, known: Mapping[str, Dialect]) -> Reading:
    """Let everybody read a body.

    There is no asking for the tokens of other bodies, of messages for their number at most: they are
    taken from the emulator's text, and what the engine finds in its cache proves them.
    """
    prompt, outgoing = reading(path, body, known)
    if path == CHAT:
        return Reading(prompt, outgoing, await engine.chat_tokens(outgoing))
    if path == RESPONSES:
        return Reading(prompt, outgoing, await engine.text_tokens(prompt.text))
    ids, count = await asyncio.gather(engine.text_tokens(prompt.text), engine.count(outgoing))
    assert count == len(ids), prompt.text.decode()
    return Reading(prompt, outgoing, ids)


async def read_all(
    engine: Engine, pairs: Sequence[Pair], options: DialectOptions | None = None
) -> list[Reading]:
    """The left side that the pairs share, then their right sides."""
    known = dialects(options or DialectOptions())
    path = pairs[0].path
    bodies = [pairs[0].left, *(pair.right for pair in pairs)]
    readings = await asyncio.gather(*(read(engine, path, body, known) for body in bodies))
    for text, each in zip(
        await engine.texts([each.ids for each in readings]), readings, strict=True
    ):
        assert text.decode() == each.prompt.text.decode()  # the emulator renders what it does
    return readings


async def compare(
    engine: Engine, pairs: Sequence[Pair], options: DialectOptions | None = None
) -> list[Comparison]:
    """Pairs that share their left side."""
    left, *rights = await read_all(engine, pairs, options)
    shared = [each.ids[: common_length(left.ids, each.ids)] for each in rights]
    return [
        Comparison(pair.label, left.prompt, right.prompt, len(common), pair.apart in STRICTER)
        for pair, right, common in zip(pairs, rights, await engine.texts(shared), strict=True)
    ]


@pytest.mark.parametrize(
    "family", [*GENERATED, *TWINS], ids=[family.name for family in (*GENERATED, *TWINS)]
)
async def test_generated_pairs(family: Family, plain: Engine) -> None:
    assert faults(await compare(plain, family.pairs)) == []


@pytest.mark.parametrize("pair", SHOWN, ids=[pair.label for pair in SHOWN])
async def test_pairs_of_the_table(pair: Pair, plain: Engine) -> None:
    (comparison,) = await compare(plain, [pair])

    assert comparison.fault() is None
    if pair.common is None:
        assert comparison.left.chain == comparison.right.chain


@pytest.mark.parametrize("pair", HIDDEN, ids=[pair.label for pair in HIDDEN])
async def test_what_tokens_do_not_show(pair: Pair, plain: Engine, fine: Engine) -> None:
    (comparison,) = await compare(plain, [pair])

    assert comparison.common_bytes == len(comparison.left.text)
    assert comparison.n_equal == (len(comparison.left.chain) if pair.common is None else 0)
    if pair.apart is Apart.CACHE:
        await fine.usage(pair.path, pair.left)
        tokens, cached = await fine.usage(pair.path, pair.right)
        assert cached == 0
        assert await fine.usage(pair.path, pair.right) == (tokens, tokens - 1)


@pytest.mark.parametrize("pair", MEDIA, ids=[pair.label for pair in MEDIA])
async def test_media_are_refused_by_a_model_of_texts(pair: Pair, plain: Engine) -> None:
    assert await plain.status(pair.path, pair.right) == 400


async def find_cached(fine: Engine, path: str, sent: Sequence[tuple[bytes, list[int]]]) -> None:
    """Send bodies; each finds the longest prefix it shares with one before it, to the token."""
    before: list[list[int]] = []
    for outgoing, ids in sent:
        longest = max((common_length(ids, other) for other in before), default=0)
        expected = (len(ids), min(longest, len(ids) - 1))
        assert await fine.usage(path, outgoing) == expected, outgoing.decode()
        before.append(ids)


@pytest.mark.parametrize(
    "family", [*SHORT, *SHORT_TWINS], ids=[family.name for family in (*SHORT, *SHORT_TWINS)]
)
async def test_generated_talks_find_their_prefix(
    family: Family, plain: Engine, fine: Engine
) -> None:
    readings = await read_all(plain, family.pairs)

    await find_cached(fine, family.path, [(each.outgoing, each.ids) for each in readings])


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
async def test_pairs_of_the_table_find_their_prefix(path: str, plain: Engine, fine: Engine) -> None:
    bodies = [
        body for pair in (*SHOWN, *UNTOLD) for body in (pair.left, pair.right) if pair.path == path
    ]
    read = [reading(path, body) for body in dict.fromkeys(bodies)]
    sent = [(outgoing, await plain.text_tokens(prompt.text)) for prompt, outgoing in read]

    await find_cached(fine, path, sent)


async def test_the_billing_line_as_it_is_sent_makes_all_cold(fine: Engine) -> None:
    def body(cch: str) -> bytes:
        return dumps(MESSAGES_BODY).replace(b"cch=00000", b"cch=" + cch.encode())

    await fine.usage(MESSAGES, body("11111"))
    tokens, cached = await fine.usage(MESSAGES, body("22222"))
    tools = json.dumps(MESSAGES_BODY["tools"]).encode()
    assert cached < len(tools) + 100 < tokens + len(tools)

    forwarded = [reading(MESSAGES, body(cch))[1] for cch in ("11111", "22222")]
    assert forwarded[0] == forwarded[1]
    tokens, _ = await fine.usage(MESSAGES, forwarded[0])
    assert await fine.usage(MESSAGES, forwarded[1]) == (tokens, tokens - 1)


async def test_both_apis_make_one_prompt(plain: Engine, fine: Engine) -> None:
    chat, messages = [
        reading(path, dumps(body)) for path, body in ((CHAT, TWIN_CHAT), (MESSAGES, TWIN_MESSAGES))
    ]
    ids = await plain.chat_tokens(chat[1])

    assert chat[0] == messages[0]
    assert await fine.usage(CHAT, chat[1]) == (len(ids), 0)
    assert await fine.usage(MESSAGES, messages[1]) == (len(ids), len(ids) - 1)


@pytest.mark.parametrize("family", SHORT, ids=[family.name for family in SHORT])
async def test_generated_messages_are_chat_completions(family: Family, plain: Engine) -> None:
    for pair in family.pairs:
        prompt, outgoing = reading(MESSAGES, pair.right)
        twin, _ = reading(CHAT, chat_twin(outgoing))
        ids = await plain.chat_tokens(chat_twin(outgoing))

        assert twin == prompt
        assert ids == await plain.text_tokens(prompt.text)
        assert await plain.count(outgoing) == len(ids)


def _reminded(text: str) -> bytes:
    messages = [*MESSAGES_BODY["messages"], {"role": "system", "content": text}]
    return dumps({**MESSAGES_BODY, "messages": messages})


def _thought(text: str, **more: object) -> bytes:
    asked = {"role": "user", "content": "Go on."}
    answer = {"role": "assistant", "content": "Done.", "reasoning_content": text}
    return dumps({"messages": [asked, answer, asked], **more})


_KEPT = {"chat_template_kwargs": {"preserve_thinking": True}}
_REMINDED = Pair("reminders", MESSAGES, _reminded("Be kind."), _reminded("Be quick."))
_THOUGHT = Pair("thoughts", CHAT, _thought("Hm."), _thought("Aha."))
_KEPT_THOUGHT = Pair("thoughts", CHAT, _thought("Hm.", **_KEPT), _thought("Aha.", **_KEPT))


@pytest.mark.parametrize(
    ("pair", "options", "is_right"),
    [
        (_REMINDED, DialectOptions(is_inline_system_hoisted=False), True),
        (_REMINDED, DialectOptions(is_inline_system_hoisted=True), False),
        (_THOUGHT, DialectOptions(is_old_reasoning_stripped=True), True),
        (_THOUGHT, DialectOptions(is_old_reasoning_stripped=False), False),
        (_KEPT_THOUGHT, DialectOptions(is_old_reasoning_stripped=True), True),
        (_KEPT_THOUGHT, DialectOptions(is_old_reasoning_stripped=False), True),
    ],
)
async def test_the_settings_say_what_the_template_does(
    *, pair: Pair, options: DialectOptions, is_right: bool, plain: Engine
) -> None:
    (comparison,) = await compare(plain, [pair], options)

    assert (comparison.fault() is None) == is_right
