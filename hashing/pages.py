"""The numbers under which SGLang publishes the pages of a prompt.

A page's digest is SHA-256 over the digest before it and the page's token ids, each four bytes,
little-endian; what is published are its first eight bytes as a signed number. A cache salt stands
before the first page as a digest of its own.
"""

from __future__ import annotations

import sys
from array import array
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_SALT_TAG: Final = b"sglang-cache-salt-v1\0"
_ID_BYTES: Final = 4
_PUBLISHED_BYTES: Final = 8


def page_numbers(token_ids: Sequence[int], page_tokens: int, salt: str | None = None) -> array[int]:
    """One signed 64-bit number for each whole page of a prompt, in order.

    Raises:
        OverflowError: an id does not fit into 32 bits.
    """
    ids = array("I", token_ids)
    if sys.byteorder == "big":
        ids.byteswap()
    raw = memoryview(ids.tobytes())
    prior = sha256(_SALT_TAG + salt.encode()).digest() if salt else b""
    numbers: list[int] = []
    step = page_tokens * _ID_BYTES
    for start in range(0, len(raw) - step + 1, step):
        digest = sha256(prior)
        digest.update(raw[start : start + step])
        prior = digest.digest()
        numbers.append(int.from_bytes(prior[:_PUBLISHED_BYTES], "big", signed=True))
    return array("q", numbers)
