"""Answers and pages: lengths are exact, and a client's next prompt continues the output."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.live.rendering import pages
from sim.live.rendering.answer import Answer, Cursor, Piece, Wish, compose
from sim.live.rendering.bodies import ToolCallAsk
from sim.live.rendering.template import END, THINK_END

CALL = ToolCallAsk("write_file", {"path": "ä/ö.py", "text": 'print("日本")' * 20})


def read_all(answer: Answer, prompt_bytes: int, steps: list[int]) -> tuple[Piece, int]:
    """All that becomes visible, as one piece, and how often a call was opened."""
    cursor = Cursor(answer, prompt_bytes=prompt_bytes)
    whole = Piece()
    n_tokens = n_opened = 0
    for step in [*steps, answer.n_tokens]:
        n_tokens = min(answer.n_tokens, n_tokens + step)
        piece = cursor.upto(n_tokens)
        assert not (whole.text and piece.reasoning), "reasoning comes before the text"
        whole.reasoning += piece.reasoning
        whole.text += piece.text
        whole.arguments += piece.arguments
        n_opened += piece.opens_call
    return whole, n_opened


@settings(deadline=None, max_examples=200)
@given(
    output_tokens=st.integers(1, 900),
    tokens_max=st.integers(1, 900),
    prompt_bytes=st.integers(4, 4000),
    seed=st.integers(0, 2**64 - 1),
    is_thinking=st.booleans(),
    is_endless=st.booleans(),
    reasoning_tokens=st.integers(-5, 500),
    has_call=st.booleans(),
    steps=st.lists(st.integers(1, 60), max_size=40),
)
def test_any_answer_is_whole_and_of_the_length_it_claims(
    *,
    output_tokens: int,
    tokens_max: int,
    prompt_bytes: int,
    seed: int,
    is_thinking: bool,
    is_endless: bool,
    reasoning_tokens: int,
    has_call: bool,
    steps: list[int],
) -> None:
    call = CALL if has_call else None
    wish = Wish(output_tokens, tokens_max, call, 3, reasoning_tokens, is_endless)
    answer = compose(wish, prompt_bytes=prompt_bytes, seed=seed, is_thinking=is_thinking)

    assert 1 <= answer.n_tokens <= tokens_max
    assert answer.n_tokens == -(-len(answer.raw) // 4)
    assert (prompt_bytes + len(answer.raw)) // 4 == prompt_bytes // 4 + answer.n_tokens
    seen, n_opened = read_all(answer, prompt_bytes, steps)
    assert seen.text == answer.text == answer.text.strip()
    assert seen.reasoning == answer.reasoning == answer.reasoning.strip()
    assert len(answer.reasoning) <= max(0, 4 * reasoning_tokens) * is_thinking
    if answer.finish == "tool_calls":
        assert answer.call is not None
        assert answer.call.call_id == "functions.write_file:3"
        assert (n_opened, seen.arguments) == (1, answer.call.arguments.decode())
    else:
        assert (n_opened, seen.arguments) == (0, "")
    if is_endless:
        assert (answer.n_tokens, answer.finish) == (tokens_max, "length")
    head = answer.reasoning + (THINK_END if is_thinking else "")
    if answer.finish == "stop":
        assert answer.raw.decode() == head + answer.text + END
        assert answer.n_tokens == output_tokens
    if answer.finish == "length":
        assert answer.raw.decode() == (head + answer.text)[: len(answer.raw)]


@settings(deadline=None)
@given(prompt=st.binary(min_size=4, max_size=2000), output=st.binary(min_size=1, max_size=2000))
def test_output_pages_continue_the_prompts(prompt: bytes, output: bytes) -> None:
    seed = pages.seed_of("salt")
    first = pages.page_ids(prompt, seed)
    more = pages.output_page_ids(prompt, first, output, seed)

    assert len(first) == pages.prompt_tokens(prompt) // pages.PAGE_TOKENS
    assert first + more == pages.page_ids(prompt + output, seed)


def test_page_ids_stand_for_everything_before() -> None:
    base = bytes(256) * 4
    changed = b"\x01" + base[1:]
    assert set(pages.page_ids(base, 0)).isdisjoint(pages.page_ids(changed, 0))
    assert pages.page_ids(base, 0) != pages.page_ids(base, pages.seed_of("tenant"))
    assert pages.page_ids(base + b"tail", 0) == pages.page_ids(base, 0)


def test_reasoning_counts_with_the_mark_that_ends_it() -> None:
    wish = Wish(100, 1000, reasoning_tokens=30)
    answer = compose(wish, prompt_bytes=400, seed=1, is_thinking=True)
    cursor = Cursor(answer, prompt_bytes=400)
    assert len(answer.reasoning) == 120
    assert [cursor.reasoning_tokens(n) for n in (0, 1, 31, 32, 100)] == [0, 1, 31, 32, 32]
    mute = compose(wish, prompt_bytes=400, seed=1, is_thinking=False)
    assert (mute.reasoning, Cursor(mute, prompt_bytes=400).reasoning_tokens(100)) == ("", 0)


def test_answers_depend_on_the_prompt_alone() -> None:
    wish = Wish(100, 1000)
    one = compose(wish, prompt_bytes=400, seed=1, is_thinking=True)
    assert one == compose(wish, prompt_bytes=400, seed=1, is_thinking=True)
    assert one.text != compose(wish, prompt_bytes=400, seed=2, is_thinking=True).text


def test_token_ids_are_as_many_as_counted() -> None:
    for text in (b"", b"abc", b"abcd", b"abcdefghi"):
        assert len(pages.token_ids(text)) == pages.prompt_tokens(text)
