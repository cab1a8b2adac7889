"""API keys: made here, kept by their hashes only.

A key has 256 random bits, so a plain SHA-256 hides it: there is nothing to guess, and a slow hash
would only cost time on every request.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final

PREFIX: Final = "hp-"
"""How every key made here begins, so that scanners of repositories and logs can find one."""

KEY_LENGTH_MIN: Final = 20
KEY_LENGTH_MAX: Final = 512
_RANDOM_BYTES: Final = 32
_SCHEME: Final = "sha256:"
_HASH: Final = re.compile(_SCHEME + "([0-9a-f]{64})")


def new_key() -> str:
    """A new key: ``hp-`` and 43 characters of base64."""
    return PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def digest_of(key: bytes) -> bytes:
    """What a key is known by: 32 bytes."""
    return hashlib.sha256(key).digest()


def hash_of(key: str) -> str:
    """A key's hash as it stands in the tenants file."""
    return _SCHEME + digest_of(key.encode()).hex()


def parsed_hash(text: str) -> bytes | None:
    """The digest that a hash in the tenants file stands for; None if it has another form."""
    found = _HASH.fullmatch(text)
    return None if found is None else bytes.fromhex(found[1])


def key_fault(key: str) -> str:
    """Why a text cannot be a key; "" if it can. The text itself is never part of the answer."""
    if not KEY_LENGTH_MIN <= len(key) <= KEY_LENGTH_MAX:
        return f"a key has {KEY_LENGTH_MIN} to {KEY_LENGTH_MAX} characters, this one {len(key)}"
    if not key.isascii() or not key.isprintable() or " " in key:
        return "a key is visible ASCII without blanks"
    return ""
