"""The extremes that are measured are also held: whole answers, and memory that is bounded."""

from __future__ import annotations

import asyncio
import re

import pytest

from bench.bounds import measure

pytestmark = pytest.mark.slow


def number(words: list[str], pattern: str) -> float:
    """The number in front of the words that match."""
    found = re.search(rf"([\d,.]+) {pattern}", "; ".join(words))
    assert found is not None, words
    return float(found[1].replace(",", ""))


def test_a_hundred_thousand_messages() -> None:
    words = asyncio.run(measure("messages"))
    assert words[0] == "status 200"
    assert number([word.replace("+", "") for word in words if "peak" in word], "MiB") < 64


@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", ["large", "packed"])
def test_a_body_of_60_mib(case: str) -> None:
    words = asyncio.run(measure(case))
    assert "status 200" in words
    assert number([word.replace("+", "") for word in words if "peak" in word], "MiB") < 10 * 64


@pytest.mark.timeout(120)
def test_ten_thousand_idle_connections() -> None:
    words = asyncio.run(measure("idle"))
    assert number(words, "open") == 10_000
    assert number(words, "KiB a connection") < 16


@pytest.mark.timeout(240)
def test_two_thousand_streams_at_once() -> None:
    words = asyncio.run(measure("streams"))
    assert number(words, "whole") == 2_000
    assert number(words, "KiB a stream") < 64
