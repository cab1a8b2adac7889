"""Official clients without messages, counts, and a fleet of two models, through the router."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import anthropic
import openai
import pytest

from tests.doubles.processes import Running, emulate, end, running

if TYPE_CHECKING:
    from collections.abc import Iterator

KIMI, QWEN = "kimi-k2.6", "qwen3"
TEXT = "def parse(line: str) -> list[str]:\n    " * 40
ALIASES = ("claude-*=kimi-k2.6", "gpt-5=qwen3")


@pytest.fixture(scope="module")
def door() -> Iterator[Running]:
    """A router in front of one replica of each model; the second one embeds, too."""
    with ExitStack() as stack:
        replicas = [emulate("--model", KIMI), emulate("--model", QWEN, "--is-embedding")]
        for replica in replicas:
            stack.callback(end, replica)
        words = [f"--aliases={alias}" for alias in ALIASES]
        for replica in replicas:
            replica.wait_ready()
            words += ["--replica", replica.url]
        yield stack.enter_context(running("serve", "--port", "0", "--admin-port", "0", *words))


@pytest.fixture
def openai_client(door: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{door.url}/v1", api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic_client(door: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=door.url, auth_token="any", max_retries=0) as client:
        yield client


def test_a_completion_goes_on(openai_client: openai.OpenAI) -> None:
    answer = openai_client.completions.create(model=KIMI, prompt=TEXT, max_tokens=8, echo=True)
    assert answer.choices[0].text.startswith(TEXT)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8
    both = openai_client.completions.create(model=QWEN, prompt=[TEXT, "x"], max_tokens=4)
    assert [choice.index for choice in both.choices] == [0, 1]


@pytest.mark.parametrize("asks", [True, False])
def test_a_streamed_completion_has_usage_exactly_when_asked(
    openai_client: openai.OpenAI, *, asks: bool
) -> None:
    stream = openai_client.completions.create(
        model=KIMI,
        prompt=TEXT,
        max_tokens=40,
        stream=True,
        **({"stream_options": {"include_usage": True}} if asks else {}),
    )
    chunks = list(stream)
    assert "".join(c.choices[0].text for c in chunks if c.choices)
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert sum(chunk.usage is not None for chunk in chunks) == int(asks)


def test_texts_are_embedded(openai_client: openai.OpenAI) -> None:
    answer = openai_client.embeddings.create(model="gpt-5", input=["one", "two"])
    assert [len(row.embedding) for row in answer.data] == [64, 64]
    assert answer.usage.total_tokens >= 2
    with pytest.raises(openai.BadRequestError, match="--is-embedding"):
        openai_client.embeddings.create(model=KIMI, input="x")


def test_each_model_is_served_where_it_is(openai_client: openai.OpenAI) -> None:
    homes = {}
    for model in (KIMI, QWEN, "claude-opus-4", "gpt-5"):
        raw = openai_client.chat.completions.with_raw_response.create(
            model=model,
            messages=[{"role": "user", "content": TEXT}],
            max_tokens=2,
            extra_headers={"session-id": "one-session"},
        )
        homes[model] = raw.headers["x-homeport-replica"]
        assert raw.parse().model == model  # SGLang answers in the name it was asked for
    assert homes[KIMI] == homes["claude-opus-4"] != homes[QWEN] == homes["gpt-5"]
    with pytest.raises(openai.NotFoundError) as unknown:
        openai_client.chat.completions.create(
            model="llama", messages=[{"role": "user", "content": "x"}]
        )
    assert unknown.value.code == "model_not_found"
    assert {model.id for model in openai_client.models.list()} == {KIMI, QWEN, "gpt-5"}
    assert openai_client.models.retrieve("claude-haiku-4-5").id == "claude-haiku-4-5"


def test_the_other_client_counts_lists_and_is_told(anthropic_client: anthropic.Anthropic) -> None:
    count = anthropic_client.messages.count_tokens(
        model="claude-opus-4", messages=[{"role": "user", "content": TEXT}]
    )
    assert count.input_tokens > 300
    assert {model.id for model in anthropic_client.models.list()} == {KIMI, QWEN, "gpt-5"}
    with pytest.raises(anthropic.NotFoundError) as unknown:
        anthropic_client.messages.create(
            model="llama", max_tokens=1, messages=[{"role": "user", "content": "x"}]
        )
    assert unknown.value.response.headers["x-homeport-error"] == "unknown-model"
