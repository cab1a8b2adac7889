"""The router's claim about prompts, in a form that can be held against what an engine renders.

Two chains are equal up to a boundary exactly when the engine's tokens are equal up to there. Places in
a prompt are bytes of its rendered text: a message ends with its closing marker, and a boundary inside
a message's last text lies as far before that marker as it does in the canonical form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

from hashing.segments import SEGMENT_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.dialect.base import PromptFacts

END: Final = b"<|im_end|>"
_DECLARED: Final = b"<|im_system|>tool_declare<|im_middle|>"
_CALLS_END: Final = b"<|tool_calls_section_end|>"
_TEXT_BEGINS: Final = re.compile(
    rb"<\|im_middle\|>(?:<think>.*</think>|## Return of [^\n]*\n)?", re.DOTALL
)
WORD_BYTES: Final = 48
"""More than a token: two texts that part inside a word part in tokens before that word."""


@dataclass(frozen=True)
class Prompt:
    """One body: what the router makes of it, and the text that an engine renders."""

    chain: tuple[int, ...]
    ends_bytes: tuple[int, ...]
    text: bytes

    @classmethod
    def of(cls, facts: PromptFacts, text: bytes) -> Prompt:
        """The chain of ``facts``, beside the text."""
        return cls(tuple(facts.chain), tuple(facts.ends_bytes), text)

    def places(self) -> list[int | None]:
        """Where each segment ends in the text; None inside a message that is not all text."""
        closed = [match.end() for match in re.finditer(re.escape(END), self.text)]
        messages = self._messages()
        if len(messages) == len(closed) + 1:  # an answer that is opened is not closed
            closed.append(len(self.text) + len(END))
        assert len(messages) == len(closed), f"{len(messages)} messages, {len(closed)} rendered"
        places: list[int | None] = []
        for begin, end, segments in zip([0, *closed], closed, messages, strict=False):
            text_at = self._text_at(begin, end - len(END))
            for segment in segments[:-1]:
                behind = self.ends_bytes[segments[-1]] - 1 - self.ends_bytes[segment]
                place = end - len(END) - behind
                places.append(None if text_at is None or place < text_at else place)
            places.append(min(end, len(self.text)))
        return places

    def _messages(self) -> list[list[int]]:
        """The segments of each message: all but the last of a message are full."""
        messages: list[list[int]] = [[]]
        for index, end in enumerate(self.ends_bytes):
            begin = self.ends_bytes[index - 1] if index else 0
            messages[-1].append(index)
            if end - begin < SEGMENT_BYTES_MAX:
                messages.append([])
        return [segments for segments in messages if segments]

    def _text_at(self, begin: int, end: int) -> int | None:
        """Where the last text of a rendered message begins, None if something else ends it."""
        message = self.text[begin:end]
        if message.startswith(_DECLARED) or message.endswith(_CALLS_END):
            return None
        found = _TEXT_BEGINS.search(message)
        return None if found is None else begin + found.end()


@dataclass(frozen=True)
class Comparison:
    """Two prompts, and how many bytes of their texts the engine's equal tokens cover."""

    name: str
    left: Prompt
    right: Prompt
    common_bytes: int
    is_stricter: bool = False
    """The chain tells them apart for templates that print more than this engine's."""

    @property
    def n_equal(self) -> int:
        """Leading segments that are equal."""
        n_equal = 0
        for one, other in zip(self.left.chain, self.right.chain, strict=False):
            if one != other:
                break
            n_equal += 1
        return n_equal

    def fault(self) -> str | None:
        """How the claim fails here, None if it holds."""
        n_equal = self.n_equal
        for side in (self.left, self.right):
            places = side.places()
            least = next((place for place in places[:n_equal][::-1] if place is not None), 0)
            slack = 0 if side.text[:least].endswith(END) else WORD_BYTES
            if self.common_bytes < least - slack:
                return (
                    f"{n_equal} segments equal, to byte {least}: tokens only to {self.common_bytes}"
                )
            most = next((place for place in places[n_equal:] if place is not None), None)
            if most is not None and self.common_bytes >= most and not self.is_stricter:
                return f"segment {n_equal} differs, to byte {most}: tokens equal to {self.common_bytes}"
        return None


def faults(comparisons: Sequence[Comparison]) -> list[str]:
    """Every way in which the claim fails."""
    found = [f"{each.name}: {fault}" for each in comparisons if (fault := each.fault())]
    return found + further_is_further(comparisons)


def further_is_further(comparisons: Sequence[Comparison]) -> list[str]:
    """Where, of two with one left side, tokens are equal for longer and chains are not."""
    found = []
    for one, other in combinations(comparisons, 2):
        if one.left is not other.left or one.is_stricter or other.is_stricter:
            continue
        less, more = sorted((one, other), key=lambda each: each.common_bytes)
        if less.common_bytes + WORD_BYTES < more.common_bytes and less.n_equal > more.n_equal:
            found.append(
                f"{less.name} is equal for {less.common_bytes} bytes and {less.n_equal} segments, "
                f"{more.name} for {more.common_bytes} and {more.n_equal}"
            )
    return found


def common_length(left: Sequence[object] | bytes, right: Sequence[object] | bytes) -> int:
    """How many leading items (or bytes) are equal."""
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length
