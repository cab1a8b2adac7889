"""What was rendered before, by the exact bytes it was sent as.

Two generations instead of a list in order of use: a lookup costs one dictionary access, and what
was not asked for during a whole generation is forgotten.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import xxhash

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec


class Turn(IntEnum):
    """What a message is to the rest of the conversation."""

    SYSTEM = 0
    USER = 1
    ANSWER = 2
    """An assistant message without tool calls: it ends a loop of tool calls."""
    CALLS = 3
    """An assistant message with tool calls."""
    OTHER = 4


ASSISTANT_TURNS: Final = (Turn.ANSWER, Turn.CALLS)


class RenderedPart(NamedTuple):
    """The segments of one message (or of the tools, or the system text), ready to be chained.

    ``bare`` is the same message without its reasoning, None where it has none. Items of
    ``/v1/responses`` that follow each other may be one message: ``phase`` is what keeps them apart,
    ``key`` stands for an item's exact bytes.
    """

    digests: tuple[bytes, ...]
    lengths_bytes: tuple[int, ...]
    turn: Turn = Turn.OTHER
    bare: RenderedPart | None = None
    phase: str = ""
    key: bytes = b""

    @property
    def weight(self) -> int:
        """Segments held, plus one for the entry itself."""
        return 1 + len(self.digests) + (0 if self.bare is None else self.bare.weight)


class PartMemo:
    """Remembers rendered parts; holds at most ``segments_max`` segments in all."""

    __slots__ = ("_generation_max", "_old", "_weight", "_young")

    def __init__(self, segments_max: int) -> None:
        self._generation_max = segments_max // 2
        self._young: dict[bytes, RenderedPart] = {}
        self._old: dict[bytes, RenderedPart] = {}
        self._weight = 0

    def __len__(self) -> int:
        return len(self._young) + sum(key not in self._young for key in self._old)

    def get(self, key: bytes) -> RenderedPart | None:
        """The part kept under ``key``, None if it is not known (any more)."""
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: bytes, entry: RenderedPart) -> None:
        """Keep a part; one that is larger than half of the memo is not kept."""
        weight = entry.weight
        if weight > self._generation_max:
            return
        if self._weight + weight > self._generation_max:
            self._old = self._young
            self._young = {}
            self._weight = 0
        if key not in self._young:
            self._weight += weight
        self._young[key] = entry

    def part(self, key: bytes, render: Callable[[], RenderedPart]) -> RenderedPart:
        """The part kept under ``key``, else rendered now and kept."""
        entry = self.get(key)
        if entry is None:
            entry = render()
            self.put(key, entry)
        return entry

    def parts(
        self, raws: list[msgspec.Raw], seed: int, render: Callable[[msgspec.Raw], RenderedPart]
    ) -> list[RenderedPart]:
        """The part of each value by its exact bytes; ``seed`` keeps kinds of values apart."""
        digest = xxhash.xxh3_128_digest
        young = self._young.get
        entries = []
        for raw in raws:
            key = digest(raw, seed)
            entry = young(key) or self.get(key)
            if entry is None:
                entry = render(raw)
                self.put(key, entry)
            entries.append(entry)
        return entries
