"""Changes of a request's texts and of the order of its messages; see :mod:`tests.engine.changes`."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random

    from tests.engine.changes import Change
    from tests.engine.conversations import Json

_TEXT_KEYS: Final = ("content", "text", "reasoning_content", "thinking")
_LONG: Final = 4_200

_ALIKE: Final = (
    ("\n", "\r\n"),
    ("\n", "\u2028"),
    (" ", "\u00a0"),
    ("ï", "i\u0308"),
    ("ö", "o\u0308"),
    ("日", "曰"),
    ("e", "E"),
    ("e", "\u0435"),
    ("\t", "    "),
)
"""Texts of one look, or of one meaning, and of different bytes."""


def a_long_text_edited(dice: random.Random, body: Json) -> Json | None:
    """A letter anywhere in a text of several segments."""
    places = [place for place in _places(body) if len(place[0][place[1]]) > _LONG]
    if not places:
        return None
    holder, key = dice.choice(places)
    at = dice.randrange(len(holder[key]))
    holder[key] = holder[key][:at] + "#" + holder[key][at + 1 :]
    return body


def a_text_edited(dice: random.Random, body: Json) -> Json | None:
    places = _places(body)
    if not places:
        return None
    holder, key = dice.choice(places)
    at = dice.randrange(len(holder[key]) + 1)
    holder[key] = holder[key][:at] + dice.choice(["x", " ", "é", "\n", "\0"]) + holder[key][at:]
    return body


def a_text_cut(dice: random.Random, body: Json) -> Json | None:
    places = [place for place in _places(body) if place[0][place[1]]]
    if not places:
        return None
    holder, key = dice.choice(places)
    holder[key] = holder[key][: dice.randrange(len(holder[key]))]
    return body


def a_text_that_looks_alike(dice: random.Random, body: Json) -> Json | None:
    places = [
        (holder, key, pair)
        for holder, key in _places(body)
        for pair in _ALIKE
        if pair[0] in holder[key]
    ]
    if not places:
        return None
    holder, key, (old, new) = dice.choice(places)
    n_places = holder[key].count(old)
    parts = holder[key].split(old, dice.randrange(n_places) + 1)
    holder[key] = old.join(parts[:-1]) + new + parts[-1]
    return body


def blanks_at_an_end(dice: random.Random, body: Json) -> Json | None:
    places = _places(body)
    if not places:
        return None
    holder, key = dice.choice(places)
    blank = dice.choice([" ", "\n", "\r\n", "\ufeff"])
    holder[key] = dice.choice([blank + holder[key], holder[key] + blank])
    return body


def a_text_moved_on(dice: random.Random, body: Json) -> Json | None:
    """The end of a text becomes the beginning of the next one: together they stay what they are."""
    places = [(one, other) for one, other in pairwise(_places(body)) if one[0][one[1]]]
    if not places:
        return None
    (holder, key), (next_holder, next_key) = dice.choice(places)
    whole = holder[key]
    at = dice.randrange(len(whole))
    next_holder[next_key] = whole[at:] + next_holder[next_key]
    holder[key] = whole[:at]
    return body


def two_messages_turned_round(dice: random.Random, body: Json) -> Json | None:
    messages = body["messages"]
    if len(messages) < 2:
        return None
    at = dice.randrange(len(messages) - 1)
    messages[at : at + 2] = messages[at : at + 2][::-1]
    return body


def _places(body: Json) -> list[tuple[Json, str]]:
    return _texts(body.get("system")) + _texts(body["messages"])


def _texts(node: Any) -> list[tuple[Json, str]]:  # noqa: ANN401  # any JSON value
    """Every place of a text that a template may print."""
    if isinstance(node, list):
        return [place for item in node for place in _texts(item)]
    if not isinstance(node, dict):
        return []
    own = [(node, key) for key in _TEXT_KEYS if isinstance(node.get(key), str)]
    return own + _texts(node.get("content"))


TEXTS: Final[tuple[Change, ...]] = (
    a_long_text_edited,
    a_text_edited,
    a_text_cut,
    a_text_that_looks_alike,
    blanks_at_an_end,
    a_text_moved_on,
    two_messages_turned_round,
)
