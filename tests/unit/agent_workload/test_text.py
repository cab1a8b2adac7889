"""Invented text and named random streams."""

from __future__ import annotations

import random

from sim.rng import stream
from sim.workload.text import Prose


def test_texts_have_the_wanted_size_and_are_ascii() -> None:
    prose = Prose(random.Random(1))
    for tokens in (1, 10, 1_000, 20_000):
        text = prose.text(random.Random(2), tokens)
        assert 0.95 * tokens * 4 <= len(text) <= tokens * 4
        assert text.isascii()
    assert prose.text(random.Random(2), 50) == prose.text(random.Random(2), 50)


def test_a_tool_has_a_schema_with_its_parameters() -> None:
    tool = Prose(random.Random(1)).tool(random.Random(3), "Read", 300)
    schema = tool.schema()
    assert schema["required"] == ["path"]
    assert set(tool.parameters) == set(schema["properties"])  # type: ignore[call-overload]
    assert 700 <= len(tool.description) <= 1_200


def test_streams_are_named() -> None:
    assert stream(1, "a").random() == stream(1, "a").random()
    assert len({stream(seed, name).random() for seed in (1, 2) for name in ("a", "b")}) == 4
