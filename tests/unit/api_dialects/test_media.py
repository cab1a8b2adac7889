"""Images: by what they are, not by how long they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from router.dialect import DialectOptions, dialects

if TYPE_CHECKING:
    from router.dialect.base import PromptFacts

DIALECTS = dialects(DialectOptions())


def chat(content: object) -> PromptFacts:
    body = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
    return DIALECTS["/v1/chat/completions"].read(body, [])


def messages(content: object) -> PromptFacts:
    body = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
    return DIALECTS["/v1/messages"].read(body, [])


def block(data: str, media_type: str = "image/png") -> dict[str, object]:
    source = {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "image", "source": source}


def part(url: str, **more: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def test_both_dialects_name_an_image_alike() -> None:
    as_url = {"type": "image", "source": {"type": "url", "url": "http://x/a.png"}}

    assert messages([block("AAAA")]).chain == chat([part("data:image/png;base64,AAAA")]).chain
    assert messages([as_url]).chain == chat([part("http://x/a.png")]).chain


def test_what_makes_an_image_another() -> None:
    contents = [
        [part("data:image/png;base64,AAAA")],
        [part("data:image/png;base64,BBBB")],
        [part("data:image/png;base64,AAAA", detail="low")],
        [{"type": "video_url", "video_url": {"url": "data:image/png;base64,AAAA"}}],
        [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}],
        [part("data:image/png;base64,AAAA")] * 2,
    ]
    assert len({chat(content).chain[0] for content in contents}) == len(contents)


def test_a_large_image_is_one_short_part() -> None:
    assert chat([part("data:image/png;base64," + "A" * 1_000_000)]).prompt_bytes < 200


def test_an_image_between_texts_keeps_its_place() -> None:
    before, after = {"type": "text", "text": "a"}, {"type": "text", "text": "b"}
    orders = [[before, block("A"), after], [before, after, block("A")], [block("A"), before, after]]
    assert len({messages(order).chain[0] for order in orders}) == 3


def test_an_image_in_a_tool_result() -> None:
    def result(*content: object) -> int:
        return messages([{"type": "tool_result", "tool_use_id": "c", "content": content}]).chain[0]

    assert result(block("A")) != result(block("B"))
    assert result() != result(block("A"))


@pytest.mark.parametrize("source", [None, {}, {"type": "base64"}, {"type": "base64", "data": ""}])
def test_an_image_without_data_is_left_out_as_the_engine_does(source: object) -> None:
    text = {"type": "text", "text": "a"}
    assert messages([text, {"type": "image", "source": source}]).chain == messages([text]).chain
