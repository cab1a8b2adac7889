"""Bodies of ``/v1/responses`` as the emulated replica renders them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.live.rendering import template
from sim.live.rendering.bodies import BadBodyError, TemplateDefaults, decode
from sim.live.rendering.responses_bodies import ResponsesBody, packed_reasoning, responses_prompt

DEFAULTS = TemplateDefaults()
HOISTED = TemplateDefaults(hoist_inline_system=True)
OPENING = "<|im_assistant|>assistant<|im_middle|><think>"
USER = {"role": "user", "content": "Hi"}
HI = "<|im_user|>user<|im_middle|>Hi<|im_end|>"


def text(defaults: TemplateDefaults = DEFAULTS, **body: object) -> str:
    read = decode(json.dumps(body).encode(), ResponsesBody)
    return template.render(responses_prompt(read, defaults)).decode()


def test_a_text_with_instructions() -> None:
    system = "<|im_system|>system<|im_middle|>Be brief.<|im_end|>"
    assert text(input="Hi", instructions="Be brief.") == system + HI + OPENING
    assert text(input="Hi", reasoning={"effort": "none"}) == HI + OPENING + "</think>"


def test_one_answer_of_several_items() -> None:
    thought = {"type": "reasoning", "summary": [], "encrypted_content": packed_reasoning("Hm.")}
    said = {"role": "assistant", "content": [{"type": "output_text", "text": "So."}]}
    call = {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": '{"a":1}'}
    output = {"type": "function_call_output", "call_id": "c1", "output": "a.py"}
    rendered = text(input=[USER, thought, said, call, output])
    assert rendered == (
        f"{HI}<|im_assistant|>assistant<|im_middle|><think>Hm.</think>So."
        "<|tool_calls_section_begin|><|tool_call_begin|>c1<|tool_call_argument_begin|>"
        '{"a": 1}<|tool_call_end|><|tool_calls_section_end|><|im_end|>'
        f"<|im_system|>tool<|im_middle|>## Return of c1\na.py<|im_end|>{OPENING}"
    )
    in_phase = text(input=[USER, thought, {**said, "phase": "commentary"}, call, output])
    assert in_phase.count("<|im_assistant|>assistant<|im_middle|>") == 3


def test_system_texts_at_the_head() -> None:
    developer = {"role": "developer", "content": "Be kind."}
    rendered = text(HOISTED, instructions="Be brief.", input=[USER, developer])
    label = "Developer instructions:\nBe kind."
    assert rendered == (
        f"<|im_system|>system<|im_middle|>Be brief.\n\n{label}<|im_end|>{HI}{OPENING}"
    )


@pytest.mark.parametrize(
    "body",
    [
        {"input": 3},
        {"input": []},
        {"input": [3]},
        {"input": [{"type": "invented"}]},
        {"input": [{"content": "nobody's"}]},
        {"input": [{"type": "function_call_output", "output": [{"text": 3}]}]},
        {"input": "x", "tools": [{"type": "function", "name": "a"}], "tool_choice": {"type": "function", "name": "b"}},
    ],
)  # fmt: skip
def test_what_cannot_be_rendered(body: dict[str, object]) -> None:
    with pytest.raises(BadBodyError):
        text(**body)


json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=150)
@given(json_value, st.booleans())
def test_no_item_is_too_strange_to_be_refused(value: object, is_hoisted: bool) -> None:  # noqa: FBT001
    for body in (
        {"input": value, "instructions": value},
        {"input": [value, {"type": "reasoning", "summary": value, "content": value}]},
        {"input": [{"type": "function_call", "name": value, "arguments": value, "phase": value}]},
        {"input": [{"type": "function_call_output", "output": value, "call_id": value}]},
        {"input": [{"role": "developer", "content": [value]}, {"role": value, "content": value}]},
        {"input": [{"role": "assistant", "content": value, "tool_calls": value}] * 2},
        {"input": "a", "tools": [{"type": "custom", "name": "a", "format": value}], "tool_choice": value},
    ):  # fmt: skip
        try:
            text(HOISTED if is_hoisted else DEFAULTS, **body)
        except BadBodyError:
            continue
