"""Durations, weights and limits as people write and read them."""

from __future__ import annotations

import pytest
import typer

from router.commands.values import duration, in_words, limit, ratio, tokens, weight


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("5m", 300), ("1h", 3_600), ("1h30m", 5_400), ("2d", 172_800), ("1.5s", 1.5), (" 5m ", 300)],
)  # fmt: skip
def test_a_duration_is_a_number_with_its_unit(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "5x", "m", "-5m", "5 m", "0s", "1h-", "nan", "9" * 50 + "s"]
)
def test_what_is_no_duration_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write 30s, 5m, 1h30m or 2d"):
        duration(text)


@pytest.mark.parametrize("text", ["0", "0.009", "100.1", "nan", "inf", "-1", "a", ""])
def test_a_weight_has_bounds(text: str) -> None:
    assert (weight("0.01"), weight("100"), weight("1")) == (0.01, 100.0, 1.0)
    with pytest.raises(typer.BadParameter, match=r"from 0\.01 to 100"):
        weight(text)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "100001", "9" * 5_000, "nothing", "", "²"])
def test_a_limit_is_a_number_or_none(text: str) -> None:
    assert (limit("none"), limit("None"), limit("1"), limit("100000")) == (0, 0, 1, 100_000)
    with pytest.raises(typer.BadParameter, match="neither a number from 1 to 100,000 nor none"):
        limit(text)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "-"), (0.42, "0.4 s"), (9.96, "10.0 s"), (12.4, "12 s"), (59.6, "1m 00s"), (310, "5m 10s"),
     (10_920, "3h 02m"), (187_200, "2d 4h")],
)  # fmt: skip
def test_durations_are_shown_with_two_units_at_most(seconds: float | None, words: str) -> None:
    assert in_words(seconds) == words


def test_tokens_and_shares_are_shown_short() -> None:
    assert [tokens(n) for n in (None, 0, 950, 61_049, 7_250_000)] == [
        "-",
        "0",
        "950",
        "61.0k",
        "7.25M",
    ]
    assert (ratio(0, 0), ratio(1, 3)) == ("-", "33.3%")
