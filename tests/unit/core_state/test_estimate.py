"""From bytes to tokens: what is known of a session goes before what is estimated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from router.state.cache.prefix_index import PrefixIndex
from router.state.estimate import Estimate, EstimateParameters, estimate
from router.state.rates.tokens import AnswerShare, TokenRatio
from router.state.sessions.pins import Pin
from tests.doubles.prompts import prompt

if TYPE_CHECKING:
    from router.dialect.base import PromptFacts

_P = EstimateParameters()


def _estimated(
    facts: PromptFacts, pin: Pin | None, held: dict[str, int], answers: AnswerShare | None = None
) -> Estimate:
    """``held``: how many leading segments of the prompt each replica holds."""
    index = PrefixIndex()
    for replica_id, n in held.items():
        index.set_capacity(replica_id, 1 << 30)
        index.hold(replica_id, facts.chain[:n], facts.ends_bytes[:n])
    match = index.match(facts.chain)
    return estimate(facts, pin, match, TokenRatio(), answers or AnswerShare(), parameters=_P)


def _pin(segments: list[int], *, prompt_tokens: int, output_tokens: int = 300) -> Pin:
    return Pin(
        "s",
        "a",
        homed_s=0.0,
        used_s=0.0,
        tokens=prompt_tokens + output_tokens,
        prompt_tokens=prompt_tokens,
        prompt_bytes=len(segments) * 4_000,
        output_tokens=output_tokens,
        tail=segments[-1],
        tail_segments=len(segments),
    )


def test_a_new_session_is_estimated_from_its_bytes() -> None:
    found = _estimated(prompt([1, 2, 3]), None, {"a": 2})
    assert found.prompt_tokens == 3_000
    assert found.cached_tokens.everyone() == {"a": 1_984}
    assert found.output_tokens == 500
    assert not found.continues
    assert not found.is_auxiliary


def test_a_continued_session_starts_from_what_the_engine_counted() -> None:
    pin = _pin([1, 2, 3], prompt_tokens=2_500)
    found = _estimated(prompt([1, 2, 3, 4]), pin, {"a": 3, "b": 1})
    assert found.continues
    assert found.prompt_tokens == 3_500
    # The last prompt and the answer that followed it, in whole pages.
    assert found.cached_tokens.get("a") == 2_800 // 64 * 64
    assert found.cached_tokens.get("b") == 960
    assert found.output_tokens == 300


def test_a_whole_prompt_is_never_cached() -> None:
    found = _estimated(prompt([1, 2]), None, {"a": 2})
    assert found.cached_tokens.get("a") == 1_984
    resent = _estimated(
        prompt([1, 2]),
        _pin([1, 2], prompt_tokens=2_048),
        {"a": 2},
    )
    assert resent.cached_tokens.get("a") == 1_984


def test_a_small_request_aside_is_auxiliary() -> None:
    pin = _pin([1] * 40, prompt_tokens=40_000)
    assert _estimated(prompt([7]), pin, {}).is_auxiliary
    assert not _estimated(prompt([7] * 5), pin, {}).is_auxiliary
    assert not _estimated(prompt([7]), None, {}).is_auxiliary


def test_the_clients_limit_bounds_the_expected_output() -> None:
    found = _estimated(prompt([1], output_tokens_max=16), None, {})
    assert found.output_tokens == 16


def test_the_ratio_is_learned_by_model_and_dialect_and_stays_in_bounds() -> None:
    ratio = TokenRatio()
    ratio.learn("kimi", "chat", prompt_bytes=3_000, prompt_tokens=1_000)
    assert ratio.bytes_per_token("kimi", "chat") == 3.0
    assert ratio.bytes_per_token("kimi", "messages") == 4.0
    for _ in range(200):
        ratio.learn("kimi", "chat", prompt_bytes=5_000, prompt_tokens=1_000)
    assert abs(ratio.bytes_per_token("kimi", "chat") - 5.0) < 0.01
    ratio.learn("odd", "chat", prompt_bytes=10**9, prompt_tokens=1)
    assert ratio.bytes_per_token("odd", "chat") == 32.0
    ratio.learn("none", "chat", prompt_bytes=0, prompt_tokens=5)
    assert ratio.bytes_per_token("none", "chat") == 4.0


def test_tiny_prompts_do_not_spoil_the_ratio() -> None:
    """In a title request most tokens are the template's, which no canonical byte stands for."""
    ratio = TokenRatio()
    ratio.learn("kimi", "chat", prompt_bytes=240_000, prompt_tokens=60_000)
    for _ in range(200):
        ratio.learn("kimi", "chat", prompt_bytes=30, prompt_tokens=22)
    assert abs(ratio.bytes_per_token("kimi", "chat") - 4.0) < 0.3


def test_how_much_of_an_answer_comes_back_is_learned_through_whole_pages() -> None:
    """Prompts of any size, answers of 300 tokens of which 100 are sent back: pages hide the rest."""
    answers = AnswerShare()
    assert answers.share("kimi", "chat") == 1.0
    for prompt_tokens in range(5_000, 5_640):
        cached_tokens = (prompt_tokens + 100) // 64 * 64
        answers.learn(
            "kimi", "chat", answered_tokens=300, beyond_tokens=cached_tokens - prompt_tokens
        )
    assert abs(answers.share("kimi", "chat") - 1 / 3) < 0.02
    assert answers.share("kimi", "messages") == 1.0
    pin = _pin([1, 2, 3], prompt_tokens=2_500)
    pin_prompt = prompt([1, 2, 3, 4])
    found = _estimated(pin_prompt, pin, {"a": 3}, answers)
    assert found.cached_tokens.get("a") == 2_600 // 64 * 64


def test_reports_that_tell_nothing_of_the_answer_are_left_out() -> None:
    answers = AnswerShare()
    for beyond_tokens in (-5_000, -64, 365, 90_000):
        answers.learn("kimi", "chat", answered_tokens=300, beyond_tokens=beyond_tokens)
    answers.learn("kimi", "chat", answered_tokens=0, beyond_tokens=-10)
    assert answers.share("kimi", "chat") == 1.0
    answers.learn("kimi", "chat", answered_tokens=300, beyond_tokens=-60)
    assert answers.share("kimi", "chat") == 0.0


@pytest.mark.parametrize("beyond_tokens", [-63, 0, 65])
def test_one_token_answers_do_not_spoil_the_share_for_long(beyond_tokens: int) -> None:
    """Their prompts all end at one place of a page, so that half a page is not the right sum."""
    answers = AnswerShare()
    for _ in range(2_000):
        answers.learn("kimi", "chat", answered_tokens=1, beyond_tokens=beyond_tokens)
    for prompt_tokens in range(5_000, 5_064):
        cached_tokens = (prompt_tokens + 200) // 64 * 64
        answers.learn(
            "kimi", "chat", answered_tokens=400, beyond_tokens=cached_tokens - prompt_tokens
        )
    assert abs(answers.share("kimi", "chat") - 1 / 2) < 0.06


def test_the_head_is_the_first_kilobyte_whatever_follows() -> None:
    short = _estimated(prompt([7]), None, {})
    long = _estimated(prompt([7, 8, 9]), None, {})
    assert short.head_key == long.head_key == 7
    assert _estimated(prompt([7, 8]), None, {"a": 1}).cached_tokens.get("b") == 0


def test_a_prompt_matched_again_keeps_what_is_known_of_it() -> None:
    facts = prompt([1, 2, 3, 4])
    found = _estimated(facts, _pin([1, 2, 3], prompt_tokens=2_500), {"a": 3})
    index = PrefixIndex()
    index.set_capacity("b", 1 << 30)
    index.hold("b", facts.chain[:3], facts.ends_bytes[:3])
    again = found.cached_tokens.anew(index.match(facts.chain))
    assert again.everyone() == {"b": found.cached_tokens.get("a")}
