"""The router's claim about prompts, held against what an emulated replica renders.

``tests/engine/test_prefix_truth.py`` holds both to real SGLang, by the same pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from replica.hardware.profiles import profile_named
from router.dialect import DialectOptions, dialects
from sim.live.emulator import EmulatorOptions, start
from sim.live.rendering.bodies import TemplateDefaults
from sim.live.rendering.pages import prompt_tokens, token_ids
from tests.engine.readings import DEFAULTS, DIALECTS, GENERATED, chat_twin, reading
from tests.engine.responses_twins import TWINS
from tests.engine.token_truth import END, Comparison, common_length, faults, further_is_further
from tests.unit.api_dialects.chain_pairs import PAIRS
from tests.unit.api_dialects.pair_bodies import CHAT, CHAT_BODY, MESSAGES, Apart, dumps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from router.dialect.base import Dialect
    from tests.engine.pair_generator import Family
    from tests.unit.api_dialects.pair_bodies import Pair

STRICTER = (Apart.TEMPLATE, Apart.REWRITTEN)
SHOWN = [pair for pair in PAIRS if pair.apart not in (Apart.CACHE, Apart.ADAPTER)]
MESSAGES_FAMILIES = [family for family in GENERATED if family.path == MESSAGES]
HOISTED_FAMILIES = [*MESSAGES_FAMILIES, *TWINS]


def compare(
    pairs: Sequence[Pair],
    known: Mapping[str, Dialect] = DIALECTS,
    defaults: TemplateDefaults = DEFAULTS,
) -> list[Comparison]:
    left, _ = reading(pairs[0].path, pairs[0].left, known, defaults)
    rights = [reading(pair.path, pair.right, known, defaults)[0] for pair in pairs]
    return [
        Comparison(
            pair.label,
            left,
            right,
            common_length(left.text, right.text),
            is_stricter=pair.apart in STRICTER,
        )
        for pair, right in zip(pairs, rights, strict=True)
    ]


@pytest.mark.parametrize(
    "family", [*GENERATED, *TWINS], ids=[family.name for family in (*GENERATED, *TWINS)]
)
def test_generated_pairs(family: Family) -> None:
    assert faults(compare(family.pairs)) == []


@pytest.mark.parametrize("pair", SHOWN, ids=[pair.label for pair in SHOWN])
def test_pairs_of_the_table(pair: Pair) -> None:
    assert faults(compare([pair])) == []


@pytest.mark.parametrize(
    "family", MESSAGES_FAMILIES, ids=[family.name for family in MESSAGES_FAMILIES]
)
def test_both_apis_make_one_prompt(family: Family) -> None:
    for body in (family.pairs[0].left, *(pair.right for pair in family.pairs)):
        prompt, outgoing = reading(MESSAGES, body)
        assert reading(CHAT, chat_twin(outgoing))[0] == prompt


@pytest.mark.parametrize(
    "family", HOISTED_FAMILIES, ids=[family.name for family in HOISTED_FAMILIES]
)
def test_generated_pairs_where_system_messages_are_hoisted(family: Family) -> None:
    """The head is one message there and several parts of the chain: places are not compared."""
    known = dialects(DialectOptions(is_inline_system_hoisted=True))
    compared = compare(family.pairs, known, TemplateDefaults(hoist_inline_system=True))

    for each in compared:
        texts = [side.text.rpartition(END)[0] for side in (each.left, each.right)]
        assert (each.left.chain == each.right.chain) == (texts[0] == texts[1]), each.name
    assert further_is_further(compared) == []


def test_the_pairs_are_many_and_of_both_kinds() -> None:
    compared = [each for family in GENERATED for each in compare(family.pairs)]
    n_equal = sum(each.left.chain == each.right.chain for each in compared)

    assert len(compared) == 300
    assert 60 < n_equal < 240
    assert max(len(each.left.chain) for each in compared) > 10


async def test_a_replica_answers_with_this_rendering() -> None:
    options = EmulatorOptions(facts=profile_named("b200-tp4-fp8"), time_scale=200.0)
    async with start(options) as replicas, aiohttp.ClientSession(replicas[0].url) as http:

        async def ask(path: str, body: bytes) -> dict[str, Any]:
            headers = {"Content-Type": "application/json"}
            async with http.post(path, data=body, headers=headers) as response:
                assert response.status == 200, await response.text()
                answer: dict[str, Any] = await response.json()
                return answer

        for family in GENERATED[::5]:
            prompt, body = reading(family.path, family.pairs[0].left)
            if family.path == CHAT:
                assert (await ask("/v1/tokenize", body))["tokens"] == token_ids(prompt.text)
            else:
                counted = (await ask("/v1/messages/count_tokens", body))["input_tokens"]
                assert counted == prompt_tokens(prompt.text)

        long = {**CHAT_BODY, "stream": False, "max_tokens": 1, "user": "u"}
        long["messages"] = [{"role": "user", "content": "word " * 400}]
        for extra_key, is_cached in (("a", False), ("b", False), ("a", True), (None, False)):
            usage = (await ask(CHAT, dumps({**long, "extra_key": extra_key})))["usage"]
            assert (usage["prompt_tokens_details"]["cached_tokens"] > 0) == is_cached
