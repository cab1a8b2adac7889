"""Pseudo-tokens and pages: a text is cut every four bytes, a page is 64 tokens.

A page's id stands for that page and everything before it: xxh3-64 seeded by the id before.
"""

from __future__ import annotations

from array import array
from hashlib import sha256
from typing import Final

from xxhash import xxh3_64_intdigest

TOKEN_BYTES: Final = 4
PAGE_TOKENS: Final = 64
PAGE_BYTES: Final = TOKEN_BYTES * PAGE_TOKENS
_SALT_TAG: Final = b"sglang-cache-salt-v1\0"


def seed_of(salt: str | None) -> int:
    """The chain's start: 0, or a number of the cache salt's own."""
    return xxh3_64_intdigest(salt.encode()) if salt else 0


def prompt_tokens(text: bytes) -> int:
    """Whole tokens of a prompt, at least 1. Bytes left over belong to the first output token."""
    return max(1, len(text) // TOKEN_BYTES)


def token_ids(text: bytes) -> list[int]:
    """The pseudo-token ids: four bytes each, little-endian."""
    ids = array("I", text[: len(text) // TOKEN_BYTES * TOKEN_BYTES])
    return ids.tolist() or [int.from_bytes(text, "little")]


def page_ids(text: bytes, seed: int) -> array[int]:
    """One id a full page of ``text``, chained from ``seed``."""
    digest = xxh3_64_intdigest
    view = memoryview(text)
    ids: list[int] = []
    append = ids.append
    for start in range(0, len(text) - PAGE_BYTES + 1, PAGE_BYTES):
        seed = digest(view[start : start + PAGE_BYTES], seed)
        append(seed)
    return array("Q", ids)


def published_ids(text: bytes, salt: str | None) -> array[int]:
    """The same pages by the numbers under which SGLang publishes them: SHA-256, chained, eight bytes."""
    prior = sha256(_SALT_TAG + salt.encode()).digest() if salt else b""
    view = memoryview(text)
    ids: list[int] = []
    for start in range(0, len(text) - PAGE_BYTES + 1, PAGE_BYTES):
        digest = sha256(prior)
        digest.update(view[start : start + PAGE_BYTES])
        prior = digest.digest()
        ids.append(int.from_bytes(prior[:8], "big"))
    return array("Q", ids)


def output_page_ids(prompt: bytes, pages: array[int], output: bytes, seed: int) -> array[int]:
    """Ids of the pages that become full while ``output`` is appended to ``prompt``.

    ``pages`` and ``seed`` are those of the prompt.
    """
    rest = prompt[len(pages) * PAGE_BYTES :] + output
    return page_ids(rest, pages[-1] if pages else seed)


def text_digest(text: bytes, pages: array[int], seed: int) -> int:
    """A number of the whole text's own; ``pages`` and ``seed`` are the text's."""
    return xxh3_64_intdigest(text[len(pages) * PAGE_BYTES :], pages[-1] if pages else seed)
