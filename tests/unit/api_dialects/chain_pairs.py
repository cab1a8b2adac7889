"""Pairs of bodies, and whether an engine with a Kimi-like template sees the same tokens.

Data only, so that other suites can hold the same table against a real engine.
"""

from __future__ import annotations

from tests.unit.api_dialects.chat_pairs import DIFFERENT_CHAT, EQUAL_CHAT
from tests.unit.api_dialects.messages_pairs import DIFFERENT_MESSAGES, EQUAL_MESSAGES
from tests.unit.api_dialects.pair_bodies import CHAT, CHAT_BODY, MESSAGES, Pair, dumps
from tests.unit.api_dialects.responses_differences import DIFFERENT_RESPONSES
from tests.unit.api_dialects.responses_pairs import EQUAL_RESPONSES

__all__ = ["CHAT", "CHAT_BODY", "MESSAGES", "PAIRS", "Pair", "dumps"]

PAIRS: list[Pair] = [
    *EQUAL_CHAT,
    *DIFFERENT_CHAT,
    *EQUAL_MESSAGES,
    *DIFFERENT_MESSAGES,
    *EQUAL_RESPONSES,
    *DIFFERENT_RESPONSES,
]
