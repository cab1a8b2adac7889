"""Invented text of a wanted size: words, lines of code, tool declarations. No recorded content.

Sizes are in tokens of four bytes, the usual rule for code and English.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

BYTES_PER_TOKEN: Final = 4
_N_LINES: Final = 1_500
_SYLLABLES: Final = [
    "ba",
    "co",
    "de",
    "fi",
    "gu",
    "ha",
    "jo",
    "ka",
    "le",
    "mi",
    "no",
    "pu",
    "ra",
    "se",
    "ti",
    "vo",
    "wa",
    "xe",
    "yo",
    "zu",
    "an",
    "el",
    "in",
    "or",
    "un",
]
_SHAPES: Final = (
    "    {a} = {b}.{c}({d}, {e}={n})",
    "    if {a} not in {b}.{c}: return {d}",
    "    for {a} in {b}({c}, {n}): {d}.append({e})",
    "def {a}_{b}({c}: int, {d}: str) -> {e}:",
    "# {a} {b} {c} {d}, see {e} {n}",
    "{n}: {a} {b} {c} {d} {e}",
    "    assert {a}.{b}[{n}] == {c}({d}), {e}",
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool declaration: its name, what it says of itself and its string parameters."""

    name: str
    description: str
    parameters: tuple[str, ...]

    def schema(self) -> dict[str, object]:
        """The parameters as JSON Schema."""
        properties = {name: {"type": "string", "description": name} for name in self.parameters}
        return {"type": "object", "properties": properties, "required": [self.parameters[0]]}


class Prose:
    """A pool of invented lines; texts are drawn from it, so that a long one costs little."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._words = ["".join(rng.choices(_SYLLABLES, k=rng.randint(1, 4))) for _ in range(400)]
        self._lines = [self._line() for _ in range(_N_LINES)]
        self._line_bytes = sum(map(len, self._lines)) / _N_LINES + 1.0

    def text(self, rng: random.Random, tokens: int) -> str:
        """About ``tokens`` tokens of lines, drawn with ``rng``."""
        size_bytes = max(1, tokens * BYTES_PER_TOKEN)
        n_lines = int(size_bytes / self._line_bytes) + 2
        return "\n".join(rng.choices(self._lines, k=n_lines))[:size_bytes]

    def words(self, rng: random.Random, n_words: int) -> str:
        """``n_words`` words in a row."""
        return " ".join(rng.choices(self._words, k=n_words))

    def tool(self, rng: random.Random, name: str, tokens: int) -> Tool:
        """A declaration of about ``tokens`` tokens."""
        parameters = ("path", *dict.fromkeys(rng.choices(self._words, k=3)))
        return Tool(name, self.text(rng, max(8, tokens - 60)), parameters)

    def _line(self) -> str:
        a, b, c, d, e = self._rng.choices(self._words, k=5)
        return self._rng.choice(_SHAPES).format(
            a=a, b=b, c=c, d=d, e=e, n=self._rng.randint(1, 9_999)
        )
