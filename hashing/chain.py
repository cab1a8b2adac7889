"""Segments -> a chain: each value stands for everything up to the end of its segment.

``chain[i] = xxh3(digest of segment i, seed = chain[i-1])``. Two levels, so that remembered digests
are enough: a turn hashes its new segments and links 8 bytes for each old one.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING

import xxhash

from hashing.canonical import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable


def root(settings: bytes = b"") -> int:
    """The value before the first segment, in 0..2**64-1.

    ``settings`` are canonical bytes of whatever changes the rendering of the whole prompt, or
    keeps two prompts from sharing a cache.
    """
    return xxhash.xxh3_64_intdigest(settings, VERSION)


def link(digests: Iterable[bytes], *, seed: int) -> array[int]:
    """The chain of segment digests behind ``seed``; one value in 0..2**64-1 for each."""
    intdigest = xxhash.xxh3_64_intdigest
    values: list[int] = []
    append = values.append
    for digest in digests:
        seed = intdigest(digest, seed)
        append(seed)
    return array("Q", values)


def kept_apart(values: Iterable[int], settings: bytes) -> array[int]:
    """The values of a chain where ``settings`` keep its cache apart from those of equal prompts.

    Equal settings keep what two chains share; other ones, or none, share nothing.
    """
    mark = root(settings)
    return array("Q", [value ^ mark for value in values])


def ends(lengths_bytes: Iterable[int]) -> array[int]:
    """Bytes up to the end of each segment.

    Raises:
        OverflowError: the segments hold 4 GiB or more together.
    """
    return array("I", accumulate(lengths_bytes))


def scoped(chain: array[int], scope: int) -> array[int]:
    """A chain that equals no chain of another scope, and up to a link another one of its own."""
    if not scope or not chain:
        return chain
    mask = int.from_bytes(array("Q", (scope,)).tobytes() * len(chain), "little")
    links = int.from_bytes(chain.tobytes(), "little") ^ mask
    return array("Q", links.to_bytes(len(chain) * chain.itemsize, "little"))
