"""Which session a prompt without any key continues, told by its chain.

Two agents that send no key and share tools, system text and even their first message part later:
the deepest prompt seen before that a new prompt continues says whose turn it is.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hashing.chain import scoped

if TYPE_CHECKING:
    from array import array


@dataclass(slots=True)
class Tails:
    """The last chain value of each known session's newest prompts; the oldest are forgotten."""

    tails_max: int = 100_000
    _keys: OrderedDict[int, str] = field(default_factory=OrderedDict)

    def find(self, chain: array[int], head_segments: int, scope: int = 0) -> str | None:
        """The session whose newest prompt this one continues (or repeats), the deepest one.

        What sessions share, the first ``head_segments``, identifies nobody. Sessions of another
        ``scope`` are never found.
        """
        keys = self._keys
        if scope:
            chain = scoped(chain, scope)
        for index in range(len(chain) - 1, head_segments - 1, -1):
            key = keys.get(chain[index])
            if key is not None:
                return key
        return None

    def move(self, key: str, before: int, after: int, scope: int = 0) -> None:
        """A session's newest prompt now ends in ``after`` instead of ``before`` (0 for none)."""
        before, after = before ^ scope, after ^ scope
        if self._keys.get(before) == key:
            del self._keys[before]
        self._keys[after] = key
        self._keys.move_to_end(after)
        if len(self._keys) > self.tails_max:
            self._keys.popitem(last=False)
